# Sentinels with passwords and TLS of their own: `sentinel_user`,
# `sentinel_password`, `sentinel_password_file` and `ssl`.

use v5.36;

use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Docs qw(content);
use LimitSliding::Redis;
use LimitSliding::Test;

my $master = LimitSliding::Redis->new->start;

my ($rules) = content('docs/redis.md')
    =~ /ACL SETUSER (finder on >\S+ [^`]*?)\n\n/;
ok $rules, 'the documentation says what a user of sentinels needs'
    or $rules = 'finder on >password allcommands';
$rules =~ s/>\S+/>user-word/;
$rules =~ s/\s+/ /g;

my %with_password = (password => 'sentinel-word',
    config => { requirepass => 'sentinel-word' });
my @guarded = map { $master->sentinel(%with_password) } 1, 2;
my $acl = $master->sentinel(
    password => 'sentinel-word',
    config => { requirepass => 'sentinel-word', user => $rules });
my $open = $master->sentinel;

# A master with a password, by a sentinel with another one; and one that has the
# password of its sentinel.
my %masters = map {
    ($_ => LimitSliding::Redis->new(password => $_,
        config => { requirepass => $_ })->start)
} qw(master-word sentinel-word);
my %sentinels = map {
    ($_ => $masters{$_}->sentinel(%with_password, monitor => [ "auth-pass mymaster $_" ]))
} keys %masters;

my $dir = tempdir(CLEANUP => 1);
open my $file, '>', "$dir/password" or die "$dir/password: $!";
print $file "sentinel-word\n";
close $file;
chmod 0600, "$dir/password";

my $both = join '; server ', map { $_->server } @guarded;

# name => [ servers, directives, what the log says if Redis does not decide,
# whether the master is the reason ]
my %blocks = (
    password => [ $both, 'sentinel_password sentinel-word;' ],
    file     => [ $both, "sentinel_password_file $dir/password;" ],
    user     => [ $acl->server,
        'sentinel_user finder; sentinel_password user-word;' ],
    default  => [ $acl->server,
        'sentinel_user default; sentinel_password sentinel-word;' ],
    open     => [ $open->server, '' ],
    mixed    => [ $open->server . '; server ' . $guarded[0]->server, '' ],
    missing  => [ $both, '', qr/NOAUTH/ ],
    wrong    => [ $both, 'sentinel_password other-word;', qr/WRONGPASS/ ],
    no_user  => [ $acl->server,
        'sentinel_user nobody; sentinel_password user-word;', qr/WRONGPASS/ ],
    needless => [ $open->server, 'sentinel_password sentinel-word;',
        qr/without any password configured/ ],

    # sentinels and masters are not sent the passwords of each other
    both     => [ $sentinels{'master-word'}->server,
        'password master-word; sentinel_password sentinel-word;' ],
    same     => [ $sentinels{'sentinel-word'}->server,
        'password sentinel-word; sentinel_password sentinel-word;' ],
    masters  => [ $sentinels{'sentinel-word'}->server,
        'password sentinel-word;', qr/NOAUTH/ ],
    sentinel => [ $sentinels{'sentinel-word'}->server,
        'sentinel_password sentinel-word;', qr/NOAUTH|unauthenticated/,
        'master' ],
);

sub config($blocks) {
    my (@zones, @locations);
    for my $name (sort keys %$blocks) {
        my ($server, $directives) = @{ $blocks->{$name} };
        push @zones, <<"ZONE";
    limit_sliding_redis $name {
        topology sentinel;
        sentinel_master mymaster;
        server $server;
        $directives
        timeout 1s;
        connect_timeout 1s;
    }
    limit_sliding_zone \$arg_key zone=$name:1m rate=3 window=30d redis=$name;
ZONE
        push @locations,
            "location /$name { limit_sliding zone=$name; empty_gif; }";
    }
    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    @zones
    add_header X-Source \$limit_sliding_source always;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        @locations
        location /limits { limit_sliding_api; }
    }
}
CONF
}

# Several requests to each block: who decides them?
sub check($nginx, $blocks) {
    for my $name (sort keys %$blocks) {
        my $log = $blocks->{$name}[2];
        my $start = now;
        my %sources;
        for (1 .. 4) {
            my $r = $nginx->get("/$name?key=a");
            $sources{ header($r, 'X-Source') }++;
        }
        my $seconds = now() - $start;
        delete $sources{cache} if !$log;
        is join(' ', sort keys %sources), $log ? 'fallback' : 'redis',
            "$name: " . ($log ? 'policy' : 'Redis decides');

        my @lines = $nginx->log_lines(qr/redis "$name"/);
        if (!$log) {
            is "@lines", '', '... and there is nothing to tell';
            next;
        }
        my $who = $blocks->{$name}[3] ? ': (?!.*: sentinel )'
            : 'sentinel 127\.0\.0\.1:\d+: ';
        my @why = grep { /redis "$name": .*$log/ && /$who/ } @lines;
        cmp_ok scalar(@why), '>=', 1, '... and the log tells why';
        cmp_ok scalar(@why), '<=', 2 * (1 + $seconds), '... in few words';
        like $why[0] // '', qr/\[error\]/, '... as an error';
    }
    unlike $nginx->log, qr/-word/, 'no password in the log';
    my $told = join '', map { $nginx->get("/limits$_")->{body} } '', '/metrics';
    like $told, qr/$_/, "the API tells of $_" for sort keys %$blocks;
    unlike $told, qr/-word/, '... but no password';
}

my $nginx = LimitSliding::Test->new->start(config(\%blocks));
check($nginx, \%blocks);

is_deeply [ $guarded[0]->ask('ACL', 'WHOAMI') ], [ 'default' ],
    'sentinels want a password indeed';
$nginx->finish_one;


# A password that is wrong at one sentinel only: the next one is asked.

my $other = $master->sentinel(password => 'other-word',
    config => { requirepass => 'other-word' });
my %next = (next => [ join('; server ', map { $_->server } $other, $acl),
    'sentinel_password sentinel-word;' ]);
$nginx = LimitSliding::Test->new->start(config(\%next));
is header($nginx->get('/next?key=next'), 'X-Source'), 'redis',
    'another sentinel is asked' for 1 .. 3;
$nginx->finish_one;


# TLS: sentinels speak it, and so does the master.

SKIP: {
    skip 'NGINX has no TLS', 8 if !LimitSliding::Test->has_ssl;

    my $tls = LimitSliding::Redis::certificates($dir);
    my $secure = LimitSliding::Redis->new(tls => $tls,
        config => { 'tls-replication' => 'yes' })->start;
    my $sentinel = $secure->sentinel(tls => $tls,
        password => 'sentinel-word', config => {
            requirepass => 'sentinel-word', 'tls-replication' => 'yes' });

    my $server = '127.0.0.1:' . $sentinel->tls_port;
    my $word = 'sentinel_password sentinel-word; ssl on;';
    my %secured = (
        tls    => [ $server, "$word ssl_name redis.test;"
            . " ssl_trusted_certificate $tls->{ca};" ],
    );
    $nginx = LimitSliding::Test->new->start(config({ %secured,
        untrusted => [ $server, "$word ssl_name redis.test;"
            . " ssl_trusted_certificate $tls->{other};" ],
        plain     => [ $sentinel->server, "$word ssl_verify off;" ],
    }));
    check($nginx, \%secured);
    for my $name (qw(untrusted plain)) {
        is header($nginx->get("/$name?key=a"), 'X-Source'), 'fallback',
            "TLS: $name: policy";
    }
    $nginx->finish_one;
}

done_testing;
