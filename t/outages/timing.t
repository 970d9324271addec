# How long things take while Redis does not answer, to the millisecond.

use v5.36;

use List::Util qw(max sum0 uniq);
use Test::More;

use LimitSliding::Clock ();
use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $TIMEOUT = 0.1;
my $STEP    = 0.01;       # between two requests

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

# Limits of time are not what this one is for.
my $patient = LimitSliding::Faults->new(server => $fake->server,
    timeout => 60);
my $nginx = LimitSliding::Faults->new(server => $redis->server,
    timeout => $TIMEOUT, connect_timeout => 0.2);
ok defined $nginx->wait_healthy, 'Redis decides';

sub ask($path, $on = $nginx) {
    return ($on->ask($path))[0];
}

# Asks, a step apart, until this is true of an answer. Returns all answers.
sub ask_until($path, $true) {
    my @took;
    do {
        sleep $STEP if @took;
        push @took, ask($path);
    } until $true->($took[-1]);
    return @took;
}

sub is_open($on = $nginx) {
    return $on->redis('allow')->{breaker} eq 'open';
}

# The times of those that waited, rather than being decided at once.
sub waits(@answers) {
    return grep { $_ > 0 } map { $_->{seconds} } @answers;
}


# A frozen Redis: each request waits for the timeout, until five calls have failed;
# then none does, but for a probe a second.

for my $round (1 .. 3) {
    ok defined $nginx->wait_healthy, "round $round: Redis decides";
    $redis->freeze;

    # One worker alone comes to five later, as it spaces its attempts.
    my @took = ask_until("/allow?key=frozen-$round", sub { is_open() });
    # A request that joins a call under way waits for the rest of the timeout.
    is max(waits(@took)), '0.100', "round $round: some wait for the timeout, none longer";
    cmp_ok scalar(waits(@took)), '<=', 5, '... not more than open the breaker';
    # some failures are of calls by which workers find out whether Redis is back
    cmp_ok scalar(waits(@took)), '>=', 2, '... and not many fewer';

    # not so long that a probe might close it
    my $open = now;
    is_deeply [ uniq map { $_->{seconds} } ask_until("/allow?key=frozen-$round",
        sub { now() >= $open + 0.7 }) ], [ '0.000' ], '... and then none does';
    is LimitSliding::Clock::strays($nginx->workers), 0, '... where they block nobody';

    my $start = now;
    $redis->thaw;
    ask_until("/allow?key=thawed-$round", sub ($answer) { $answer->{source} eq 'redis' });
    cmp_ok now() - $start, '<=', 1 - 0.7 + $TIMEOUT + $STEP,
        '... until Redis is back, and a second is over';
}
$nginx->exact('thawed');


# Failures count in a row: a success in between keeps the breaker closed. They
# are errors here, so that how many there are depends on nothing else.

ok defined $patient->wait_healthy, 'four failures, a success, four failures';
my $opened = $patient->redis('allow')->{breaker_opened};
my $failed = $patient->redis('allow')->{failed_calls};
for my $round (1 .. 2) {
    $fake->mode('say', '-ERR broken\r\n');
    for (1 .. 4) {
        is ask("/allow?key=row-$round", $patient)->{source}, 'fallback',
            '... a failure';
    }
    $fake->mode('pass');
    is ask("/allow?key=row-$round", $patient)->{source}, 'redis',
        '... a success next, as the breaker is closed';
}
my $told = $patient->redis('allow');
is $told->{failed_calls} - $failed, 8, '... eight failures in all';
is $told->{breaker_opened} - $opened, 0, '... and it never opened';


# The breaker is the workers' own: who has seen no failure does not wait either.

ok defined $nginx->wait_healthy, 'two workers';
my %socket;
wait_for(sub {
    my $socket = $nginx->connect;
    my $r = $nginx->get('/free', socket => $socket);
    $socket{ header($r, 'X-Worker') } //= $socket;
    return keys %socket == 2;
});
my ($one, $other) = values %socket;

sub ask_on($socket) {
    return LimitSliding::Faults::answer(
        $nginx->get('/allow?key=shared', socket => $socket));
}

$redis->freeze;
my @took;
ok wait_for(sub { push @took, ask_on($one); is_open() }), '... one of them opens the breaker';
is_deeply [ uniq waits(@took) ], ['0.100'], '... and has waited for the timeout';
is_deeply [ map { ask_on($other)->{seconds} } 1 .. 5 ], [ ('0.000') x 5 ],
    'the other worker has learnt of the first one\'s failures';
$redis->thaw;


# What is not limited does not wait, whatever becomes of limited requests.

# Returns how long others took beside 16 limited requests, several times.
sub beside() {
    state $n = 0;
    my @seconds;
    for (1 .. 10) {
        my @limited = map { $nginx->send_request('/big?key=load-' . $n++) } 1 .. 16;
        my $start = now;
        $nginx->get('/free') for 1 .. 8;
        push @seconds, now() - $start;
        $nginx->read_response($_) for @limited;
        sleep $STEP;
    }
    return @seconds;
}

ok defined $nginx->wait_healthy, 'what is not limited';
is_deeply [ beside() ], [ (0) x 10 ], '... is served at once';
is LimitSliding::Clock::strays($nginx->workers), 0, 'no worker is blocked while Redis answers';
$redis->freeze;
is_deeply [ beside() ], [ (0) x 10 ], '... and while it does not, others are served';
is LimitSliding::Clock::strays($nginx->workers), 0, '... and no worker is blocked';
$redis->thaw;


# Waiting costs no time of the processor.

# Returns how often the workers have been woken in so many seconds.
sub wakes($seconds) {
    my $woken = sub {
        sum0 map {
            open my $file, '<', "/proc/$_/status" or die "/proc/$_/status: $!";
            map { /^voluntary_ctxt_switches:\s+(\d+)/ } <$file>;
        } $nginx->workers;
    };
    my $before = $woken->();
    sleep $seconds;
    return $woken->() - $before;
}

ok defined $nginx->wait_healthy, 'idle';
# each worker looks at each of 3 breakers every 0.75 s, and every 0.1 s if it is open
cmp_ok wakes(3), '<=', 2 * 3 * 5, 'idle: no work';
$redis->freeze;
$nginx->open_breakers;
cmp_ok wakes(3), '<=', 2 * 3 * 30 + 3 * 4 * 2, 'Redis hangs: no work';
$redis->thaw;
$nginx->finish_one;


# Probes: about one a second of each block whose breaker is open, whoever sends
# it. Only one block is asked, so that the others' stay closed.

$nginx = LimitSliding::Faults->new(server => $fake->server,
    timeout => $TIMEOUT);
ok defined $nginx->wait_healthy, 'through a proxy';
$fake->mode('mute');
ask_until('/allow?key=probes', sub { is_open() });
$fake->forget;
my $start = now;
ask_until('/allow?key=probes', sub { now() >= $start + 10 });
my $probes = $fake->stats->{accepted};
# one follows 0.75 to 1 s after the one before has failed, which takes the timeout
cmp_ok $probes, '>=', int 10 / (1 + $TIMEOUT + $STEP), 'probes';
cmp_ok $probes, '<=', 1 + 10 / (0.75 + $TIMEOUT), '... about one a second';
$fake->mode('pass');


# slow, and slower than the timeout

ok defined $patient->wait_healthy, 'slow';
$fake->mode('delay', 0.03);
@took = map { ask("/big?key=slow-$_", $patient) } 1 .. 30;
is_deeply [ uniq map { $_->{source} } @took ], ['redis'], 'slower than before: Redis decides';
is_deeply [ uniq waits(@took) ], ['0.030'], '... in its time';
is scalar(waits(@took)), 30, '... each time';

$fake->mode('pass');
ok defined $nginx->wait_healthy, 'slower than the timeout';
$fake->mode('delay', 5);
@took = map { ask("/big?key=slower-$_") } 1 .. 5;
is_deeply [ uniq map { $_->{source} } @took ], ['fallback'], 'slower than the timeout: policies';
is_deeply [ uniq waits(@took) ], ['0.100'], '... in time';
$fake->mode('pass');

$patient->finish_one;
$nginx->finish;
