# A grace of Redis, in which it grants no units in flight, because it may not know all of them: the
# log tells of it and its reason, and metrics count it and what on_error decides meanwhile.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $BEGUN = qr/\[notice\].* redis "shared": (.*), it grants no further units in flight until /;
my $ENDED = qr/\[notice\].* redis "shared": it grants units in flight again, after (\d+) ms/;
my $NEW   = 'it has just begun to hear workers';
my $LOST  = 'it has restarted, has lost data, or is another server';
my $QUIET = 'it has heard no worker for a while';
my $OTHER = 'a worker comes from another server';

my $redis = LimitSliding::Redis->new->start;
my $fleet = LimitSliding::InFlight->new($redis, unready => 1, zone => 'inflight=10 on_error=allow',
    settings => 'timeout 100ms; connect_timeout 100ms;');

# Waits for the end of a grace. Compares how each node has told of it: the reason, none if the log
# is silent; the ms of its length, at least and at most; and the number of graces so far.
sub told($name, $reason, $least, $most, $graces) {
    sleep 5;
    for my $node ($fleet->nodes) {
        my ($begun, $ended) = map { [ $node->new_log_lines($_) ] } $BEGUN, $ENDED;
        is join('|', map { /$BEGUN/ } @$begun), $reason, "$name: the log has the reason, once";
        is scalar(@$ended), $reason eq '' ? 0 : 1, '... and the end';
        my ($ms) = map { /$ENDED/ } @$ended;
        cmp_ok $ms, '>=', $least, '... not too soon' if $reason ne '';
        cmp_ok $ms, '<=', $most, '... nor too late' if $reason ne '';
        is api($node)->{redis}{shared}{graces}, $graces, '... counted once for both workers';
    }
}

# Returns the numbers of decisions of all nodes, by on_error and by a grace.
sub decisions() {
    my @json = map { api($_) } $fleet->nodes;
    return [ sum0(map { $_->{zones}{held}{sources}{fallback} } @json),
        sum0(map { $_->{redis}{shared}{grace_decisions} } @json) ];
}

sub requests($n) {
    my %sources;
    $sources{ header($_->get('/quick?key=' . rand), 'X-Source') }++ for ($fleet->nodes) x $n;
    return join ' ', map { "$_ $sources{$_}" } sort keys %sources;
}

is requests(4), 'fallback 8', 'the first requests: on_error decides';
is_deeply decisions(), [ 8, 8 ], '... because of the grace';
told('first use', $NEW, 1000, 2600, 1);
is requests(4), 'redis 8', '... then Redis decides';

sleep 60;
$redis->command('FLUSHALL');
sleep 1.1;
is requests(4), 'fallback 8', 'Redis has lost its data: on_error decides';
is_deeply decisions(), [ 16, 16 ], '... because of the grace';
told('a loss of data', $LOST, 2900, 4100, 2);
is requests(4), 'redis 8', '... then Redis decides';

$redis->command('FLUSHALL');
told('another one within a minute', '', undef, undef, 3);

sleep 60;
$redis->command(qw(SET limit_sliding:holders:grace 1 PX 3000));
told('a grace for a worker of another node', $OTHER, 1900, 4100, 4);

sleep 60;
$redis->freeze;
sleep 4;
is requests(4), 'fallback 8', 'Redis does not answer: on_error decides';
is_deeply decisions(), [ 24, 16 ], '... not because of a grace';
$redis->thaw;
told('Redis hears nobody for a while', $QUIET, 2900, 4100, 5);

my $metrics = $fleet->node(0)->get('/limits/metrics')->{body};
like $metrics, qr/^limit_sliding_redis_graces_total\{redis="shared"\} 5$/m, 'a metric of graces';
like $metrics, qr/^limit_sliding_redis_grace_decisions_total\{redis="shared"\} 8$/m,
    '... and of decisions';

sleep 60;
$redis->restart;
told('Redis restarts', $LOST, 2900, 4100, 6);

$fleet->finish;


# A worker that is stopped reads its replies later than the other one. That neither ends a grace
# that has begun meanwhile, nor begins one that is over.

$redis->restart;
$fleet = LimitSliding::InFlight->new($redis, nodes => 1);
my ($stopped) = $fleet->node(0)->workers;
told('first use', $NEW, 1000, 2600, 1);

# Stops the worker once Redis has run its next heartbeat, but before it reads the reply.
sub stop_worker() {
    $redis->freeze;
    sleep 1.1;
    kill 'STOP', $stopped;
    $redis->thaw;
    sleep 0.1;
}

sleep 60;
stop_worker();
$redis->command('FLUSHALL');
sleep 1.1;
kill 'CONT', $stopped;
told('a late reply from before', $LOST, 2900, 4100, 2);

sleep 60;
$redis->command('FLUSHALL');
sleep 1;
stop_worker();
sleep 3;
kill 'CONT', $stopped;
told('a late reply from within', $LOST, 2900, 4100, 3);

$fleet->finish;
done_testing;
