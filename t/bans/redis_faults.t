# Bans that are told by way of nodes that mislead or are dead, and more of them than
# a zone has room for to tell.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my @nginx;

# Starts two nodes whose Redis is this server. The limit of a key is never used up:
# a cost of 100 is rejected, whatever it has left, and a cost of 0 passes, unless the
# key is banned.
sub start($block, $timeout = '5s', $other_block = $block) {
    @nginx = map { LimitSliding::Test->new } 0, 1;
    $nginx[$_]->serve(http => <<"HTTP", server => <<'SERVER') for 0, 1;
    limit_sliding_redis shared {
        timeout $timeout; connect_timeout $timeout; @{[ ($block, $other_block)[$_] ]}
    }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=one:1m rate=10r/h redis=shared penalty=100s;
HTTP
    location /one { limit_sliding zone=one cost=$arg_cost; empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
}

sub ban($node, $key) {
    return $nginx[$node]->get("/one?key=$key&cost=100")->{status};
}

sub is_banned($node, $key) {
    return $nginx[$node]->get("/one?key=$key&cost=0")->{status} == 429;
}

sub finish() {
    $_->finish_one for @nginx;
}

sub asked($fake) {
    my $commands = $fake->stats->{commands};
    return ($commands->{EVAL} // 0) + ($commands->{EVALSHA} // 0);
}


# A cluster of one node, which tells clients to come by way of the proxy. Its first
# server is dead, and no request makes anybody look for another one.

my ($redis, $fake) = LimitSliding::FakeRedis->cluster;

my $dead = LimitSliding::Test::reserve_port();
my $server = $fake->server;
start("topology cluster; server 127.0.0.1:$dead->{port}; server $server;");
ok wait_for(sub { asked($fake) > 4 }), 'the first server is dead: another one is asked for bans';
ban(0, 'first');
ok wait_for(sub { is_banned(1, 'first') }), '... and they spread';

my $port = $fake->port;
for (['MOVED in a loop', "-MOVED 1 127.0.0.1:$port\\r\\n"],
    ['ASK in a loop', "-ASK 1 127.0.0.1:$port\\r\\n"],
    ['CLUSTERDOWN', '-CLUSTERDOWN no\r\n'], ['MASTERDOWN', '-MASTERDOWN no\r\n'])
{
    my ($name, $text) = @$_;
    my $key = "key-$name" =~ tr/ /-/r;
    $fake->mode('say', $text);
    $fake->forget;
    ban(0, $key);
    sleep 1;
    my $asked = asked($fake);
    cmp_ok $asked, '>', 0, "$name: asked";
    # two nodes, each again after a quarter of a second, and five hops; and the request
    cmp_ok $asked, '<=', (2 * 7 + 4) * 6, '... no more often than it may be';
    cmp_ok $fake->stats->{commands}{ASKING} // 0, $name =~ /ASK/ ? '>' : '==', 0,
        '... by ASKING if that was said';
    $fake->mode('pass');
    ok wait_for(sub { is_banned(1, $key) }), '... what began meanwhile spreads then';
}
my $log = join '', map { $_->log } @nginx;
like $log, qr/bans of zone "one": (?:MOVED|ASK|CLUSTERDOWN|MASTERDOWN)\b/, 'the log tells';
finish();
$fake->stop;
$redis->stop;


# More bans than may wait: these are not told, and hold here.

my $N = 2500;
$redis = LimitSliding::Redis->new->start;
start('server ' . $redis->server . ';', '500ms');
ban(0, 'before');
ok wait_for(sub { is_banned(1, 'before') }), 'a ban spreads';
$redis->freeze;
my $statuses = $nginx[0]->load(connections => 16,
    requests => [ map { "/one?key=many-$_&cost=100" } 1 .. $N ]);
is scalar(grep { $_ == 429 } @$statuses), $N, "$N bans while Redis hangs";
ok wait_for(sub { $nginx[0]->log =~ /too many bans of zone "one" wait to be told/ }),
    '... too many to be told';

# Returns how many of them hold at this node.
sub held($node) {
    my $statuses = $nginx[$node]->load(connections => 4,
        requests => [ map { "/one?key=many-$_&cost=0" } 1 .. $N ]);
    return scalar grep { $_ == 429 } @$statuses;
}

cmp_ok held(0), '>', 0.99 * $N, '... which hold here';
$redis->thaw;
my $n = 0;
ok wait_for(sub {
    my $key = 'after-' . ++$n;
    ban(0, $key);
    return wait_for(sub { is_banned(1, $key) }, 1);
}), '... Redis goes on: bans spread again';
my $spread = held(1);
cmp_ok $spread, '>', 500, '... those that waited, too';
cmp_ok $spread, '<', $N, '... and not those that found no room';
finish();


# A node that was cut off during a lift has the ban still when it finds a Redis without
# data, and tells of it.

$fake = LimitSliding::FakeRedis->new($redis)->start;
start('server ' . $redis->server . ';', '500ms', 'server ' . $fake->server . ';');
for my $from (0, 1) {
    ban($from, "lifted-$from");
    ok wait_for(sub { is_banned(1 - $from, "lifted-$from") }), "node $from bans a key";
}
$fake->stop;
sleep 1;                  # of a ban and a lift within 0.5 s, the one told last holds
for my $from (0, 1) {
    api_key($nginx[0], 'one', "lifted-$from", 'DELETE', '&what=ban');
    ok !is_banned(0, "lifted-$from"), '... node 0 lifts the ban';
}
ban(0, 'told');
sleep 1;
ok is_banned(1, "lifted-$_"), '... of which node 1 knows nothing, as it is cut off' for 0, 1;
$redis->kill9;
$redis->start;
$fake->start;
ok wait_for(sub { is_banned(1, 'told') }),
    '... Redis begins anew without data, and node 1 is back: it is told of bans again';
for my $from (0, 1) {
    ok wait_for(sub { !is_banned(0, "lifted-$from") && !is_banned(1, "lifted-$from") }, 2),
        "... node $from has banned the key: the lift holds";
}
sleep 1;
ok !is_banned($_ % 2, 'lifted-' . ($_ >> 1)), '... and stays' for 0 .. 3;
finish();

done_testing;
