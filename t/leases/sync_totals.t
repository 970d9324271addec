# sync=: whatever Redis does, and whatever is sent again, a node never forgets what it has
# admitted, and Redis counts it once. SYNC_KEYS is how many keys two workers race for (4000).

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Clock;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $KEYS = $ENV{SYNC_KEYS} // 4000;
my $LIMIT = 100;
my $MANY = 2000;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

my %algorithms = (counter => 'strict', fixed => 'algorithm=fixed', leaky =>
    'algorithm=leaky_bucket burst=99 nodelay', precise => 'precision=10 strict');

sub node($server, $sync = 'sync=50ms') {
    my $nginx = LimitSliding::Test->new->common(listen => 'reuseport', http => <<"HTTP");
    limit_sliding_log_level off;
    limit_sliding_redis shared { server $server; timeout 100ms; connect_timeout 100ms; }
HTTP
    my %places = places(each => "rate=$LIMIT window=1h redis=shared $sync",
        zones => { %algorithms, four => 'rate=4' }, limit => 'cost=$arg_cost settle=$arg_settle');
    $places{server} .= "    location /limits { limit_sliding_api write=on; }\n";
    $places{http} =~ s/four:1m rate=$LIMIT (.*)rate=4/four:32m rate=4 $1/;
    return $nginx->serve(%places);
}

# Sends so many requests of the key at once; returns how many pass.
sub passed($nginx, $path, $n) {
    my $statuses = $nginx->load(requests => [ ($path) x $n ], connections => 8);
    return scalar grep { $_ == 200 } @$statuses;
}

# Sends a request of each of many keys; returns how many pass.
sub passed_each($nginx, $name) {
    my $statuses = $nginx->load(connections => 8,
        requests => [ map { "/four?key=$name-$_" } 1 .. $MANY ]);
    return scalar grep { $_ == 200 } @$statuses;
}

# A worker that a frozen Redis has not answered shows its own count until it connects again.
sub used($nginx, $zone, $key = 'a') {
    my $json;
    wait_for(sub {
        $json = api_key($nginx, $zone, $key);
        return $json->{source} eq 'redis';
    });
    return $json->{used} // -1;
}

sub unsettled($nginx) { return api($nginx)->{redis}{shared}{unsettled} }

my ($one, $two) = (node($fake->server), node($redis->server));
my $exact = node($redis->server, '');


# Two workers and one key after the other: a reply comes while the other worker admits.

my @requests = map { my $key = $_; map { "/four?key=$key" } 1 .. 8 } 1 .. $KEYS;
my $statuses = $one->load(requests => \@requests, connections => 32);
my %passed;
$passed{ $requests[$_] } += $statuses->[$_] == 200 for 0 .. $#requests;
is scalar(grep { $_ != 4 } values %passed), 0, "$KEYS keys: each has its limit";


# Redis pauses, hangs and forgets

for my $zone (sort keys %algorithms) {
    my $path = "/$zone?key=pause";
    my $passed = passed($one, $path, 20);
    for my $pause (0.7, 0.7, 0.7, 0.7) {
        sleep 0.2;
        $redis->freeze;
        $passed += passed($one, $path, 15);
        sleep $pause;
        $redis->thaw;
    }
    is $passed, 80, "$zone: four pauses of Redis, in which requests pass";
    ok wait_for(sub { used($one, $zone, 'pause') == 80 }), '... Redis knows of each once';
    $passed += passed($one, $path, $LIMIT);
    is $passed, $LIMIT, '... the limit holds';
    is unsettled($one), 0, '... and nothing is lost';

    $path = "/$zone?key=hang";
    $passed = 0;
    for (1 .. 10) {
        $redis->freeze;
        $passed += passed($one, $path, 7);
        sleep 0.12;
        $redis->thaw;
        $passed += passed($one, $path, 7);
        sleep 0.88;
    }
    is $passed, $LIMIT, "$zone: a hang each second: the limit holds";
    ok wait_for(sub { used($one, $zone, 'hang') == $LIMIT }), '... in Redis, too';

    $path = "/$zone?key=lost";
    $passed = passed($one, $path, 40);
    sleep 0.2;
    $redis->command('FLUSHALL');
    $passed += passed($one, $path, 40);
    sleep 0.2;
    is used($one, $zone, 'lost'), 40, "$zone: Redis has lost its data";
    $passed += passed($one, $path, $LIMIT);
    is $passed, $LIMIT, '... the node has not';
}
is unsettled($one), 0, 'nothing was lost';


# Replies are lost: Redis has counted, and is told again

for my $zone (sort keys %algorithms) {
    my $path = "/$zone?key=cut";
    is passed($one, $path, 10), 10, "$zone: ten pass";
    sleep 0.2;
    $fake->mode('cut');
    is passed($one, $path, 20), 20, '... and twenty more';
    sleep 2;
    is passed($two, $path, 5), 5, '... and five on another node';
    sleep 0.2;
    $fake->mode('pass');
    sleep 3;              # until it knows that Redis is back
    passed($one, $path, 1);
    sleep 1;
    is used($two, $zone, 'cut'), 36, '... Redis has counted each once';
    passed($two, $path, 2 * $LIMIT);
    sleep 1;
    is used($two, $zone, 'cut'), $LIMIT, '... the limit holds';
    passed($one, $path, 1);
    sleep 0.2;
    is passed($one, $path, 10), 0, '... and the first node learns of all';

    # costs turn out lower while replies are lost
    $path = "/$zone?key=less&cost=10&settle=2";
    $fake->mode('cut');
    passed($one, $path, 5);
    sleep 2;
    $fake->mode('pass');
    ok wait_for(sub { used($one, $zone, 'less') == 10 }), '... as each cost that turned out lower';
}
sleep 1;
is unsettled($_), 0, 'nothing was lost' for $one, $two;


# A node without sync= has consumed: there is no total of it

for my $zone (sort keys %algorithms) {
    is passed($exact, "/$zone?key=mixed", 60), 60, "$zone: sixty on a node without sync=";
    passed($two, "/$zone?key=mixed", 1);
    sleep 0.2;
    is passed($two, "/$zone?key=mixed", $LIMIT), 39, '... and what is left on one with it';
    sleep 0.2;
    is passed($exact, "/$zone?key=mixed", 1), 0, '... which the first one learns';
}


# A key is forgotten, also by a node that knows it

for my $zone (sort keys %algorithms) {
    passed($one, "/$zone?key=gone", $LIMIT);
    sleep 0.2;
    passed($two, "/$zone?key=gone", 1);
    sleep 0.2;
    is passed($two, "/$zone?key=gone", 1), 0, "$zone: a key without units";
    api_key($two, $zone, 'gone', 'DELETE');
    ok wait_for(sub { passed($one, "/$zone?key=gone", 1) }), '... is forgotten by the other node';
    sleep 1;
    is passed($one, "/$zone?key=gone", 20), 20, '... for good';
}


# Redis was away, and many keys are due at once

my $known = sub { scalar @{ $redis->command('KEYS', '*:totals') } };
my $before = $known->();
$fake->mode('refuse');
$fake->reset;
is passed_each($one, 'due'), $MANY, "$MANY keys while Redis is away";
ok wait_for(sub { api($one)->{redis}{shared}{breaker} eq 'open' }), '... as the node knows';
$fake->forget;
$fake->mode('pass');
ok wait_for(sub { $known->() - $before == $MANY }), '... are reported after it';
cmp_ok $fake->stats->{most}, '<=', 17, '... by few calls at a time';
is unsettled($one), 0, '... and none is lost';

$_->finish_one for $one, $two, $exact;
done_testing;
