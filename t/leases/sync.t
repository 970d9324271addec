# sync=: NGINXs that decide at once, and tell Redis later.

use v5.36;

use IO::Socket::INET;
use List::Util qw(max sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $redis = LimitSliding::Redis->new->start;

# Makes an NGINX whose Redis is this server.
sub node($server, $block = '') {
    return LimitSliding::Test->new->common(listen => 'reuseport',
        http => <<"CONF", server => 'location /limits { limit_sliding_api write=on; }');
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        server $server;
        $block
    }

    add_header X-Source    \$limit_sliding_source    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Time      \$request_time            always;
CONF
}

my @nginx = map { node($redis->server, 'timeout 5s; connect_timeout 5s;') } 1 .. 2;

sub serve($each, %zones) {
    $_->serve(places(each => "redis=shared $each", zones => \%zones)) for @nginx;
}

sub used($nginx, $zone, $key = 'a') {
    return api_key($nginx, $zone, $key)->{used} // -1;
}

# Asserts that Redis knows of so many once an interval is over.
sub told($zone, $key, $used, $name, $interval = 0.05) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    sleep $interval;
    is used($nginx[0], $zone, $key), $used, $name;
}

# Sends requests to both NGINXs; returns how many passed.
sub passed($path, $n, %opt) {
    my $statuses = $nginx[0]->load(requests => [ ($path) x $n ], connections => 64,
        pipeline => 4, beside => [ $nginx[1] ], %opt);
    my @others = grep { ($_ // 'none') !~ /^(?:200|429)$/ } @$statuses;
    die "$path: @others" if @others;
    return scalar grep { $_ == 200 } @$statuses;
}


# Configurations that make no sense

for my $case (
    [ 'sync=100ms' => '"sync=100ms" needs the "redis=" parameter' ],
    [ 'redis=shared lease=auto sync=100ms' => '"lease=auto" cannot be with "sync="' ],
    [ 'redis=shared sync=1s count_rejected' => '"count_rejected" cannot be with "sync="' ],
    [ 'redis=shared sync=1s algorithm=log' => '"sync=1s" cannot be with "algorithm=log"' ],
    [ 'redis=shared sync=0' => '"sync=0" must be between 10ms and 1m' ],
    [ 'redis=shared sync=9ms' => '"sync=9ms" must be between 10ms and 1m' ],
    [ 'redis=shared sync=61s' => '"sync=61s" must be between 10ms and 1m' ],
    [ 'redis=shared sync=soon' => 'invalid time "sync=soon"' ],
    [ 'redis=shared sync=' => 'invalid parameter "sync="' ],
    [ 'redis=shared sync=1s sync=1s' => 'duplicate parameter "sync=1s"' ],
    [ 'redis=shared sync=1s rate=2000000000r/s' => '1000000000' ],
) {
    my ($parameters, $error) = @$case;
    my $rate = $parameters =~ /rate=/ ? '' : 'rate=1r/s';
    my ($code, $output) = LimitSliding::Test->new->test_config(<<"CONF");
%%GLOBALS%%
http {
    limit_sliding_redis shared { server 127.0.0.1; }
    limit_sliding_zone \$uri zone=one:1m $rate $parameters;
}
CONF
    isnt $code, 0, "$parameters: fails";
    like $output, qr/\[emerg\] .*\Q$error\E/, '... and says why';
}


# What others have admitted is known after an interval

my %algorithms = (
    counter => '', strict => 'strict', precise => 'precision=10', fixed => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket', leaky => 'algorithm=leaky_bucket burst=9 nodelay',
);
my $LIMIT = 10;
serve("sync=50ms rate=$LIMIT window=30d", %algorithms);
for my $zone (sort keys %algorithms) {
    my $path = "/$zone?key=a";
    my $r = $nginx[0]->get($path);
    is "$r->{status} " . header($r, 'X-Source'), '200 cache', "$zone: decided here";
    is $nginx[0]->statuses(3, $path), '200 200 200', "$zone: four pass";
    told($zone, 'a', 4, '... of which Redis is told');
    is $nginx[1]->statuses(1, $path), '200', '... another node admits one';
    sleep 0.05;
    is $nginx[1]->statuses(6, $path), '200 200 200 200 200 429', '... and what is left';
    told($zone, 'a', 10, '... of which Redis is told, too');
    $nginx[0]->get($path);
    sleep 0.05;
    is $nginx[0]->statuses(2, $path), '429 429', '... and so the first one learns of it';
}


# Limits of their own

serve('sync=50ms rate=3 window=30d', one => '');
my $path = '/one?key=own';
is $nginx[0]->statuses(4, $path), '200 200 200 429', 'the limit of the zone';
api_key($nginx[1], 'one', 'own', 'PUT', '&rate=6');
wait_for(sub { $nginx[0]->get($path)->{status} == 200 }, 1) or fail 'a higher limit';
is $nginx[0]->statuses(3, $path), '200 200 429', 'a higher limit is learned within a second';
api_key($nginx[1], 'one', 'own', 'PUT', '&rate=off');
ok wait_for(sub { $nginx[0]->get($path)->{status} == 200 }, 1), 'off';
is $nginx[0]->statuses(8, $path), join(' ', (200) x 8), '... admits all';
api_key($nginx[1], 'one', 'own', 'PUT', '&rate=0');
ok wait_for(sub { $nginx[0]->get($path)->{status} == 429 }, 1), '0 rejects';
api_key($nginx[1], 'one', 'own', 'PUT', '&rate=default');
api_key($nginx[1], 'one', 'own', 'DELETE');
ok wait_for(sub { $nginx[0]->get($path)->{status} == 200 }, 1), 'a key that was forgotten';


# A rate of a request that is "0" is no limit that Redis could be asked about

serve('sync=50ms rate=$arg_rate window=30d', one => '');
for (1 .. 3) {
    is $nginx[0]->get('/one?key=a&rate=0')->{status}, 429, 'the rate 0';
    sleep 0.1;
}
is $nginx[0]->statuses(4, '/one?key=a&rate=2'), '200 200 429 429', '... and another one';


# One command an interval, for all workers

serve('sync=100ms rate=1000000 window=30d', one => '');
passed('/one?key=few', 200);
sleep 0.1;
my $calls = $redis->calls;
my $passed = 0;
for (1 .. 20) {
    $passed += passed('/one?key=few', 200, connections => 8);
    sleep 0.05;
}
$calls = $redis->calls - $calls;
is $passed, 4000, 'all pass';
cmp_ok $calls, '<=', 2 * 10, '... by ten calls a second and node';
cmp_ok $calls, '>=', 2 * 9, '... which there were';
told('one', 'few', 4200, '... Redis knows of all of them', 0.1);

my @keys = map { $_ % 500 } 1 .. 5000;
$nginx[0]->load(requests => [ map { "/one?key=k$_" } @keys ], beside => [ $nginx[1] ]);
sleep 0.1;
is sum0(map { used($nginx[0], 'one', "k$_") } 0 .. 499), 5000, '500 keys: all are known';


# Costs

$_->serve(http => '', places(each => 'redis=shared sync=50ms', zones => {
    cost => 'rate=1000 window=30d', bytes => 'rate=1000000000 window=30d' },
    limit => 'cost=$arg_cost settle=$arg_settle')) for @nginx;
$nginx[0]->get('/cost?key=a&cost=7');
told('cost', 'a', 7, 'a cost');
$nginx[0]->get('/cost?key=b&cost=2&settle=9');
told('cost', 'b', 9, 'a request that turned out to cost more');
$nginx[0]->get('/cost?key=c&cost=9&settle=2');
told('cost', 'c', 2, '... or less');
$nginx[0]->get('/cost?key=e&cost=600&settle=1');
sleep 0.3;
is $nginx[0]->get('/cost?key=e&cost=600&settle=1')->{status}, 200,
    '... which leaves room in the memory of the node as well';
$nginx[0]->get('/cost?key=d&cost=900');
told('cost', 'd', 900, 'much of a limit');
$nginx[1]->get('/cost?key=d&cost=1&settle=150');
told('cost', 'd', 1000, '... which others exceed');
ok wait_for(sub { $nginx[0]->get('/cost?key=d&cost=1')->{status} == 429 }),
    '... so that nothing is left';
$nginx[0]->get('/bytes?key=a&cost=1&settle=4294967299');
told('bytes', 'a', 1000000000, 'more than a report has room for');

$nginx[0]->get('/cost?key=f&cost=1&settle=5000');
told('cost', 'f', 1000, 'a key that owes');
is api_key($nginx[0], 'cost', 'f', 'DELETE')->{used}, 0, '... is reset';
sleep 0.2;
is $nginx[0]->get('/cost?key=f&cost=1')->{status}, 200, '... and passes';
sleep 1.5;                # longer than its units would have waited
is used($nginx[1], 'cost', 'f'), 1, '... and owes nothing any more';

$nginx[0]->get('/cost?key=g&cost=1&settle=5000');
told('cost', 'g', 1000, 'a key that owes');
is api_key($nginx[0], 'cost', 'g', 'POST', '&cost=-4500')->{used}, 500,
    '... of which most is given back';
sleep 1.5;
is used($nginx[1], 'cost', 'g'), 500, '... it owes nothing any more';
$nginx[0]->get('/cost?key=h&cost=1&settle=1500');
told('cost', 'h', 1000, 'another one');
is api_key($nginx[0], 'cost', 'h', 'POST', '&cost=-300')->{used}, 1000,
    '... of which less than it owes is given back';

api_key($nginx[1], 'cost', 'i', 'POST', '&cost=5000');
my $owes = sub {
    my $wait = header($nginx[0]->get('/cost?key=i&cost=1'), 'Retry-After');
    return ($wait || 0) > 3 * 30 * 86_400;
};
ok wait_for($owes), 'one that owes by another node: several windows';
sleep 1.2;                # until Redis is asked again
ok $owes->(), '... also after further replies';

# A key that owes nine windows waits for them, also after a reload
$nginx[0]->serve(http => '', places(
    each => 'rate=100 window=2s redis=shared sync=50ms',
    zones => { counter => '', fixed => 'algorithm=fixed' },
    limit => 'cost=$arg_cost settle=$arg_settle'));
my @owe = qw(counter fixed);
$nginx[0]->get("/$_?key=a&cost=1&settle=1000") for @owe;
told($_, 'a', 100, "$_: a key that owes") for @owe;
sub waits($least, $name) {
    for my $zone (@owe) {
        my $r = $nginx[0]->get("/$zone?key=a&cost=1");
        is $r->{status}, 429, "$zone: $name";
        cmp_ok header($r, 'Retry-After') // 0, '>=', $least, '... for long';
    }
}
sleep 1.5;                # some replies
waits(14, 'has to wait');
$nginx[0]->reload;
sleep 4.5;                # beyond the window, and what still counts of it
waits(7, 'also after a reload');
sleep 0.5;
waits(7, '... and a reply');

# One worker tells of the units, and takes the later ones before their requests end.
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die $!;
my $port = $silent->sockport;
$nginx[0]->serve(http => <<'CONF', server => <<"CONF");
    limit_sliding_zone $arg_key zone=late:1m rate=1000 window=30d redis=shared sync=500ms;
CONF
    location /late {
        limit_sliding zone=late settle=\$arg_settle;
        empty_gif;
        location /late/slow {
            limit_sliding zone=late settle=\$arg_settle;
            proxy_pass http://127.0.0.1:$port;
            proxy_read_timeout 1500ms;
        }
    }
CONF
is join(' ', @{ $nginx[0]->load(requests => [ ('/late?key=a') x 2 ], connections => 1) }),
    '200 200', 'two cost what was expected';
is join(' ', @{ $nginx[0]->load(requests => [ ('/late/slow?key=a&settle=0') x 16 ],
    connections => 16) }), join(' ', (504) x 16), '... and those of all workers nothing';
told('late', 'a', 2, '... which is given back once it was told', 1);

$_->serve(http => '', places(each => 'redis=shared sync=50ms', zones => {
    login => 'rate=3 window=30d' }, limit => 'count_status=204')) for @nginx;
is $nginx[0]->statuses(4, '/login?key=a'), '200 200 200 200', 'others are not counted';


# Several limits at one place: all or nothing

for my $nginx (@nginx) {
    $nginx->serve(http => <<'CONF', server => <<'CONF');
    limit_sliding_zone $arg_key zone=here:1m rate=5 window=30d;
    limit_sliding_zone $arg_key zone=told:1m rate=4 window=30d redis=shared sync=50ms;
    limit_sliding_zone $arg_key zone=asked:1m rate=3 window=30d redis=shared;
CONF
    location /all {
        limit_sliding zone=here;
        limit_sliding zone=told;
        limit_sliding zone=asked;
        empty_gif;
    }
    location /two {
        limit_sliding zone=here;
        limit_sliding zone=told;
        empty_gif;
    }
CONF
}
is $nginx[0]->statuses(5, '/all?key=a'), '200 200 200 429 429', 'the least of three';
told('told', 'a', 3, '... the others count what was admitted');
is $nginx[0]->statuses(2, '/two?key=a'), '200 429', '... and so they have room for one';
told('told', 'a', 4, '... which is told');
is api_key($nginx[0], 'here', 'a')->{used}, 4, '... and counted here';


# While Redis is away

serve('sync=100ms rate=100000 window=30d', one => '');
$_->get('/one?key=stop') for @nginx;
told('one', 'stop', 2, 'two', 0.1);
$redis->freeze;
my $slowest = -1;
is passed('/one?key=stop', 5000,
    each => sub ($i, $status, $head) { $slowest = max($slowest, $head =~ /^X-Time: (\S+)/m) }),
    5000, 'Redis is stopped: all pass';
cmp_ok $slowest, '==', 0, '... and none waits';
$redis->thaw;
told('one', 'stop', 5002, '... Redis learns of all of them', 0.1);

passed('/one?key=die', 100);
told('one', 'die', 100, 'a hundred', 0.1);
$redis->kill9;
is passed('/one?key=die', 1000), 1000, 'Redis is dead: all pass';
$redis->start;
wait_for(sub { used($nginx[0], 'one', 'die') >= 0 });
told('one', 'die', 1000, '... it learns of them', 0.1);

# An outage is told as that of other zones.
$redis->kill9;
sub sources() { return api($nginx[0])->{zones}{one}{sources} }
sub source($key) { return header($nginx[0]->get("/one?key=$key"), 'X-Source') }
ok wait_for(sub {
    source('away') eq 'fallback' && api($nginx[0])->{redis}{shared}{breaker} eq 'open'
}), 'Redis is away, as a response says';
my $before = sources();
source('away') for 1 .. 3;
is sources()->{$_} - $before->{$_}, $_ eq 'fallback' ? 3 : 0, "... and counters: $_"
    for sort keys %$before;
like $nginx[0]->get('/limits/metrics')->{body},
    qr/^limit_sliding_decisions_total\{zone="one",source="fallback"\} [1-9]/m, '... and metrics';
$redis->start;
ok wait_for(sub { source('away') eq 'cache' }), '... until Redis is back';

$nginx[0]->serve(http => '', places(each => 'redis=shared sync=50ms', zones => {
    past => 'rate=10 window=1s' }, limit => 'settle=$arg_settle'));
$nginx[0]->get('/past?key=a');
$redis->kill9;
my $admitted = 0;
for (1 .. 40) {
    $admitted += grep { $_ == 200 } split ' ', $nginx[0]->statuses(3, '/past?key=a');
    sleep 0.1;
}
cmp_ok $admitted, '>=', 30, 'Redis is away for several windows, all of which are used';
sleep 2;
$redis->start;
sleep 2;
is $nginx[0]->statuses(3, '/past?key=a'), '200 200 200',
    '... and none of which is held against later ones';
told('past', 'a', 3, '... by other nodes neither');


# A reload, and the end of a worker

$_->serve(places(each => 'redis=shared sync=2s window=30d',
    zones => { slow => 'rate=100000', few => 'rate=10' })) for @nginx;
$nginx[0]->statuses(20, '/slow?key=a');
$nginx[0]->reload;
told('slow', 'a', 20, 'what is pending as workers exit is told');

# New workers leave what they admit to one that exits, and whose call is under way. Of what
# Redis has no room for then, the units of two intervals wait for the next request.
sub unsettled() { return api($nginx[0])->{redis}{shared}{unsettled} }

for my $case ([ left => 0, 4, 0 ], [ full => 8, 10, 1 ]) {
    my ($key, $others, $used, $in_vain) = @$case;
    $nginx[1]->statuses($others, "/few?key=$key");
    told('few', $key, $others, "another node has used $others", 2);

    my %old = map { $_ => 1 } $nginx[0]->workers;
    my $was = unsettled();
    $redis->freeze;
    $nginx[0]->statuses(1, "/few?key=$key");
    $nginx[0]->hup;
    ok wait_for(sub { my @workers = $nginx[0]->workers;
        @workers == 2 && !grep { $old{$_} } @workers }), 'workers exit while Redis hangs';
    $nginx[0]->statuses(3, "/few?key=$key");
    $redis->thaw;

    told('few', $key, $used, '... and what others admitted meanwhile is told', 2);
    is unsettled(), $was + $in_vain, "... $in_vain of it in vain";
}

$nginx[0]->statuses(5, '/slow?key=b');
sleep 0.3;
$nginx[0]->statuses(5, '/slow?key=b');
$nginx[0]->kill_worker($_) for $nginx[0]->workers;
wait_for(sub { $nginx[0]->get('/slow?key=b'); used($nginx[1], 'slow', 'b') >= 10 }, 20);
cmp_ok used($nginx[1], 'slow', 'b'), '>=', 10, 'other workers tell what dead ones have left';

$_->finish_one for @nginx;
done_testing;
