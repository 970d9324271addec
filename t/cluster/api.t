# Orders of limit_sliding_api for keys of a cluster, while their slots move.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

# Starts an NGINX that knows these nodes.
sub start($servers) {
    my %zones = places(each => 'rate=4r/d redis=shared',
        zones => { map { ($_ => "algorithm=$_") } @ALGORITHMS });

    return LimitSliding::Test->new(worker_processes => 1)
        ->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared {
        topology cluster;
        server $servers;
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_log_level off;
    $zones{http}
HTTP
    location /limits { limit_sliding_api write=on; }
    $zones{server}
SERVER
}

my $nginx;

sub shown($json) {
    return "$json->{http} " . state_of($json);
}

sub order($method, $zone, $key, $more = '') {
    return shown(api_key($nginx, $zone, $key, $method, $more));
}

sub ask($n, $zone, $key) {
    return $nginx->statuses($n, "/$zone?key=$key");
}


# While a slot moves, and after that: its nodes say ASK, then MOVED

my $cluster = LimitSliding::Cluster->new(masters => 2, replicas => 0)->start;
my ($from, $to) = @{ $cluster->{nodes} };

my $n = 0;
for my $zone (@ALGORITHMS) {
    my ($key, $slot);
    do {
        $key = "key$n";
        $slot = $cluster->slot("limit_sliding:$zone:{" . digest($key) . '}');
        $n++;
    } until $slot < 8192;

    # The workers know the first node only.
    $nginx = start($from->server);
    is ask(3, $zone, $key), '200 200 200', "$zone: three of four";

    $cluster->move_slot($slot, $from, $to, sub ($state) {
        is order('PUT', $zone, $key, '&rate=6r/d'), '200 3 6 3',
            "$zone, a slot moves, its keys are $state: a limit"
            if $state eq 'moved';
        is order('DELETE', $zone, $key),
            $state eq 'moved' ? '200 0 6 6' : '200 0 4 4',
            "$zone, a slot moves, its keys are $state: forgotten";
        is ask(3, $zone, $key), '200 200 200', '... it may ask';
    });

    is order('PUT', $zone, $key, '&rate=5r/d'), '200 3 5 2',
        "$zone, the slot has moved: a limit";
    is order('DELETE', $zone, $key), '200 0 5 5', '... forgotten';
    is order('PUT', $zone, $key, '&rate=default'), '200 0 4 4',
        '... the zone\'s limit';
    is ask(5, $zone, $key), '200 200 200 200 429', '... which holds';
    $nginx->finish_one;
}


# A slot that moves between the look and the order: what was looked at is told
# late, by a proxy that its node goes by.

my $behind = LimitSliding::Redis->new(
    config => { 'cluster-enabled' => 'yes', 'cluster-announce-ip' => '127.0.0.1' });
my $fake = LimitSliding::FakeRedis->new($behind)->start;
$behind->start('cluster-announce-port' => $fake->port);

my $pair = LimitSliding::Cluster->new(masters => 1, replicas => 0);
my $other = $pair->start_node;
$pair->{nodes} = [ $other, $behind ];
$behind->command(qw(CLUSTER ADDSLOTSRANGE 0 16383));
$behind->command(qw(CLUSTER SET-CONFIG-EPOCH 1));
$other->command(qw(CLUSTER SET-CONFIG-EPOCH 2));
$other->command(qw(CLUSTER MEET 127.0.0.1), $behind->port, $behind->{bus});
wait_for(sub {
    2 == grep { $_->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/
        && $_->command(qw(CLUSTER INFO)) =~ /cluster_known_nodes:2/ }
        $other, $behind;
}) or die 'no cluster';

$nginx = start($fake->server);

my $k = 0;
for my $case ([ DELETE => '', '200 0 4 4' ], [ PUT => '&rate=7r/d', '200 3 7 4' ])
{
    my ($method, $more, $expected) = @$case;
    my $key = 'late' . $k++;
    my $slot = $other->command(qw(CLUSTER KEYSLOT), digest($key));
    is ask(3, 'counter', $key), '200 200 200', "$method: a key";

    $fake->mode('delay', 0.7);
    my $socket = $nginx->send_request(key_path('counter', $key, $more),
        method => $method);
    sleep 0.2;
    $pair->move_slot($slot, $behind, $other);
    $fake->mode('pass');
    is shown(read_key($nginx->read_response($socket))), $expected,
        "$method: the slot has moved since it was looked at";
    is ask(5, 'counter', $key), '200 200 200 200 429', '... it holds there';
}
cmp_ok $behind->count(qw(del set)), '<=', 8, 'no order is repeated without end';

$fake->stop;
$nginx->finish;
