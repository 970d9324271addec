# Requests in flight that several nodes count in Redis, when workers, nodes and
# Redis die, stop and come back: nothing leaks, and the limit holds but for what
# runs on a node that was declared dead. FAULT_ROUNDS is how many workers are
# killed under load (15).

use v5.36;

use List::Util qw(max shuffle);
use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $ROUNDS = $ENV{FAULT_ROUNDS} // 15;
my $LIMIT = 10;
my $LIFE = 3;             # seconds of a heartbeat
my $SOON = 1;             # seconds in which another worker frees a dead one's units

srand 1;

my $redis = LimitSliding::Redis->new->start;
my $FAST = 'timeout 100ms; connect_timeout 100ms;';


# workers that are killed under load

my $fleet = LimitSliding::InFlight->new($redis);
my (@wrong, @seconds);
for my $round (1 .. $ROUNDS) {
    my $node = $fleet->node($round % 2);
    wait_for(sub { $node->workers == 2 }) or die "round $round: no successor";

    my $before = $fleet->alive('a');
    my $more = $LIMIT - $before + 1 + int rand 3;
    my $rejected = $fleet->hold('a', $more);
    push @wrong, "round $round: of $more more beside $before, $rejected are rejected"
        if $before + $more - $rejected != $LIMIT;

    my ($victim) = shuffle $node->workers;
    my @paths = shuffle map({ ("/quick?key=$_") x 30 } 'b' .. 'f'),
        map { "/costly?key=g&cost=" . (1 + $_ % $LIMIT) } 1 .. 30;
    $node->load(requests => \@paths, connections => 16, pipeline => 4,
        at => { 30 + int rand 100 => sub { $node->kill_worker($victim) } });

    my $start = now;
    for my $key ('a' .. 'g') {
        my $settled = $fleet->settled($key);
        push @wrong, "round $round, $key: $settled" if $settled !~ /^\d+$/;
    }
    push @seconds, now() - $start;
}
is join("\n", @wrong), '', "$ROUNDS workers killed under load: nothing leaks";
cmp_ok max(@seconds), '<', $SOON + 1, '... and is free soon';
note sprintf 'free after %.2f s at most', max(@seconds);


# A whole node that dies

$fleet->release('a', $LIMIT);
is $fleet->settled('a'), 0, 'all end';
is $fleet->hold('k', 4, 0), 0, 'four on one node';
is $fleet->hold('k', 8, 1), 2, '... six on the other';
$fleet->node(0)->crash;
my $died = now;
is $fleet->hold('k', 2, 1), 2, 'a node is killed: its units are not free at once';
ok wait_for(sub { $fleet->hold('k', 1, 1) == 0 }, 10), '... but then';
$fleet->settled('k');     # the other worker's heartbeat may have lived for longer
cmp_ok now() - $died, '<', $LIFE + 0.5, '... within three seconds';
is $fleet->hold('k', 9, 1), 6, '... all of them, and no more';
is $fleet->alive('k', 1), $LIMIT, '... what the living node holds counts';
$fleet->node(0)->serve(%{ $fleet->{directives} });
$fleet->wait_ready;


# A node that is stopped, and goes on, while Redis hears the other one

$fleet->release('k', $LIMIT);
is $fleet->settled('k'), 0, 'all end';
$fleet->hold('s', 4, 0);
$fleet->hold('s', 6, 1);
kill 'STOP', $_ for $fleet->node(0)->workers;
sleep $LIFE + 0.5;
is $fleet->hold('s', 6, 1), 2, 'a node is stopped: others get its units';
kill 'CONT', $_ for $fleet->node(0)->workers;
is $fleet->hold('s', 3, 0), 3, '... when it goes on, it gets nothing new';
is $fleet->settled('s'), 14, '... and what it ran counts again';
is $fleet->hold('s', 3, 1), 3, '... for others as well';
like $fleet->node(0)->get('/limits/metrics')->{body},
    qr/^limit_sliding_uncounted_total\{redis="shared"\} 4$/m, '... a metric tells of it';
$fleet->release('s', 5);
is $fleet->settled('s'), 9, '... once units are free';
is $fleet->hold('s', 3, 0), 2, '... the limit holds again';
$fleet->release('s', $LIMIT);
is $fleet->settled('s'), 0, 'all end';

# A unit is kept for the next request when the worker is stopped.
my $node = $fleet->node(0);
is $node->get('/quick?key=v')->{status}, 200, 'a unit is kept';
kill 'STOP', $_ for $node->workers;
sleep $LIFE + 0.5;
is $fleet->hold('v', $LIMIT, 1), 0, '... by a worker that is stopped: others get it';
my @waiting = map { $node->send_request('/quick?key=v') } 1 .. 8;
kill 'CONT', $_ for $node->workers;
is join(' ', map { $node->read_response($_)->{status} } @waiting), join(' ', (429) x 8),
    '... and no request gets it when the worker goes on';
$fleet->release('v', $LIMIT);
is $fleet->settled('v'), 0, 'all end';
$fleet->finish;


# Redis that loses its memory, or is away

for my $policy (qw(deny local allow)) {
    $fleet = LimitSliding::InFlight->new($redis, settings => $FAST,
        zone => "inflight=$LIMIT on_error=$policy");
    $fleet->hold('r', 4, 0);
    $fleet->hold('r', 4, 1);
    $redis->kill9;
    my %rejected = (deny => 4, local => 0, allow => 0);
    is $fleet->hold('r', 4, 0), $rejected{$policy}, "$policy, Redis is away";
    $redis->start;
    my $most = 0;
    my $start = now;
    if ($policy eq 'deny') {
        while (now() < $start + $LIFE + 1) {
            $fleet->hold('r', 2);
            $most = max($most, $fleet->alive('r'));
        }
        is $most, $LIMIT, '... and comes back empty: never above the limit';
    }
    $fleet->wait_ready;
    my %alive = (deny => $LIMIT, local => 12, allow => 12);
    is $fleet->settled('r'), $alive{$policy}, '... and learns what runs';
    is $fleet->hold('r', 4), 4, '... which counts';
    $fleet->release('r', 12);
    is $fleet->settled('r'), 0, '... until it ends';
    $fleet->finish;
}


# Redis does not hear the nodes, and has lost nothing.

$fleet = LimitSliding::InFlight->new($redis, settings => $FAST,
    zone => "inflight=$LIMIT on_error=deny");
for my $round (1 .. 4) {
    is $fleet->hold('f', 4, 0) + $fleet->hold('f', 6, 1), 0, "round $round: units are held";
    $redis->freeze;
    sleep $LIFE + 1;
    $redis->thaw;
    my $most = 0;
    my $start = now;
    while (now() < $start + $LIFE + 1) {
        $fleet->hold('f', 2);
        $most = max($most, $fleet->alive('f'));
    }
    is $most, $LIMIT, '... and count after Redis was stopped';
    $fleet->wait_ready;
    $fleet->release('f', $LIMIT);
    is $fleet->settled('f'), 0, '... until they end';
}

$fleet->hold('o', $LIMIT);
$redis->command(qw(CONFIG SET maxmemory 1));
my $least = $LIMIT;
my $full = now;
while (now() < $full + $LIFE + 1) {
    my $counted = $fleet->counted('o');
    $least = $counted if $counted < $least;
    sleep 0.1;
}
is $least, $LIMIT, 'a Redis without memory keeps holders alive';
$redis->command(qw(CONFIG SET maxmemory 0));
$fleet->finish;


# Replies that are lost, late, or nonsense

my $fake = LimitSliding::FakeRedis->new($redis)->start;
$fleet = LimitSliding::InFlight->new($redis, server => $fake->server, nodes => 1,
    settings => 'timeout 400ms; connect_timeout 400ms;', zone => "inflight=$LIMIT on_error=deny");
$node = $fleet->node(0);
for my $mode ([ 'drop' ], [ 'cut' ], [ 'delay', 0.6 ], [ 'mute' ],
    [ 'say', '*2\r\n:1\r\n:5\r\n' ], [ 'say', '*1\r\n:0\r\n' ], [ 'say', '-OOM no\r\n' ],
    [ 'extra' ], [ 'late' ], [ 'reset' ])
{
    $fleet->hold('l', 5);
    my $before = $fleet->alive('l');
    my $start = now;
    $mode->[0] eq 'reset' ? $fake->reset : $fake->mode(@$mode);
    while (now() < $start + 1.5) {
        $fleet->hold('l', 2);
        $fleet->release('l', 1);
    }
    $fake->mode('pass');
    $fleet->wait_ready;
    like $fleet->settled('l'), qr/^\d+$/, "@$mode: nothing leaks";
    $fleet->hold('l', $LIMIT + 2);
    is $fleet->alive('l'), $LIMIT, '... and the limit holds';
    $fleet->release('l', $LIMIT);
    is $fleet->settled('l'), 0, '... and all is free in the end';
}
$fleet->finish;
$fake->stop;

done_testing;
