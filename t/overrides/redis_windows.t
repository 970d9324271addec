# Limits of single keys in Redis that have a window of their own, or reject
# everything: all algorithms, leases, settled costs, several limits and slots.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my %ZONES = (
    leased => 'lease=20',
    tokens => 'algorithm=token_bucket lease=auto',
    map { ($_ => "algorithm=$_") } @ALGORITHMS,
);
my @ZONES = sort keys %ZONES;

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { nginx("server ${\ $redis->server};")->serve } 1, 2;

# Returns an NGINX, which does not run yet, with a zone and a place for each
# algorithm, in the Redis of these directives.
sub nginx($servers) {
    my %zones = places(each => 'rate=5 window=30d redis=shared',
        zones => \%ZONES, limit => 'cost=$cost');

    my $nginx = LimitSliding::Test->new;
    $nginx->common(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared {
        $servers
        timeout 5s;
        connect_timeout 5s;
    }
    map \$arg_cost \$cost { default \$arg_cost; '' 1; }
    limit_sliding_log_level off;
    limit_sliding_headers retry_after x;
    add_header X-Source \$limit_sliding_source always;
    add_header X-Which  \$limit_sliding_zone always;
    $zones{http}
    limit_sliding_zone \$arg_key zone=plan:1m rate=\$arg_rate window=30d
        redis=shared;
    limit_sliding_zone \$arg_key zone=plan_leased:1m rate=\$arg_rate window=30d
        redis=shared lease=20;
    limit_sliding_zone \$arg_user zone=user:1m rate=3 window=30d redis=shared;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /both {
        limit_sliding zone=counter;
        limit_sliding zone=user;
        empty_gif;
    }
    location /plan        { limit_sliding zone=plan settle=\$arg_is; empty_gif; }
    location /plan_leased { limit_sliding zone=plan_leased; empty_gif; }
    location /settled {
        limit_sliding zone=fixed settle=\$arg_is;
        empty_gif;
    }
    location /status { limit_sliding zone=fixed count_status=404; }
    $zones{server}
SERVER
    return $nginx;
}

sub name($zone, $key) {
    return "limit_sliding:$zone:{" . digest($key) . '}';
}

sub set_limit($zone, $key, $limit, $where = $redis) {
    $where->command('SET', name($zone, $key) . ':limit', $limit);
}

# Sends n requests to both nodes. Returns how many pass.
sub passed($path, $n, %opt) {
    return scalar grep { ($_ // '') eq 200 } @{ $nginx[0]->load(
        connections => 8, requests => [ ("/$path") x $n ],
        beside => [ $nginx[1] ], %opt) };
}

# Sends n requests to both nodes, and to each one more until it rejects: the
# last units may be with a node that got few of the n, in its lease or as its own
# limit. Returns how many pass.
sub all_passed($path, $n) {
    my $passed = passed($path, $n);
    for my $nginx (@nginx) {
        ++$passed while $nginx->get("/$path")->{status} == 200;
    }
    return $passed;
}

sub key(@key) {
    return api_key($nginx[0], @key);
}


# Its own window counts, and is told

for my $zone (@ZONES) {
    set_limit($zone, 'own', '40/20d');
    is all_passed("$zone?key=own", 100), 40, "$zone: a limit of its own window";

    my $r = $nginx[0]->get("/$zone?key=own");
    is header($r, 'X-RateLimit-Limit'), 40, '... is told';

    # a counter's part, whose length is below a day, fades after the window
    my $reset = header($r, 'X-RateLimit-Reset');
    cmp_ok $reset, '<=', 21 * 86400, '... and when it is over';
    cmp_ok header($r, 'Retry-After') // 0, '<=', 21 * 86400, '... or has room';
    is all_passed("$zone?key=other", 20), 5, '... others have the zone\'s';
    is key($zone, 'own')->{used}, 40, '... and the API tells what it has used';
}


# A window that changes

sub changes($zone) {
    $redis->reconnect;
    my $set = sub ($limit) {
        return sub { set_limit($zone, 'changed', $limit) };
    };
    stay_in(60, 20) if $zone eq 'fixed';
    $set->('30/1m')->();
    my $passed = passed("$zone?key=changed", 4000, at => {
        200 => $set->('200/1h'), 800 => $set->('30/1m'),
        900 => $set->('200/1h'), 1000 => $set->('30/1m') });
    my $lease = $zone =~ /leased|tokens/;
    cmp_ok $passed, '<=', 30 + 200, "$zone: 1m, 1h, and back, under load";

    # a bucket fills in a minute, and a refusal is believed for a second
    sleep 1.1;
    $passed += passed("$zone?key=changed", 20);
    cmp_ok $passed, '<=', 30 + 200 + 2, '... no more than either allows';

    sleep 1.1;
    $set->('200/1h')->();
    $passed += passed("$zone?key=changed", 300);
    sleep 1.1;
    $passed += passed("$zone?key=changed", 300);
    cmp_ok $passed, '<=', 30 + 200 + 3, '... again';
    cmp_ok $passed, '>=', 30 + 200 - ($lease ? 80 : 0), '... and all of it';

    # the zone's window has its own history, too
    $redis->command('DEL', name($zone, 'changed') . ':limit');
    sleep 1.1;
    $passed = passed("$zone?key=changed", 20);
    cmp_ok $passed, '<=', 5, '... and no window of its own';
    cmp_ok $passed, '>=', $lease ? 1 : 5, '... but the zone\'s';

    # the history of the key's window is forgotten by an order
    $set->('7/25d')->();
    sleep 1.1;
    $passed = passed("$zone?key=changed", 20);
    cmp_ok $passed, '<=', 7, '... another window';
    cmp_ok $passed, '>=', $lease ? 1 : 7, '... all of it';
    key($zone, 'changed', 'DELETE');
    sleep 1.1;
    $passed = passed("$zone?key=changed", 20);
    cmp_ok $passed, '<=', 7, '... which is forgotten';
    cmp_ok $passed, '>=', $lease ? 1 : 7, '... once';
}

subtests(map { my $zone = $_; ($zone => sub { changes($zone) }) } @ZONES);


# 0 rejects everything

for my $zone (@ZONES) {
    set_limit($zone, 'bad', 0);
    is passed("$zone?key=bad", 20), 0, "$zone: 0 rejects everything";
    my $r = $nginx[0]->get("/$zone?key=bad&cost=0");
    is $r->{status}, 429, '... and what costs nothing';
    is header($r, 'Retry-After'), '', '... for ever';
    is header($r, 'X-RateLimit-Limit'), 0, '... as the limit says';
    is header($r, 'X-RateLimit-Remaining'), 0, '... with nothing left';

    $nginx[0]->get("/$zone?key=bad");
    my $calls = $redis->calls;
    passed("$zone?key=bad", 200);
    cmp_ok $redis->calls - $calls, '<', 10, '... most without asking Redis';
}

$redis->command('DEL', name($_, 'bad') . ':limit') for @ZONES;
sleep 1.1;
is all_passed("$_?key=bad", 20), 5, "$_: no 0 any more: it has consumed nothing" for @ZONES;

set_limit('counter', 'bad', 0);
set_limit('user', 'good', '3/20d');
is passed('both?key=bad&user=good', 10), 0, 'one of two limits is 0';
is passed('both?key=fine&user=good', 10), 3, '... at no cost for the other';
set_limit('user', 'none', 0);
is passed('both?key=fine&user=none', 10), 0, '... and the other way round';
is passed('counter?key=fine', 10), 2, '... at no cost, too';


# What is settled

set_limit('fixed', 'settled', '100/20d');
$nginx[0]->get('/settled?key=settled&is=' . $_) for 10, 0, 1, 30;
ok wait_for(sub { key('fixed', 'settled')->{used} == 41 }),
    'costs are settled in the own window';
set_limit('fixed', 'settled', '100/25d');
sleep 1.1;
$nginx[0]->get('/settled?key=settled&is=' . $_) for 10, 0;
ok wait_for(sub { key('fixed', 'settled')->{used} == 10 }), '... and the next';
set_limit('fixed', 'settled', '100/20d');
is key('fixed', 'settled')->{used}, 41, '... not in the one before';
is key('fixed', 'settled', 'POST', '&cost=-40')->{used}, 1, '... nor by hand';

set_limit('fixed', 'failed', '3/20d');
# another worker may decide the next one before this one's status was counted
my @failed;
for my $n (1, 2, 3, 3, 3) {
    push @failed, $nginx[0]->get('/status?key=failed')->{status};
    wait_for(sub { key('fixed', 'failed')->{used} == $n });
}
is "@failed", '404 404 404 429 429', 'statuses are counted in the own window';


# Windows that requests bring

for my $zone (qw(plan plan_leased)) {
    is all_passed("$zone?key=a&rate=40/20d", 100), 40, "$zone: a request's window";
    is all_passed("$zone?key=a&rate=6", 100), 6, '... beside the zone\'s';
    my $passed = all_passed("$zone?key=a&rate=50/25d", 100);
    is $passed, 50, '... and another one';
    sleep 1.1;
    is all_passed("$zone?key=a&rate=41/20d", 20), 1, '... each with a history';
    is all_passed("$zone?key=a&rate=0", 5), 0, '... 0';

    set_limit($zone, 'a', '10');
    sleep 1.1;
    is all_passed("$zone?key=a&rate=70/20d", 20), 4,
        '... a key\'s own: the zone\'s window';
    set_limit($zone, 'a', '45/20d');
    sleep 1.1;
    is all_passed("$zone?key=a&rate=9", 20), 4, '... or its own';
}
$nginx[0]->get('/plan?key=b&rate=90/20d&is=' . $_) for 10, 0, 1, 30;
is passed('plan?key=b&rate=90/20d', 100), 49, '... settled';


# Several windows in one call: each request finds what its own window has used.
my @mixed = map { ("/plan?key=m$_&rate=3/20d", "/plan?key=m$_&rate=3/25d") } 1 .. 200;
my %mixed = map { $_ => 0 } @mixed;
for my $opt ([ connections => 64 ], [ connections => 1 ]) {
    my @requests = (@mixed) x 2;
    my $statuses = $nginx[0]->load(@$opt, requests => \@requests);
    $mixed{ $requests[$_] } += $statuses->[$_] eq 200 for 0 .. $#requests;
}
is_deeply [ grep { $mixed{$_} != 3 } sort keys %mixed ], [], 'in calls of several windows';


# While Redis is away

my %limits = (own => '10/20d', zero => 0, off => 'off');
my %before;
for my $zone (@ZONES) {
    set_limit($zone, "away-$_", $limits{$_}) for keys %limits;
    $before{$zone}{$_} = passed("$zone?key=away-$_", 3) for keys %limits;
}
my $planned = passed('plan?key=away&rate=9/20d', 3);
$redis->stop;
sleep 1.1;
is all_passed('plan?key=away&rate=9/20d', 60), 18 - $planned,
    'Redis is gone: the window of requests on each node';
for my $zone (@ZONES) {
    my $nodes = sub ($key) {
        return join ' ', map { my $nginx = $_; scalar grep { $_ eq 200 }
            split ' ', $nginx->statuses(20, "/$zone?key=away-$key") } @nginx;
    };
    is sum0(split ' ', $nodes->('own')), 20 - $before{$zone}{own},
        "$zone, Redis is gone: on each node what is left of the own window";
    is $nodes->('zero'), '0 0', '... 0';
    is $nodes->('off'), '20 20', '... off';
    is header($nginx[0]->get("/$zone?key=away-zero"), 'Retry-After'), '',
        '... 0 for ever';
}

$_->finish_one for @nginx;


# Keys of several slots of a cluster

my $cluster = LimitSliding::Cluster->new(masters => 2, replicas => 0)->start;
@nginx = map { nginx("topology cluster; server ${\ $cluster->servers};")->serve }
    1, 2;

# Sets the limit of a key in its node.
sub set_in_cluster($zone, $key, $limit) {
    my $name = name($zone, $key);
    $cluster->master_of($cluster->slot($name))
        ->command('SET', "$name:limit", $limit);
}

for my $i (1 .. 8) {
    set_in_cluster('counter', "a$i", '30/20d');
    set_in_cluster('user', "b$i", '9/25d');
    set_in_cluster('user', "c$i", 0);
    is passed("both?key=a$i&user=c$i", 5), 0, "a cluster, $i: 0";
    is passed("both?key=a$i&user=b$i", 30), 9, '... two limits with windows';
    ok wait_for(sub { key('counter', "a$i")->{used} == 9 }),
        '... what the other one rejected is given back';
    is passed("counter?key=a$i", 40), 21, '... all of it';
}

$_->finish_one for @nginx;
done_testing;
