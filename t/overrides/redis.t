# Limits of single keys in Redis hold while it is away, on_error local: as this
# node has seen them last.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my @ZONES = (@ALGORITHMS, 'leased');

my $redis = LimitSliding::Redis->new->start;
my $nginx;

# Returns an NGINX, which does not run yet, with a zone and a place for each
# algorithm and one for leases, in the Redis of these directives.
sub nginx($servers) {
    my %zones = places(each => 'rate=5 window=30d redis=shared', zones => {
        leased => 'lease=20', map { ($_ => "algorithm=$_") } @ALGORITHMS });

    my $nginx = LimitSliding::Test->new;
    $nginx->common(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared {
        $servers
        timeout 2s;
        connect_timeout 2s;
    }
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
    add_header X-Limit \$limit_sliding_limit always;
    $zones{http}
HTTP
    location /limits { limit_sliding_api write=on; }
    $zones{server}
SERVER
    return $nginx;
}

sub key(@key) {
    return api_key($nginx, @key);
}

# Sends n requests, one after the other. Returns { status => how many }.
sub ask($place, $n, $more = '') {
    my %got;
    $got{$_}++ for split ' ', $nginx->statuses($n, "/$place$more");
    return \%got;
}

sub source($place) {
    return header($nginx->get("/$place"), 'X-Source');
}

# Waits until Redis decides in all workers, which connect again one by one.
sub wait_back($zone) {
    my $n = 0;
    ok wait_for(sub { !grep { source("$zone?key=back" . $n++) eq 'fallback' } 1 .. 16 }),
        "$zone: Redis is back";
}


# Stops Redis, and waits until leases and known refusals are over.
sub stop_redis() {
    $redis->stop;
    sleep 1.1;
}


# Seen before Redis dies, by requests or by an order alone

$nginx = nginx("server ${\ $redis->server};");
$nginx->serve;

for my $zone (@ZONES) {
    is key($zone, 'gold', 'PUT', '&rate=100')->{limit}, 100, "$zone: gold";
    is key($zone, 'vip', 'PUT', '&rate=off')->{own_limit}, 'off', '... vip';
    is key($zone, 'bad', 'PUT', '&rate=1')->{limit}, 1, '... bad';
    is key($zone, 'set', 'PUT', '&rate=30')->{limit}, 30, '... set only';
    key($zone, 'was', 'PUT', '&rate=50');
    is key($zone, 'was', 'PUT', '&rate=default')->{limit}, 5, '... no more';

    is_deeply ask($zone, 10, '?key=gold'), { 200 => 10 }, '... gold asks';
    is_deeply ask($zone, 10, '?key=vip'), { 200 => 10 }, '... vip asks';
    is_deeply ask($zone, 3, '?key=bad'), { 200 => 1, 429 => 2 }, '... bad asks';
}

stop_redis();

for my $zone (@ZONES) {
    is_deeply ask($zone, 100, '?key=gold'), { 200 => 90, 429 => 10 },
        "$zone, Redis is gone: gold has what it had left";
    is_deeply ask($zone, 30, '?key=vip'), { 200 => 30 }, '... vip has no limit';
    is_deeply ask($zone, 5, '?key=bad'), { 429 => 5 }, '... bad has used its own';
    is_deeply ask($zone, 40, '?key=set'), { 200 => 30, 429 => 10 },
        '... one that never came before';
    is_deeply ask($zone, 10, '?key=was'), { 200 => 5, 429 => 5 },
        '... one that has none any more';
    is_deeply ask($zone, 10, '?key=other'), { 200 => 5, 429 => 5 },
        '... and others the zone\'s';
}

is source('counter?key=gold'), 'fallback', 'decided here';
is header($nginx->get('/counter?key=gold'), 'X-Limit'), 100, '... by its limit';


# It is kept over a reload

$nginx->reload;
is_deeply ask($_, 5, '?key=gold'), { 429 => 5 }, "$_, a reload: gold"
    for @ZONES;
is_deeply ask($_, 9, '?key=vip'), { 200 => 9 }, "$_, a reload: vip" for @ZONES;
is header($nginx->get('/counter?key=bad'), 'X-Limit'), 1, 'a reload: bad';


# When Redis answers its word counts

$redis->start;       # empty
wait_back($_) for @ZONES;
is_deeply ask($_, 7, '?key=gold'), { 200 => 5, 429 => 2 },
    "$_, Redis has forgotten: gold has the zone's limit" for @ZONES;
is_deeply ask('counter', 7, '?key=vip'), { 200 => 5, 429 => 2 }, '... and vip';
is_deeply ask('counter', 7, '?key=bad'), { 200 => 5, 429 => 2 }, '... and bad';
$redis->stop;
is_deeply ask('counter', 3, '?key=gold'), { 429 => 3 },
    '... and has it when Redis is gone again';


# Places with limits of their own, several limits, other policies

my %both = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_user zone=user:1m rate=3 window=30d redis=shared;
HTTP
    location /both {
        limit_sliding zone=counter;
        limit_sliding zone=user;
        empty_gif;
    }
SERVER

$redis->start;
$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis closed {
        server ${\ $redis->server};
        timeout 2s;
        connect_timeout 2s;
        on_error deny;
    }
    limit_sliding_zone \$arg_key zone=closed:1m rate=5 window=30d redis=closed;
    limit_sliding_zone \$arg_key zone=plan:1m rate=\$arg_rate window=30d
        redis=shared;
    $both{http}
HTTP
    location /wide    { limit_sliding zone=counter rate=80; empty_gif; }
    location /plan    { limit_sliding zone=plan; empty_gif; }
    location /closed  { limit_sliding zone=closed; empty_gif; }
    location /counted { limit_sliding zone=counter count_status=404; }
    $both{server}
SERVER

key('counter', 'vip', 'PUT', '&rate=off');
key('counter', 'bad', 'PUT', '&rate=1');
ask('counter', 1, "?key=$_") for qw(vip bad);

# A limit that is as large as that of a place is the key's own all the same.
key('counter', 'equal', 'PUT', '&rate=5');
ok key('counter', 'equal')->{own_limit}, 'a limit of its own, as the zone has';
is_deeply ask('wide', 2, '?key=equal'), { 200 => 2 }, '... at a place of 80';
is_deeply ask('counter', 1, '?key=equal'), { 200 => 1 }, '... at one of 5';

# A request brings a limit, and another one counts by its status.
key('plan', 'gold', 'PUT', '&rate=8');
is_deeply ask('plan', 2, '?key=gold&rate=4'), { 200 => 2 }, 'a variable rate';
key('counter', 'vip2', 'PUT', '&rate=off');
ask('counted', 7, '?key=vip2');

key('closed', 'vip', 'PUT', '&rate=off');

# This node has seen the limit in Redis only.
$redis->command('SET', 'limit_sliding:counter:{' . digest('seen')
    . '}:limit', 12);
is_deeply ask('counter', 1, '?key=seen'), { 200 => 1 }, 'a limit set in Redis';

stop_redis();

is_deeply ask('wide', 10, '?key=equal'), { 200 => 2, 429 => 8 },
    'as large as a limit of the configuration: it holds at all places';
is_deeply ask('plan', 10, '?key=gold&rate=4'), { 200 => 6, 429 => 4 },
    'it holds whatever a request brings';
is_deeply ask('counter', 20, '?key=seen'), { 200 => 11, 429 => 9 },
    'a limit that was set in Redis';

is_deeply ask('both', 5, '?key=vip&user=1'), { 200 => 3, 429 => 2 },
    'no limit for one key of two: the other\'s holds';
is_deeply ask('both', 4, '?key=bad&user=2'), { 429 => 4 },
    'one of two is used up: rejected';
is_deeply ask('both', 5, '?key=set2&user=2'), { 200 => 3, 429 => 2 },
    '... at no cost for the other';
is_deeply ask('counted', 5, '?key=vip2'), { 404 => 5 },
    'no limit: nothing is counted by status';
is_deeply ask('closed', 2, '?key=vip'), { 429 => 2 },
    'on_error deny: it is no question of limits';


# It dies under requests

$redis->start;
ok wait_for(sub {
    # each worker connects by itself
    return key('counter', 'load', 'PUT', '&rate=1000')->{http} == 200
        && !grep { source("counter?key=ready$_") eq 'fallback' } 1 .. 20;
}), 'Redis is back, and a limit is set';
my %got;
$got{ $_ // 'none' }++ for @{ $nginx->load(connections => 16, pipeline => 2,
    requests => [ ('/counter?key=load') x 1500 ],
    at => { 200 => sub { $redis->stop } }) };
cmp_ok $got{200}, '>=', 1000, 'Redis dies under requests: all of the limit';
cmp_ok $got{200}, '<=', 1000 + 32, '... and no more, but for those in flight';
is $got{200} + $got{429}, 1500, '... each is answered';

$nginx->finish_one;


# Keys of several slots of a cluster, which are asked for one by one

my $cluster = LimitSliding::Cluster->new(masters => 2, replicas => 0)->start;
$nginx = nginx("topology cluster; server ${\ $cluster->servers};");
$nginx->serve(%both);

for my $case ([ vip => 'off' ], [ gold => 20 ], [ bad => 1 ]) {
    is key('counter', $case->[0], 'PUT', "&rate=$case->[1]")->{http}, 200,
        "a cluster: $case->[0]";
    is_deeply ask('both', 1, "?key=$case->[0]&user=$_"), { 200 => 1 },
        "... asks with $_" for $case->[0] eq 'bad' ? 'a' : qw(a b);
}
$_->stop for $cluster->alive;
sleep 1.1;
is_deeply ask('counter', 30, '?key=vip'), { 200 => 30 },
    'a cluster is gone: vip has no limit';
is_deeply ask('counter', 30, '?key=gold'), { 200 => 18, 429 => 12 },
    '... gold has what it had left';
is_deeply ask('counter', 5, '?key=bad'), { 429 => 5 },
    '... bad has used its own';
is_deeply ask('both', 5, '?key=vip&user=c'), { 200 => 3, 429 => 2 },
    '... two keys, one without a limit';

$nginx->finish;
