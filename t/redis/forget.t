# DELETE of a key by limit_sliding_api: what nodes have of it, leases and known
# refusals, is over as well, here at once, elsewhere within a second.

use v5.36;

use List::Util qw(first);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new } 1, 2;

$_->common(http => <<"HTTP", server => <<'SERVER') for @nginx;
    ${\ $redis->block('5s')}
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /limits { limit_sliding_api write=on; }
SERVER

# Returns what a key has used, after an order to one of them.
sub order($n, $zone, $key, $method = 'DELETE', $more = '') {
    my $json = api_key($nginx[$n], $zone, $key, $method, $more);
    return $json->{used} // $json->{error};
}

sub source($n, $path) {
    return header($nginx[$n]->get("/$path"), 'X-Source');
}


# Returns a key that has a lease now.  A table of leases has places for two of them
# beside each other, so that those of one key, under two limits, may leave none to another.
sub leased($n, $zone, @keys) {
    return first { source($n, "$zone?key=$_") . source($n, "$zone?key=$_") eq 'redislease' } @keys;
}


# leases

my $LIMIT = 1000;
my $LEASE = 200;
my %ZONES = (
    counter => 'algorithm=counter',
    precise => 'algorithm=counter precision=10',
    fixed   => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket',
);
my %SHAPES = (counter => 'c2592000s', precise => 'c2592000s.10',
    fixed => 'f2592000s', tokens => 't2592000s');
my %leases = places(zones => \%ZONES,
    each => "rate=$LIMIT window=30d redis=shared lease=$LEASE");
$leases{server} .= "location /less-$_ { limit_sliding zone=$_ rate=900;"
    . " empty_gif; }\n" for keys %ZONES;

$_->serve(%leases) for @nginx;

# Returns how many requests pass of those that are sent to both nodes.
sub passed($path, $requests) {
    return scalar grep { ($_ // '') eq 200 } @{ $nginx[0]->load(
        connections => 16, requests => [ ("/$path") x $requests ],
        beside => [ $nginx[1] ]) };
}

# Asserts that both nodes together admit what the limit is, but for what each
# may be left with.
sub exact($path, $name) {
    my $passed = passed($path, $LIMIT + 3 * $LEASE);
    sleep 1.1;
    $passed += passed($path, 2 * $LEASE);
    cmp_ok $passed, '<=', $LIMIT, "$name: no more than the limit";
    cmp_ok $passed, '>=', $LIMIT - 2 * $LEASE, '... and hardly less';
}

for my $zone (sort keys %ZONES) {

    # here
    is source(0, "$zone?key=a") . ' ' . source(0, "$zone?key=a"), 'redis lease',
        "$zone: a lease";
    is source(0, "less-$zone?key=a") . ' ' . source(0, "less-$zone?key=a"),
        'redis lease', '... and one of another limit';
    my $other = leased(0, $zone, 'e' .. 'j');
    ok $other, '... and one of another key';
    is order(0, $zone, 'a'), 0, '... forgotten';
    is source(0, "$zone?key=a"), 'redis', '... at once';
    is source(0, "less-$zone?key=a"), 'redis', '... whatever the limit';
    is source(0, "$zone?key=$other"), 'lease', '... not that of another key';

    # elsewhere
    $nginx[$_]->get("/$zone?key=c") for 0, 0, 1, 1;
    is order(1, $zone, 'c'), 0, "$zone: forgotten by another node";
    sleep 1.05;
    exact("$zone?key=c", "$zone, a second later");
    is order(0, $zone, 'c'), 0, "$zone: forgotten by this node";
    is $nginx[0]->statuses(3, "/$zone?key=c"), '200 200 200',
        '... at once it may ask';
    is order(0, $zone, 'c'), 0, '... and forgotten again';
    sleep 1.05;
    exact("$zone?key=c", "$zone, forgotten twice");

    # Others have asked since, for more than this node knew.
    $nginx[0]->get("/$zone?key=d");
    is order(1, $zone, 'd'), 0, "$zone: forgotten, and asked for by others";
    my $passed = grep { $_ eq 200 }
        split ' ', $nginx[1]->statuses($LEASE + 50, "/$zone?key=d");
    sleep 1.05;
    is source(0, "$zone?key=d"), 'redis', '... this node asks after a second';
    $passed += 1 + passed("$zone?key=d", $LIMIT + $LEASE);
    cmp_ok $passed, '<=', $LIMIT, '... no more than the limit';

    # Nothing is left when its window is over.
    my $name = "limit_sliding:$zone:{" . digest('d') . "}:$SHAPES{$zone}:forgotten";
    cmp_ok $redis->ask('PTTL', $name), '>', 0, '... a mark that expires';
}


# Units are kept where nothing was forgotten.
my $kept = leased(0, 'counter', map { "kept-$_" } 1 .. 6);
is passed("counter?key=$kept", 10), 10, 'leases of two nodes';
sleep 1.1;
is source(0, "counter?key=$kept") =~ /redis|lease/, 1, '... are asked for again';
is source(0, "counter?key=$kept"), 'lease', '... and spent';

$nginx[0]->get('/counter?key=put') for 1 .. 2;
order(0, 'counter', 'put', 'PUT', '&rate=2');
is $nginx[0]->get('/counter?key=put')->{status}, 429,
    'a lower limit, with units leased: it holds at once';


# What is known to be exhausted

$_->serve(places(limit => 'cost=$arg_cost', each => 'window=30d redis=shared',
    zones => { plan => 'rate=$arg_rate' })) for @nginx;

for my $more ('rate=2', 'rate=3&cost=2', 'rate=9&cost=5', 'rate=6&cost=6') {
    $nginx[0]->get("/plan?key=full&$more") for 1 .. 4;
    is source(0, "plan?key=full&$more"), 'cache', "$more: exhausted";
}
is order(0, 'plan', 'full'), 0, '... forgotten';
for my $more ('rate=2', 'rate=3&cost=2', 'rate=9&cost=5', 'rate=6&cost=6') {
    isnt source(0, "plan?key=full&$more"), 'cache', "$more: Redis is asked";
}


# A log, which has no leases

$_->serve(places(each => 'window=30d redis=shared',
    zones => { log => 'rate=4 algorithm=log' })) for @nginx;

is $nginx[0]->statuses(5, '/log?key=a'), '200 200 200 200 429', 'a log';
is order(1, 'log', 'a'), 0, '... forgotten';
is_deeply $redis->ask('KEYS', 'limit_sliding:log:*:forgotten'), [],
    '... without a mark, as it has no leases';


# Units that were not reported yet

$_->serve(places(each => 'window=30d redis=shared',
    zones => { synced => 'rate=4 sync=1s' })) for @nginx;

is $nginx[0]->statuses(5, '/synced?key=a'), '200 200 200 200 429', 'units to be reported';
is order(0, 'synced', 'a'), 0, '... forgotten';
sleep 1.5;
is order(0, 'synced', 'a', 'GET'), 0, '... and not reported afterwards';
is $nginx[0]->statuses(5, '/synced?key=a'), '200 200 200 200 429', '... of a whole limit';

$nginx[1]->finish_one;
$nginx[0]->finish;
