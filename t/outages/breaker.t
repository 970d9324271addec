# What the breaker counts: each failure once, and each attempt to connect, also of a
# node to which no requests come any more.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my $FAILURES = 5;         # in a row open it

my $redis = LimitSliding::Redis->new(config => { requirepass => 'word' })->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

my $nginx = LimitSliding::Test->new(worker_processes => 1);

# Starts an NGINX whose Redis has these directives.
sub serve($directives) {
    $nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        $directives
        timeout 200ms; connect_timeout 200ms; on_error allow;
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=100 window=30d redis=shared;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /limits { limit_sliding_api; }
    location /one    { limit_sliding zone=one; empty_gif; }
SERVER
}

sub report() { return api($nginx)->{redis}{shared} }

my $n;
sub source() { return header($nginx->get('/one?key=' . ++$n), 'X-Source') }

# Lets Redis decide again, and returns what is reported then.
sub healthy() {
    $fake->mode('pass');
    ok wait_for(sub { source() eq 'redis' }), 'Redis decides';
    $fake->forget;
    return report();
}

# Sends requests until the breaker has opened.
sub opens($opened_before) {
    return wait_for(sub { source(); report()->{breaker_opened} > $opened_before });
}


serve("server @{[ $fake->server ]}; password word;");
my $before = healthy();
$fake->mode('say', "-READONLY You can't write against a read only replica.\\r\\n");
ok opens($before->{breaker_opened}), 'a replica: the breaker opens';
is $fake->stats->{commands}{EVALSHA}, $FAILURES, '... each refusal counts once';

$before = healthy();
$fake->mode('mute');
$fake->reset;
ok opens($before->{breaker_opened}), 'attempts to connect that hang: the breaker opens';
is $fake->stats->{accepted}, $FAILURES, '... each attempt counts once';

# A few requests of one moment, and none after these
$before = healthy();
$fake->mode('refuse');
$fake->reset;
is source(), 'fallback', 'Redis is gone' for 1 .. 3;
cmp_ok report()->{failed_calls}, '>', $before->{failed_calls},
    '... and failed attempts are calls that failed';
ok wait_for(sub { report()->{breaker} eq 'open' }),
    '... the breaker opens, though no more requests come';
$fake->mode('pass');
ok wait_for(sub { report()->{breaker} eq 'closed' }), '... and closes when Redis is back';
is source(), 'redis', '... which decides the next request';

# The same in a cluster
my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0)->start;
my ($master) = $cluster->alive;
serve("topology cluster; server @{[ $master->server ]};");
ok wait_for(sub { source() eq 'redis' }), 'a cluster decides';
$master->kill9;
is source(), 'fallback', '... it is gone' for 1 .. 2;
ok wait_for(sub { report()->{breaker} eq 'open' }),
    '... the breaker opens, though no more requests come';
$master->start;
ok wait_for(sub { report()->{breaker} eq 'closed' }), '... and closes when it is back';
ok wait_for(sub { source() eq 'redis' }), '... and decides again';

$nginx->finish;
