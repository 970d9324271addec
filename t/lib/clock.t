# The virtual clock of tests: who holds it, who does not, and in which order timers fire.

use v5.36;

use POSIX ();
use Test::More;
use Time::HiRes qw(setitimer ITIMER_REAL);

use LimitSliding::Clock;
use LimitSliding::Test;

# The true time, which no clock shows here, by the seconds since the machine was booted.
sub real_time() {
    open my $file, '<', '/proc/uptime' or die "uptime: $!";
    return (split ' ', readline $file)[0];
}

# Computes for some real time.
sub compute($seconds) {
    my $end = real_time() + $seconds;
    1 while real_time() < $end;
}

# Runs the code in a process of its own, which may print to STDOUT. Returns a handle of what
# it prints, and its pid.
sub child($code) {
    pipe my $in, my $out or die "pipe: $!";
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        close $in;
        open STDOUT, '>&', $out or die "stdout: $!";
        $out->close;
        STDOUT->autoflush;
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        $code->();
        POSIX::_exit(0);
    }
    close $out;
    return ($in, $pid);
}

# The bytes that are there within these seconds; '' if there are none.
sub heard($handle, $seconds) {
    vec(my $read = '', fileno $handle, 1) = 1;
    select($read, undef, undef, $seconds) > 0 or return '';
    sysread $handle, my $text, 4096;
    return $text;
}

my $start = now;
is now() - $start, 0, 'time stands still';
compute(0.05);
is now() - $start, 0, '... while the test computes';
sleep 3600;
is now() - $start, 3600, 'an hour passes exactly';
cmp_ok time, '==', 3600 + 1_773_224_430, '... of UTC as well, which begins in the middle of a month';

# timers of two processes fire in order, and at the millisecond

my ($log) = child(sub {
    for my $ms (7, 3, 5) {
        fork() or do { sleep $ms / 1000; print "$ms "; POSIX::_exit(0) };
    }
    1 while wait() > 0;
    print 'all';
});
$start = now;
my $text = '';
$text .= heard($log, 60) while $text !~ /all/;
is $text, '3 5 7 all', 'timers of four processes fire in order';
is sprintf('%.3f', now() - $start), '0.007', '... and the last one ends the wait';

# a wait does not end early: others have something to do

my ($slow, $pid) = child(sub { compute(0.2); print 'done' });
$start = now;
is heard($slow, 0.001), 'done', 'a process that computes holds the clock';
is now() - $start, 0, '... all the time';
waitpid $pid, 0;

my ($chain) = child(sub {
    my $last = \*STDOUT;
    for (1 .. 8) {
        pipe my $in, my $out or die "pipe: $!";
        fork() or do { close $out; sysread $in, my $byte, 1; print {$last} $byte; $last->flush; POSIX::_exit(0) };
        $last = $out;
    }
    syswrite $last, 'x';
});
is heard($chain, 0.001), 'x', '... and so does a message that passes through eight';

my ($answers, $after) = child(sub { print 'answer'; compute(0.1); print ' more' });
is heard($answers, 1), 'answer more', 'a test goes on when all servers are idle';

my ($idle) = child(sub { sleep 5 });
$start = now;
is heard($idle, 0.25), '', 'nobody writes';
is now() - $start, 0.25, '... and the wait takes as long as it should';

# processes that are stopped, or dead, hold nothing

(undef, $pid) = child(sub { compute(60) });
$start = now;
kill 'STOP', $pid;
sleep 10;
is now() - $start, 10, 'a stopped process does not hold the clock';
kill 'KILL', $pid;
waitpid $pid, 0;

(my $dies, $pid) = child(sub { sleep 1; compute(60) });
sleep 0.5;
kill 'KILL', $pid;
$start = now;
is heard($dies, 7), '', 'a dead process';
is now() - $start, 0, '... ends its pipe at once';
sleep 7;
is now() - $start, 7, '... nor does a dead one';

# forks and other programs hold the clock from their begin

my ($forks) = child(sub { fork() or do { compute(0.1); fork() or do { compute(0.1); print 'late' } } });
is heard($forks, 0.001), 'late', 'children of children';
$start = now;
{
    local %ENV = %ENV;
    delete @ENV{qw(LD_PRELOAD LIMIT_SLIDING_CLOCK)};
    is system('sleep', '0.1'), 0, 'a program without the clock';
}
is now() - $start, 0, '... holds the clock until it ends';
system 'sleep', '100';
is now() - $start, 100, 'a program with the clock takes part';

$start = now;
my ($left) = child(sub { print 'left'; LimitSliding::Clock::leave(); exec 'sleep', '5' });
is heard($left, 60), 'left', 'a program that has left';
(my $spins, $pid) = child(sub { 1 while 1 });
LimitSliding::Clock::spins($pid);
sleep 1;
is now() - $start, 1, '... does not hold the clock, nor one that spins';
kill 'KILL', $pid;

# A parent that takes note of a child's end, and one whose child takes the slot of another one.
$start = now;
my ($hour) = child(sub { sleep 3600 });
for (1 .. 100) {
    system '/bin/sh', '-c', '/bin/true; /bin/true';
}
is now() - $start, 0, 'the ends of 300 programs take no time';
close $hour;

# The library sees neither the writes of stdio nor the waits of a shell.
open my $pipe, '-|', 'seq 1000000; exit' or die "seq: $!";
sleep 1;
is scalar(my @lines = <$pipe>), 1_000_000, 'a program that writes to a full pipe';
close $pipe;
is $? >> 8, 0, '... and goes on once there is room';

# signals

my @alarms;
$SIG{ALRM} = sub { push @alarms, now() - $start };
$start = now;
setitimer(ITIMER_REAL, 0.5, 0.25);
sleep 10 for 1 .. 3;
setitimer(ITIMER_REAL, 0);
is join(' ', map { sprintf '%.3f', $_ } @alarms), '0.500 0.750 1.000',
    'an interval timer interrupts sleeps';
$start = now;
alarm 2;
(my $silent, $pid) = child(sub { sleep 60 });
is heard($silent, 60), '', '... and alarm() a wait';
kill 'KILL', $pid;
is now() - $start, 2, '... after two seconds';

# clocks of their own

my $ahead = LimitSliding::Clock->new(utc => 86_400, mono => 50);
my ($times) = $ahead->run(sub {
    child(sub { sleep 1; printf '%d %d', time, now });
});
my ($utc, $mono) = (time + 86_401, int(now) + 51);
is heard($times, 10), "$utc $mono", 'a clock that is ahead';
cmp_ok time, '==', $utc - 86_400, '... of others only';

# what a server waits for

my $nginx = LimitSliding::Test->new->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=one:1m rate=5/1h;
HTTP
    location / { empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
is $nginx->statuses(3, '/'), '200 200 200', 'requests';
is LimitSliding::Clock::strays($nginx->workers), 0, 'NGINX waits for events only';
cmp_ok LimitSliding::Clock::strays($nginx->master), '>', 0, '... but its master for signals';

# A thread writes the limit, and then wakes the worker. Its own time is real.
$start = now;
my %written;
for my $rate (1 .. 1000) {
    my $path = "/limits/zones/one/key?key=a&rate=$rate";
    $written{ $nginx->get($path, method => 'PUT')->{status} }++;
}
is_deeply \%written, { 200 => 1000 }, 'what a thread writes';
is now() - $start, 0, '... holds the clock';

# A worker has two threads, which end one after the other; its master hears of the last one.
my $replaced = 0;
for (1 .. 30) {
    my ($worker) = $nginx->workers;
    $nginx->kill_worker($worker);
    sleep 0.001;
    $replaced++ if 2 == grep { $_ != $worker } $nginx->workers;
}
is $replaced, 30, 'a master replaces a worker that was killed before time goes on';

$nginx->finish;
