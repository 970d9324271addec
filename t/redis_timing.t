# How long things take while Redis does not answer. Where a machine with other
# work could spoil single values it is their median that counts.

use v5.36;

use List::Util qw(max min);
use POSIX ();
use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $TIMEOUT = 0.1;
my $SLACK   = 0.015;      # the rule is 5 ms, and both cores may be busy

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

my $nginx = LimitSliding::Faults->new(server => $redis->server,
    timeout => $TIMEOUT, connect_timeout => 0.2);
*median = \&LimitSliding::Faults::median;
ok defined $nginx->wait_healthy, 'Redis decides';

sub seconds($path) {
    return ($nginx->ask($path))[0]{seconds};
}


# A frozen Redis: each request waits for the timeout, five times; then none
# does, but for a probe a second. Three times, for a median.

my (@slow, @fast, @recovery);
for my $round (1 .. 3) {
    ok defined $nginx->wait_healthy, "round $round: Redis decides";
    $redis->freeze;

    # One worker alone comes to five later, as it spaces its attempts; and once
    # it is open, not so long that a probe might close it.
    my $start = now;
    my ($waited, @took) = (0);
    while ($waited < 5 && now() < $start + 10) {
        push @took, seconds("/allow?key=frozen-$round");
        $waited = grep { $_ > $TIMEOUT / 2 } @took;
    }
    $start = now;
    while (now() < $start + 0.4) {
        push @took, seconds("/allow?key=frozen-$round");
    }
    $waited = grep { $_ > $TIMEOUT / 2 } @took;
    cmp_ok $waited, '>=', 5, "round $round: five wait";
    cmp_ok $waited, '<=', 6, '... and not many more';
    push @slow, grep { $_ > $TIMEOUT / 2 } @took;
    push @fast, grep { $_ <= $TIMEOUT / 2 } @took;

    $redis->thaw;
    $start = now;
    wait_for(sub {
        ($nginx->ask("/allow?key=thawed-$round"))[0]{source} eq 'redis';
    }, 10);
    push @recovery, now() - $start;
}
note sprintf 'waited %.4f s, then %.4f s; recovered after %s s',
    median(@slow), median(@fast), join ', ', map { sprintf '%.2f', $_ }
    @recovery;
cmp_ok median(@slow), '>=', $TIMEOUT * 0.95, 'the timeout';
cmp_ok median(@slow), '<=', $TIMEOUT + $SLACK, '... and little more';
cmp_ok max(@slow), '<=', $TIMEOUT + 0.5, '... ever';
cmp_ok median(@fast), '<=', 0.005, 'at once, once the breaker is open';
cmp_ok median(@recovery), '<=', 1.3, 'Redis decides again within a second';
cmp_ok max(@recovery), '<=', 2.5, '... ever';
$nginx->exact('thawed');


# Failures count in a row: a success in between keeps the breaker closed.

ok defined $nginx->wait_healthy, 'four failures, a success, four failures';
my $failed = 0;
for my $round (1 .. 2) {
    $redis->freeze;
    for (1 .. 4) {
        my ($answer) = $nginx->ask("/allow?key=row-$round");
        $failed++ if $answer->{source} eq 'fallback';
    }
    $redis->thaw;
    my $ok = wait_for(sub {
        ($nginx->ask("/allow?key=row-$round"))[0]{source} eq 'redis';
    }, 0.5);
    ok $ok, 'a success soon after, as the breaker is closed';
}
is $failed, 8, '... eight failures in all';


# The breaker is the workers' own: who has seen no failure does not wait either.

ok defined $nginx->wait_healthy, 'two workers';
my %socket;
for (1 .. 200) {
    last if keys %socket == 2;
    my $socket = $nginx->connect;
    my $r = $nginx->get('/free', socket => $socket);
    $socket{ header($r, 'X-Worker') } //= $socket;
}
my ($one, $other) = values %socket;
$redis->freeze;
for (1 .. 6) {
    $nginx->get('/allow?key=shared', socket => $one);
}
my @others;
for (1 .. 5) {
    my $start = now;
    $nginx->get('/allow?key=shared', socket => $other);
    push @others, now() - $start;
}
cmp_ok median(@others), '<', $TIMEOUT / 2,
    'the other worker has learnt of the first one\'s failures';
$redis->thaw;


# What is not limited does not wait. A child asks for limited requests, in the
# same way whatever becomes of them.

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

sub free_times() {
    my $socket = $nginx->connect;
    my @times;
    my $end = now + 1.2;
    while (now() < $end) {
        my $start = now;
        my $r = $nginx->get('/free', socket => $socket);
        push @times, now() - $start;
        sleep 0.001;
    }
    return sort { $a <=> $b } @times;
}

my ($before, $during, $before99, $during99);
for my $try (1 .. 3) {
    ok defined $nginx->wait_healthy, "try $try";
    my @before = with_load(\&free_times);
    $redis->freeze;
    my @during = with_load(\&free_times);
    $redis->thaw;
    ($before, $during) = map { $_->[@$_ / 2] } \@before, \@during;
    ($before99, $during99) = map { $_->[@$_ * 0.99] } \@before, \@during;
    note sprintf 'median %.5f, %.5f; p99 %.5f, %.5f', $before, $during,
        $before99, $during99;
    last if $during < $before + 0.001 && $during99 < $before99 + 0.001;
}
cmp_ok $during, '<', $before + 0.001, 'other places are as fast as before';
cmp_ok $during99, '<', $before99 + 0.02, '... and nearly always';


# Waiting costs no time of the processor.

sub ticks() {
    my $ticks = 0;
    for my $pid ($nginx->workers) {
        open my $file, '<', "/proc/$pid/stat" or next;
        my @fields = split ' ', readline($file) =~ s/.*\) //r;
        $ticks += $fields[11] + $fields[12];
    }
    return $ticks / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

ok defined $nginx->wait_healthy, 'idle';
my $cpu = ticks();
sleep 1;
cmp_ok ticks() - $cpu, '<', 0.1, 'idle: no work';
$redis->freeze;
$nginx->rounds(6, 'idle');
$cpu = ticks();
sleep 1;
cmp_ok ticks() - $cpu, '<', 0.1, 'Redis hangs: no work';
$redis->thaw;
$nginx->finish_one;


# Probes: about one a second of each block whose breaker is open, whoever sends
# it. Only one block is asked, so that the others' stay closed.

$nginx = LimitSliding::Faults->new(server => $fake->server,
    timeout => $TIMEOUT);
ok defined $nginx->wait_healthy, 'through a proxy';
$fake->mode('mute');
$nginx->ask('/allow?key=probes') for 1 .. 8;
$fake->forget;
my $start = now;
while (now() < $start + 4) {
    $nginx->ask('/allow?key=probes');
}
my $probes = $fake->stats->{accepted};
cmp_ok $probes, '>=', 2, 'probes';
cmp_ok $probes, '<=', 6, '... about one a second';
note "$probes probes in 4 s";
$fake->mode('pass');


# slow, and slower than the timeout

ok defined $nginx->wait_healthy, 'slow';
$fake->mode('delay', 0.03);
my @took = map { $nginx->ask("/big?key=slow-$_") } 1 .. 30;
is scalar(grep { $_->{source} eq 'redis' } @took) >= 28, 1,
    'slower than before: Redis decides';
cmp_ok median(map { $_->{seconds} } @took), '>=', 0.03, '... in its time';
cmp_ok median(map { $_->{seconds} } @took), '<=', 0.03 + $SLACK,
    '... and little more';
$fake->mode('delay', 0.3);
@took = map { $nginx->ask("/big?key=slower-$_") } 1 .. 5;
is scalar(grep { $_->{source} eq 'fallback' } @took), 5,
    'slower than the timeout: policies';
cmp_ok median(map { $_->{seconds} } @took), '<=', $TIMEOUT + $SLACK,
    '... in time';

$nginx->finish;
