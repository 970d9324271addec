# The clock of Redis is set back: bans that Redis has got before are as long on all nodes as where
# they began, on nodes that hear of them later, too.

use v5.36;

use Test::More;

use LimitSliding::Clock;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LENGTH = 60;
my @STEPS  = (3600, 86_400);

my $clock = LimitSliding::Clock->new;
my $redis = LimitSliding::Redis->new;
$clock->run(sub { $redis->start });

# Starts a node. The limit of a key is never used up: a cost of 100 is rejected, whatever it has
# left, and a cost of 0 passes, unless the key is banned.
sub node() {
    my $node = LimitSliding::Test->new;
    $node->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server ${\ $redis->server}; }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=one:1m rate=10r/h redis=shared
        penalty=${LENGTH}s penalty_max=30d;
HTTP
    location /one { limit_sliding zone=one cost=$arg_cost; empty_gif; }
SERVER
    return $node;
}

sub ban($node, $key) {
    is $node->get("/one?key=$key&cost=100")->{status}, 429, "$key is banned";
}

# Returns for how many seconds a key is banned, by Retry-After; 0: it is not.
sub banned($node, $key) {
    my $r = $node->get("/one?key=$key&cost=0");
    return $r->{status} == 429 ? header($r, 'Retry-After') : 0;
}

my ($one, $two) = map { node() } 1, 2;
for my $step (@STEPS) {
    $clock->set(utc => $step);
    sleep 1;
    ban($one, "known$step");
    sleep 1;
    is banned($two, "known$step"), $LENGTH - 1, '... on the other node';

    ban($one, "new$step");
    $clock->set(utc => 0);
    my $start = now;
    ok wait_for(sub { banned($two, "new$step") }, 1), "a step of $step s: the other node hears of it";
    is banned($two, "new$step"), banned($one, "new$step"), '... and bans for as long';

    my $late = node();
    for my $key ("known$step", "new$step") {
        ok wait_for(sub { banned($late, $key) }, 1), "a node that starts later hears of $key";
        is banned($late, $key), banned($one, $key), '... and bans for as long';
    }
    sleep $start + $LENGTH + 1 - now;
    is banned($_, "new$step"), 0, '... all bans are over' for $one, $two, $late;

    ban($two, "new$step");
    ok wait_for(sub { banned($late, "new$step") }, 1), '... the next one spreads';
    is banned($late, "new$step"), banned($two, "new$step"), '... and is as long on all nodes';
    $late->finish_one;
}

$two->finish_one;
$one->finish;
