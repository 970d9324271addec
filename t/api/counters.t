# What requests the zones have decided is counted, and nothing lost: over both
# workers, a reload, and workers that are killed.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api qw(api);
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

$nginx->common(listen => 'reuseport', http => <<'HTTP', server => <<'SERVER');
    limit_sliding_log_level off;
HTTP
    location /limits { limit_sliding_api; }
SERVER

sub zones() {
    return api($nginx)->{zones};
}

# Returns what a zone has counted since $before: "passed delayed rejected", and
# the other counts that are not 0.
sub since($before, $name) {
    my ($then, $now) = map { $_->{$name} } $before, zones();
    my @counts = map { $now->{$_} - $then->{$_} } qw(passed delayed rejected);
    my @others = map { my $n = $now->{$_} - $then->{$_}; $n ? "$_=$n" : () }
        qw(delayed_dry_run rejected_dry_run unlimited errors refused evicted);
    return join ' ', @counts, @others;
}


# several zones

my %one = places(zones => { one => 'rate=1000r/h' });

$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    $one{http}
    limit_sliding_zone \$arg_key zone=two:1m rate=10r/h;
    limit_sliding_zone \$arg_key zone=watched:1m rate=10r/h;
    limit_sliding_zone \$arg_key zone=leaky-watched:1m rate=100r/s burst=2
        algorithm=leaky_bucket;
HTTP
    $one{server}
    location /both {
        limit_sliding zone=one;
        limit_sliding zone=two;
        limit_sliding zone=watched dry_run;
        limit_sliding zone=leaky-watched dry_run;
        empty_gif;
    }
SERVER

my $zones = zones();
$nginx->get('/one?key=a') for 1 .. 3;
$nginx->get('/one');
is since($zones, 'one'), '3 0 0 unlimited=1', 'passed; without a key it is not limited';

$zones = zones();
$nginx->get('/both?key=b') for 1 .. 15;
is since($zones, 'two'), '10 0 5', 'rejected';
is since($zones, 'one'), '15 0 0', '... by the other zone: this one did not';
is since($zones, 'watched'), '10 0 0', '... and no dry run was asked';

$zones = zones();
$nginx->load(connections => 1, pipeline => 8,
    requests => [ ('/both?key=e') x 8 ]);
is since($zones, 'leaky-watched'), '1 0 0 delayed_dry_run=2 rejected_dry_run=5',
    'dry run of a queue';


# a queue

$nginx->serve(places(zones =>
    { leaky => 'rate=100r/s burst=2 algorithm=leaky_bucket' }));

$zones = zones();
my $statuses = $nginx->load(connections => 8,
    requests => [ ('/leaky?key=d') x 8 ]);
is join(' ', sort @$statuses), '200 200 200 429 429 429 429 429', 'a queue rejects';
my ($passed, $delayed, $rejected) = split / /, since($zones, 'leaky');
is "$passed $rejected", '1 5', 'of a queue';
is $delayed, 2, '... some delayed';


# full zones

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=deny:32k rate=10r/h full=deny;
    limit_sliding_zone $arg_key zone=small:32k rate=1000r/h;
HTTP
    location /deny  { limit_sliding zone=deny;  empty_gif; }
    location /small { limit_sliding zone=small; empty_gif; }
SERVER

$zones = zones();
$nginx->get("/deny?key=f$_") for 1 .. 2500;
my ($let, undef, $denied, $refused) = split / /, since($zones, 'deny');
is $let + $denied, 2500, 'full=deny: all';
is $refused, "refused=$denied", '... refused as it is full';
is zones()->{deny}{slots_used}, $let, '... a slot a key';
is zones()->{deny}{keys}, $let, '... keys';

$zones = zones();
$nginx->get("/small?key=g$_") for 1 .. 2500;
my ($new, undef, undef, $evicted) = split / /, since($zones, 'small');
is $new, 2500, 'full=evict: all';
is $evicted, 'evicted=' . (2500 - zones()->{small}{slots_used}),
    '... those that there was no slot for took another\'s';


# values that cannot be used

$nginx->serve(places(limit => 'cost=$arg_cost',
    zones => { variable => 'rate=$arg_rate window=1h' }));

$zones = zones();
$nginx->get('/variable?key=h&rate=2');
$nginx->get('/variable?key=h&rate=bad');
$nginx->get('/variable?key=h&rate=2&cost=bad');
is since($zones, 'variable'), '2 0 0 unlimited=1 errors=2',
    'values that cannot be used are errors';


# requests that reach a limit and are not limited by it

my $redis = LimitSliding::Redis->new->start;
$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 5s; connect_timeout 5s; }
    limit_sliding_zone \$arg_key zone=here:1m rate=\$arg_rate window=1h;
    limit_sliding_zone \$arg_key zone=banned:1m rate=9r/h penalty=1h;
    limit_sliding_zone \$arg_key zone=far:1m rate=9r/h redis=shared;
    limit_sliding_zone \$arg_key zone=synced:1m rate=9r/h redis=shared sync=10ms;
HTTP
    location /write  { limit_sliding_api write=on; }
    location /here   { limit_sliding zone=here;   empty_gif; }
    location /banned { limit_sliding zone=banned; empty_gif; }
    location /far    { limit_sliding zone=far;    empty_gif; }
    location /synced { limit_sliding zone=synced; empty_gif; }
    location /all {
        limit_sliding zone=here dry_run;
        limit_sliding zone=banned;
        limit_sliding zone=far;
        empty_gif;
    }
    location /twice {
        limit_sliding zone=here;
        error_page 404 = @here;
    }
    location @here { limit_sliding zone=here; empty_gif; }
SERVER

my $unlimited = '0 0 0 unlimited=1';
for my $zone (qw(here banned far synced)) {
    $zones = zones();
    $nginx->get("/$zone");
    is since($zones, $zone), $unlimited, "$zone: an empty key is unlimited";
}
for my $rate ('', 'off', 'bad') {
    $zones = zones();
    $nginx->get("/here?key=a&rate=$rate");
    is since($zones, 'here'), $unlimited . ($rate eq 'bad' ? ' errors=1' : ''),
        "the rate '$rate' is unlimited";
}
for my $zone (qw(banned far synced)) {
    $nginx->get("/write/zones/$zone/key?key=o&rate=off", method => 'PUT');
    wait_for(sub {
        $zones = zones();
        $nginx->get("/$zone?key=o");
        return since($zones, $zone) eq $unlimited;
    }, 5);
    is since($zones, $zone), $unlimited, "$zone: a key whose own limit is off is unlimited";
}

$zones = zones();
$nginx->get('/all');
is since($zones, $_), $unlimited, "several limits: $_" for qw(here banned far);

$zones = zones();
$nginx->get('/twice');
is since($zones, 'here'), $unlimited, 'a redirect: counted once';


# Exactly, over two workers.

$nginx->serve(%one);

$zones = zones();
$statuses = $nginx->load(pipeline => 16,
    requests => [ map { '/one?key=load' . $_ % 20 } 1 .. 20_000 ]);
my @counts = (scalar grep({ $_ == 200 } @$statuses), 0,
    scalar grep({ $_ == 429 } @$statuses));
is sum0(@counts), 20_000, 'all answered';
is since($zones, 'one'), "@counts", '... and all counted';


# Over a reload. An old worker that closes an idle connection has not read, and
# so not counted, the request that was on its way.

my %old = map { $_ => 1 } $nginx->workers;
my @requests = map { [ '/one?key=reload' . $_ % 20,
    $_ % 10 ? () : 'Connection: close' ] } 1 .. 8_000;

$zones = zones();
$statuses = $nginx->load(requests => \@requests, at => {
    2000 => sub {
        $nginx->hup;
        wait_for(sub { grep { !$old{$_} } $nginx->workers });
    },
    6000 => sub { wait_for(sub { !grep { $old{$_} } $nginx->workers }) },
});
@counts = (scalar grep({ ($_ // 0) == 200 } @$statuses), 0,
    scalar grep({ ($_ // 0) == 429 } @$statuses));
is since($zones, 'one'), "@counts", 'a reload: all that were answered';


# A worker that is killed: all but the requests that were under way.

for my $round (1 .. 20) {
    $zones = zones();
    $statuses = $nginx->load(connections => 16, pipeline => 4,
        requests => [ map { "/one?key=kill$round-" . $_ % 20 } 1 .. 1000 ],
        at => { 250 => sub { $nginx->kill_worker(($nginx->workers)[0]) } });
    wait_for(sub { $nginx->workers == 2 });

    my $lost = grep { !defined } @$statuses;
    my ($passed, undef, $rejected) = split / /, since($zones, 'one');
    my $counted = $passed + $rejected;
    ok $counted >= 1000 - $lost && $counted <= 1000,
        "worker killed: $counted counted, $lost lost";
}

$nginx->finish_one;


# A small zone has counters for a few workers only: others share them.

my $many = LimitSliding::Test->new(worker_processes => 8)->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone all zone=one:32k rate=4000000r/h;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location / { limit_sliding zone=one; empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF

$many->load(connections => 64, pipeline => 32, requests => [ ('/') x 40_000 ]);
is api($many)->{zones}{one}{passed}, 40_000,
    'workers that share counters: all';

$many->finish;
