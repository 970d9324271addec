# sync= under load: by how much two NGINXs exceed a limit, in the first window and in those
# that follow.

use v5.36;

use List::Util qw(sum);
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my ($LIMIT, $WINDOW, $SYNC) = (1000, 2, 0.02);
my ($BATCH, $PAUSE) = (16, 0.01);     # requests at once, and seconds to the next ones
my $INTERVAL = $BATCH * $SYNC / $PAUSE;

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new->common(listen => 'reuseport', http => <<"CONF") } 1 .. 2;
    limit_sliding_log_level off;

    ${\ $redis->block('5s')}
CONF

my %algorithms = (counter => '', fixed => 'algorithm=fixed', strict => 'strict',
    whole => 'precision=1',
    tokens => 'algorithm=token_bucket');
$_->serve(places(each => "rate=$LIMIT window=${WINDOW}s redis=shared sync=20ms",
    zones => \%algorithms)) for @nginx;

# Drives a key from the start of a window on, for so many seconds. Returns how many passed
# in each batch.
sub drive($path, $seconds) {
    sleep left_of($WINDOW);
    return map {
        my $statuses = $nginx[0]->load(requests => [ ($path) x $BATCH ], connections => 2,
            pipeline => 8, beside => [ $nginx[1] ]);
        sleep $PAUSE;
        scalar grep { $_ == 200 } @$statuses;
    } 1 .. $seconds / $PAUSE;
}

# Whether Redis is asked at most once in ten intervals.
sub is_quiet() {
    my $calls = $redis->calls;
    sleep 40 * $SYNC;
    return $redis->calls - $calls <= 4;
}

for my $zone (sort keys %algorithms) {
    my $calls = $redis->calls;
    my $seconds = 2 * $WINDOW - 0.5;
    my @passed = drive("/$zone?key=a", $seconds);
    $calls = $redis->calls - $calls;

    my $first = sum @passed[0 .. $WINDOW / $PAUSE - 1];
    my $second = sum @passed[$WINDOW / $PAUSE .. $#passed];
    note "$zone: $first, $second; $calls calls";

    # what runs off meanwhile
    my %more = (tokens => $LIMIT);
    cmp_ok $first, '>=', $LIMIT, "$zone: the whole limit passes";
    cmp_ok $first, '<=', $LIMIT + ($more{$zone} // 0) + $INTERVAL,
        '... and no more than an interval has';
    # and a first one of each worker
    cmp_ok $calls, '<=', 2 * $seconds / $SYNC + 4, '... with a command an interval';

    if ($zone eq 'whole') {
        # Nothing but what fades until then, less the two intervals that are sent again.
        my $faded = $LIMIT * ($seconds / $WINDOW - 1);
        cmp_ok abs($second - $faded), '<=', 2 * $INTERVAL, '... and what fades in the next window';
    } elsif ($zone =~ /^(fixed|counter)$/) {
        # much is free at once when a window begins, or a part of it ends
        cmp_ok abs($second - $LIMIT), '<=', $INTERVAL, '... and so in the next window';
    }

    ok wait_for(\&is_quiet, 2 * $WINDOW), '... and an idle key costs no calls';
}

$_->finish_one for @nginx;
done_testing;
