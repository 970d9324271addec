package LimitSliding::Pulse;

# Signs of life of an NGINX's workers, by which tests tell a slow module from a
# slow machine.
#
#   my $pulse = LimitSliding::Pulse->new($nginx)->start;
#   ...
#   $pulse->stop;
#   is_deeply [ $pulse->elsewhere ], [], 'no worker was blocked';
#   cmp_ok $left, '<=', $pulse->next($worker, $due), 'it left when due';
#
# A process of its own asks each worker for `path`, again and again, on a
# connection that stays. The location has no limit, and its responses have the
# headers X-Worker, $pid, and X-Time, $msec. A worker that tells a time has, in
# that turn of its event loop, also run all timers that were due by then: what
# was due before a sign of life must not leave after it, however late the sign
# is.
#
# Between the requests it looks where workers are asleep. A worker may sleep
# only where it does so when it is idle, which is in epoll_wait(): all other
# places block everybody. All that a round takes beyond what it should is time
# in which the machine let others run, or was slow.

use v5.36;

use List::Util qw(first);
use POSIX ();

use LimitSliding::Client qw(header);
use LimitSliding::Test;

my $ROUND = 0.01;         # that a round takes at most, if nobody has to wait
my $GRACE = 0.01;         # by which a worker may look late
my $CLOCKS = 0.002;       # two clocks are read, and both are cut to ms

my %started;              # pid => object

# Options: path (/free), port (0), pause (0.001), seconds between two rounds.
sub new($class, $nginx, %opt) {
    return bless { path => '/free', port => 0, pause => 0.001, %opt,
        nginx => $nginx, owner => $$,
        file => $nginx->dir . '/pulse-' . ++$nginx->{pulses} }, $class;
}

# Returns once the workers have read all that they had been sent on connections
# that they had accepted.
sub settle($class, $nginx, %opt) {
    $class->new($nginx, %opt)->start->stop;
}

# Returns once each worker has given a sign.
sub start($self) {
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        # which must not break off a request
        my $stop = POSIX::SigSet->new(POSIX::SIGTERM);
        POSIX::sigprocmask(POSIX::SIG_BLOCK, $stop);
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        eval { $self->_beat };
        print STDERR "Pulse: $@" if $@;
        POSIX::_exit($@ ? 1 : 0);
    }

    @$self{qw(pid lines)} = ($pid, []);
    $started{$pid} = $self;
    wait_for(sub { -s $self->{file} }) or die "no sign of life\n";
    return $self;
}

# Ends it; each worker has given a sign since this was called.
sub stop($self) {
    my $pid = delete $self->{pid} // return;
    delete $started{$pid};
    kill 'TERM', $pid;
    waitpid $pid, 0;
    die "the pulse failed\n" if $?;

    open my $file, '<', $self->{file} or die "$self->{file}: $!";
    my (%signs, @elsewhere);
    $self->{starved} = 0;
    while (my $line = <$file>) {
        if ($line =~ /^starved (\S+)/) {
            $self->{starved} += $1;
            next;
        }
        my ($worker, $time, $asleep) = $line =~ /(\S+)/g;
        push @{ $signs{$worker} }, $time;
        push @elsewhere, "worker $worker in system call $asleep"
            if defined $asleep;
    }
    @$self{qw(signs elsewhere)} = (\%signs, \@elsewhere);
    return $self;
}

# Returns when the worker first gave a sign at or after this moment.
sub next($self, $worker, $time) {
    return first { $_ >= $time } @{ $self->{signs}{$worker} };
}

# True if it should have left by then, and not after its worker gave a sign, or
# the n-th sign.
sub late($self, $worker, $due, $left, $n = 1) {
    for (1 .. $n) {
        $due = $self->next($worker, $due + $CLOCKS) // return 0;
    }
    return $left > $due + $CLOCKS;
}

# True if it waited for Redis beyond this moment. A worker that looks more than
# 10 ms later gives Redis two more turns of its event loop, see Grace in
# src/ngx/event.hpp.
sub waited_too_long($self, $worker, $due, $left) {
    my $sign = $self->next($worker, $due) // return 0;
    return $self->late($worker, $due, $left, $sign - $due > $GRACE ? 3 : 1);
}

# Returns the seconds in which the machine did not do what it was asked to.
sub starved($self) {
    return $self->{starved};
}

# Returns the number of signs, from one moment to another, of the worker that
# gave the fewest.
sub signs($self, $from, $to) {
    my ($fewest) = sort { $a <=> $b } map {
        scalar grep { $_ >= $from && $_ <= $to } @$_
    } values %{ $self->{signs} };
    return $fewest;
}

# Returns, for each time that a worker was seen asleep where it should not be,
# the place.
sub elsewhere($self) {
    return @{ $self->{elsewhere} };
}

END {
    local $?;
    for (values %started) {
        kill 'KILL', $_->{pid} if $_->{owner} == $$;
    }
}


# ---- the process ----

sub _beat($self) {
    my $nginx = $self->{nginx};
    my %socket;
    wait_for(sub {
        my $socket = $nginx->connect(port => $self->{port});
        my ($worker) = $self->_sign($socket);
        $socket{$worker} //= $socket;
        return keys %socket == $nginx->{worker_processes};
    }) or die "a worker is not to be reached\n";

    my %idle;
    for my $worker (keys %socket) {
        wait_for(sub { $idle{$worker} = _asleep($worker) }, 1);
    }

    my $text = '';
    open my $file, '>', $self->{file} or die "$self->{file}: $!";
    $file->autoflush;

    for (my $last = 0; !$last;) {
        my $pending = POSIX::SigSet->new;
        POSIX::sigpending($pending);
        $last = $pending->ismember(POSIX::SIGTERM);
        my $start = now;
        for my $worker (keys %socket) {
            my $asleep = _asleep($worker);
            my ($is, $time) = $self->_sign($socket{$worker});
            $text .= "$worker $time"
                . ($asleep ne '' && $idle{$worker} ne ''
                    && $asleep ne $idle{$worker} ? " $asleep" : '') . "\n";
        }
        sleep $self->{pause};
        my $more = now() - $start - $self->{pause} - $ROUND;
        $text .= "starved $more\n" if $more > 0;
        print $file $text;
        $text = '';
    }
    close $file or die "$self->{file}: $!";
}

# Which worker it is, and its time.
sub _sign($self, $socket) {
    my $r = $self->{nginx}->get($self->{path}, socket => $socket);
    return map { header($r, $_) } qw(X-Worker X-Time);
}

# The number of the system call in which a process sleeps; '' if it does not, or
# waits for a disk, or if we may not know.
sub _asleep($pid) {
    my $call = _call($pid);
    return $call ne '' && _state($pid) eq 'S' && _call($pid) eq $call
        ? $call : '';
}

sub _call($pid) {
    open my $file, '<', "/proc/$pid/syscall" or return '';
    my ($call) = (readline($file) // '') =~ /^(\d+) /;
    return $call // '';
}

sub _state($pid) {
    open my $file, '<', "/proc/$pid/stat" or return '';
    my ($state) = (readline($file) // '') =~ /.*\) (\S)/;
    return $state // '';
}

1;
