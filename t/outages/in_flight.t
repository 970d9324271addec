# Requests in flight while Redis refuses heartbeats or is away, and after a moment
# without it.

use v5.36;

use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $ROUNDS = 5;
my $FAST = 'timeout 100ms; connect_timeout 100ms;';

my $redis = LimitSliding::Redis->new->start;


# a Redis without memory, as soon as NGINX has started

$redis->command(qw(CONFIG SET maxmemory 1));
my $fleet = LimitSliding::InFlight->new($redis, nodes => 1, unready => 1, settings => $FAST);
my $node = $fleet->node(0);
ok wait_for(sub {
    $node->get('/quick?key=a');
    api($node)->{redis}{shared}{breaker} eq 'open';
}, 10), 'errors of heartbeats open the circuit breaker';
$redis->command(qw(CONFIG SET maxmemory 0));
$fleet->wait_ready;
pass '... until Redis takes them';
$fleet->finish;


# A Redis that has not heard of any worker grants nothing for the time of a heartbeat after the
# workers have started.

$redis->stop;
$redis->start;
$fleet = LimitSliding::InFlight->new($redis, unready => 1, zone => 'inflight=10 on_error=deny');
sleep 1.6;
is $fleet->hold('first', 10), 0, 'the first requests of a Redis: none is rejected';
my $metrics = $fleet->node(0)->get('/limits/metrics')->{body};
like $metrics, qr/^limit_sliding_decisions_total\{zone="held",source="fallback"\} 0$/m,
    '... nor decided by on_error';
$fleet->finish;


# A Redis that has just started answers, but grants nothing before.

$redis->stop;
$redis->start;
$fleet = LimitSliding::InFlight->new($redis, nodes => 1, unready => 1,
    zone => 'inflight=10 on_error=deny',
    server_conf => 'location /logged { limit_sliding zone=held; limit_sliding_log_level error; }');
$node = $fleet->node(0);
my $WAITS = 'waits for the units of other nodes';
is $node->get('/logged?key=fresh')->{status}, 429, 'a Redis that has just started: on_error';
is_deeply [ map { s/.*(denying request.*?), client.*/$1/r } $node->new_log_lines(qr/denying/) ],
    [ qq(denying request, redis "shared" of zone "held" $WAITS) ], '... and the log has the reason';
my $json = api_key($node, 'held', 'fresh', 'PUT', '&inflight=5');
is "$json->{http} $json->{error}", "503 redis $WAITS", '... as well as the API';
$fleet->wait_ready;
is api_key($node, 'held', 'fresh', 'PUT', '&inflight=5')->{http}, 200, '... until it decides';
$fleet->finish;


# Workers whose requests run, and that get no others: their heartbeats continue
# when the circuit breaker closes, because Redis declares them dead soon.

my $fake = LimitSliding::FakeRedis->new($redis)->start;
$fleet = LimitSliding::InFlight->new($redis, nodes => 1, server => $fake->server,
    settings => $FAST, server_conf => 'location /rate { limit_sliding zone=rate; empty_gif; }',
    http => 'limit_sliding_zone $arg_key zone=rate:1m rate=1000r/s redis=shared;');
$node = $fleet->node(0);
is $fleet->hold('a', 10), 0, 'requests run';
is $fleet->settled('a'), 10, '... in workers that Redis knows';
my @ids = ($redis->ask('GET', $fleet->name_of('a') . ':inflight') =~ /([0-9a-f]{16}):/g);

# Returns the seconds from the first decision after an outage to the heartbeats, to the ms.
sub outage($key) {
    my $source = sub { header($node->get("/rate?key=$key"), 'X-Source') };
    my $until = now() + 0.7;
    $fake->mode('lost');
    while (now() < $until) {
        $source->();
        sleep 0.005;
    }
    $fake->mode('pass');
    wait_for(sub { $source->() eq 'redis' }) or die "Redis does not decide\n";

    my $start = now;
    wait_for(sub {
        !grep { $redis->ask('PTTL', "limit_sliding:holder:$_") < 2500 } @ids;
    }, 2);
    my $seconds = sprintf '%.3f', now() - $start;
    sleep 1;
    return $seconds;
}

my @seconds = sort { $a <=> $b } map { outage($_) } 1 .. $ROUNDS;
note join ' ', map { sprintf '%.2f', $_ } @seconds;
cmp_ok $seconds[-1], '<=', 0.1, '... and hears of soon after it was away';

$fleet->finish;
$fake->stop;


# Redis loses its data, and the workers report many keys again.

my $KEYS = 1500;
$redis->command('FLUSHALL');
$fake = LimitSliding::FakeRedis->new($redis)->start;
$fleet = LimitSliding::InFlight->new($redis, nodes => 1, server => $fake->server,
    zone => 'inflight=10 on_error=deny', server_conf => <<'SERVER');
    location /slow { limit_sliding zone=held; root .; try_files /nginx.conf =404; limit_rate 1; }
SERVER
$node = $fleet->node(0);
my @slow = map { $node->send_request("/slow?key=slow$_") } 1 .. $KEYS;
my $counted = sub { scalar @{ $redis->command('KEYS', '*:inflight') } };
ok wait_for(sub { $counted->() == $KEYS }), "$KEYS keys are held";
$fake->forget;
$redis->command('FLUSHALL');
ok wait_for(sub { $counted->() == $KEYS }), '... and reported again after a loss of data';
cmp_ok $fake->stats->{most}, '<=', 17, '... by few calls at a time';
@slow = ();
$fleet->finish;
$fake->stop;


# A zone that has no room for further requests, and limits none of them

$fleet = LimitSliding::InFlight->new($redis, nodes => 1, http => <<'HTTP',
    limit_sliding_zone $arg_key zone=full:32k inflight=10 on_error=allow redis=shared;
HTTP
    server_conf => <<'SERVER');
    location /slow { limit_sliding zone=full; root .; try_files /nginx.conf =404; limit_rate 1; }
    location /full { limit_sliding zone=full cost=$arg_cost; empty_gif; }
SERVER
$node = $fleet->node(0);
my @held = map { $node->send_request("/slow?key=$_") } 1 .. 700;
ok wait_for(sub { api($node)->{zones}{full}{refused} > 0 }), 'a full zone';
is $node->get('/full?key=new&cost=1')->{status}, 429, '... has no room for a limited key';
$redis->command('SET', $fleet->name_of('off') =~ s/:held:/:full:/r . ':limit', 'off');
is $node->get('/full?key=off&cost=1')->{status}, 200, '... does not reject an unlimited one';
$redis->stop;
is $node->get('/full?key=away&cost=1')->{status}, 200, '... nor on_error=allow';

@held = ();
$fleet->finish;
done_testing;
