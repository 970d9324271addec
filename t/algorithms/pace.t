# When quota comes back: the pace of each algorithm.

use v5.36;

use List::Util qw(max min);
use POSIX qw(ceil);
use Test::More;

use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_log_level off;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
    add_header X-Time      $msec                    always;
CONF

# Returns "status, remaining of limit", the reset and Retry-After of a request.
sub ask($path) {
    my $r = $nginx->get($path);
    return ("$r->{status}, " . header($r, 'X-Remaining') . ' of '
        . header($r, 'X-Limit'), header($r, 'X-Reset'),
        header($r, 'Retry-After'));
}

# Asserts that a key that is exhausted has quota again after so many seconds, and not
# a millisecond before.
sub comes_back($name, $path, $seconds) {
    sleep $seconds - 0.001;
    my ($said, undef, $retry) = ask($path);
    like $said, qr/^429/, "$name: not a millisecond before";
    is $retry, 1, '... Retry-After';
    sleep 0.001;
    like((ask($path))[0], qr/^200/, '... but then');
}

my $DAY = 86_400;
my ($said, $reset, $retry);


# fixed: windows are aligned to UTC

$nginx->serve(places(zones => {
    day => 'rate=2 window=1d algorithm=fixed',
}));

my $left = ceil(left_of($DAY));
($said, $reset) = ask('/day?key=a');
is $said, '200, 1 of 2', 'fixed: passed';
is $reset, $left, 'fixed: reset at the end of the window';
ask('/day?key=a');
($said, $reset, $retry) = ask('/day?key=a');
is $said, '429, 0 of 2', 'fixed: rejected';
is $reset, $left, 'fixed: rejected, reset';
is $retry, $left, 'fixed: Retry-After';
comes_back('fixed', '/day?key=a', left_of($DAY));


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

for my $remaining (4, 3, 2, 1, 0) {
    ($said, $reset) = ask('/tokens?key=a');
    is $said, "200, $remaining of 1", "token_bucket: $remaining left";
    is $reset, 3600, 'token_bucket: the next token';
}
($said, $reset, $retry) = ask('/tokens?key=a');
is $said, '429, 0 of 1', 'token_bucket: rejected';
is $retry, 3600, 'token_bucket: Retry-After';

($said, undef, $retry) = ask('/costly-tokens?key=a&cost=3');
is $said, '429, 0 of 1', 'token_bucket: a cost of 3';
is $retry, 3 * 3600, 'token_bucket: waits for three tokens';
comes_back('token_bucket', '/tokens?key=a', 3600);
comes_back('token_bucket, three tokens', '/costly-tokens?key=a&cost=3', 3 * 3600);

is((ask('/costly-tokens?key=b&cost=5'))[0], '200, 0 of 1',
    'token_bucket: a cost above the rate, within the burst');
for my $key (qw(b c)) {
    ($said, undef, $retry) = ask("/costly-tokens?key=$key&cost=6");
    like $said, qr/^429/, "token_bucket: a cost above the burst, key $key";
    is $retry, '', 'token_bucket: without Retry-After';
}


# leaky_bucket without a queue: one an hour

$nginx->serve(places(zones => { leaky => 'rate=1r/h algorithm=leaky_bucket' }));

($said, $reset) = ask('/leaky?key=a');
is $said, '200, 0 of 1', 'leaky_bucket: passed';
is $reset, 3600, 'leaky_bucket: reset';
($said, $reset, $retry) = ask('/leaky?key=a');
is $said, '429, 0 of 1', 'leaky_bucket: rejected';
is $retry, 3600, 'leaky_bucket: Retry-After';
comes_back('leaky_bucket', '/leaky?key=a', 3600) for 1 .. 2;


# log: what was first leaves first

$nginx->serve(places(zones => { log => 'rate=3r/h algorithm=log' }));

ask('/log?key=a');
sleep 1.5;
for my $remaining (1, 0) {
    ($said, $reset) = ask('/log?key=a');
    is $said, "200, $remaining of 3", "log: $remaining left";
    is $reset, 3599, 'log: reset when the first leaves';
}
($said, $reset, $retry) = ask('/log?key=a');
is $said, '429, 0 of 3', 'log: rejected';
is $retry, 3599, 'log: Retry-After';
comes_back('log', '/log?key=a', 3598.5);
comes_back('log, the second one', '/log?key=a', 1.5);


# counter, precision=10: a request weighs one until a window after its part
# began, and nothing a part later

$nginx->serve(places(zones => { precise => 'rate=2 window=30d precision=10' }));

ask('/precise?key=a') for 1 .. 2;
($said, $reset, $retry) = ask('/precise?key=a');
is $said, '429, 0 of 2', 'precision: rejected';
cmp_ok $retry, '>=', 28.5 * $DAY, 'precision: Retry-After, at least';
cmp_ok $retry, '<=', 31.5 * $DAY, 'precision: Retry-After, at most';


# Now the time passes: all are asked again and again.

$nginx->serve(places(zones => {
    'quick-fixed'   => 'rate=3 window=500ms algorithm=fixed',
    'quick-tokens'  => 'rate=10r/s burst=5 algorithm=token_bucket',
    'quick-leaky'   => 'rate=10r/s algorithm=leaky_bucket',
    'quick-log'     => 'rate=5r/s algorithm=log',
    'quick-precise' => 'rate=5r/s precision=10',
}));

my $connection = $nginx->connect;
my %log;                  # of each zone [ms, status], ...

sub probe($zone) {
    my $r = $nginx->get("/quick-$zone?key=a", socket => $connection);
    push @{ $log{$zone} }, [ header($r, 'X-Time') =~ tr/.//dr, $r->{status} ];
    return $r;
}

my $begin = now;
while (now < $begin + 1.6) {
    probe($_) for qw(fixed tokens leaky log precise);
    sleep 0.003;
}

# Returns the times of the requests that passed.
sub passed($zone) {
    return map { $_->[0] } grep { $_->[1] == 200 } @{ $log{$zone} };
}

# Returns complaints about requests that passed less than these ms before the n-th
# one after them.
sub apart($zone, $n, $ms) {
    my @passed = passed($zone);
    return map {
        my $apart = $passed[$_ + $n] - $passed[$_];
        $apart < $ms ? "$n in $apart ms" : ();
    } 0 .. $#passed - $n;
}

# Returns complaints about requests that were rejected although fewer than n had
# passed in these ms before.
sub withheld($zone, $n, $ms) {
    my @passed = passed($zone);
    return map {
        my $time = $_->[0];
        my $recent = grep { $_ > $time - $ms && $_ <= $time } @passed;
        $recent < $n ? "at $time" : ();
    } grep { $_->[1] != 200 } @{ $log{$zone} };
}

cmp_ok passed($_), '>=', 6, "$_: more than at once" for sort keys %log;

is join(', ', apart('log', 5, 1000)), '', 'log: at most 5 in any second';
is join(', ', withheld('log', 5, 1000)), '', 'log: and no less';

is join(', ', apart('leaky', 1, 100)), '', 'leaky_bucket: 100 ms apart';
is join(', ', withheld('leaky', 1, 100)), '', 'leaky_bucket: and no more';

is join(', ', apart('precise', 5, 900)), '',
    'precision: at most 5 in nine parts of ten';
is join(', ', withheld('precise', 5, 1100)), '',
    'precision: and no less in eleven';

# fixed: windows end at each half of a second, UTC
my %windows;              # number of the window => status => how many
$windows{ int $_->[0] / 500 }{ $_->[1] }++ for @{ $log{fixed} };
my @counts = map { $_->{200} // 0 } values %windows;
is join(' ', grep { $_ > 3 } @counts), '', 'fixed: at most 3 in each window';
is join(' ', grep { $_ < 3 } @counts), '', 'fixed: and no less';

# token_bucket: 5 at once, then one each 100 ms, if somebody asks
my ($BURST, $EACH) = (5, 100);
my ($tokens, $then) = ($BURST * $EACH, $log{tokens}[0][0]);
my (@over, @under);
for my $asked (@{ $log{tokens} }) {
    my ($time, $status) = @$asked;
    $tokens = min($BURST * $EACH, $tokens + $time - $then);
    $then = $time;
    if ($status == 200) {
        push @over, "$tokens at $time" if $tokens < $EACH;
        $tokens -= $EACH;
    } else {
        push @under, "$tokens at $time" if $tokens >= $EACH;
    }
}
is join(', ', @over), '', 'token_bucket: burst and rate, no more';
is join(', ', @under), '', 'token_bucket: burst and rate, no less';

# Retry-After is honest: after that time all are admitted again.

my %wait;
for my $zone (sort keys %log) {
    my $r;
    do { $r = probe($zone) } while $r->{status} != 429;
    $wait{$zone} = header($r, 'Retry-After');
    like $wait{$zone}, qr/^[12]$/, "$zone: Retry-After";
}
sleep max(values %wait);
is $nginx->get("/quick-$_?key=a")->{status}, 200, "$_: admitted after that"
    for sort keys %log;

$nginx->finish;
