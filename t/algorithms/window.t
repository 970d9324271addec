# The window slides: quota comes back bit by bit, as time takes it from the
# previous window, and not at once.

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

my $connection;

# Starts NGINX with the directives of a section, and connects to it.
sub serve(%directives) {
    $nginx->serve(%directives);
    $connection = $nginx->connect;
}

# Sends a request on that connection. True if it passes.
sub passes($path) {
    return $nginx->get($path, socket => $connection)->{status} == 200;
}

# Asks every millisecond, until n have passed. Returns the milliseconds between
# one that passes and the next one.
sub gaps($n, $path) {
    my @passed;
    while (@passed < $n) {
        sleep 0.001;
        push @passed, 1000 * now if passes($path);
    }
    return map { sprintf '%.0f', $passed[$_] - $passed[$_ - 1] } 1 .. $n - 1;
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

my $passed = grep { passes('/floor_90s?key=b') } 1 .. 20;
is $passed, 7, 'a limit of 7.5 admits 7';


# a key that will be idle until the end of this test

my ($LIMIT, $WINDOW) = (10, 2);
serve(places(zones =>
        { slide => "rate=$LIMIT window=${WINDOW}s precision=1" }));

is scalar grep({ passes('/slide?key=idle') } 1 .. $LIMIT + 1),
    $LIMIT, 'filled at once';
my $idle_since = now;


# In the window after that in which a key was filled, the n-th request is admitted
# once n * WINDOW / LIMIT of it have passed.
is scalar grep({ passes('/slide?key=slide') } 1 .. $LIMIT), $LIMIT, 'filled at once';
is join(' ', gaps($LIMIT, '/slide?key=slide')),
    join(' ', (1000 * $WINDOW / $LIMIT) x ($LIMIT - 1)), 'quota comes back bit by bit';


# After two windows nothing is left of a key.

sleep $idle_since + 2 * $WINDOW - now;

my $response = $nginx->get('/slide?key=idle');
is $response->{status}, 200, 'idle key: admitted';
is header($response, 'X-Remaining'), $LIMIT - 1, 'idle key: starts afresh';
cmp_ok header($response, 'X-Reset'), '<=', 2 * $WINDOW, 'idle key: reset';
is scalar grep({ passes('/slide?key=idle') } 2 .. $LIMIT),
    $LIMIT - 1, 'idle key: has all of its quota';


# The shortest window, with a limit of 1: a request weighs something until the
# end of the window that follows its own, and nothing after that.

serve(places(zones => { short => 'rate=1 window=100ms' }));

my @gaps = gaps(10, '/short?key=a');
note "@gaps";
is join(' ', grep { $_ <= 100 } @gaps), '', '1 in 100ms: never within the window';
is join(' ', grep { $_ > 200 } @gaps), '', '1 in 100ms: always after two';

$nginx->finish;
