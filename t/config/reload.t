# What a reload keeps, and what it does not.

use v5.36;

use IO::Socket::INET;
use List::Util qw(max);
use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

# A configuration with a zone of these settings, beside one that never changes.
sub config(%change) {
    my %is = (key => '$arg_key', size => '1m', rate => 3, window => '10000s',
        more => '', %change);
    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%

    limit_sliding_zone $is{key} zone=one:$is{size} rate=$is{rate}
        window=$is{window};
    limit_sliding_zone \$arg_key zone=still:1m rate=1000 window=30d;

    add_header X-Limit     \$limit_sliding_limit     always;
    add_header X-Remaining \$limit_sliding_remaining always;

    server {
        listen 127.0.0.1:%%PORT%%;
        location /one   { limit_sliding zone=one;   empty_gif; }
        location /still { limit_sliding zone=still; empty_gif; }
    }
    $is{more}
}
CONF
}

# "status, remaining of limit" of a request for a key of both arguments
sub ask($key, $place = 'one') {
    my $r = $nginx->get("/$place?key=$key&other=$key");
    return "$r->{status}, " . header($r, 'X-Remaining') . ' of '
        . header($r, 'X-Limit');
}

# The other zone keeps its count whatever happens.
my $still = 1000;
sub still($name) {
    is ask('a', 'still'), '200, ' . --$still . ' of 1000',
        "$name: the other zone is as it was";
}

sub notices() {
    return $nginx->log_lines(qr/\[notice\].*"(?:one|still)"/);
}

$nginx->start(config());


# same settings

is ask('a'), '200, 2 of 3', 'first request';
is ask('a'), '200, 1 of 3', 'second request';
still('at first');

$nginx->reload(config());
is ask('a'), '200, 0 of 3', 'same settings: count kept';
$nginx->reload(config());
is ask('a'), '429, 0 of 3', 'same settings: count kept again';
still('same settings');


# a new rate

$nginx->reload(config(rate => 5));
is ask('a'), '200, 1 of 5', 'higher rate: at once, count kept';
$nginx->reload(config(rate => 2));
is ask('a'), '429, 0 of 2', 'lower rate: at once, count kept';
$nginx->reload(config());
is ask('a'), '429, 0 of 3', 'old rate again: count kept';
still('new rate');

is_deeply [notices()], [], 'no notice so far';


# anything else

for my $case (
    [ 'window', { window => '20000s' },
        qr/\b10000(000)?(m?s)?\b.*\b20000(000)?(m?s)?\b/ ],
    [ 'key', { key => '$arg_other' }, qr/\$arg_key\b.*\$arg_other\b/ ],
    [ 'size', { size => '2m' },
        qr/\b(1m|1024k|1048576)\b.*\b(2m|2048k|2097152)\b/i ],
) {
    my ($what, $change, $values) = @$case;

    ask('a') for 1 .. 3;
    is ask('a'), '429, 0 of 3', "$what: full before";

    my $before = notices();
    $nginx->reload(config(%$change));
    is ask('a'), '200, 2 of 3', "$what changed: starts afresh";

    my @notices = notices();
    is @notices - $before, 1, "$what changed: one notice";
    like $notices[-1], qr/"one"/, "$what changed: it names the zone";
    like $notices[-1], qr/$what/, '... and what changed';
    like $notices[-1], $values, '... from what to what';

    $before = @notices;
    $nginx->reload(config(%$change));
    is ask('a'), '200, 1 of 3', "$what kept: count kept";
    is scalar notices(), $before, "$what kept: no notice";

    $nginx->reload(config());
    is ask('a'), '200, 2 of 3', "$what changed back: starts afresh";
    still("$what changed");
}


# nginx -t beside a running NGINX

my $master = $nginx->master;
my @workers = sort $nginx->workers;

for my $case ([ 'same' ], [ 'rate', rate => 1 ], [ 'window', window => '1d' ],
    [ 'key', key => '$arg_other' ], [ 'size', size => '2m' ])
{
    my ($name, %change) = @$case;
    my ($exit, $output) = $nginx->test_config(%change ? config(%change) : ());
    is $exit, 0, "nginx -t, $name: right" or diag $output;
}

is ask('a'), '200, 1 of 3', 'nginx -t: count as before';
is_deeply [ sort $nginx->workers ], \@workers, 'nginx -t: workers as before';
still('nginx -t');


# A reload that fails. NGINX looks at zones before it opens its sockets, so a
# port that is taken comes too late for a zone that was changed in haste.

my $taken = IO::Socket::INET->new(Proto => 'tcp', Listen => 1,
    LocalAddr => '127.0.0.1') or die "listen: $@";
my $bad_port = 'server { listen 127.0.0.1:' . $taken->sockport . '; }';

for my $case (
    [ 'wrong word',            qr/unknown directive/, more => 'wrong;' ],
    [ 'wrong word, window',    qr/unknown directive/,
        more => 'wrong;', window => '20000s' ],
    [ 'port taken',            qr/still could not bind/, more => $bad_port ],
    [ 'port taken, rate',      qr/still could not bind/,
        more => $bad_port, rate => 1 ],
    [ 'port taken, window and key', qr/still could not bind/,
        more => $bad_port, window => '20000s', key => '$arg_other' ],
    [ 'port taken, size',      qr/still could not bind/,
        more => $bad_port, size => '2m' ],
) {
    my ($name, $error, %change) = @$case;
    my $key = $name =~ tr/a-z//cdr;

    is ask($key), '200, 2 of 3', "$name: before";

    my $before = $nginx->log_lines($error);
    $nginx->hup(config(%change));
    ok wait_for(sub { $nginx->log_lines($error) > $before }),
        "$name: reload failed";

    is ask($key), '200, 1 of 3', "$name: count as before";
    is_deeply [ sort $nginx->workers ], \@workers, "$name: workers as before";
}
still('failed reloads');

$nginx->reload(config());
is ask('porttakenwindowandkey'), '200, 0 of 3',
    'a good reload after those that failed: count kept';
is $nginx->master, $master, 'still the same master';


# There and back, again and again. What the master holds does not grow.

sub mappings() {
    open my $maps, '<', '/proc/' . $nginx->master . '/maps' or die "maps: $!";
    return scalar grep { m{/dev/zero} } <$maps>;
}

my $mappings = mappings();
cmp_ok $mappings, '>=', 2, 'the master maps its zones';

for my $turn (1 .. 6) {
    my %change = $turn % 2 ? (window => '20000s', rate => 4) : ();
    my $limit = $turn % 2 ? 4 : 3;

    $nginx->reload(config(%change));
    is ask('a'), '200, ' . ($limit - 1) . " of $limit",
        "turn $turn: starts afresh";
    ask('a') for 2 .. $limit;
    is ask('a'), "429, 0 of $limit", "turn $turn: limits";
    is mappings(), $mappings, "turn $turn: no zone is left behind";
}

my $used = 0;
for my $turn (1 .. 6) {
    my $limit = $turn % 2 ? 3 + $turn : 3;

    $nginx->reload(config(rate => $limit));
    my $passed = grep { ask('rate') =~ /^200/ } 1 .. 10;
    is $passed, max(0, $limit - $used), "turn $turn: rate $limit at once";
    is mappings(), $mappings, "turn $turn: no zone is left behind";
    $used += $passed;
}
still('turns');

$nginx->finish_one(allow => [
    qr/\[emerg\] .* unknown directive "wrong" in /,
    qr/\[emerg\] .* bind\(\) to .* failed/,
    qr/\[emerg\] .* still could not bind/,
]);


# Another server of Redis: what is known of the keys of the last one ends soon, be it that
# they are exhausted, or units that were leased.

my @redis = map { LimitSliding::Redis->new->start } 1 .. 2;

sub remote($server) {
    return $nginx->template(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server @{[ $server->server ]}; timeout 5s; connect_timeout 5s;
    }
    limit_sliding_zone \$arg_key zone=asked:1m rate=3 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=leased:1m rate=1000 window=30d redis=shared lease=10;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /asked  { limit_sliding zone=asked; empty_gif; }
    location /leased { limit_sliding zone=leased; empty_gif; }
SERVER
}

$nginx = LimitSliding::Test->new(worker_processes => 1);
$nginx->start(remote($redis[0]));
is $nginx->statuses(4, '/asked?key=a'), '200 200 200 429', 'a key is exhausted in Redis';
is join(' ', map { header($nginx->get('/leased?key=a'), 'X-Source') } 1 .. 2), 'redis lease',
    '... and another one has a lease';
$nginx->reload(remote($redis[1]));
sleep 2.5;
is $nginx->statuses(4, '/asked?key=a'), '200 200 200 429', 'another server: it decides';
is header($nginx->get('/leased?key=a'), 'X-Source'), 'redis', '... and leases';
$nginx->finish_one;


# The notice is seen at the level that logs have by default, "error", which
# shows no others; who asks for less gets less.

for my $case ([ '', 1 ], [ 'error', 1 ], [ 'warn', 1 ], [ 'notice', 1 ],
    [ 'info', 1 ], [ 'crit', 0 ], [ 'emerg', 0 ])
{
    my ($level, $lines) = @$case;
    my $name = $level || 'no level';

    $nginx = LimitSliding::Test->new;
    my $globals = $nginx->expand('%%GLOBALS%%');
    $globals =~ s/(error_log \S+) info;/$1 $level;/ or die 'no error_log';

    my @configs = map { config(%$_) =~ s/%%GLOBALS%%/$globals/r }
        {}, { window => '20000s' };

    $nginx->start($configs[0]);
    $nginx->reload($configs[1]);

    my $notice = qr/\[notice\] .* "one" starts empty: its window was /;
    is scalar $nginx->log_lines($notice), $lines, "$name: lines of notice";
    is scalar $nginx->log_lines(qr/\[notice\].*SIGHUP/),
        $level =~ /notice|info/ ? 1 : 0, "... NGINX's own as before";

    $nginx->reload($configs[1]);
    is scalar $nginx->log_lines($notice), $lines, '... once';
    $nginx->finish_one;
}


# Units that nobody waits for: an old worker stays until Redis has counted them

{
    my $redis = LimitSliding::Redis->new->start;
    my $fake = LimitSliding::FakeRedis->new($redis)->start;
    my $upstream = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1')
        // die "listen: $!";
    my $counting = LimitSliding::Test->new(worker_processes => 1)->serve(
        http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared {
        server @{[ $fake->server ]};
        timeout 5s; connect_timeout 5s;
    }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=late:1m rate=100 window=30d redis=shared;
HTTP
    location /limits { limit_sliding_api; }
    location /late {
        limit_sliding zone=late cost=0 count_status=404;
        proxy_pass http://127.0.0.1:@{[ $upstream->sockport ]};
    }
SERVER

    # Requests that were let in, and wait for the upstream.
    my @waiting = map {
        my $client = $counting->connect;
        syswrite $client, "GET /late?key=k HTTP/1.0\r\n\r\n";
        [ $client, $upstream->accept // die "accept: $!" ];
    } 1 .. 3;

    # One unit is on its way when Redis falls silent, and the others wait for its end.
    $fake->forget;
    $fake->mode('mute');
    for (@waiting) {
        my ($client, $server) = @$_;
        syswrite $server, "HTTP/1.0 404 Not Found\r\n\r\n";
        close $server;
        is $counting->read_response($client)->{status}, 404, 'counted at its end';
    }

    my @old = $counting->workers;
    $counting->hup;
    wait_for(sub { my @now = $counting->workers; @now == 1 && $now[0] != $old[0] });
    sleep 1;
    $fake->mode('pass');

    my $used = sub { api_key($counting, 'late', 'k')->{used} };
    wait_for(sub { $used->() == 3 });
    is $used->(), 3, '... in Redis, though the worker is to exit';
    ok wait_for(sub { $counting->children == 1 }), '... which it does then';
}


# Limits of single keys, blocks included, that a reload leaves behind

{
    my @redis = map { LimitSliding::Redis->new->start } 1 .. 2;
    my ($first, $second) = map { $_->server } @redis;
    my $node = LimitSliding::Test->new;
    my $config = sub (%is) {
        %is = (name => 'api', server => $first, words => '', redis => 'redis=shared', local => '',
            %is);
        return (http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared { server $is{server}; $is{words} }
    limit_sliding_zone \$arg_key zone=$is{name}:1m rate=9 window=1d $is{redis};
    limit_sliding_zone \$arg_key zone=local$is{local}:1m rate=9 window=1d;
HTTP
    location /api { limit_sliding zone=$is{name}; empty_gif; }
    location /local { limit_sliding zone=local$is{local}; empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
    };
    my @plain = $config->();
    my $behind = 'leaves its counts and limits of single keys behind in Redis: its';
    for my $case (
        [ 'the same', [], '' ],
        [ 'another timeout', [ words => 'timeout 70ms;' ], '' ],
        [ 'a prefix', [ words => 'key_prefix x:;' ],
            qq("api" $behind key_prefix was "limit_sliding:", now "x:") ],
        [ 'a format', [ words => 'key_format plain;' ],
            qq("api" $behind key_format was digest, now plain) ],
        [ 'a database', [ words => 'database 3;' ], qq("api" $behind database was 0, now 3) ],
        [ 'a server', [ server => $second ], qq("api" $behind server was "$first", now "$second") ],
        [ 'a zone', [ name => 'other' ],
            '"api" is gone, and with it the limits of single keys' ],
        [ 'a zone in memory', [ local => '2' ],
            '"local" is gone, and with it the limits of single keys' ],
        )
    {
        my ($name, $change, $notice) = @$case;
        $node->serve(@plain);
        api_key($node, $_, 'blocked', 'PUT', '&rate=0') for qw(api local);
        is $node->statuses(1, "/$_?key=blocked"), 429, "$name: a blocked key, $_" for qw(api local);
        $node->new_log_lines(qr/./);
        $node->reload($node->template($config->(@$change)));
        is join("\n", map { s/.*limit_sliding zone //sr }
            $node->new_log_lines(qr/\[notice\].*limit_sliding zone/)), $notice, '... a notice';
        sleep 1.1;             # a node remembers refusals
        is $node->statuses(1, "/$_?key=blocked"),
            $notice && $notice =~ /"$_"|^$/ ? 200 : 429, "... $_" for qw(api local);
    }

    # Limits of keys in memory, without a file
    $node->serve(@plain);
    api_key($node, 'local', 'blocked', 'PUT', '&rate=0');
    $node->reload($node->template(@plain) =~ s/local:1m rate=9 window=1d/local:1m rate=9 window=2d/r);
    like +($node->new_log_lines(qr/starts empty/))[0], qr/"local" starts empty, without its limits/,
        'a zone that starts empty loses them, and says so';
    is $node->statuses(1, '/local?key=blocked'), 200, '... which is so';
    $node->finish_one;
}

done_testing;
