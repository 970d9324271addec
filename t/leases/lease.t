# lease=: NGINXs that take units in advance, and spend them from shared memory.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Exact;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LEASE = 1;            # seconds for which units are spent without asking

my $redis = LimitSliding::Redis->new->start;

sub node() {
    return LimitSliding::Test->new->common(listen => 'reuseport',
        http => <<"CONF");
    limit_sliding_log_level off;

    ${\ $redis->block('5s')}

    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Source    \$limit_sliding_source    always;
CONF
}

my @nginx = map { node() } 1 .. 2;

# Starts them all with the directives of a section.
sub serve(%directives) {
    $_->serve(%directives) for @nginx;
}

my ($CONNECTIONS, $PIPELINE) = (64, 4);

# Sends the requests to the first n NGINXs, all at one moment. Returns
# { status => how many }.
sub run($n, $requests, %opt) {
    my %got;
    $got{ $_ // 'none' }++ for @{ $nginx[0]->load(requests => $requests,
        connections => $CONNECTIONS, pipeline => $PIPELINE,
        beside => [ @nginx[1 .. $n - 1] ], %opt) };
    return \%got;
}

sub passed($n, $path, $requests, %opt) {
    my $got = run($n, [ ($path) x $requests ], %opt);
    my @others = grep { $_ ne 200 && $_ ne 429 } keys %$got;
    die "$path: @others" if @others;
    return $got->{200} // 0;
}


# A key that is driven at full speed

serve(places(each => 'window=30d redis=shared lease=auto',
    zones => { much => 'rate=40000' }));

my $calls = $redis->calls;
my $passed = passed(2, '/much?key=a', 44_000);
hardly_less($passed, 40_000, 39_600, '40,000, two nodes: never more');
$calls = $redis->calls - $calls;
note "passed: $passed, calls: $calls";
cmp_ok $calls, '<=', 44_000 / 200, '... by one call for 200 requests';

my %algorithms = (
    counter => '',
    precise => 'precision=10',
    fixed   => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket',
);
serve(places(each => 'rate=1000 window=30d redis=shared lease=auto',
    zones => \%algorithms));

for my $path (qw(counter precise fixed tokens)) {
    hardly_less(passed(2, "/$path?key=a", 5000), 1000, 990, "$path: never above its limit");
}


# Near the limit, with four nodes

push @nginx, map { node() } 1 .. 2;
serve(places(each => 'rate=100 window=30d redis=shared',
    zones => { little => 'lease=auto', ten => 'lease=10' }));

for my $path (qw(little ten)) {
    $passed = passed(4, "/$path?key=a", 4000);
    sleep $LEASE;   # what some are left with is spent
    $passed += passed(4, "/$path?key=a", 400);
    hardly_less($passed, 100, 99, "$path: 100, four nodes: never more");
}
$_->finish_one for splice @nginx, 2;


# What clients are told

my %hundred = (http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis brief {
        server ${\ $redis->server};
        timeout 5s;
        connect_timeout 5s;
        on_error deny;
    }
    limit_sliding_zone \$arg_key zone=hundred:1m rate=1000 window=30d
        redis=brief lease=100;
HTTP
    location /hundred { limit_sliding zone=hundred; empty_gif; }
SERVER
serve(%hundred);

my @told = map { $nginx[0]->get('/hundred?key=told') } 1 .. 5;
is join(' ', map { header($_, 'X-Source') } @told),
    'redis lease lease lease lease', 'the source is lease';
is join(' ', map { header($_, 'X-Remaining') } @told), '999 998 997 996 995',
    '... and remaining as it would be without';


# Costs, several limits, responses

my %counter = places(each => 'rate=1000 window=30d redis=shared lease=auto',
    zones => { counter => '' });

serve(http => <<"HTTP", server => <<"SERVER");
    $counter{http}
    limit_sliding_zone \$arg_user zone=user:1m rate=3 window=30d redis=shared
        lease=auto;
    limit_sliding_zone \$arg_user zone=strict:1m rate=3 window=30d
        redis=shared;
    limit_sliding_zone \$arg_user zone=here:1m rate=3 window=30d;
HTTP
    $counter{server}
    location /five    { limit_sliding zone=counter cost=5; empty_gif; }
    location /counted { limit_sliding zone=counter count_status=404; }
    location /both {
        limit_sliding zone=counter;
        limit_sliding zone=user;
        empty_gif;
    }
    location /mixed {
        limit_sliding zone=counter;
        limit_sliding zone=strict;
        empty_gif;
    }
    location /local {
        limit_sliding zone=counter;
        limit_sliding zone=here;
        empty_gif;
    }
SERVER

$passed = passed(2, '/five?key=five', 2000);
is $passed, 200, 'cost=5: a fifth of the limit';

for my $path (qw(both mixed local)) {
    passed(1, "/counter?key=$path&user=warm", 100);
    my %got;
    for my $user (1 .. 20) {
        $got{ $nginx[0]->get("/$path?key=$path&user=$user")->{status} }++
            for 1 .. 6;
    }
    is_deeply \%got, { 200 => 60, 429 => 60 }, "$path: each has its limit";
    $passed = passed(1, "/counter?key=$path&user=rest", 2000);
    is $passed, 1000 - 100 - 60, '... and rejected requests cost nothing';
}

run(1, [ ('/counted?key=counted') x 300 ]);
$passed = passed(1, '/counter?key=counted', 2000);
is $passed, 1000 - 300, 'count_status: responses are counted';


# Windows that end under load: what was taken in one is not spent in the next.

my %ends = places(each => 'algorithm=fixed redis=shared', zones => {
    seconds => 'rate=500 window=1s lease=50',
    three   => 'rate=300 window=3s lease=200',
});
serve(%ends);

# In each of four seconds 2,000 requests come, evenly.
sleep left_of(1);
for my $second (1 .. 4) {
    my $admitted = 0;
    for (1 .. 20) {
        $admitted += passed(2, '/seconds?key=a', 100, connections => 8);
        sleep 0.05;
    }
    hardly_less($admitted, 500, 495, "second $second: never above the limit");
}


# The same with units that are left over, and known to have been good just now.
for my $n (1, 2) {
    sleep 3 + left_of(3) - 0.001;
    is $nginx[$_]->get("/three?key=over-$n")->{status}, 200, "$n: a lease at node $_" for 0, 1;
    sleep 0.001;
    # a slow machine may send few of the requests to the node with most of the units
    my $admitted = passed(2, "/three?key=over-$n", 600);
    $admitted += grep { $_ == 200 } split ' ', $nginx[$_]->statuses(200, "/three?key=over-$n")
        for 0, 1;
    is $admitted, 300, "$n: what is left over lapses with its window";
}


# The limit of the key is changed

serve(%hundred);

my $key = sub ($key) {
    return 'limit_sliding:hundred:{' . digest($key) . '}';
};

$nginx[0]->get('/hundred?key=lower') for 1 .. 3;
$redis->command('SET', $key->('lower') . ':limit', 2);
sleep $LEASE;
is $nginx[0]->get('/hundred?key=lower')->{status}, 429,
    'a lower limit: leased units are spent no more';

$redis->command('SET', $key->('higher') . ':limit', 5);
is $nginx[0]->statuses(7, '/hundred?key=higher'), '200 200 200 200 200 429 429',
    'a limit of its own';
$redis->command('SET', $key->('higher') . ':limit', 8);
sleep $LEASE;
is $nginx[0]->statuses(4, '/hundred?key=higher'), '200 200 200 429',
    '... which is raised';


# A reload

serve(%counter);

$passed = passed(1, '/counter?key=reload', 300);
$nginx[0]->reload;
my $got = run(2, [ ('/counter?key=reload') x 3000 ],
    at => { 100 => sub { $nginx[0]->hup } });
$passed += $got->{200};
hardly_less($passed, 1000, 990, 'reloads: never above the limit');
# A worker that leaves closes idle connections, whatever is on its way to it.
my $lost = $got->{none} // 0;
is $got->{200} + $got->{429} + $lost, 3000, '... and the rest is rejected';
cmp_ok $lost, '<=', $CONNECTIONS * $PIPELINE,
    '... lost: no more than was under way';


my ($without, $with) = map { { places(zones => {
    little => "rate=100 window=30d redis=shared $_" }) } } '', 'lease=auto';

my $late = node()->serve(%$without);
$late->reload($late->template(%$with));
is scalar $late->log_lines(qr/\[notice\].*"little" starts empty: .*leases/), 1,
    'leases where there were none: the zone starts empty, and says why';
$late->get('/little?key=late') for 1 .. 3;
$late->reload($late->template(%$without));
is header($late->get('/little?key=late'), 'X-Source'), 'redis',
    '... and where there are none any more';
$late->finish_one;


# Nodes that die take their units with them, until the next window.

serve(%ends);

sleep left_of(3);
is $nginx[1]->statuses(1, '/three?key=dies'), '200', 'a node has a lease';
kill 'KILL', $nginx[1]->master, $nginx[1]->workers;
$nginx[1]->stop;
is passed(1, '/three?key=dies', 1000), 100, 'it dies: those that live have what is left';
sleep left_of(3) - 0.001;
is passed(1, '/three?key=dies', 1000), 0, '... until the end of the window';
sleep 0.001;
is passed(1, '/three?key=dies', 1000), 300, '... all are back with the next window';


# Without Redis leases are spent for a second, then the policy applies.

$nginx[0]->serve(%hundred);

sub back() {
    return wait_for(sub {
        header($nginx[0]->get('/hundred?key=back'), 'X-Source') ne 'fallback'
    });
}

my $leased = now;
$nginx[0]->get('/hundred?key=dead');
$redis->kill9;
my @rest = map { $nginx[0]->get('/hundred?key=dead') } 1 .. 3;
is join(' ', map { header($_, 'X-Source') } @rest), 'lease lease lease',
    'Redis is gone: what was leased is spent';
sleep $leased + $LEASE - 0.001 - now;
is header($nginx[0]->get('/hundred?key=dead'), 'X-Source'), 'lease', '... for a second';
sleep 0.001;
is header($nginx[0]->get('/hundred?key=dead'), 'X-Source'), 'fallback', '... and no longer';
$redis->start;
ok back(), '... until it is back';

$nginx[0]->finish;
