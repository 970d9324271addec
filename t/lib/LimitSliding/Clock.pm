package LimitSliding::Clock;

# The time on which a test runs, and all that the test starts.
#
# Virtual time is the default: it stands still while any process has something to do, and
# jumps to the next timer of any process once all of them wait. A test sleeps for hours in
# milliseconds, and no timeout expires because the machine is slow. Whenever a call of the
# test returns that may wait (sleep, select, a read), all servers are idle.
# t/lib/clock/page.hpp says how.
#
#   use LimitSliding::Clock real => 'valgrind takes part of the time that it measures';
#   use LimitSliding::Clock;           # or LimitSliding::Test: virtual time
#
# With LIMIT_SLIDING_REAL_TIME, a reason, all tests run on real time, and some that compare times
# fail.
#
# Real stay: the times of files, which the kernel writes; programs without libc, which hold
# the clock for as long as they run; and what has called leave().
#
# Some processes may have another clock than the rest:
#
#   my $clock = LimitSliding::Clock->new(utc => -3600);
#   $clock->run(sub { $nginx->start(...) });      # and all that NGINX starts
#   $clock->set(utc => 86_400, mono => 5);
#
# All times are seconds.

use v5.36;

use Cwd qw(abs_path);
use Fcntl;
use File::Basename qw(dirname);

my $ROOT = abs_path(dirname(__FILE__) . '/../../..');
my $BUILD = $ENV{LIMIT_SLIDING_CLOCK_BUILD} // "$ROOT/build/clock";

# As page.hpp has them.
my ($AHEAD, $CLOCKS, $SLOTS, $SLOT, $N) = (64, 16, 320, 64, 512);
my %PARTS = (server => 0, test => 1, spins => 2, none => 3);

my ($real, $page);

sub import($class, $which = 'virtual', $why = undef) {
    ($which, $why) = ('real', $ENV{LIMIT_SLIDING_REAL_TIME})
        if $ENV{LIMIT_SLIDING_REAL_TIME} && !$page;
    if ($which eq 'real') {
        die "$0: say why this test runs on real time\n" if !$why;
        die "$0: is on virtual time already\n" if $page;
        $real = $why;
        return;
    }
    _begin() if !$real && !$page && !$^C && $0 =~ /\.t$/;    # not a benchmark
}

# Begins the test anew, on virtual time, unless it is there.
sub _begin() {
    my $file = $ENV{LIMIT_SLIDING_CLOCK};
    if (!$file) {
        my ($keeper, $library) = map { "$BUILD/$_" } qw(keeper clock.so);
        die "no $keeper: run make build/clock/keeper\n" if !-x $keeper;
        my @perl = ($^X, map { "-I$_" } grep { !ref } @INC);
        exec $keeper, $library, @perl, $0, @ARGV or die "$keeper: $!\n";
    }
    $page = $file;
    is_test();
}

# Opens the page each time: a child would share the place in it.
sub _get($place, $form) {
    sysopen my $file, $page, O_RDONLY or die "$page: $!\n";
    sysseek $file, $place, 0;
    sysread $file, my $bytes, $SLOT * $N;
    return unpack $form, $bytes;
}

sub _put($place, $form, $value) {
    sysopen my $file, $page, O_WRONLY or die "$page: $!\n";
    sysseek $file, $place, 0;
    syswrite $file, pack $form, $value;
}


# ---- who takes part, and how ----

# This process is a test: it acts when all servers are idle.
sub is_test() {
    _set_part($$, 'test');
}

# This process takes no part any more, nor what it starts.
sub leave() {
    delete @ENV{qw(LD_PRELOAD LIMIT_SLIDING_CLOCK)};
    _set_part($$, 'none');
}

# A process that works without end, until it is a server again. Time goes on beside it,
# slowly.
sub spins($pid, $on = 1) {
    _set_part($pid, $on ? 'spins' : 'server');
}

# Returns how often these servers have waited for anything but events, as no server may:
# others wait with it.
sub strays(@pids) {
    return 0 if !$page;
    my $strays = 0;
    $strays += _get(_slot($_) + 48, 'q') for @pids;
    return $strays;
}

sub _set_part($pid, $part) {
    _put(_slot($pid) + 4, 'l', $PARTS{$part}) if $page;
}

sub _slot($pid) {
    my @pids = _get($SLOTS, "(lx60)$N");
    for my $i (0 .. $N - 1) {
        return $SLOTS + $SLOT * $i if $pids[$i] == $pid;
    }
    die "process $pid has no clock\n";
}


# ---- clocks of their own ----

sub new($class, %ahead) {
    state $clocks = 1;
    die "too many clocks\n" if $clocks >= $CLOCKS;
    my $self = bless { number => $clocks++ }, $class;
    return $self->set(%ahead);
}

# Sets how far this clock is ahead of the others: utc, and mono, which is the time since
# boot.
sub set($self, %ahead) {
    my $place = $AHEAD + 16 * $self->{number};
    _put($place, 'q', int 1e9 * $ahead{mono}) if defined $ahead{mono};
    _put($place + 8, 'q', int 1e9 * $ahead{utc}) if defined $ahead{utc};
    return $self;
}

# Calls a function. All that starts in it keeps this clock.
sub run($self, $function) {
    my $place = _slot($$) + 40;
    _put($place, 'q', $self->{number});
    my @result = eval { $function->() };
    my $error = $@;
    _put($place, 'q', 0);
    die $error if $error;
    return @result;
}

1;
