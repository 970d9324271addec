# When quota comes back: the pace of each algorithm.
#
# The assertions hold on a machine of any speed: each response says when it was
# decided, by NGINX's own clock. All that NGINX did in a turn of its event
# loop happened at one moment of that clock, and so a decision is known to the
# millisecond however long the machine made anybody wait.

use v5.36;

use List::Util qw(max min);
use Test::More;
use Time::HiRes ();

use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_log_level off;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
    add_header X-Time      $msec                    always;
CONF

# Asserts that a number is as expected, but for the seconds since `from`.
sub about($got, $expected, $from, $name) {
    cmp_ok $got, '>=', $expected - 1 - (now - $from), "$name, at least";
    cmp_ok $got, '<=', $expected + 1, "$name, at most";
}

# Returns "status, remaining of limit", the reset and Retry-After of a request.
sub ask($path) {
    my $r = $nginx->get($path);
    return ("$r->{status}, " . header($r, 'X-Remaining') . ' of '
        . header($r, 'X-Limit'), header($r, 'X-Reset'),
        header($r, 'Retry-After'));
}

my $MONTH = 30 * 86400;
my ($said, $reset, $retry);


# fixed: windows are aligned to UTC

$nginx->serve(places(zones => {
    month => 'rate=2 window=30d algorithm=fixed',
}));

my $left = $MONTH - Time::HiRes::time() % $MONTH;
my $start = now;
($said, $reset) = ask('/month?key=a');
is $said, '200, 1 of 2', 'fixed: passed';
about($reset, $left, $start, 'fixed: reset at the end of the window');
ask('/month?key=a');
($said, $reset, $retry) = ask('/month?key=a');
is $said, '429, 0 of 2', 'fixed: rejected';
about($reset, $left, $start, 'fixed: rejected, reset');
about($retry, $left, $start, 'fixed: Retry-After');


# token_bucket: one an hour

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=tokens:1m rate=1r/h burst=5
        algorithm=token_bucket;
HTTP
    location /tokens { limit_sliding zone=tokens; empty_gif; }

    location /costly-tokens {
        limit_sliding zone=tokens cost=$arg_cost;
        empty_gif;
    }
SERVER

$start = now;
for my $remaining (4, 3, 2, 1, 0) {
    ($said, $reset) = ask('/tokens?key=a');
    is $said, "200, $remaining of 1", "token_bucket: $remaining left";
    about($reset, 3600, $start, 'token_bucket: the next token');
}
($said, $reset, $retry) = ask('/tokens?key=a');
is $said, '429, 0 of 1', 'token_bucket: rejected';
about($retry, 3600, $start, 'token_bucket: Retry-After');

($said, undef, $retry) = ask('/costly-tokens?key=a&cost=3');
is $said, '429, 0 of 1', 'token_bucket: a cost of 3';
about($retry, 3 * 3600, $start, 'token_bucket: waits for three tokens');

is((ask('/costly-tokens?key=b&cost=5'))[0], '200, 0 of 1',
    'token_bucket: a cost above the rate, within the burst');
for my $key (qw(b c)) {
    ($said, undef, $retry) = ask("/costly-tokens?key=$key&cost=6");
    like $said, qr/^429/, "token_bucket: a cost above the burst, key $key";
    is $retry, '', 'token_bucket: without Retry-After';
}


# leaky_bucket without a queue: one an hour

$nginx->serve(places(zones => { leaky => 'rate=1r/h algorithm=leaky_bucket' }));

$start = now;
($said, $reset) = ask('/leaky?key=a');
is $said, '200, 0 of 1', 'leaky_bucket: passed';
about($reset, 3600, $start, 'leaky_bucket: reset');
($said, $reset, $retry) = ask('/leaky?key=a');
is $said, '429, 0 of 1', 'leaky_bucket: rejected';
about($retry, 3600, $start, 'leaky_bucket: Retry-After');


# log: what was first leaves first

$nginx->serve(places(zones => { log => 'rate=3r/h algorithm=log' }));

$start = now;
ask('/log?key=a');
sleep 1.5;
for my $remaining (1, 0) {
    ($said, $reset) = ask('/log?key=a');
    is $said, "200, $remaining of 3", "log: $remaining left";
    about($reset, 3598.5, $start + 1.5, 'log: reset when the first leaves');
}
($said, $reset, $retry) = ask('/log?key=a');
is $said, '429, 0 of 3', 'log: rejected';
about($retry, 3598.5, $start + 1.5, 'log: Retry-After');


# counter, precision=10: a request weighs one until a window after its part
# began, and nothing a part later

$nginx->serve(places(zones => { precise => 'rate=2 window=30d precision=10' }));

$start = now;
ask('/precise?key=a') for 1 .. 2;
($said, $reset, $retry) = ask('/precise?key=a');
is $said, '429, 0 of 2', 'precision: rejected';
cmp_ok $retry, '>=', 0.95 * $MONTH - 1 - (now - $start),
    'precision: Retry-After, at least';
cmp_ok $retry, '<=', 1.05 * $MONTH + 1, 'precision: Retry-After, at most';


# Now the time passes: all are asked again and again.

$nginx->serve(places(zones => {
    'quick-fixed'   => 'rate=3 window=500ms algorithm=fixed',
    'quick-tokens'  => 'rate=10r/s burst=5 algorithm=token_bucket',
    'quick-leaky'   => 'rate=10r/s algorithm=leaky_bucket',
    'quick-log'     => 'rate=5r/s algorithm=log',
    'quick-precise' => 'rate=5r/s precision=10',
}));

# Limits are kept by the monotonic clock and X-Time is UTC's. Each of them is
# cut to milliseconds, and so a difference of times is off by one of them.
my $SLACK = 0.002;

my $SECONDS = 2.5;
my $ENOUGH = 6;           # that passed in each zone, on a busy machine later
my $DEADLINE = 120;
my $connection = $nginx->connect;
my %log;                  # of each zone [time, status], ...

sub probe($zone) {
    my $r = $nginx->get("/quick-$zone?key=a", socket => $connection);
    push @{ $log{$zone} }, [ header($r, 'X-Time'), $r->{status} ];
    return $r;
}

my $begin = now;
while (now - $begin < $SECONDS
    or now - $begin < $DEADLINE and grep { passed($_) < $ENOUGH } keys %log)
{
    probe($_) for qw(fixed tokens leaky log precise);
    sleep 0.003;
}

# Returns the times of the requests that passed.
sub passed($zone) {
    return map { $_->[0] } grep { $_->[1] == 200 } @{ $log{$zone} };
}

# Returns complaints about requests that passed less than these seconds before
# the n-th one after them.
sub apart($zone, $n, $seconds) {
    my @passed = passed($zone);
    return map {
        my $apart = $passed[$_ + $n] - $passed[$_];
        $apart < $seconds - $SLACK ? "$n in $apart s" : ();
    } 0 .. $#passed - $n;
}

# Returns complaints about requests that were rejected although fewer than n had
# passed in these seconds before.
sub withheld($zone, $n, $seconds) {
    my @passed = passed($zone);
    return map {
        my $time = $_->[0];
        my $recent = grep {
            $_ > $time - $seconds - $SLACK && $_ <= $time
        } @passed;
        $recent < $n ? "at $time" : ();
    } grep { $_->[1] != 200 } @{ $log{$zone} };
}

cmp_ok passed($_), '>=', $ENOUGH, "$_: more than at once" for sort keys %log;

is join(', ', apart('log', 5, 1)), '', 'log: at most 5 in any second';
is join(', ', withheld('log', 5, 1)), '', 'log: and no less';

is join(', ', apart('leaky', 1, 0.1)), '', 'leaky_bucket: 100 ms apart';
is join(', ', withheld('leaky', 1, 0.1)), '', 'leaky_bucket: and no more';

is join(', ', apart('precise', 5, 0.9)), '',
    'precision: at most 5 in nine parts of ten';
is join(', ', withheld('precise', 5, 1.1)), '',
    'precision: and no less in eleven';

# fixed: windows end at each half of a second, UTC. Close to that it may be the
# one or the other, as UTC is read once when the zone is made.
my @fixed = map {
    my ($time, $status) = @$_;
    my ($first, $last) = map { int 2 * $_ } $time - 0.005, $time + 0.005;
    [ $first, $last, $status ];
} @{ $log{fixed} };

my (@over, @under);
for my $n ($fixed[0][0] .. $fixed[-1][1]) {
    my @surely = grep { $_->[0] == $n && $_->[1] == $n } @fixed;
    my @perhaps = grep { $_->[0] <= $n && $_->[1] >= $n } @fixed;
    push @over, $n if grep({ $_->[2] == 200 } @surely) > 3;
    push @under, $n if grep({ $_->[2] == 429 } @surely)
        && grep({ $_->[2] == 200 } @perhaps) < 3;
}
is "@over", '', 'fixed: at most 3 in each window';
is "@under", '', 'fixed: and no less';

# token_bucket: 5 at once, then 10 a second, if somebody asks. What a difference
# of times is off by does not add up, as it is the same times that follow.
my ($BURST, $RATE) = (5, 10);
my $off = $RATE * $SLACK;
my ($tokens, $then) = ($BURST, $log{tokens}[0][0]);
(@over, @under) = ();
for my $asked (@{ $log{tokens} }) {
    my ($time, $status) = @$asked;
    $tokens = min($BURST, $tokens + $RATE * ($time - $then));
    $then = $time;
    if ($status == 200) {
        push @over, "$tokens at $time" if $tokens < 1 - $off;
        $tokens--;
    } else {
        push @under, "$tokens at $time" if $tokens >= 1 + $off;
    }
}
is join(', ', @over), '', 'token_bucket: burst and rate, no more';
is join(', ', @under), '', 'token_bucket: burst and rate, no less';

# Retry-After is honest: after that time all are admitted again.

my %wait;
for my $zone (sort keys %log) {
    my $r;
    $begin = now;
    do { $r = probe($zone) } while $r->{status} != 429
        && now - $begin < $DEADLINE;
    is $r->{status}, 429, "$zone: rejected";
    $wait{$zone} = header($r, 'Retry-After');
    like $wait{$zone}, qr/^[12]$/, "$zone: Retry-After";
}
sleep 0.05 + max values %wait;
is $nginx->get("/quick-$_?key=a")->{status}, 200, "$_: admitted after that"
    for sort keys %log;

$nginx->finish;
