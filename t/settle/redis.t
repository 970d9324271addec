# settle= with Redis: what requests turned out to cost reaches it in the
# background, to the unit, and what does not is counted.

use v5.36;

use List::Util qw(sum0);
use Socket qw(SOL_SOCKET SO_RCVBUF);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

srand 1;

my $LIMIT = 4_000_000;    # that of log is hardly higher
my $redis = LimitSliding::Redis->new->start;

# Makes an NGINX whose Redis is this server; other settings of the block take
# the place of long timeouts. A client reads of /held what it likes.
sub node($server, $block = 'timeout 5s; connect_timeout 5s;') {
    my $nginx = LimitSliding::Test->new->common(listen => 'reuseport sndbuf=32k',
        http => <<"CONF", server => 'location /limits { limit_sliding_api write=on; }');
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        server $server;
        $block
    }

    add_header X-Source  \$limit_sliding_source  always;
    add_header X-Seconds \$request_time          always;
    add_header X-Remaining \$limit_sliding_remaining always;
CONF
    $nginx->write_file('html/held', 'x' x (16 << 20));
    return $nginx;
}

# Returns the directives of these zones. Each has a place that reserves ten, or
# ?reserve, and settles ?cost.
sub limits($each, %zones) {
    my %directives = places(each => "window=30d redis=shared $each",
        zones => \%zones, limit => 'cost=$reserve settle=$arg_cost');
    $directives{http} .= 'map $arg_reserve $reserve { "" 10; default $arg_reserve; }';
    $directives{server} =~ s[location (/\w+) (.*?) empty_gif;.*\n]
        [${&}location /held$1 $2 alias %%DIR%%/html/held; }\n]g;
    return %directives;
}

sub used($nginx, $zone, $key) {
    my $used;
    wait_for(sub { defined($used = api_key($nginx, $zone, $key)->{used}) });
    return $used;
}

# Asserts that so much is used within a second: a worker may have to connect first, or to
# learn where a slot is.
sub settles($nginx, $zone, $key, $used, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    wait_for(sub { used($nginx, $zone, $key) == $used }, 1);
    is used($nginx, $zone, $key), $used, $name;
}

sub unsettled($nginx) {
    return api($nginx)->{redis}{shared}{unsettled};
}

# Sends a request that ends when the socket that it returns is closed. Redis has
# admitted it, or the node with sync=: workers learn one by one that it is there
# again.
sub hold($nginx, $path) {
    my ($socket, $head);
    wait_for(sub {
        $socket = $nginx->connect;
        setsockopt $socket, SOL_SOCKET, SO_RCVBUF, 4096;
        $nginx->send_request("/held$path", socket => $socket);
        for ($head = ''; $head !~ /\r\n\r\n/;) {
            sysread $socket, $head, 1024, length $head or last;
        }
        return $head =~ m{^HTTP/1.1 200 .*^X-Source: (?:redis|cache)\r$}ms;
    }) or die "$path: $head";
    return $socket;
}


# Sums are exact over two NGINXs of two workers each

my %zones = (counter => '', precise => 'precision=10', fixed => 'algorithm=fixed',
    tokens => 'algorithm=token_bucket', log => 'algorithm=log');
my @nginx = map { node($redis->server) } 1 .. 2;
$_->serve(limits("rate=$LIMIT", %zones)) for @nginx;

my $REQUESTS = 1000;
my $calls = $redis->calls;
for my $zone (sort keys %zones) {
    my @costs = map { int rand 21 } 1 .. $REQUESTS;
    my $statuses = $nginx[0]->load(connections => 64, beside => [ $nginx[1] ],
        requests => [ map { "/$zone?key=sum&cost=$_" } @costs ]);
    is scalar grep({ ($_ // '') ne '200' } @$statuses), 0, "$zone: all pass";
    settles($nginx[0], $zone, 'sum', sum0(@costs), "$zone: charged is what it cost");
}

$calls = $redis->calls;
my %cost;
$cost{$_ % 200} += $_ % 21 for 1 .. 4 * $REQUESTS;
my $statuses = $nginx[0]->load(connections => 64, pipeline => 4, beside => [ $nginx[1] ],
    requests => [ map { '/counter?key=' . $_ % 200 . '&cost=' . $_ % 21 } 1 .. 4 * $REQUESTS ]);
is scalar grep({ ($_ // '') ne '200' } @$statuses), 0, '200 keys: all pass';
$calls = $redis->calls - $calls;
cmp_ok $calls, '<', 4 * $REQUESTS, '... in fewer calls than there are requests';
note "calls: $calls";
settles($nginx[0], 'counter', $_, $cost{$_}, "... key $_") for 0, 7, 100, 199;
is sum0(map { used($nginx[1], 'counter', $_) } 0 .. 199), sum0(values %cost), '... all of them';

$redis->command(qw(SCRIPT FLUSH));
my $held = hold($nginx[0], '/counter?key=flush&cost=25');
$redis->command(qw(SCRIPT FLUSH));
close $held;
settles($nginx[0], 'counter', 'flush', 25, 'a script that was flushed meanwhile');

$held = hold($nginx[0], '/counter?key=reset&cost=3');
$redis->kill_clients;
close $held;
settles($nginx[0], 'counter', 'reset', 3, 'a connection that was closed at rest');

is unsettled($_), 0, 'all was settled' for @nginx;


# What others see

my %others = limits('rate=20', one => '');
$others{http} .= ' limit_sliding_zone $arg_key zone=paced:1m rate=4r/s redis=shared;';
$others{server} .= 'location /paced {
    limit_sliding zone=paced rate=40r/s settle=$arg_cost;
    empty_gif;
}';
$_->serve(%others) for @nginx;

$nginx[0]->get('/one?key=other&cost=20');
settles($nginx[1], 'one', 'other', 20, 'a charge fills the limit');
is $nginx[1]->get('/one?key=other&cost=0')->{status}, 429, '... elsewhere, too';

$held = hold($nginx[0], '/one?key=back&cost=1&reserve=20');
is $nginx[0]->get('/one?key=back')->{status}, 429, 'all is reserved';
is header($nginx[0]->get('/one?key=back'), 'X-Source'), 'cache', '... which is remembered';
close $held;
my $back = '/one?key=back&cost=0&reserve=5';
is $nginx[0]->statuses(2, $back), '200 200', 'given back: admitted at once';
settles($nginx[0], 'one', 'back', 1, '... which was given back, too');

$nginx[0]->get('/one?key=owes&cost=50');
settles($nginx[1], 'one', 'owes', 50, 'a charge beyond the limit');
is $nginx[1]->get('/one?key=owes')->{status}, 429, '... is owed elsewhere, too';
is api_key($nginx[1], 'one', 'owes', 'DELETE')->{used}, 0, '... and forgotten with the key';
is used($nginx[0], 'one', 'owes'), 0, '... by all';

# Three units of the charge have room beside the request, and 16 are owed.
my $begin = now();
$nginx[0]->get('/paced?key=a&cost=20');
is used($nginx[1], 'paced', 'a'), 20, 'a place with a rate of its own';
ok wait_for(sub { used($nginx[1], 'paced', 'a') == 0 }, 30), '... owes';
cmp_ok now() - $begin, '>=', 4, '... and pays at the pace of the zone';


# Leases

$_->serve(limits('rate=1000', auto => 'lease=auto', some => 'lease=40', fixed => 'lease=40
    algorithm=fixed', tokens => 'lease=40 algorithm=token_bucket')) for @nginx;

for my $zone (qw(auto some fixed tokens)) {
    my %got;
    $nginx[0]->load(connections => 16, beside => [ $nginx[1] ],
        requests => [ ("/$zone?key=cheap&cost=1") x 3000 ],
        each => sub ($i, $status, $head) {
            $got{ "$status " . ($head =~ /^X-Source: (\w+)/m)[0] }++;
        });
    my $passed = sum0(map { $got{$_} } grep { /^200/ } keys %got);
    cmp_ok $passed, '<=', 1000, "$zone: leased units that are given back admit no more";
    cmp_ok $passed, '>', 300, '... and some';
    cmp_ok $got{'200 lease'} // 0, '>', 0, '... by leases';
    note "passed: $passed";
}

api_key($nginx[0], 'some', 'own', 'PUT', '&rate=100');
my @own = map { $nginx[0]->get('/some?key=own&cost=0') } 1 .. 30;
is join(' ', map { $_->{status} } @own), join(' ', (200) x 30), 'a limit of its own: all is free';
cmp_ok scalar grep({ header($_, 'X-Source') eq 'lease' } @own), '>=', 20,
    '... by units that were leased, spent and given back';

my @costs = map { 10 + int rand 10 } 1 .. 20;
$nginx[0]->get("/some?key=dear&cost=$_") for @costs;
my $unspent = used($nginx[1], 'some', 'dear') - sum0(@costs);
cmp_ok $unspent, '>=', 0, 'leased units that cost more: all is charged';
cmp_ok $unspent, '<=', 2 * 40, '... and what was leased is not charged again';
is unsettled($_), 0, 'leases: all was settled' for @nginx;


# Reloads while responses are under way

$_->serve(limits("rate=$LIMIT", one => '')) for @nginx;

my @held = map { hold($nginx[0], "/one?key=reload&cost=$_") } 11 .. 30;
my %old = map { $_ => 1 } $nginx[0]->workers;
$nginx[0]->hup;
wait_for(sub { my @new = $nginx[0]->workers; @new == 2 && !grep { $old{$_} } @new });
is scalar grep({ $old{$_} } $nginx[0]->children), 2, 'a reload: old workers have responses';
$_->close for splice @held, 0, 19;
settles($nginx[0], 'one', 'reload', sum0(11 .. 29) + 10, '... which they settle');
close $held[0];
wait_for(sub { !grep { $old{$_} } $nginx[0]->children });
is scalar grep({ $old{$_} } $nginx[0]->children), 0, '... and leave';
is used($nginx[0], 'one', 'reload'), sum0(11 .. 30), '... once the last one is settled';
is unsettled($nginx[0]), 0, '... all of them';
$_->finish_one for @nginx;


# Redis away: what is lost is counted, and nobody waits

my $nginx = node($redis->server, 'timeout 250ms; connect_timeout 250ms;');
$nginx->serve(limits("rate=$LIMIT", one => ''));

my %gone = (
    frozen  => [ sub { $redis->freeze }, sub { $redis->thaw } ],
    stopped => [ sub { $redis->kill9 },  sub { $redis->start } ],
    paused  => [ sub { $redis->command(qw(CLIENT PAUSE 60000 WRITE)) },
        sub { $redis->command(qw(CLIENT UNPAUSE)) } ],
    full    => [ sub { $redis->command(qw(CONFIG SET maxmemory 1)) },
        sub { $redis->command(qw(CONFIG SET maxmemory 0)) } ],
);

sub wait_healthy() {
    return wait_for(sub { header($nginx->get('/one?key=probe&cost=10'), 'X-Source') eq 'redis' });
}

for my $how (sort keys %gone) {
    my ($break, $mend) = @{ $gone{$how} };
    wait_healthy();
    my @held = map { hold($nginx, "/one?key=$how&cost=$_") } 3, 8, 25;
    my $lost = unsettled($nginx);
    $break->();
    $_->close for @held;
    my $r = $nginx->get('/limits');
    is header($r, 'X-Seconds'), '0.000', "$how: nobody waits";
    sleep 0.5;                # the timeout, also of those that waited for the others' call
    is unsettled($nginx), $lost + 7 + 2 + 15, '... what was not settled is counted';
    $mend->();
    ok wait_healthy(), '... and Redis decides again';
}

# It ran, but nobody was told: it is not sent again.
my $fake = LimitSliding::FakeRedis->new($redis)->start;
$nginx->serve(limits("rate=$LIMIT", one => ''));
$nginx->reload($nginx->template(limits("rate=$LIMIT", one => '')) =~ s/\Q${\ $redis->server}/${\ $fake->server}/r);
wait_healthy();
@held = map { hold($nginx, "/one?key=dropped&cost=$_") } 15, 7;
my $lost = unsettled($nginx);
for (5, 3) {
    $fake->mode('drop');
    close shift @held;
    $lost += $_;
    wait_for(sub { unsettled($nginx) >= $lost }, 1);      # it may have to connect first
    is unsettled($nginx), $lost, 'the connection broke before the answer: it counts';
    $fake->mode('pass');
    wait_healthy();
}
is used($nginx, 'one', 'dropped'), 22, '... and was sent once';

# Old workers do not wait for long.
@held = map { hold($nginx, "/one?key=late&cost=$_") } 15, 7;
$lost = unsettled($nginx);    # also by tries that Redis did not decide
$fake->mode('mute');
%old = map { $_ => 1 } $nginx->workers;
$nginx->hup;
wait_for(sub { my @new = $nginx->workers; @new == 2 && !grep { $old{$_} } @new });
my $start = now();
$_->close for @held;
wait_for(sub { !grep { $old{$_} } $nginx->children });
cmp_ok now() - $start, '<=', 0.26, 'Redis hangs: old workers leave';
is unsettled($nginx), $lost + 5 + 3, '... and count what they could not settle';
$nginx->finish_one;

# Nor do those that are to leave at once.
$fake->mode('pass');
$nginx = node($fake->server);
$nginx->common(server => 'access_log %%DIR%%/logs/ends;');
$nginx->serve(limits("rate=$LIMIT", one => ''));
@held = map { hold($nginx, "/one?key=terminated&cost=$_") } 15, 7;
$fake->mode('mute');
$_->close for @held;
sleep 0;                  # until NGINX knows
%old = map { $_ => 1 } $nginx->workers;
kill 'TERM', keys %old;
wait_for(sub { my @new = $nginx->workers; @new == 2 && !grep { $old{$_} } @new });
is unsettled($nginx), 5 + 3, 'workers that are terminated count what is not settled';
$fake->mode('pass');
$nginx->finish_one;


# A cluster, whose slots move

my $cluster = LimitSliding::Cluster->new(replicas => 0)->start;
@nginx = map { node($cluster->servers, 'topology cluster; timeout 5s; connect_timeout 5s;') } 1 .. 2;
my %two = limits("rate=$LIMIT", one => '', few => '');
$two{http} .= ' limit_sliding_zone all zone=all:1m rate=30 window=30d redis=shared;';
$two{server} .= 'location /both {
    limit_sliding zone=one cost=10 settle=$arg_cost;
    limit_sliding zone=all cost=10 settle=$arg_cost;
    alias %%DIR%%/html/held;
}';
$_->serve(%two) for @nginx;

my $slot = $cluster->slot('limit_sliding:one:{' . digest(3) . '}');
my $move = sub ($between = sub { }) {
    my $from = $cluster->master_of($slot);
    my ($to) = grep { $_ != $from } $cluster->masters;
    $cluster->move_slot($slot, $from, $to, $between);
};
%cost = ();
my @requests = map { [ $_ % 2 ? 3 : $_ % 20, int rand 21 ] } 1 .. 2 * $REQUESTS;
$cost{ $_->[0] } += $_->[1] for @requests;
$statuses = $nginx[0]->load(connections => 64, beside => [ $nginx[1] ],
    requests => [ map { "/one?key=$_->[0]&cost=$_->[1]" } @requests ],
    at => { map { $_ * $REQUESTS / 4 => sub { $move->() } } 1 .. 6 });
is scalar grep({ ($_ // '') ne '200' } @$statuses), 0, 'a cluster: all pass';
settles($nginx[0], 'one', $_, $cost{$_}, "... key $_") for sort keys %cost;

@held = map { hold($nginx[0], "/one?key=3&cost=$_") } 3, 18, 30;
$move->(sub ($) {
    close shift @held;
    sleep 0.1;
});
close shift @held;
settles($nginx[0], 'one', 3, $cost{3} + 3 + 18 + 30, '... charges that are redirected');

$nginx[0]->get('/both?key=x&cost=4', method => 'HEAD');
settles($nginx[0], 'one', 'x', 4, 'limits in several slots: one is settled');
settles($nginx[0], 'all', 'all', 4, '... and the other');
is unsettled($_), 0, '... all of them' for @nginx;
$_->finish_one for @nginx;


# Sentinel


# Fixed windows: what an earlier one has reserved is not given back to the present
# one, in Redis and in the memory of the node, which decides without Redis

my %fixed = places(each => 'rate=100 window=4s algorithm=fixed redis=shared',
    zones => { waits => '', sync => 'sync=50ms' }, limit => 'cost=$arg_cost settle=$arg_settle');
$fixed{server} =~ s[location (/\w+) (.*?) empty_gif;.*\n]
    [${&}location /held$1 $2 alias %%DIR%%/html/held; }\n]g;
my $other = LimitSliding::Redis->new->start;
$nginx = node($other->server);
$nginx->serve(%fixed);

for my $zone (qw(sync waits)) {
    sleep left_of(4);
    my $socket = hold($nginx, "/$zone?key=past&cost=50&settle=0");
    sleep left_of(4);
    $nginx->get("/$zone?key=past&cost=60");
    settles($nginx, $zone, 'past', 60, "$zone: a window, while a request of the last one runs");
    close $socket;
    sleep 0.05;
    is used($nginx, $zone, 'past'), 60, "$zone: ... and when that has ended";
}

$other->stop;
my $look = $nginx->get('/waits?key=past&cost=0');
is join(' ', map { header($look, $_) } 'X-Source', 'X-Remaining'), 'fallback 40',
    '... and so it is in the memory of the node';


my $sentinel = $redis->sentinel;
$nginx = node($sentinel->server,
    'topology sentinel; sentinel_master mymaster; timeout 5s; connect_timeout 5s;');
$nginx->serve(limits("rate=$LIMIT", one => ''));
is join(' ', map { header($nginx->get("/one?key=sentinel&cost=$_"), 'X-Source') } 3, 30, 10),
    'redis redis redis', 'by sentinels: Redis decides';
settles($nginx, 'one', 'sentinel', 43, '... and settles');


# Buckets beside what a higher limit has admitted, here and there

my %rated = (key => '$arg_key', limit => 'rate=$arg_rate cost=$arg_cost settle=$arg_settle');
$nginx = node($redis->server);
$nginx->serve(places(%rated, each => 'rate=100 window=100s algorithm=token_bucket',
    zones => { here => '', there => 'redis=shared' }));
for my $zone (qw(here there)) {
    my $left = sub ($rate, $cost = 0, $settle = '') {
        my $r = $nginx->get("/$zone?key=a&rate=$rate&cost=$cost&settle=$settle");
        sleep 0.01;          # until the cost is settled
        return "$r->{status} " . header($r, 'X-Remaining');
    };
    is $left->(100, 60), '200 40', "$zone: used under a higher limit";
    is $left->(10), '429 0', '... the lower one has nothing left';
    sleep 50;
    is $left->(10), '200 5', '... and half of it in half a window';
    is $left->(10, 3, 1), '200 2', '... of which a request reserves three, and takes one';
    is $left->(10), '200 4', '... so two are given back';
    is $left->(10, 4, 0), '200 0', '... another one takes nothing';
    is $left->(10), '200 4', '... so all are given back';
    is $left->(100), '200 80', '... and the higher limit has what it would have without them';
}
$nginx->finish;
