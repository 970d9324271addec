# Bans of several nodes in a cluster, and with sentinels: through moved slots and
# failovers.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test;

# Seconds between polls of a node, until another worker of it polls, and a look
my $POLL = 0.4 + 0.05 + 0.01;

my @nginx = map { LimitSliding::Test->new } 0, 1;

# The limit of a key is never used up: a cost of 100 is rejected, whatever it has
# left, and a cost of 0 passes, unless the key is banned.
my $template;
sub serve($block) {
    $template = $nginx[0]->template(
        listen => 'reuseport', http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { $block }
    limit_sliding_log_level off;
    add_header X-Worker \$pid always;
    limit_sliding_zone \$arg_key zone=one:1m rate=10r/h redis=shared
        penalty=100s;
    limit_sliding_zone \$arg_key zone=two:1m rate=10r/h redis=shared
        penalty=100s;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /one { limit_sliding zone=one cost=$arg_cost; empty_gif; }
    location /two { limit_sliding zone=two cost=$arg_cost; empty_gif; }
SERVER
    $_->start($template) for @nginx;
}

sub ban($node, $key, $zone = 'one') {
    return $nginx[$node]->get("/$zone?key=$key&cost=100")->{status};
}

sub is_banned($node, $key, $zone = 'one') {
    return $nginx[$node]->get("/$zone?key=$key&cost=0")->{status} == 429;
}

# Makes each worker report a ban: one that knows only the dead master fails once, and asks
# for the new one.
sub meet_the_new_master {
    state $n = 0;
    for my $node (@nginx) {
        my %reported;
        $reported{header($node->get('/one?cost=100&key=met' . $n++), 'X-Worker')} = 1
            while keys %reported < 2;
    }
    sleep 1;
}

sub within($most, $condition, $name) {
    my $start = now;
    my $holds = wait_for($condition, 30);
    my $seconds = now() - $start;
    ok $holds && $seconds < $most, $name or diag "it took $seconds s";
}

sub spreads($name, $most = $POLL) {
    state $n = 0;
    for my $from (0, 1) {
        $n++;
        for my $zone (qw(one two)) {
            ban($from, "k$n", $zone);
            within($most, sub { is_banned(1 - $from, "k$n", $zone) },
                "$name: zone $zone, from node $from");
        }
    }
}


# A cluster

my $cluster = LimitSliding::Cluster->new(config => {
    'cluster-require-full-coverage' => 'no' })->start;
serve('topology cluster; server ' . $cluster->servers . ';');
spreads('cluster');
is ban(0, 'lifted'), 429, 'a ban';
within($POLL, sub { is_banned(1, 'lifted') }, '... spreads');
api_key($nginx[1], 'one', 'lifted', 'DELETE', '&what=ban');
within($POLL, sub { !is_banned(0, 'lifted') }, '... and is lifted');

# All data of bans is in the slot of one name.
my $slot = $cluster->slot('limit_sliding:one:{bans}:news');
is $cluster->slot('limit_sliding:two:{bans}:ends'), $slot, 'one slot';
my $master = $cluster->master_of($slot);
my ($other) = grep { $_ != $master } $cluster->masters;

my $n = 0;
$cluster->move_slot($slot, $master, $other, sub (@) {
    # while it moves
    ban(0, 'moving' . $n++);
});
ok $n, 'bans begin while the slot moves';
within(3, sub { $n == grep { is_banned(1, "moving$_") } 0 .. $n - 1 },
    '... and spread once it has moved');
spreads('a moved slot');

# The replica takes over.
$other->kill9;
is ban(0, 'orphan'), 429, 'the master dies: a ban begins';
ok is_banned(0, 'orphan'), '... and holds here';
ok wait_for(sub { ($cluster->master_of($slot) // $other) != $other }, 30),
    '... a replica takes over';
within(2.5, sub { is_banned(1, 'orphan') }, '... and the ban spreads');
spreads('each zone finds the new master', 2.5);
meet_the_new_master();
spreads('after the failover');

$_->stop for @nginx;
$_->kill9 for $cluster->alive;


# Sentinels

my $first = LimitSliding::Redis->new->start;
my ($second, @sentinels) = $first->sentinels(1);
serve('topology sentinel; sentinel_master mymaster; '
    . join ' ', map { 'server ' . $_->server . ';' } @sentinels);
spreads('sentinels');

is ban(1, 'before'), 429, 'a ban';
within($POLL, sub { is_banned(0, 'before') }, '... spreads');
ok wait_for(sub { $first->command('WAIT', 1, 1000) == 1 }), '... replicated';
$first->kill9;
ban(0, 'orphan');
ok is_banned(0, 'orphan'), 'the master dies: a ban holds here';
ok wait_for(sub {
    @sentinels == grep {
        my $master = $_->ask(qw(SENTINEL get-master-addr-by-name mymaster));
        ref $master && $master->[1] == $second->port;
    } @sentinels;
}), '... a replica takes over';
within(2.5, sub { is_banned(1, 'orphan') }, '... and the ban spreads');
spreads('each zone finds the new master', 2.5);
meet_the_new_master();
spreads('after the failover');

$nginx[1]->crash;
$nginx[1]->start($template);
within($POLL, sub { is_banned(1, 'before') },
    'a node that starts now knows bans from before');

$nginx[1]->finish_one;
$nginx[0]->finish;
