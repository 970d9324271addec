# Reloads without end under load: no request fails, everything that was admitted
# is counted once, and neither the master nor Redis keeps anything of the workers
# that left. FAULT_ROUNDS is how many reloads (20).

use v5.36;

use List::Util qw(max min sum0);
use Test::More;

use LimitSliding::Clock real => 'reloads come at any moment of an endless load';

use LimitSliding::Api;
use LimitSliding::Exact qw(hardly_less);
use LimitSliding::Footprint;
use LimitSliding::Redis;
use LimitSliding::Siege;
use LimitSliding::Test qw(:DEFAULT places);

my $ROUNDS  = $ENV{FAULT_ROUNDS} // 20;
my $BASE    = min(10, $ROUNDS);     # reloads, after which all is held that may be
my $WORKERS = 2;
my $TIGHT   = 300;

# What the master's heap may vary by, in kB.
my $DRIFT_KB = 64;

my $redis = LimitSliding::Redis->new->start;

my %roomy = (
    counter  => '',
    fixed    => 'algorithm=fixed',
    far      => 'redis=shared',
    far_sync => 'redis=shared sync=100ms on_error=local',
);
my %tight = (
    few       => '',
    far_few   => 'redis=shared',
    far_lease => 'redis=shared lease=auto',
);
my %settled = (paid => '', far_paid => 'redis=shared');
my $COST = 3;             # of a request to these, which reserve 1

# Returns the directives of these zones, and of a place for each.
sub zones($limit, $rate, %zones) {
    return places(each => "rate=$rate window=30d", zones => \%zones,
        limit => $limit);
}

# Redis has as much time as a busy machine takes: what fails is the module.
my $nginx = LimitSliding::Test->new(worker_processes => $WORKERS);
$nginx->common(http => <<"HTTP", server => <<'SERVER');
    ${\ $redis->block('20s', 'on_error deny;')}
    limit_sliding_log_level off;
    map x \$cost { default $COST; }
HTTP
    location /limits { limit_sliding_api; }
SERVER
$nginx->common(@$_) for [ zones('', 1_000_000_000, %roomy) ],
    [ zones('', $TIGHT, %tight) ], [ zones('settle=$cost', 1_000_000_000, %settled) ];
$nginx->start($nginx->template(listen => 'reuseport'));


# the reloads

my @zones = sort keys %roomy, keys %tight, keys %settled;
my $siege = LimitSliding::Siege->new($nginx, [ map { "/$_?key=a" } @zones ])->start;

my $master = $nginx->master;
my ($base, @seconds, @connected);
for my $round (1 .. $ROUNDS) {
    my $start = now;
    $nginx->reload;               # dies if old workers stay
    push @seconds, now() - $start;

    my $clients;
    push @connected, "round $round: $clients"
        if !wait_for(sub { ($clients = $redis->clients) <= $WORKERS }, 5);

    my $holds = footprint($master);
    $base = $holds if $round == $BASE;
    note "$round reloads: ", explain $holds if $round % 1000 == 0;
}
my $got = $siege->stop;
my $holds = footprint($master);

my $requests = sum0(map { values %$_ } values %$got);
note sprintf '%d reloads in %.1f s, the slowest in %.2f s, and %d requests', $ROUNDS,
    sum0(@seconds), max(@seconds), $requests;
note "the master holds after $BASE: ", explain($base), '... and at last: ', explain $holds;


# what must hold

cmp_ok $requests, '>', 10 * $ROUNDS, "$ROUNDS reloads under load";
is $nginx->master, $master, '... of one master';

my %statuses;
$statuses{$_} = 1 for map { keys %$_ } values %$got;
is join(' ', grep { !/^(?:200|429)$/ } sort keys %statuses), '', '... no request fails';

is $holds->{descriptors}, $base->{descriptors}, '... no descriptor is left behind';
cmp_ok $holds->{mappings}, '<=', $base->{mappings} + 2, '... no mapping';
cmp_ok $holds->{kb}, '<', $base->{kb} + $DRIFT_KB, '... no memory';
is "@connected", '', '... no connection to Redis';

my $zones = api($nginx)->{zones};
for my $zone (@zones) {
    my ($passed, $rejected) = map { $got->{"/$zone?key=a"}{$_} // 0 } 200, 429;
    my $used = $passed * (exists $settled{$zone} ? $COST : 1);

    if ($zone eq 'far_lease') {
        my $most = min($TIGHT, $passed + $rejected);
        hardly_less($passed, $most, $most * 0.9, "$zone: what passed");
    } elsif (exists $tight{$zone}) {
        is $passed, min($TIGHT, $passed + $rejected), "$zone: what passed";
    } else {
        is $rejected, 0, "$zone: all pass";
    }

    # sync= and settle= tell Redis in the background
    my $is;
    wait_for(sub { ($is = api_key($nginx, $zone, 'a')->{used}) == $used }, 5)
        if $zone ne 'far_lease';
    is $is, $used, '... and is counted, once each' if $zone ne 'far_lease';

    is "$zones->{$zone}{passed} $zones->{$zone}{rejected}", "$passed $rejected",
        '... also in the counters';
}

$nginx->finish;
