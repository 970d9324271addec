# How long things take while Redis does not answer, by NGINX's clock and the
# order in which it does things; what other programs do meanwhile is no part of
# that.

use v5.36;

use POSIX ();
use Test::More;
use Time::HiRes ();

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Pulse;
use LimitSliding::Redis;
use LimitSliding::Test;

my $TIMEOUT = 0.1;
my $CLOCKS  = $LimitSliding::Faults::CLOCKS;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

# Limits of time are not what this one is for.
my $patient = LimitSliding::Faults->new(server => $fake->server,
    timeout => 60);
my $nginx = LimitSliding::Faults->new(server => $redis->server,
    timeout => $TIMEOUT, connect_timeout => 0.2);
*median = \&LimitSliding::Faults::median;
ok defined $nginx->wait_healthy, 'Redis decides';

sub ask($path, $on = $nginx) {
    return ($on->ask($path))[0];
}

# Did it wait, rather than being decided at once?
sub waited($answer) {
    return $answer->{seconds} > $TIMEOUT / 2;
}

# Those who left later than their worker could let them, once these seconds were
# over.
sub late($pulse, $seconds, @answers) {
    return join ', ', map { "$_->{seconds} s" } grep {
        my $came = $_->{left} - $_->{seconds};
        $pulse->waited_too_long($_->{worker}, $came + $seconds, $_->{left});
    } @answers;
}


# A frozen Redis: each request waits for the timeout, five times; then none
# does, but for a probe a second. Three times, for a median.

my (@slow, @fast, @recovery);
for my $round (1 .. 3) {
    ok defined $nginx->wait_healthy, "round $round: Redis decides";
    my $pulse = LimitSliding::Pulse->new($nginx)->start;
    $redis->freeze;

    # One worker alone comes to five later, as it spaces its attempts; and once
    # it is open, not so long that a probe might close it.
    my $start = now;
    my ($waited, @took) = (0);
    while ($waited < 5 && now() < $start + 60) {
        push @took, ask("/allow?key=frozen-$round");
        $waited = grep { waited($_) } @took;
    }
    my $open = $took[-1]{left};
    do {
        push @took, ask("/allow?key=frozen-$round");
    } while $took[-1]{left} < $open + 0.4;
    $pulse->stop;
    my @these = grep { waited($_) } @took;
    cmp_ok @these, '>=', 5, "round $round: five wait";
    cmp_ok @these, '<=', 6, '... and not many more';
    is late($pulse, $TIMEOUT, @these), '', '... and no longer';
    is_deeply [ $pulse->elsewhere ], [], '... where they block nobody';
    push @slow, map { $_->{seconds} } @these;
    push @fast, map { $_->{seconds} } grep { !waited($_) } @took;

    $pulse = LimitSliding::Pulse->new($nginx)->start;
    $start = Time::HiRes::time();
    $redis->thaw;
    my $answer;
    wait_for(sub {
        $answer = ask("/allow?key=thawed-$round");
        return $answer->{source} eq 'redis';
    });
    $pulse->stop;
    push @recovery, $answer->{left} - $start - $pulse->starved;
}
note sprintf 'waited %.4f s, then %.4f s; recovered after %s s',
    median(@slow), median(@fast), join ', ', map { sprintf '%.2f', $_ }
    @recovery;
cmp_ok median(@slow), '>=', $TIMEOUT - $CLOCKS, 'the timeout';
is scalar(grep { $_ > $CLOCKS } @fast), 0,
    'at once, once the breaker is open';
cmp_ok median(@recovery), '<=', 1.3, 'Redis decides again within a second';
cmp_ok $_, '<=', 2.5, '... ever' for @recovery;
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
my $waited = 0;
my $start = now;
while ($waited < 5 && now() < $start + 60) {
    $waited++ if waited(ask_on($one));
}
is $waited, 5, '... one of them waits five times';
# A request may be told a moment before the call itself has failed.
ok wait_for(sub { $nginx->redis('allow')->{breaker} eq 'open' }),
    '... which opens the breaker';
my @others = map { ask_on($other)->{seconds} } 1 .. 5;
is scalar(grep { $_ > $CLOCKS } @others), 0,
    'the other worker has learnt of the first one\'s failures';
$redis->thaw;


# What is not limited does not wait: the workers sleep where they do so when
# nothing happens, and work no more than else. A child asks for limited
# requests, in the same way whatever becomes of them.

sub with_load($code) {
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        my $n = 0;
        for (1 .. 3000) {
            eval { $nginx->load(connections => 16, requests =>
                [ map { '/big?key=load-' . $n++ } 1 .. 16 ]) };
            sleep 0.02;
        }
        POSIX::_exit(0);
    }
    my @result = $code->();
    kill 'KILL', $pid;
    waitpid $pid, 0;
    return @result;
}

# Time of the processor that the workers had, in seconds.
sub cpu() {
    my $seconds = 0;
    for my $pid ($nginx->workers) {
        open my $file, '<', "/proc/$pid/stat" or next;
        my @fields = split ' ', readline($file) =~ s/.*\) //r;
        $seconds += $fields[11] + $fields[12];
    }
    return $seconds / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# The share of the processor, for each sign of life, and where else they slept.
sub at_work() {
    my $pulse = LimitSliding::Pulse->new($nginx)->start;
    my $from = Time::HiRes::time();
    my $cpu = cpu();
    wait_for(sub { Time::HiRes::time() - $from > 1.2 });
    $cpu = cpu() - $cpu;
    my $to = Time::HiRes::time();
    $pulse->stop;
    return ($pulse->signs($from, $to), $cpu, $pulse->elsewhere);
}

ok defined $nginx->wait_healthy, 'what is not limited';
my ($before, $cpu_before, @before) = with_load(\&at_work);
$redis->freeze;
my ($during, $cpu_during, @during) = with_load(\&at_work);
$redis->thaw;
note "$before signs of life in $cpu_before s of the processor, then $during"
    . " in $cpu_during s";
is_deeply \@before, [], 'no worker is blocked while Redis answers';
is_deeply \@during, [], '... nor while it does not';
cmp_ok $during, '>=', 10, '... and others are served';


# Waiting costs no time of the processor.

ok defined $nginx->wait_healthy, 'idle';
my $cpu = cpu();
sleep 1;
cmp_ok cpu() - $cpu, '<', 0.1, 'idle: no work';
$redis->freeze;
$nginx->rounds(6, 'idle');
$cpu = cpu();
sleep 1;
cmp_ok cpu() - $cpu, '<', 0.1, 'Redis hangs: no work';
$redis->thaw;
$nginx->finish_one;


# Probes: about one a second of each block whose breaker is open, whoever sends
# it. Only one block is asked, so that the others' stay closed.

$nginx = LimitSliding::Faults->new(server => $fake->server,
    timeout => $TIMEOUT);
ok defined $nginx->wait_healthy, 'through a proxy';
$fake->mode('mute');
wait_for(sub {
    $nginx->ask('/allow?key=probes') for 1 .. 8;
    return $nginx->redis('allow')->{breaker} eq 'open';
});
$fake->forget;
my $first = ask('/allow?key=probes')->{left};
my $last;
do {
    $last = ask('/allow?key=probes')->{left};
} while $last < $first + 4;
my $probes = $fake->stats->{accepted};
my $seconds = $last - $first;
cmp_ok $probes, '>=', 2, 'probes';
cmp_ok $probes, '<=', 1 + $seconds / 0.75, '... about one a second';
note "$probes probes in $seconds s";
$fake->mode('pass');


# slow, and slower than the timeout

ok defined $patient->wait_healthy, 'slow';
$fake->mode('delay', 0.03);
my $pulse = LimitSliding::Pulse->new($patient)->start;
my @took;
for my $n (1 .. 30) {
    push @took, ask("/big?key=slow-$n", $patient);
    $took[-1]{replied} = $fake->stats->{replied};
}
$pulse->stop;
is scalar(grep { $_->{source} eq 'redis' } @took), 30,
    'slower than before: Redis decides';
is scalar(grep { $_->{seconds} < 0.03 - $CLOCKS } @took), 0,
    '... in its time';
is join(', ', map { "$_->{seconds} s" } grep {
    $pulse->late($_->{worker}, $_->{replied}, $_->{left}, 2)
} @took), '', '... and no later';

$fake->mode('pass');
ok defined $nginx->wait_healthy, 'slower than the timeout';
$fake->mode('delay', 5);
$pulse = LimitSliding::Pulse->new($nginx)->start;
@took = map { ask("/big?key=slower-$_") } 1 .. 5;
$pulse->stop;
is scalar(grep { $_->{source} eq 'fallback' } @took), 5,
    'slower than the timeout: policies';
is late($pulse, $TIMEOUT, @took), '', '... in time';
$fake->mode('pass');

$patient->finish_one;
$nginx->finish;
