# limit_sliding_redis and redis=, wrong and right, as `nginx -t` sees them. None
# of it needs a Redis, and none is connected to.

use v5.36;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Redis ();
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;
my $ssl = $nginx->has_ssl;

# NGINX would connect to this socket, which shall never have to accept.
my $listener = IO::Socket::INET->new(Listen => 8, LocalAddr => '127.0.0.1',
    LocalPort => 0) // die "listen: $!";
$listener->blocking(0);
my $SERVER = '127.0.0.1:' . $listener->sockport;

LimitSliding::Redis::certificates($nginx->dir);

sub file($name, $content, $mode) {
    $nginx->write_file($name, $content);
    chmod $mode, $nginx->dir . "/$name" or die "chmod: $!";
}

file('password', "secret word\n", 0600);
file('no-newline', 'secret', 0640);
file('open', "secret\n", 0644);
file('empty', '', 0600);
file('blank', "\n", 0600);
file('only-cr', "\r\n", 0600);
file('part.conf', "timeout 20ms;\n", 0644);
file('wrong.conf', "timeout never;\n", 0644);
file('not-pem', "nothing\n", 0600);
mkdir $nginx->dir . '/directory';

# Returns a configuration with these directives in http{}, and in the block
# `shared`.
sub config($http, $block = "server $SERVER;") {
    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_redis shared {
        $block
    }
    limit_sliding_zone \$uri zone=known:1m rate=1r/s redis=shared;
    $http
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=known; }
    }
}
CONF
}


if (!LimitSliding::Redis::supported()) {
    my ($exit, $output) = $nginx->test_config(config(''));
    isnt $exit, 0, 'without hiredis: a block fails';
    like $output, qr/\[emerg\].*"shared".*hiredis.*test\.conf:\d+$/m,
        '... for a reason';
    my $conf = config('') =~ s/limit_sliding_redis.*?\}//sr;
    ($exit, $output) = $nginx->test_config($conf);
    isnt $exit, 0, 'without hiredis: redis= fails';
    like $output, qr/\[emerg\].*"redis=shared".*hiredis.*test\.conf:\d+$/m,
        '... for a reason';
    $nginx->finish;
    exit;
}


my $server = "server $SERVER;";
my $ca = "ssl_trusted_certificate %%DIR%%/ca.pem;";
my $zone = 'limit_sliding_zone $uri';
my $sentinel = 'topology sentinel; sentinel_master m;';

# Returns the number of the line with the comment "# blamed".
sub blamed($text) {
    my ($before) = $text =~ /^(.*)# blamed/s;
    return 1 + $before =~ tr/\n//;
}

# Asserts that each of these configurations fails: [in the block or in http,
# directives, the word to be quoted, more of the message].
#
# NGINX shall blame the line of the last directive or that of its block's end,
# where the configuration is only then seen to be incomplete; except where the
# last item is 'no line', since its own words about certificates have none.
sub fails(@cases) {
    for (@cases) {
        my ($at, $directives, $word, $more, $no_line) = @$_;

        my ($exit, $output, $text) = $nginx->test_config($at eq 'block'
            ? config('', "$directives # blamed")
            : config("$directives # blamed"));
        my $line = blamed($text);
        my $next = $line + 1;
        my $quoted = $nginx->expand($word);

        my @emerg = grep { /\[emerg\]/ } split /\n/, $output;

        subtest "$at: $directives" => sub {
            isnt $exit, 0, 'fails';
            is @emerg, 1, 'with one line';
            like $emerg[0], qr/"(?:redis=)?\Q$quoted\E"/,
                'that quotes the word';
            like $emerg[0], qr{ in \S+/test\.conf:(?:$line|$next)$},
                'and names file and line' if !$no_line;
            like $emerg[0], $more, 'and more' if $more;
            unlike $output, qr/secret/, 'without a secret';
        } or diag $output;
    }
}

# Asserts that each of these configurations is right: [name, directives of the
# block, directives of http].
sub succeeds(@cases) {
    for (@cases) {
        my ($name, $block, $http) = @$_;
        my $start = now;
        my ($exit, $output) = $nginx->test_config(config($http // '', $block));

        subtest $name => sub {
            is $exit, 0, 'is right';
            unlike $output, qr/\[(?!notice)\w+\](?!.* no "limit_sliding" uses the zone)/,
                'without a warning, but for zones that no place uses';
            cmp_ok now() - $start, '<', 3, 'without waiting for anybody';
        } or diag $output;
    }
}


# parameters

fails(
    [ block => "$server foo bar;",             'foo' ],
    [ block => "$server foo;",                 'foo' ],
    [ block => "$server limit_sliding_zone a;", 'limit_sliding_zone' ],
    [ block => "$server timeout;",             'timeout' ],
    [ block => "$server timeout 1s 2s;",       'timeout' ],
    [ block => "$server location / { }",       '{' ],
    [ block => "timeout 50ms;",                'server',  qr/shared/ ],
    [ block => '',                             'server',  qr/shared/ ],
    (map { [ block => "$server $_", (split)[0] ] }
        'timeout 1s; timeout 1s;', 'connect_timeout 1s; connect_timeout 1s;',
        'on_error deny; on_error deny;', 'database 1; database 1;',
        'key_prefix a; key_prefix a;', 'key_format plain; key_format plain;',
        'topology standalone; topology standalone;', 'ssl off; ssl off;',
        'ssl_verify on; ssl_verify on;', 'ssl_name a; ssl_name a;',
        'password a; password a;', 'user a; user a;'),
);
succeeds(
    [ 'all parameters', <<"BLOCK" . ($ssl ? <<'TLS' : '') ],
        $server
        topology standalone;
        user limiter;
        password_file password;
        database 3;
        connect_timeout 100ms;
        timeout 50ms;
        on_error local;
        key_prefix "limits:";
        key_format digest;
BLOCK
        ssl on;
        ssl_name redis.test;
        ssl_trusted_certificate ca.pem;
        ssl_certificate client.pem;
        ssl_certificate_key client.key;
        ssl_verify on;
TLS
    [ 'in another order', "key_format plain; on_error deny; $server" ],
);


# addresses

fails(
    (map { [ block => "server $_;", $_ ] } '127.0.0.1:0', '127.0.0.1:65536',
        '127.0.0.1:abc', '127.0.0.1:', ':6379', 'unix:', '[::1'),
    [ block => 'server "";', '' ],
    [ block => 'server;', 'server' ],
);
fails(
    [ block => 'server rediss://redis.test:6380;', 'server redis.test:6380', qr/ and "ssl on" in / ],
    [ block => 'server redis://redis.test/0;', 'server redis.test', qr/"server redis.test" in / ],
    [ block => 'server valkeys://limiter:secret@redis.test:6380/0;', 'server redis.test:6380',
        qr/without scheme and credentials.* and "ssl on" in / ],
    [ block => 'server redis://:se@secret@redis.test;', 'server redis.test' ],
    [ block => 'server limiter:secret@[::1]:6379;', 'server [::1]:6379',
        qr/without scheme and credentials/ ],
);
succeeds(
    [ 'an @ in the path of a socket', 'server unix:%%DIR%%/a@b.sock;' ],
    [ 'a server', $server ],
    [ 'the default port', 'server 127.0.0.1;' ],
    [ 'IPv6', 'server [::1]:6379;' ],
    [ 'a unix socket', 'server unix:%%DIR%%/redis.sock;' ],
    [ 'a name of /etc/hosts', 'server localhost:6379;' ],
    [ 'a name, and a resolver that is not there', 'server redis.test:6379;',
        'resolver 127.0.0.1:1;' ],
);


# times, numbers, words

fails(
    (map { [ block => "$server timeout $_;", $_, qr/timeout/ ],
           [ block => "$server connect_timeout $_;", $_, qr/connect_timeout/ ] }
        qw(0 -1s abc 1.5s 10x 99999999999999999999s)),
    (map { [ block => "$server database $_;", $_, qr/database/ ] }
        qw(-1 abc 1.5 2147483648 99999999999999999999)),
    [ block => "$server on_error fail;",       'fail',    qr/local/ ],
    [ block => "$server on_error Local;",      'Local' ],
    [ block => "$server key_format md5;",      'md5',     qr/digest/ ],
    [ block => "$server ssl maybe;",           'maybe' ],
    [ block => "$server ssl_verify yes;",      'yes' ],
    map({ [ block => "$server password a; $_", (/(\w+)/)[0],
            qr/ in limit_sliding_redis "shared" needs "ssl on"/ ] }
        'ssl_name redis.test;', $ca, 'ssl_certificate client.pem; ssl_certificate_key client.key;',
        'ssl_verify off;', 'ssl_verify on;'),
);
succeeds(
    [ 'times', "$server timeout 1s; connect_timeout 500ms;" ],
    (map { [ "on_error $_", "$server on_error $_;" ] } qw(local allow deny)),
    [ 'braces in a prefix', "$server key_prefix 'a{b}';" ],
    [ 'an empty prefix', "$server key_prefix '';" ],
);


# Long times, and times that are in seconds by mistake, have a warning.

for (['timeout 50', qr/"timeout 50" is 50 seconds, did you mean "50ms"\?/],
    ['connect_timeout 2',
        qr/"connect_timeout 2" is 2 seconds, did you mean "2ms"\?/],
    ['timeout 1001ms', qr/"timeout 1001ms" is 1001 milliseconds, .* Redis/],
    ['connect_timeout 1m',
        qr/"connect_timeout 1m" is 60000 milliseconds, .* Redis/])
{
    my ($directive, $words) = @$_;
    my ($exit, $output, $text) = $nginx->test_config(config('',
        "$server $directive; # blamed"));
    my $line = blamed($text);
    my @warn = grep { /\[warn\](?!.* no "limit_sliding" uses)/ } split /\n/, $output;
    is $exit, 0, "$directive: is right";
    is @warn, 1, '... with one warning';
    like $warn[0] // '', qr{$words in \S+/test\.conf:$line$}, '... in its line';
}


# topologies

fails(
    [ block => "$server topology ring;",       'ring',    qr/standalone/ ],
    [ block => "$server topology sentinel;",   'sentinel_master' ],
    [ block => "$server sentinel_master m;",   'sentinel_master',
        qr/needs "topology sentinel"/ ],
    [ block => "$server sentinel_user a; sentinel_password a;",
        'sentinel_user', qr/needs "topology sentinel"/ ],
    [ block => "$server sentinel_password a;", 'sentinel_password',
        qr/needs "topology sentinel"/ ],
    [ block => "$server sentinel_password_file password;",
        'sentinel_password', qr/needs "topology sentinel"/ ],
    [ block => "$server server 127.0.0.2;",    'shared',
        qr/several servers, which needs "topology sentinel"/ ],
    [ block => "$server topology cluster; database 1;", 'database',
        qr/must be 0 with "topology cluster"/ ],
    [ block => "$server topology cluster; sentinel_master m;",
        'sentinel_master' ],
    [ block => "$server topology cluster; key_prefix 'a{b}';", 'a{b}',
        qr/must have no "\{" with "topology cluster"/ ],
);
succeeds(
    [ 'a cluster', "$server server 127.0.0.2; topology cluster;" ],
    [ 'sentinels', "$server server 127.0.0.2; $sentinel" ],
);


# requests in flight

my $flight = "$zone zone=one:1m inflight=5 redis=shared";
succeeds(
    map({ [ "in flight: $_", $server, "$flight $_;" ] } '', 'on_error=deny', 'full=deny top=off'),
    [ 'in flight: sentinels', "$server server 127.0.0.2; $sentinel", "$flight;" ],
);
fails(
    map({ [ http => "$flight $_;", $_, qr/cannot be with "inflight="/ ] }
        qw(lease=auto sync=100ms penalty=1m rate=1r/s)),
    [ http => "$flight limits=file;", 'limits=file', qr/cannot be with "redis="/ ],
);
{
    my ($exit, $output) = $nginx->test_config(
        config("$flight;", "$server topology cluster;"));
    isnt $exit, 0, 'in flight: a cluster fails';
    like $output, qr/\[emerg\].* zone "one" of "inflight=" cannot be in .* "topology cluster" in/,
        '... for a reason';
}


# limits

my $MOST = 10**15;

fails(
    (map { [ http => "$zone zone=one:1m rate=${\($MOST + 1)} window=30d"
        . " redis=shared algorithm=$_;", "rate=${\($MOST + 1)}",
        qr/\b1000000000000001\b.*\b1000000000000000\b/ ] }
        qw(counter fixed token_bucket leaky_bucket)),
    [ http => "$zone zone=one:1m rate=4194303 window=30d redis=shared"
        . ' algorithm=log;', 'rate=4194303', qr/\b4194303\b.*\b4194302\b/ ],
);
succeeds(
    (map { [ "a limit of 10^15, algorithm=$_", $server,
        "$zone rate=$MOST window=30d algorithm=$_ redis=shared zone=one:1m;" ] }
        qw(counter fixed token_bucket leaky_bucket)),
);


# algorithms and leases

fails(
    [ http => "$zone zone=one:1m rate=1r/s redis=other;", 'other', qr/redis "other" in / ],
    (map { my $block = 'limit_sliding_redis NAME { server ' . s{^redis://}{}r . '; }';
        [ http => "$zone zone=one:1m rate=1r/s redis=$_;", $_, qr/a name, as "\Q$block\E"/ ] }
        qw(127.0.0.1:6379 redis.internal:6379 redis.internal unix:/run/redis.sock [::1]:6379
            redis://10.0.0.1:6379)),
    (map { [ http => "$zone zone=one:1m rate=1r/s redis=shared lease=$_;",
        "lease=$_", qr/must be "off", "auto" or a number/ ] }
        qw(0 -1 abc 1.5 on 4194303 99999999999999999999)),
    [ http => "$zone zone=one:1m rate=1r/s redis=shared lease=;", 'lease=' ],
    [ http => "$zone zone=one:1m rate=1r/s lease=auto;", 'lease=auto',
        qr/needs the "redis=" parameter/ ],
    (map { [ http => "$zone zone=one:1m rate=1r/s redis=shared algorithm=$_"
        . ' lease=10;', 'lease=10', qr/belongs to "algorithm=counter"/ ] }
        qw(log leaky_bucket)),
    (map { [ http => "$zone zone=one:1m rate=1r/s redis=shared $_;",
        'lease=auto', qr/cannot be with "count_rejected"/ ] }
        'count_rejected lease=auto', 'lease=auto count_rejected'),
    [ http => "$zone zone=one:1m rate=1r/s redis=shared lease=1 lease=1;",
        'lease=1' ],
);
succeeds(
    (map { [ "redis= with algorithm=$_", $server,
        "$zone zone=one:1m rate=10r/s algorithm=$_ redis=shared;" ] }
        qw(counter log fixed token_bucket leaky_bucket)),
    [ 'redis= with precision', $server,
        "$zone zone=one:1m rate=10r/s precision=10 redis=shared;" ],
    [ 'redis= with a variable rate', $server,
        "$zone zone=one:1m rate=\$arg_rate window=1m redis=shared;" ],
    (map { [ "the largest limit of $_", $server, "$zone zone=one:1m "
        . "rate=1000000000000000 window=1h algorithm=$_ redis=shared;" ] }
        'counter', 'counter precision=60', 'fixed', 'token_bucket'),
    (map { [ "lease=$_", $server,
        "$zone zone=one:1m rate=10r/s redis=shared lease=$_;" ] }
        qw(off auto 1 4194302)),
    [ 'lease=off anywhere', $server,
        "$zone zone=one:1m rate=10r/s algorithm=log lease=off;" ],
    [ 'lease= of a token bucket', $server, "$zone zone=one:1m rate=10r/s"
        . ' redis=shared algorithm=token_bucket lease=auto;' ],
);


# on_error of a zone

fails(
    (map { [ http => "$zone zone=one:1m rate=1r/s redis=shared on_error=$_;",
        "on_error=$_", qr/it must be "local", "allow" or "deny"/ ] }
        qw(fail Local off 1)),
    [ http => "$zone zone=one:1m rate=1r/s redis=shared on_error=;", 'on_error=' ],
    [ http => "$zone zone=one:1m rate=1r/s on_error=deny;", 'on_error=deny',
        qr/needs the "redis=" parameter/ ],
    [ http => "$zone zone=one:1m rate=1r/s on_error=fail;", 'on_error=fail',
        qr/needs the "redis=" parameter/ ],
    [ http => "$zone zone=one:1m rate=1r/s redis=shared on_error=deny on_error=deny;",
        'on_error=deny' ],
    map({ [ http => "$zone zone=one:1m rate=1r/s redis=shared sync=1s on_error=$_;",
        "on_error=$_", qr/zone "one" of "sync=" .* it needs "on_error=local" in/ ] } qw(allow deny)),
    [ block => "$server on_error deny; } $zone zone=one:1m rate=1r/s redis=shared sync=1s;"
        . " limit_sliding_redis other { $server", 'on_error=deny', qr/zone "one" of "sync="/ ],
);
succeeds(
    (map { [ "on_error=$_", $server,
        "$zone zone=one:1m rate=10r/s on_error=$_ redis=shared;" ] }
        qw(local allow deny)),
    [ 'sync= beside on_error of the block', "$server on_error deny;",
        "$zone zone=one:1m rate=1r/s sync=1s on_error=local redis=shared;" ],
    [ 'words of TLS that is off', "$server ssl off; $ca" ],
);


# files that are included

fails(
    [ block => "$server timeout 1s; include %%DIR%%/part.conf;", 'timeout',
        qr{duplicate .*/part\.conf:1$}, 1 ],
    [ block => "$server include %%DIR%%/wrong.conf;", 'never', qr{/wrong\.conf:1$}, 1 ],
    [ block => "$server include;", 'include' ],
);
succeeds(
    [ 'a part of a block', "$server include %%DIR%%/part.conf; connect_timeout 1s;" ],
);


# passwords

fails(
    [ block => "$server password_file %%DIR%%/nope;", '%%DIR%%/nope' ],
    [ block => "$server password_file directory;", '%%DIR%%/directory' ],
    [ block => "$server password_file empty;", '%%DIR%%/empty' ],
    [ block => "$server password_file blank;", '%%DIR%%/blank' ],
    [ block => "$server password_file only-cr;", '%%DIR%%/only-cr' ],
    [ block => "$server password a; password_file password;",
        'password_file' ],
    [ block => "$server password_file password; password a;", 'password' ],
    [ block => "$server user limiter;",        'password' ],

    # a value that is written wrong is not logged
    (map { [ block => "$server $_", (/([a-z_]+)/)[0] ] } 'password=secret;', 'pasword=secret;',
        'password = secret;', 'password= secret;', 'password 1 secret;', 'pass=secret;',
        "$sentinel sentinel_password=secret;" =~ s/.*; //r),
    [ block => "$server $sentinel sentinel_user limiter;",
        'sentinel_password', qr/has no/ ],
    (map { [ block => "$server $sentinel $_", (split)[0] ] }
        'sentinel_user a; sentinel_user a;',
        'sentinel_password a; sentinel_password a;'),
    [ block => "$server $sentinel sentinel_password a;"
        . ' sentinel_password_file password;', 'sentinel_password_file' ],
    [ block => "$server $sentinel sentinel_password_file password;"
        . ' sentinel_password a;', 'sentinel_password' ],
    (map { [ block => "$server $sentinel sentinel_password_file $_;",
        "%%DIR%%/$_" ] } qw(nope directory empty blank)),
);
succeeds(
    [ 'a password', "$server password 'secret';" ],
    [ 'a password file without a newline',
        "$server password_file no-newline;" ],
    [ 'sentinels with a password',
        "$server $sentinel sentinel_password 'secret';" ],
    [ 'sentinels with a user and a password file',
        "$server $sentinel sentinel_user limiter;"
        . ' sentinel_password_file password;' ],
);


# A file that others can read has a warning.

for my $file ('password_file open;',
    "$sentinel sentinel_password_file open;") {
    my ($exit, $output) = $nginx->test_config(config('', "$server $file"));
    is $exit, 0, "$file that all can read";
    like $output, qr{\[warn\].*"\S*/open"}, '... has a warning';
    unlike $output, qr/secret/, '... without the secret';
}


# TLS

fails($ssl ? (
    [ block => "$server ssl on;", 'ssl_trusted_certificate' ],
    [ block => "$server ssl on; ssl_verify on;", 'ssl_trusted_certificate' ],
    [ block => "$server ssl on; ssl_trusted_certificate %%DIR%%/nope.pem;",
        '%%DIR%%/nope.pem', undef, 'no line' ],
    [ block => "$server ssl on; ssl_trusted_certificate not-pem;",
        '%%DIR%%/not-pem', undef, 'no line' ],
    [ block => "$server ssl on; $ca ssl_certificate client.pem;",
        'ssl_certificate_key' ],
    [ block => "$server ssl on; $ca ssl_certificate_key client.key;",
        'ssl_certificate' ],
    [ block => "$server ssl on; $ca ssl_certificate nope.pem;"
        . ' ssl_certificate_key client.key;', '%%DIR%%/nope.pem', undef,
        'no line' ],
) : [ block => "$server ssl on; ssl_verify off;", 'ssl on' ]);
succeeds(
    $ssl ? [ 'TLS, not verified', "$server ssl on; ssl_verify off;" ] : (),
    [ 'TLS, prepared and off', "$server ssl off; $ca" ],
);


# names

fails(
    [ http => "limit_sliding_redis shared { $server }", 'shared' ],
    [ http => "limit_sliding_redis { $server }", 'limit_sliding_redis' ],
    [ http => "limit_sliding_redis a b { $server }", 'limit_sliding_redis' ],
    [ http => 'limit_sliding_redis other;', 'limit_sliding_redis' ],
    [ http => "server { limit_sliding_redis other { $server } }",
        'limit_sliding_redis' ],
    [ http => "$zone zone=one:1m rate=1r/s redis=nope;", 'nope' ],
    [ http => "$zone zone=one:1m rate=1r/s redis=share;", 'share' ],
    [ http => "$zone zone=one:1m rate=1r/s redis=;", 'redis=' ],
    [ http => "$zone zone=one:1m rate=1r/s redis=shared redis=shared;",
        'redis=shared' ],
    [ http => "$zone zone=known:1m rate=1r/s;", 'known' ],
    [ http => "$zone zone=known:1m rate=1r/s redis=shared;", 'known' ],
);
succeeds(
    [ 'limits of two blocks at one place', $server,
        "limit_sliding_redis other { $server }"
        . "$zone zone=one:1m rate=1r/s redis=other;\n"
        . 'server { listen 127.0.0.1:%%PORT1%%;'
        . ' limit_sliding zone=one; limit_sliding zone=known; }' ],
    [ 'a second block', $server, "limit_sliding_redis other { $server }"
        . "$zone zone=one:1m rate=1r/s redis=other;" ],
    [ 'a block that no zone names', $server,
        "limit_sliding_redis other { $server }" ],
    [ 'a block after its zone', $server,
        "$zone zone=one:1m rate=1r/s redis=late;"
        . "limit_sliding_redis late { $server }" ],
);


# No configuration above made NGINX connect to Redis.

ok !$listener->accept, 'no test of a configuration has connected';

$nginx->finish;
