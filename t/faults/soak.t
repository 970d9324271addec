# All at once, for a while: many kinds of limits under load, reloads, workers that are
# killed, orders of the API, and a Redis that hangs, dies and comes back. Nothing
# crashes or grows, and no limit of this node admits more than it may. SOAK_S is how
# many seconds that takes (10); `make soak` takes ten minutes under ASan.

use v5.36;

use List::Util qw(max min sum0);
use Test::More;

use LimitSliding::Clock real => 'a load that never pauses goes on for a while';

use LimitSliding::Api;
use LimitSliding::Footprint;
use LimitSliding::Redis;
use LimitSliding::Siege;
use LimitSliding::Test qw(:DEFAULT places);

my $SECONDS = $ENV{SOAK_S} // 10;
my $WORKERS = 3;
my $LIMIT   = 50;

# What a process may hold more than at its begin: descriptors are those of connections
# and old workers; memory is that of a heap that has found its size.
my ($DESCRIPTORS, $KB) = (16, 4096);

srand(my $seed = $ENV{SOAK_SEED} // time);
note "SOAK_SEED=$seed";

my $redis = LimitSliding::Redis->new->start;

# Windows that never end here: a key is admitted its limit at most.
my %kept = (
    counter => '', strict => 'strict', fixed => 'algorithm=fixed',
    penalty => 'penalty=2s penalty_after=3',
);
my %far = (
    far => '', lease => 'lease=auto', sync => 'sync=100ms',
    far_penalty => 'penalty=2s penalty_after=3',
);
my %flowing = (
    leaky => 'algorithm=leaky_bucket', token => 'algorithm=token_bucket', day => '',
);

my $nginx = LimitSliding::Test->new(worker_processes => $WORKERS);
$nginx->common(http => <<"HTTP", server => <<'SERVER');
    ${\ $redis->block('100ms')}
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=refused:1m rate=$LIMIT window=30d redis=shared
        count_rejected;
    limit_sliding_zone \$arg_key zone=settled:1m rate=1000 window=2s redis=shared;
    limit_sliding_zone \$arg_key zone=settled_here:1m rate=1000 window=2s;
    limit_sliding_zone \$arg_key zone=late:1m rate=1000r/s burst=100 delay=50
        algorithm=leaky_bucket;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /late { limit_sliding zone=late; empty_gif; }
    location /refused { limit_sliding zone=refused; empty_gif; }
    location /settled { limit_sliding zone=settled settle=$arg_cost; empty_gif; }
    location /settled_here { limit_sliding zone=settled_here settle=$arg_cost; empty_gif; }
    location /both { limit_sliding zone=settled; limit_sliding zone=settled_here; empty_gif; }
    location /posted {
        limit_sliding zone=settled;
        post_action /settled_here;
        empty_gif;
    }
SERVER
$nginx->common(@$_) for [ places(each => "rate=$LIMIT window=30d", zones => \%kept) ],
    [ places(each => "rate=$LIMIT window=30d redis=shared", zones => \%far) ],
    [ places(each => 'rate=1000r/s', zones => \%flowing) ];

my $template = $nginx->template;
$template =~ s/%%GLOBALS%%/%%GLOBALS%%\ntimer_resolution 20ms;/;
$nginx->start($template);

my @kept = map { my $zone = $_; map { "/$zone?key=$_" } 0 .. 7 } sort keys %kept;
my @others = (
    (map { my $zone = $_; map { "/$zone?key=$_" } 1 .. 4 } sort(keys %far, keys %flowing),
        qw(refused late)),
    (map { my $place = $_; map { "/$place?key=$_&cost=" . $_ % 3 } 1 .. 4 }
        qw(settled settled_here both posted)),
    map { "/counter?key=other$_" } 1 .. 200,
);

# Key n of those is asked for in every 2**n-th round, so that keys reach their limits all
# along, and not within the first faults alone.
my @paths = map {
    my $round = $_;
    (@others, (grep { /key=(\d)/ && $round % 2 ** $1 == 0 } @kept) x 4)
} 0 .. 127;
my $siege = LimitSliding::Siege->new($nginx, \@paths)->start;


# the faults

my %done;
sub order() {
    my $key = 1 + int rand 4;
    my ($zone) = (qw(day far leaky token))[ rand 4 ];
    my ($method, $more) = @{ ([ PUT => '&rate=90' ], [ PUT => '&rate=default' ],
        [ DELETE => '' ], [ POST => '&cost=1' ], [ GET => '' ])[ rand 5 ] };
    $nginx->get(key_path($zone, $key, $more), method => $method);
}
my %faults = (
    reload => sub { $nginx->reload },
    kill   => sub {
        my ($worker) = sort { rand() <=> 0.5 } $nginx->workers;
        $nginx->kill_worker($worker) if $worker;
        wait_for(sub { $nginx->workers == $WORKERS });
    },
    freeze => sub { $redis->freeze; sleep 0.1 + rand 0.6; $redis->thaw },
    die    => sub { $redis->kill9; sleep rand 0.5; $redis->start },
    stop   => sub { $redis->stop; sleep rand 0.5; $redis->start },
    flush  => sub { $redis->command('FLUSHALL') },
    drop   => sub { $redis->kill_clients },
    orders => sub { order() for 1 .. 20 },
);

sub all_footprints() {
    my @all = map { footprint($_) } $nginx->master, $nginx->workers;
    return { map { my $what = $_; $what => max(map { $_->{$what} } @all) }
            qw(descriptors kb) };
}

my ($base, @turns);
my $end = now + $SECONDS;
while (now() < $end) {
    @turns = sort { rand() <=> 0.5 } sort keys %faults if !@turns;
    my $name = shift @turns;
    $faults{$name}->();
    $done{$name}++;
    $base //= all_footprints() if sum0(values %done) >= 2 * keys %faults;
    sleep rand 0.2;
}
my $last = all_footprints();    # before new workers take the place of these
$nginx->reload;
my $got = $siege->stop;
note explain \%done, $base, $last;


# what must hold

my %statuses;
for my $path (keys %$got) {
    $statuses{$_} += $got->{$path}{$_} for keys %{ $got->{$path} };
}
note explain \%statuses;
cmp_ok sum0(values %statuses), '>', 100 * min(10, $SECONDS), 'requests are answered';
is join(' ', grep { !/^(?:200|429|lost)$/ } sort keys %statuses), '',
    '... with the statuses that are configured';
my @over = grep { ($got->{$_}{200} // 0) > $LIMIT } @kept;
note 'admitted: ', join ' ', map { "$_: " . ($got->{$_}{200} // 0) } @kept;
is "@over", '', '... no key of this node is admitted more than its limit';
if ($base) {
    cmp_ok $last->{descriptors}, '<=', $base->{descriptors} + $DESCRIPTORS,
        '... descriptors do not grow';
    cmp_ok $last->{kb}, '<=', $base->{kb} + $KB, '... nor does memory';
}
is $nginx->get('/day?key=end')->{status}, 200, '... and it works';
$nginx->finish;
