# Three nodes, one of which holds many keys, while Redis loses its data, is another server, hangs,
# is full, or does not hear the nodes: never are more units of a key in use than the limit.
# HOLD_KEYS is how many keys are held (20,000).

use v5.36;

use List::Util qw(first max min sum0);
use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::FakeRedis;
use LimitSliding::Frames;
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LIMIT = 7;
my $KEYS = $ENV{HOLD_KEYS} // 20_000;
my $CONNECTIONS = 8;
my $ROUND_TRIP = min(0.1, 2000 / $KEYS);    # reports of all keys take longer than a grace
my $TRIES = 40;           # held keys that a node asks for at a time

srand 1;

plan skip_all => 'built without HTTP/2'
    if !LimitSliding::Test->new->is_configured('--with-http_v2_module');

my ($redis, $other) = map { LimitSliding::Redis->new->start } 1, 2;
my $fake = LimitSliding::FakeRedis->new($redis)->start;
my $fleet = LimitSliding::InFlight->new($redis, nodes => 3, server => $fake->server,
    zone => "inflight=$LIMIT on_error=deny",
    settings => 'timeout 500ms; connect_timeout 500ms;', http => <<"HTTP",
    send_timeout 1h;
    limit_sliding_zone \$arg_key zone=many:64m inflight=$LIMIT on_error=deny redis=shared;
    limit_sliding_log_level off;
    server {
        http2_listen 127.0.0.1:%%PORT1%% reuseport;
        http2_max_concurrent_streams 1000000;
        location /many { limit_sliding zone=many cost=$LIMIT; empty_gif; }
    }
HTTP
    server_conf => 'location /one { limit_sliding zone=many; empty_gif; }');
my @nodes = $fleet->nodes;


# ---- many keys ----

# Returns the worker of the first node that has accepted a connection.
sub worker_of($socket) {
    my ($here, $there) = map { sprintf ':%04X', $_ } $socket->sockport, $socket->peerport;
    open my $table, '<', '/proc/net/tcp' or die "tcp: $!";
    my ($inode) = map { (split)[9] } grep { /^\s*\d+: \w+$there \w+$here / } <$table>;
    return first { grep { (readlink // '') eq "socket:[$inode]" } glob "/proc/$_/fd/*" }
        $nodes[0]->workers;
}

# Returns connections to the first node, as many to each worker: one that has nearly all keys
# reports for longer than the others have patience for here.
sub connect_evenly() {
    my (%sockets, @spare);
    my @workers = $nodes[0]->workers;
    while (grep { @{ $sockets{$_} // [] } < $CONNECTIONS / @workers } @workers) {
        my $socket = $nodes[0]->connect(port => 1);
        $socket->blocking(1);
        print {$socket} greeting(), frame(4, 0, 0, pack 'nN', 4, 0);
        $socket->flush;
        read_frame($socket);    # then it was accepted
        my $list = $sockets{ worker_of($socket) } //= [];
        push @{ @$list < $CONNECTIONS / @workers ? $list : \@spare }, $socket;
    }
    return map { @$_ } values %sockets;
}

# Holds the whole limit of each key on the first node: its responses wait for a window of flow
# control that never opens. Returns the connections, and how many requests were admitted.
sub hold_many() {
    my $admitted;
    my @sockets = connect_evenly();
    for my $i (0 .. $#sockets) {
        my $socket = $sockets[$i];
        my @keys = grep { $_ % @sockets == $i } 1 .. $KEYS;
        my $stream = -1;
        while (my @some = splice @keys, 0, 100) {
            print {$socket} map { request($stream += 2, "/many?key=$_") } @some;
            $socket->flush;
            for (@some) {
                my ($type, undef, undef, $head) = read_frame($socket);
                redo if $type != $HEADERS;
                $admitted++ if $head =~ /^\x88/;
            }
        }
    }
    return (\@sockets, $admitted);
}

# Asks all nodes for units of keys that are held, and of others. Returns how many they get of each.
sub try_many() {
    my @got;
    for my $node (@nodes) {
        my @held = map { '/one?key=' . (1 + int rand $KEYS) } 1 .. $TRIES;
        my @free = map { '/one?key=free' . int rand 1e9 } 1 .. 2;
        my $statuses = $node->load(requests => [ @held, @free ], connections => $TRIES);
        $got[$_ >= @held] += ($statuses->[$_] // 0) == 200 for 0 .. $#$statuses;
    }
    return @got;
}

# Returns how many of the held keys Redis knows, once these are all.
sub counted_keys() {
    my $n;
    wait_for(sub {
        $n = grep { /:many:.*:inflight$/ } $fleet->{redis}->keys;
        return $n == $KEYS;
    });
    return $n;
}


# ---- losses ----

my ($most, $excess, $free);

# Tries to get more than the limit for so many seconds.
sub press($seconds) {
    my $start = now;
    do {
        $fleet->hold('a', 6);
        $most = max($most, $fleet->alive('a'));
        my ($held, $others) = try_many();
        $excess += $held;
        $free = $others;
        sleep 0.2;
    } while (now() < $start + $seconds);
}

# Calls a function while all units are in use. Before it returns, Redis must be one that answers.
sub survives($name, $loss) {
    ($most, $excess) = (0, 0);
    is sum0(map { $fleet->hold('a', $_ == 0 ? 3 : 2, $_) } 0 .. 2), 0, "$name: all units are held";
    is $fleet->settled('a'), $LIMIT, '... and counted';
    $loss->();
    press(10);
    is $most, $LIMIT, '... never is one more in use';
    is $excess, 0, "... nor of one of $KEYS keys";
    is $free, 2 * @nodes, '... and units of other keys are granted';
    $fleet->wait_ready;
    is $fleet->settled('a', 60), $LIMIT, '... all are counted again';
    is counted_keys(), $KEYS, '... of all keys';
    $fleet->release('a', 3);
    is $fleet->settled('a'), $LIMIT - 3, '... until they end';
    is $fleet->hold('a', 6), 3, '... and others get them';
    $fleet->release('a', $LIMIT);
    is $fleet->settled('a'), 0, '... all end';
}

my ($sockets, $admitted) = hold_many();
is $admitted, $KEYS, "$KEYS keys are held";
is counted_keys(), $KEYS, '... and counted';
$fake->mode('delay', $ROUND_TRIP);

survives('a loss of data', sub { $redis->command('FLUSHALL') });

survives('failover and failback', sub {
    $fake->lead($other);
    $fleet->{redis} = $other;
    press(6);
    $fake->lead($redis);
    $fleet->{redis} = $redis;
});
survives('a moment with the other', sub {
    $fake->lead($other);
    press(1);
    $fake->lead($redis);
    press(1);
    $fake->lead($other);
    $fleet->{redis} = $other;
});
$fake->lead($redis);
$fleet->{redis} = $redis;
$fleet->wait_ready;

survives('a freeze', sub {
    $redis->freeze;
    press(4);
    $redis->thaw;
});

survives('a full Redis', sub {
    $redis->command(qw(CONFIG SET maxmemory 1));
    press(5);
    $redis->command(qw(CONFIG SET maxmemory 0));
});

# Only one node has requests, so only this one is refused anything.
survives('a full Redis, and a busy node', sub {
    $redis->command(qw(CONFIG SET maxmemory 1));
    my $start = now;
    while (now() < $start + 5) {
        $fleet->hold('a', 2, 0);
        sleep 0.1;
    }
    $redis->command(qw(CONFIG SET maxmemory 0));
});

for my $mode (qw(lost refuse)) {
    survives("all nodes are cut off, $mode", sub {
        $fake->reset if $mode eq 'refuse';
        $fake->mode($mode);
        press(5);
        $fake->mode('delay', $ROUND_TRIP);
    });
}

@$sockets = ();
$fleet->finish;
$fake->stop;
done_testing;
