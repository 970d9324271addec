# lease=: NGINXs that take units in advance, and spend them from shared memory.

use v5.36;

use List::Util qw(max sum0);
use Test::More;
use Time::HiRes qw(sleep time);

use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;

sub config() {
    my $server = $redis->server;
    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        server $server;
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_redis brief {
        server $server;
        timeout 200ms;
        on_error deny;
    }
    limit_sliding_zone \$arg_key zone=much:1m rate=100000r/m redis=shared
        lease=auto;
    limit_sliding_zone \$arg_key zone=little:1m rate=100r/m redis=shared
        lease=auto;
    limit_sliding_zone \$arg_key zone=ten:1m rate=100r/m redis=shared lease=10;
    limit_sliding_zone \$arg_key zone=counter:1m rate=1000 window=30d
        redis=shared lease=auto;
    limit_sliding_zone \$arg_key zone=precise:1m rate=1000 window=30d
        precision=10 redis=shared lease=auto;
    limit_sliding_zone \$arg_key zone=fixed:1m rate=1000 window=30d
        algorithm=fixed redis=shared lease=auto;
    limit_sliding_zone \$arg_key zone=tokens:1m rate=1000 window=30d
        algorithm=token_bucket redis=shared lease=auto;
    limit_sliding_zone \$arg_key zone=seconds:1m rate=500 window=1s
        algorithm=fixed redis=shared lease=50;
    limit_sliding_zone \$arg_key zone=three:1m rate=300 window=3s
        algorithm=fixed redis=shared lease=200;
    limit_sliding_zone \$arg_key zone=hundred:1m rate=1000 window=30d
        redis=brief lease=100;
    limit_sliding_zone \$arg_user zone=user:1m rate=3 window=30d redis=shared
        lease=auto;
    limit_sliding_zone \$arg_user zone=strict:1m rate=3 window=30d
        redis=shared;
    limit_sliding_zone \$arg_user zone=here:1m rate=3 window=30d;

    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Source    \$limit_sliding_source    always;

    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location /much    { limit_sliding zone=much;    empty_gif; }
        location /little  { limit_sliding zone=little;  empty_gif; }
        location /ten     { limit_sliding zone=ten;     empty_gif; }
        location /counter { limit_sliding zone=counter; empty_gif; }
        location /precise { limit_sliding zone=precise; empty_gif; }
        location /fixed   { limit_sliding zone=fixed;   empty_gif; }
        location /tokens  { limit_sliding zone=tokens;  empty_gif; }
        location /seconds { limit_sliding zone=seconds; empty_gif; }
        location /three   { limit_sliding zone=three;   empty_gif; }
        location /hundred { limit_sliding zone=hundred; empty_gif; }
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
    }
}
CONF
}

my @nginx = map { LimitSliding::Test->new->start(config()) } 1 .. 4;

# Statuses of these requests, among some of the NGINXs: { status => how many }
sub run($n, $requests, %opt) {
    my %got;
    $got{ $_ // 'none' }++ for @{ $nginx[0]->load(connections => 64,
        pipeline => 4, requests => $requests,
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

stay_in(60, 30);
my $calls = $redis->calls;
my $requests = 110_000;
my $passed = passed(2, '/much?key=a', $requests);
cmp_ok $passed, '<=', 100_000, '100,000 a minute, two nodes: never more';
cmp_ok $passed, '>=', 99_000, '... and hardly less';
note "passed: $passed";
$calls = $redis->calls - $calls;
cmp_ok $calls, '<=', $requests / 200, '... by one call for 200 requests';
note "calls: $calls";

for my $path (qw(counter precise fixed tokens)) {
    $passed = passed(2, "/$path?key=a", 5000);
    cmp_ok $passed, '<=', 1000, "$path: never above its limit";
    cmp_ok $passed, '>=', 990, '... and hardly less';
}


# Near the limit

for my $path (qw(little ten)) {
    stay_in(60, 10);
    $passed = passed(4, "/$path?key=a", 4000);
    sleep 1.1;      # what some are left with is spent
    $passed += passed(4, "/$path?key=a", 400);
    cmp_ok $passed, '<=', 100, "$path: 100 a minute, four nodes: never more";
    cmp_ok $passed, '>=', 99, '... and hardly less';
}


# What clients are told

my @told = map { $nginx[0]->get('/hundred?key=told') } 1 .. 5;
is join(' ', map { header($_, 'X-Source') } @told),
    'redis lease lease lease lease', 'the source is lease';
is join(' ', map { header($_, 'X-Remaining') } @told), '999 998 997 996 995',
    '... and remaining as it would be without';


# Costs, several limits, responses

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

my $window = int time;
my $first = time;
my $total = 0;
while (time < $first + 4) {
    $total += passed(2, '/seconds?key=a', 4000);
}
my $windows = int(time) - $window + 1;
cmp_ok $total, '<=', 500 * $windows, "$windows windows: never above the limit";
cmp_ok $total, '>=', 500 * ($windows - 2) * 0.9, '... and hardly less';


# The same with units that are left over, and known to have been good just now.
for my $n (1, 2) {
    my $left = left_of(3) - 0.4;
    sleep($left < 0 ? $left + 3 : $left);
    $nginx[$_]->get('/three?key=over') for 0, 1;
    sleep left_of(3) + 0.005;
    $passed = passed(2, '/three?key=over', 600);
    cmp_ok $passed, '<=', 300, "$n: what is left over lapses with its window";
}


# The limit of the key is changed

my $key = sub ($key) {
    require Digest::SHA;
    return 'limit_sliding:hundred:{' . Digest::SHA::sha1_hex($key) . '}';
};

$nginx[0]->get('/hundred?key=lower') for 1 .. 3;
$redis->command('SET', $key->('lower') . ':limit', 2);
sleep 1.1;
is $nginx[0]->get('/hundred?key=lower')->{status}, 429,
    'a lower limit: leased units are spent no more';

$redis->command('SET', $key->('higher') . ':limit', 5);
is $nginx[0]->statuses(7, '/hundred?key=higher'), '200 200 200 200 200 429 429',
    'a limit of its own';
$redis->command('SET', $key->('higher') . ':limit', 8);
sleep 1.1;
is $nginx[0]->statuses(4, '/hundred?key=higher'), '200 200 200 429',
    '... which is raised';


# A reload

$passed = passed(1, '/counter?key=reload', 300);
$nginx[0]->reload;
$passed += passed(2, '/counter?key=reload', 3000,
    at => { 100 => sub { $nginx[0]->hup } });
cmp_ok $passed, '<=', 1000, 'reloads: never above the limit';
cmp_ok $passed, '>=', 990, '... and hardly less';


my $late = LimitSliding::Test->new->start(
    config() =~ s/zone=little\K(.*?)lease=auto/$1/sr);
$late->reload(config());
is scalar $late->log_lines(qr/\[notice\].*"little" starts empty: .*leases/), 1,
    'leases where there were none: the zone starts empty, and says why';
$late->get('/little?key=late') for 1 .. 3;
$late->reload(config() =~ s/zone=little\K(.*?)lease=auto/$1/sr);
is header($late->get('/little?key=late'), 'X-Source'), 'redis',
    '... and where there are none any more';
$late->finish_one;


# Nodes that die take their units with them, until the next window.

stay_in(3, 2);
$window = int(time / 3);
is $nginx[1]->get('/three?key=a')->{status}, 200, 'a node has a lease';
kill 'KILL', $nginx[1]->master, $nginx[1]->workers;
$nginx[1]->stop;
$passed = 1 + passed(1, '/three?key=a', 1000);
SKIP: {
    skip 'the window is over', 2 if int(time / 3) != $window;
    cmp_ok $passed, '<=', 300, 'it dies: never above the limit';
    cmp_ok $passed, '>=', 100, '... by those that live';
}
sleep left_of(3) + 0.01;
is passed(1, '/three?key=a', 1000), 300, '... all are back with the next window';


# Without Redis leases are spent for a second, then the policy applies.

$nginx[0]->get('/hundred?key=dead');
$redis->stop;
my @rest = map { $nginx[0]->get('/hundred?key=dead') } 1 .. 3;
is join(' ', map { header($_, 'X-Source') } @rest), 'lease lease lease',
    'Redis is gone: what was leased is spent';
sleep 1.1;
is header($nginx[0]->get('/hundred?key=dead'), 'X-Source'), 'fallback',
    '... for a second';
$redis->start;
ok wait_for(sub {
    header($nginx[0]->get('/hundred?key=back'), 'X-Source') ne 'fallback'
}), '... until it is back';

$_->finish_one for @nginx[2, 3];
$nginx[0]->finish;
