# sync= with more keys than a zone has room for to remember what is to be told of
# them: it is told at once, or counted as lost.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my $KEYS = 300;           # of a zone with room for 124 at most

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

sub node($server) {
    return LimitSliding::Test->new(worker_processes => 1)->serve(
        http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server $server; timeout 1s; connect_timeout 1s; }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=one:32k rate=100 window=30d redis=shared sync=1s;
HTTP
    location /one { limit_sliding zone=one cost=$arg_cost; empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
}

my $nginx = node($fake->server);
my $other = node($redis->server);

# Sends a request of each key. Returns how many passed.
sub passed($name, $cost) {
    my $statuses = $nginx->load(connections => 4,
        requests => [ map { "/one?key=$name-$_&cost=$cost" } 1 .. $KEYS ]);
    return scalar grep { $_ == 200 } @$statuses;
}

# Returns what Redis knows to be used of all keys of a name, as another node sees it.
sub used($name) {
    return sum0 map { api_key($other, 'one', "$name-$_")->{used} } 1 .. $KEYS;
}

sub unsettled() {
    return api($nginx)->{redis}{shared}{unsettled};
}

# Asserts that all of it is known in Redis, or counted as lost.
sub adds_up($name, $total, $lost_before) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($used, $lost);
    ok wait_for(sub {
        sleep 1;              # an interval
        ($used, $lost) = (used($name), unsettled() - $lost_before);
        return $used + $lost == $total;
    }, 15), 'what is told and what is lost are all that was admitted'
        or diag "$used and $lost of $total";
    return $lost;
}


is passed('all', 2), $KEYS, 'more keys than there is room for';
is adds_up('all', 2 * $KEYS, 0), 0, '... nothing is lost';

# A Redis that takes no connections: what has room waits until it is back.
sub away() {
    $fake->mode('refuse');
    $fake->reset;
}

away();
is passed('away', 3), $KEYS, 'Redis is away: decided here';
ok wait_for(sub { unsettled() > 0 }), '... what has no room is lost';
$fake->mode('pass');
my $lost = adds_up('away', 3 * $KEYS, 0);
cmp_ok $lost, '<', 3 * $KEYS, '... what has room is not';

# A worker that exits meanwhile
$lost = unsettled();
away();
is passed('exits', 2), $KEYS, 'a worker that is to exit while Redis is away';
$nginx->reload;
$fake->mode('pass');
sleep 2.5;                # until it is overdue
is passed('exits', 1), $KEYS, '... the next one takes over what is left';
adds_up('exits', 3 * $KEYS, $lost);

# Units of a worker that has exited leave their places to other keys, if their
# own keys do not return: these other keys learn what other nodes use.
my $FRESH = 40;
away();
ok wait_for(sub {
    sleep 1;
    $nginx->get('/one?key=none&cost=1');
    return api($nginx)->{redis}{shared}{breaker} eq 'open';
}), 'the breaker is open';
$lost = unsettled();
is passed('gone', 1), $KEYS, 'a worker exits, and these keys do not return';
my ($gone) = $nginx->workers;
$nginx->reload;
ok wait_for(sub { !kill 0, $gone }), '... it is gone';
$fake->mode('pass');
sleep 12;                 # until other keys may evict them
api_key($other, 'one', "fresh-$_", 'POST', '&cost=98') for 1 .. $FRESH;
sub fresh($cost) {
    my @statuses = map { $nginx->get("/one?key=fresh-$_&cost=$cost")->{status} }
        1 .. $FRESH;
    return scalar grep { $_ == 200 } @statuses;
}
is fresh(1), $FRESH, '... other keys, of which this node knows nothing yet';
sleep 1.5;
is fresh(2), 0, '... it has learned from the replies how much others use';
is passed('gone', 1), $KEYS, '... the former keys return';
adds_up('gone', 2 * $KEYS, $lost);

# One that is terminated while its calls are under way
$lost = unsettled();
$fake->mode('mute');
is passed('ends', 2), $KEYS, 'a worker that is terminated while Redis hangs';
my ($worker) = $nginx->workers;
kill 'TERM', $worker;
ok wait_for(sub { my @now = $nginx->workers; @now == 1 && $now[0] != $worker }),
    '... another one comes';
cmp_ok unsettled() - $lost, '>=', $KEYS, '... what was under way is lost';
$fake->reset;
$fake->mode('pass');

# Redis has no room for what was admitted here.
my $charged = grep {
    api_key($other, 'one', "late-$_", 'POST', '&cost=98')->{used} == 98
} 1 .. $KEYS;
is $charged, $KEYS, 'another node has used most of the keys';
$lost = unsettled();
is passed('late', 5), $KEYS, '... of which this one does not know yet';
ok wait_for(sub { sleep 1; used('late') == 100 * $KEYS }, 15), '... no more than the limit is told';
cmp_ok unsettled() - $lost, '>', 2 * $KEYS, '... and the rest is lost';

$nginx->finish_one;
$other->finish;
