# The window slides: quota comes back bit by bit, as time takes it from the
# previous window, and not at once.
#
# The assertions hold on a machine of any speed. We know of each decision that
# it fell between the moments when we sent the request and when we had the
# response. SLACK is for clocks, as NGINX's is coarse and cached.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_log_level off;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
CONF

my $SLACK = 0.06;

my $connection;

# Starts NGINX with the directives of a section, and connects to it.
sub serve(%directives) {
    $nginx->serve(%directives);
    $connection = $nginx->connect;
}

# Sends a request on that connection. Returns its status, when it was sent, and
# when it was answered.
sub probe($path) {
    my $sent = now;
    my $status = $nginx->get($path, socket => $connection)->{status};
    return ($status, $sent, now);
}


# the limit is floor(rate x window)

my %zones = (             # name => [the limit that responses tell, settings]
    second    => [ 10,   'rate=10r/s' ],
    minute    => [ 90,   'rate=90r/m' ],
    hour      => [ 1000, 'rate=1000r/h' ],
    day       => [ 7,    'rate=7r/d' ],
    long      => [ 600,  'rate=10r/s window=1m' ],
    half      => [ 5,    'rate=10r/s window=500ms' ],
    floor     => [ 4,    'rate=3r/s window=1500ms' ],
    floor_90s => [ 7,    'rate=5r/m window=90s' ],
    floor_one => [ 1,    'rate=1r/m window=119s' ],
    month     => [ 30,   'rate=1r/d window=30d' ],
    bare      => [ 10,   'rate=10 window=1m' ],
    quarter   => [ 5,    'rate=5/15m' ],
    calendar  => [ 9,    'rate=9/month algorithm=fixed' ],
    largest   => [ 1000000000, 'rate=1000000000 window=1h' ],
);

serve(places(zones => { map { ($_ => $zones{$_}[1]) } keys %zones }));

for my $zone (sort keys %zones) {
    my ($limit, $settings) = @{ $zones{$zone} };
    is header($nginx->get("/$zone?key=a"), 'X-Limit'), $limit, $settings;
}

my $passed = grep { (probe('/floor_90s?key=b'))[0] == 200 } 1 .. 20;
is $passed, 7, 'a limit of 7.5 admits 7';


# a key that will be idle until the end of this test

my ($LIMIT, $WINDOW) = (10, 2);
serve(places(zones =>
        { slide => "rate=$LIMIT window=${WINDOW}s precision=1" }));

is scalar grep({ (probe('/slide?key=idle'))[0] == 200 } 1 .. $LIMIT + 1),
    $LIMIT, 'filled at once';
my $idle_since = now;


# Fills a key, then asks without a break. In the window that follows, the n-th
# request is admitted once n * WINDOW / LIMIT of it have passed, no sooner and
# no later. When that window begins we learn from the first admission, which
# falls between the last rejection before it and its own response.
#
# Returns what was wrong, if anything.
sub slide($key) {
    for (1 .. $LIMIT) {
        my ($status) = probe("/slide?key=$key");
        return "not filled at once: $status" if $status != 200;
    }

    my $step = $WINDOW / $LIMIT;
    my ($status, $sent, $answered);
    my $rejected = now;

    while (1) {
        ($status, $sent, $answered) = probe("/slide?key=$key");
        last if $status == 200;
        $rejected = $sent;
        sleep 0.003;
    }

    my ($first, $admitted, @problems) = ($answered, 1);

    while ($answered < $rejected + $WINDOW - $step - 2 * $SLACK) {
        ($status, $sent, $answered) = probe("/slide?key=$key");

        if ($status == 200) {
            my $early = $rejected + $admitted * $step - $answered;
            push @problems, "number $admitted is $early s early"
                if $early > $SLACK;
            $admitted++;
        } else {
            my $late = $sent - ($first + $admitted * $step);
            push @problems, "number $admitted is $late s late"
                if $late > $SLACK;
        }
        sleep 0.003;
    }

    push @problems, "only $admitted admitted" if $admitted < $LIMIT / 2;
    return @problems;
}

# Should the window end between the requests that fill it, which we don't see,
# then quota comes back more slowly. That is rare; so it does not happen twice.
my @problems;
for my $attempt (1 .. 3) {
    @problems = slide("slide-$attempt") or last;
    note "attempt $attempt: @problems";
}
is "@problems", '', 'quota comes back bit by bit';


# After two windows nothing is left of a key.

my $left = $idle_since + 2 * $WINDOW + $SLACK - now;
sleep $left if $left > 0;

my $response = $nginx->get('/slide?key=idle');
is $response->{status}, 200, 'idle key: admitted';
is header($response, 'X-Remaining'), $LIMIT - 1, 'idle key: starts afresh';
cmp_ok header($response, 'X-Reset'), '<=', 2 * $WINDOW, 'idle key: reset';
is scalar grep({ (probe('/slide?key=idle'))[0] == 200 } 2 .. $LIMIT),
    $LIMIT - 1, 'idle key: has all of its quota';


# The shortest window, with a limit of 1: a request weighs something until the
# end of the window that follows its own, and nothing after that.

serve(places(zones => { short => 'rate=1 window=100ms' }));

my ($asked, $got, @early, @late) = (undef, undef);
my ($begin, $admitted) = (now, 0);

while (now - $begin < 1.5) {
    my ($status, $sent, $answered) = probe('/short?key=a');
    if ($status == 200) {
        push @early, $answered - $asked
            if $admitted && $answered - $asked < 0.1 - 0.02;
        ($asked, $got) = ($sent, $answered);
        $admitted++;
    } else {
        push @late, $sent - $got if $sent - $got > 0.2 + $SLACK;
    }
    sleep 0.003;
}

cmp_ok $admitted, '>=', 2, '1 in 100ms: admitted again and again';
is "@early", '', '1 in 100ms: never within the window';
is "@late", '', '1 in 100ms: always after two';

$nginx->finish;
