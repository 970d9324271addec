# A worker that serves for long holds as much in the end as at first: memory,
# descriptors, connections to Redis. FAULT_REQUESTS is how many it serves (30000).

use v5.36;

use List::Util qw(max);
use Test::More;

use LimitSliding::Faults;
use LimitSliding::Footprint;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $REQUESTS = $ENV{FAULT_REQUESTS} // 30_000;
my $BATCH    = 5000;
my $WARM_UP  = 3;         # batches until each kind of request was at its most
my $DRIFT_KB = 1024;

srand 1;

my $redis = LimitSliding::Redis->new->start;

# Places, and of how many keys their requests are: all states, of keys that are
# new, known, full and banned.
my %zones = (
    counter => [ 200_000, 'rate=5 window=30d' ],
    log     => [ 5000,    'rate=50 window=5s algorithm=log' ],
    leaky   => [ 50,      'rate=1000r/s algorithm=leaky_bucket burst=3' ],
    banned  => [ 50,      'rate=10r/s penalty=1s' ],
    far     => [ 20_000,  'rate=5 window=10s redis=shared' ],
    lease   => [ 20,      'rate=1000r/s redis=shared lease=auto' ],
    sync    => [ 100,     'rate=100r/s redis=shared sync=100ms on_error=local' ],
    settled => [ 100,     'rate=1000r/s redis=shared' ],
);
my %limit = (settled => 'settle=$bytes_sent');

# The frame tells which connections the worker has accepted.
my $nginx = LimitSliding::Faults->new(worker_processes => 1, start => 0)->common(
    http => <<"HTTP", server => <<'SERVER');
    ${\ $redis->block('20s', 'on_error deny;')}
    limit_sliding_headers retry_after draft x;
    limit_sliding_log_level off;
HTTP
    location /limits { limit_sliding_api; }
SERVER
$nginx->common(places(limit => $limit{$_} // '',
    zones => { $_ => $zones{$_}[1] })) for sort keys %zones;
$nginx->start($nginx->template);

my ($worker) = $nginx->workers;
my @places = sort keys %zones;

# One request in fifty closes its connection, which has no other under way: that could
# be lost. One in a thousand is of the API.
sub request($i) {
    return '/limits/metrics' if $i % 1000 == 0;
    my $place = $places[ rand @places ];
    return [ "/$place?key=" . int(rand $zones{$place}[0]),
        $i % 50 ? () : 'Connection: close' ];
}

# Returns what the worker holds once it has closed the connections of a batch.
sub held() {
    wait_for(sub { !$nginx->accepted });
    return footprint($worker);
}

my ($base, $holds, %statuses);
my ($connected, $began) = (0, now);

for my $batch (1 .. $WARM_UP + $REQUESTS / $BATCH) {
    my $got = $nginx->load(requests => [ map { request($_) } 1 .. $BATCH ],
        connections => 32, at => { $BATCH / 2 => sub {
            $connected = max($connected, scalar $redis->clients) } });
    $statuses{ $_ // 'lost' }++ for @$got;

    $holds = held();
    $base = $holds if $batch == $WARM_UP;
    note sprintf '%d requests in %.0f s: %d kB, %d descriptors', $batch * $BATCH,
        now() - $began, @$holds{qw(kb descriptors)} if $batch % 10 == 0;
}
note 'the worker held at first: ', explain($base), 'and in the end: ', explain $holds;

is join(' ', sort keys %statuses), '200 429', "$REQUESTS requests";
is join(' ', $nginx->workers), $worker, '... served by one worker';
cmp_ok $holds->{kb}, '<', $base->{kb} + $DRIFT_KB, '... of which none leaves memory behind';
is $holds->{descriptors}, $base->{descriptors}, '... or a descriptor';
cmp_ok $connected, '<=', 1, '... with one connection to Redis';

$nginx->finish;
