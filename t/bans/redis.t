# Bans spread over nodes through Redis, in the background: how soon, at what
# cost, and what becomes of them while Redis is away.

use v5.36;

use List::Util qw(max);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

# Seconds between polls of a node, until another worker of it polls, and a look
my $POLL = 0.4 + 0.05 + 0.01;

my ($redis, $idle, @nginx);

# The limit of a key is never used up: a cost of 100 is rejected, whatever it has
# left, and a cost of 0 passes, unless the key is banned.
my $ZONES = <<'ZONES';
    limit_sliding_zone $arg_key zone=long:1m rate=10r/h redis=shared
        penalty=100s penalty_after=20;
    limit_sliding_zone $arg_key zone=other:1m rate=10r/h redis=shared
        penalty=100s;
    limit_sliding_zone $arg_key zone=short:1m rate=10r/h redis=shared
        penalty=1s penalty_after=3 penalty_max=100s;
    limit_sliding_zone $arg_key zone=none:1m rate=10r/h redis=idle;
ZONES

# Starts servers and two nodes; a third one is made.
sub begin() {
    ($redis, $idle) = map { LimitSliding::Redis->new->start } 1, 2;
    @nginx = map { LimitSliding::Test->new } 1 .. 3;
    $_->common(http => <<"HTTP", server => <<'SERVER') for @nginx;
    limit_sliding_redis shared { server ${\ $redis->server}; }
    limit_sliding_redis idle { server ${\ $idle->server}; }
    limit_sliding_log_level off;
$ZONES
HTTP
    location /limits { limit_sliding_api write=on; }
    location /long { limit_sliding zone=long cost=$arg_cost; empty_gif; }
    location /other { limit_sliding zone=other cost=$arg_cost; empty_gif; }
    location /short { limit_sliding zone=short cost=$arg_cost; empty_gif; }
    location /none { limit_sliding zone=none cost=$arg_cost; empty_gif; }
    location /free { empty_gif; }
SERVER
    $nginx[$_]->serve for 0, 1;
}

sub end() {
    $nginx[1]->finish_one;
    $nginx[0]->finish_one;
}

# Rejects n requests of a key.
sub reject($n, $node, $zone, $key) {
    return $nginx[$node]->statuses($n, "/$zone?key=$key&cost=100");
}

# Returns for how many seconds a key is banned, by Retry-After; 0: it is not.
sub banned($node, $zone, $key) {
    my $r = $nginx[$node]->get("/$zone?key=$key&cost=0");
    return $r->{status} == 429 ? header($r, 'Retry-After') : 0;
}

# Returns how many seconds it takes until the condition holds.
sub seconds($condition) {
    my $start = now;
    return wait_for($condition, 10) ? now() - $start : 'never';
}

sub within($most, $condition, $name) {
    my $seconds = seconds($condition);
    ok $seconds ne 'never' && $seconds < $most, $name
        or diag "it took $seconds";
    return $seconds;
}


# On both nodes after a poll, whenever between two polls, and not a command for a
# request
sub spread() {
    begin();

    my @seconds;
    for my $n (1 .. 10) {
        sleep 0.047;
        like reject(20, 0, 'long', "a$n"), qr/^(429 ?){20}$/, 'rejected 20 times';
        is banned(0, 'long', "a$n"), 100, '... banned here at once';
        push @seconds, within($POLL, sub { banned(1, 'long', "a$n") },
            '... and on the other node after a poll');
        is banned(1, 'long', "a$n"), 100, '... not for longer';
    }
    note sprintf 'spread in %.3f s at most', max @seconds;

    is banned(1, 'other', 'a1'), 0, 'not in another zone';
    reject(19, 0, 'long', 'b');
    reject(19, 1, 'long', 'b');
    is banned(0, 'long', 'b') + banned(1, 'long', 'b'), 0,
        'each node counts rejections for itself';

    # Not a command for a request

    my $before = $redis->calls;
    for my $n (1 .. 50) {
        $nginx[$_]->get('/long?key=a1') for 0, 1;
    }
    is $redis->calls, $before, '100 banned requests: no command';
    sleep 2;
    my $calls = $redis->calls - $before;
    # three zones of two nodes, each once in 0.4 s
    cmp_ok $calls, '>=', 6 * 4, 'polls without traffic';
    cmp_ok $calls, '<=', 6 * 5, '... and no more than those';

    is $idle->connections, 0, 'zones without penalty= ask nothing';
    end();
}

# Twice as long each time, whichever node rejects
sub doubled() {
    begin();
    my $length = 1;
    for my $n (1 .. 4) {
        my ($here, $there) = ($n % 2, 1 - $n % 2);
        reject(3, $here, 'short', 'double');
        is banned($here, 'short', 'double'), $length, "ban $n: $length s";
        within($POLL, sub { banned($there, 'short', 'double') }, '... on both nodes');
        ok wait_for(sub { !banned($here, 'short', 'double') }), '... ends';
        within(0.02, sub { !banned($there, 'short', 'double') },
            '... on both nodes at the same time');
        $length *= 2;
    }
    end();
}

sub lift($node, $zone, $key) {
    return api_key($nginx[$node], $zone, $key, 'DELETE', '&what=ban')->{http};
}

# Bans that are lifted, and a node that starts later
sub lifted() {
    begin();
    for my $key (qw(a1 a2)) {
        reject(20, 0, 'long', $key);
        within($POLL, sub { banned(1, 'long', $key) }, "$key is banned");
    }
    reject(19, 0, 'long', 'b');

    is lift(1, 'long', 'a1'), 200, 'lifted on the other node';
    is banned(1, 'long', 'a1'), 0, '... there at once';
    within($POLL, sub { !banned(0, 'long', 'a1') }, '... on this one after a poll');
    sleep 1;
    is banned(0, 'long', 'a1') + banned(1, 'long', 'a1'), 0, '... for good';
    cmp_ok banned(1, 'long', 'a2'), '>', 0, '... others are not';
    reject(20, 1, 'long', 'a1');
    within($POLL, sub { banned(0, 'long', 'a1') }, 'banned again');

    # A node that starts later

    $nginx[2]->serve;
    within($POLL, sub { banned(2, 'long', 'a2') }, 'a node that starts knows bans');
    is banned(2, 'long', 'b'), 0, '... and no others';
    reject(20, 2, 'long', 'c');
    within($POLL, sub { banned(0, 'long', 'c') && banned(1, 'long', 'c') },
        '... and tells the others');
    $nginx[2]->crash;
    $nginx[2]->start($nginx[2]->template);
    within($POLL, sub { banned(2, 'long', 'c') }, 'a node that crashed knows them again');
    $nginx[2]->finish_one;
    end();
}

sub rejected($node, @keys) {
    my $statuses = $nginx[$node]->load(connections => 32,
        requests => [ map { "/other?key=$_&cost=100" } @keys ]);
    return scalar grep { ($_ // '') eq 429 } @$statuses;
}

sub all_banned($node, @keys) {
    my $statuses = $nginx[$node]->load(connections => 8,
        requests => [ map { "/other?key=$_&cost=0" } @keys ]);
    return @keys == grep { ($_ // '') eq 429 } @$statuses;
}

sub many() {
    begin();
    my @many = map { "many$_" } 1 .. 1000;
    is rejected(0, @many), 1000, '1000 bans';
    ok all_banned(0, @many), '... here';
    within(2, sub { banned(1, 'other', $many[-1]) && all_banned(1, @many) },
        '... and on the other node within 2 seconds');
    end();
}

# Redis is away while a ban begins
sub while_away($name, $away, $back) {
    $away->();
    # These are rejected by the policy, "local".
    my $key = "away-" . $name =~ tr/ ,/-/r;
    is reject(20, 0, "long", $key), join(" ", (429) x 20), "$name: rejected";
    my $start = now;
    cmp_ok banned(0, 'long', $key), '>', 0, "$name: banned here at once";
    is now, $start, '... which takes no time';
    sleep 3;
    is banned(1, 'long', $key), 0, '... not on the other node';
    $back->();
    my $took = within(1, sub { banned(1, 'long', $key) },
        '... there within a second of the return');
    note "$name: $took s";
}

sub frozen(@times) {
    begin();
    for my $n (@times) {
        while_away("SIGSTOP, $n", sub { $redis->freeze }, sub { $redis->thaw });
    }
    end();
}

sub killed() {
    begin();
    reject(20, 0, 'long', 'before');
    within($POLL, sub { banned(1, 'long', 'before') }, 'a ban');
    while_away('kill -9', sub { $redis->kill9 }, sub { $redis->start });

    # It has come back empty: those that begin now are told, and so are those that
    # were told before.
    $nginx[2]->serve;
    within(1.5, sub { banned(2, 'long', 'before') }, 'Redis is told again what it lost');
    $nginx[2]->finish_one;
    end();
}

subtests(
    spread     => \&spread,
    doubled    => \&doubled,
    lifted     => \&lifted,
    many       => \&many,
    killed     => \&killed,
    'frozen 1' => sub { frozen(1, 2) },
    'frozen 2' => sub { frozen(3, 4) },
    'frozen 3' => sub { frozen(5, 6) },
);
done_testing;
