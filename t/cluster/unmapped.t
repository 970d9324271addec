# A cluster whose nodes answer, but for the map of slots: nothing waits for that
# for good.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Test;

my $TIMEOUT = 0.5;
my $CONNECT = 4;

my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0)->start;
my ($node) = @{ $cluster->{nodes} };
my @fakes = map { LimitSliding::FakeRedis->new($node)->start } 1 .. 2;

my $nginx = LimitSliding::Test->new(worker_processes => 1)->common(
    http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        topology cluster;
        server @{[ $fakes[0]->server ]};
        server @{[ $fakes[1]->server ]};
        timeout 500ms;
        connect_timeout ${CONNECT}s;
    }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=one:1m rate=1r/d redis=shared penalty=1h penalty_after=1;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /one    { limit_sliding zone=one cost=$arg_cost; empty_gif; }
SERVER

my $n = 0;

# Returns the source of the decision about a key, a new one if none is given.
sub source($key = 'k' . $n++, $cost = 1) {
    return header($nginx->get("/one?key=$key&cost=$cost"), 'X-Source');
}

# Returns the status of a page of limits, and the seconds that it took, to the millisecond.
sub page() {
    my $start = now;
    my $status = limits_page($nginx, 'one')->{http};
    return ($status, sprintf '%.3f', now() - $start);
}


# No node becomes ready, as none sends a map

$_->mode('answer', 'CLUSTER', '') for @fakes;
$nginx->serve;

my ($status, $seconds) = page();
is $status, 503, 'no map: no list of limits';
cmp_ok $seconds, '<=', $CONNECT + $TIMEOUT, "... within both timeouts ($seconds)";


# A node that is connected to while another one is asked for the map becomes ready
# without it. It has none, but it decides. Which node is asked first is left to chance.

for my $attempt (1 .. 30) {
    $fakes[0]->mode('refuse');
    $nginx->serve;
    source();
    $fakes[0]->mode('answer', 'CLUSTER', '-ERR no map\r\n');
    last if wait_for(sub { source() eq 'redis' }, $CONNECT / 2);
}

# The other node has been given up by then.
sleep $CONNECT;
is source(), 'redis', 'Redis decides without a map';

source('banned', 5);
my $has_news = sub { grep { /bans\}:news/ } @{ $node->command('KEYS', '*') } };
ok wait_for($has_news), 'a ban is told';

is api($nginx)->{redis}{shared}{memory}, undef, 'the memory is not known';
($status, $seconds) = page();
is $status, 503, 'no list of limits';
cmp_ok $seconds, '<=', $CONNECT + $TIMEOUT, "... within both timeouts ($seconds)";


# The map comes

$_->mode('pass') for @fakes;
ok wait_for(sub { source(); (page())[0] == 200 }), 'a map: there is a list of limits';

done_testing;
