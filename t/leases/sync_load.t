# sync= under load: by how much two NGINXs at full speed exceed a limit, in the
# first window and in those that follow.

use v5.36;

use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(sleep time);

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my ($LIMIT, $WINDOW, $SYNC) = (10_000, 4, 0.02);

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new->common(listen => 'reuseport', http => <<"CONF") } 1 .. 2;
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        server ${\ $redis->server};
        timeout 5s;
        connect_timeout 5s;
    }

    add_header X-Time \$msec always;
CONF

my %algorithms = (counter => '', fixed => 'algorithm=fixed', strict => 'strict',
    whole => 'precision=1',
    tokens => 'algorithm=token_bucket');
$_->serve(places(each => "rate=$LIMIT window=${WINDOW}s redis=shared sync=20ms",
    zones => \%algorithms)) for @nginx;

# Drives a key from the start of a window on, for so many seconds. Returns the times of
# all answers, and of those that passed, from the start.
sub drive($path, $seconds) {
    my (@all, @passed);
    my $start = (int(time / $WINDOW) + 1) * $WINDOW;
    sleep $start - time;
    while (time < $start + $seconds) {
        $nginx[0]->load(requests => [ ($path) x 4000 ], connections => 32, pipeline => 4,
            beside => [ $nginx[1] ], each => sub ($i, $status, $head) {
                my ($time) = $head =~ /^X-Time: (\S+)/m;
                push @all, $time - $start;
                push @passed, $time - $start if $status == 200;
            });
    }
    return (\@all, \@passed);
}

sub within($times, $from, $to) {
    return scalar grep { $_ >= $from && $_ < $to } @$times;
}

# Returns the most that were answered in such a time while there was room.
sub most_in($times, $seconds) {
    my ($most, $first) = (0, 0);
    for my $last (0 .. $#$times) {
        $first++ while $times->[$first] < $times->[$last] - $seconds;
        $most = max($most, $last - $first + 1);
    }
    return $most;
}

# Whether Redis is asked at most once in ten intervals.
sub is_quiet() {
    my $calls = $redis->calls;
    sleep 40 * $SYNC;
    return $redis->calls - $calls <= 4;
}

for my $zone (sort keys %algorithms) {
    my $calls = $redis->calls;
    my ($all, $passed) = drive("/$zone?key=a", 2 * $WINDOW - 0.5);
    $calls = $redis->calls - $calls;

    # answers of two NGINXs come a little out of order
    my @sorted = sort { $a <=> $b } @$all;
    my $bound = most_in(\@sorted, $SYNC + 0.02);
    my $first = within($passed, 0, $WINDOW);
    my $second = within($passed, $WINDOW, 2 * $WINDOW);
    note "$zone: $first, $second; bound $bound; $calls calls; ", scalar @$all, ' answers';

    # what runs off meanwhile
    my %more = (tokens => $LIMIT);
    cmp_ok $first, '>=', $LIMIT, "$zone: the whole limit passes";
    cmp_ok $first, '<=', $LIMIT + ($more{$zone} // 0) + $bound,
        '... and no more than an interval has';
    # The clock of a worker is that of its event loop: on a machine that is this busy it is
    # behind by as much as such an interval.
    cmp_ok $calls, '<=', 1.5 * 2 * (1 + $sorted[-1]) / $SYNC, '... with a command an interval';

    if ($zone eq 'whole') {
        # Nothing but what fades until then, less the two intervals that are sent again. An
        # interval of a window of seconds is 0.5% of it.
        my $faded = $LIMIT * min(1, $sorted[-1] / $WINDOW - 1);
        cmp_ok abs($second - $faded), '<=', $LIMIT * (0.01 + 4 * $SYNC / $WINDOW),
            '... and what fades in the next window';
    } elsif ($zone =~ /^(fixed|counter)$/) {
        # much is free at once when a window begins, or a part of it ends
        cmp_ok abs($second - $LIMIT), '<=', $LIMIT / 100 + $bound, '... and so in the next window';
    }

    ok wait_for(\&is_quiet, 2 * $WINDOW), '... and an idle key costs no calls';
}

$_->finish_one for @nginx;
done_testing;
