package LimitSliding::Generator;

# Requests by wrk and h2load, and what they cost a server.

use v5.36;

use Exporter qw(import);
use List::Util qw(max min);
use POSIX qw(SIGINT ceil);
use Time::HiRes qw(sleep);

our @EXPORT = qw(cpu_us h2load output threads wrk);

my %running;              # pid => 1, of what must not outlive us

# Returns the ids of the threads of a process.
sub threads($pid) {
    opendir my $tasks, "/proc/$pid/task" or die "/proc/$pid: $!\n";
    my @ids = sort { $a <=> $b } grep { /^\d/ } readdir $tasks;
    return @ids;
}

# Returns the processor's time that a thread has used so far, user and system.
# The id of a process is that of its first thread.
sub cpu_us($pid) {
    open my $file, '<', "/proc/$pid/schedstat" or die "/proc/$pid: $!\n";
    return (split ' ', readline $file)[0] / 1000;
}

# Runs a command, and returns what it prints.  Dies if it fails.
sub output(@command) {
    return _output(sub ($pid) { }, @command);
}

sub _output($meanwhile, @command) {
    my $pid = open my $pipe, '-|', @command or die "$command[0]: $!\n";
    $running{$pid} = 1;
    $meanwhile->($pid);
    my $output = do { local $/; <$pipe> // '' };
    close $pipe or die "$command[0] failed\n$output";
    delete $running{$pid};

    return $output;
}

# A command that was under way when something else failed.
END { kill KILL => keys %running }

# Requests as fast as they are answered: wrk(connections => 64, seconds => 0.4,
# arguments => [...]).  Returns { requests, rate (a second), rejected (a share
# of 1), p50, p99 (ms) }.
sub wrk(%opt) {
    # it knows whole seconds only, and ends well when interrupted, once it has
    # begun
    my $whole = ceil($opt{seconds});
    my $output = _output(sub ($pid) {
        return if $whole == $opt{seconds};
        sleep 0.001 until _catches_int($pid);
        sleep $opt{seconds};
        kill INT => $pid;
    }, 'wrk', '-t1', "-c$opt{connections}", "-d${whole}s", '--latency',
        @{ $opt{arguments} });

    my ($requests) = $output =~ /([1-9]\d*) requests in/ or die $output;
    die $output if $output =~ /Socket errors:.*(?:connect|read|write) [1-9]/;
    my ($rate) = $output =~ /Requests\/sec:\s+([\d.]+)/;
    my ($rejected) = $output =~ /Non-2xx or 3xx responses: (\d+)/;

    return {
        requests => $requests,
        rate     => $rate,
        rejected => ($rejected // 0) / $requests,
        p50      => _latency_ms($output, 50),
        p99      => _latency_ms($output, 99),
    };
}

# True also if the process has ended, as it then never will.
sub _catches_int($pid) {
    open my $file, '<', "/proc/$pid/status" or return 1;
    my $status = do { local $/; <$file> };
    my ($caught) = $status =~ /^SigCgt:.*(.{8})$/m;
    return $status =~ /^State:\s*Z/m || hex($caught) & 1 << SIGINT - 1;
}

# wrk pads seconds with a blank.
sub _latency_ms($output, $percent) {
    my ($value, $unit) = $output =~ /^\s+$percent%\s+([\d.]+)(us|ms|s) *$/m
        or die $output;
    return $value * { us => 0.001, ms => 1, s => 1000 }->{$unit};
}

# Requests at a rate, answered or not: h2load(url => ..., rate => 1000,
# connections => 100, seconds => 1, log => a path to write to).  Returns
# { requests, achieved (a share of the rate), refused (of 1: not with a status
# below 400), p50, p99 (ms) }.
#
# A connection sends what has become due since it last looked, a hundred times
# a second at most and one request at a time.  All of them would do so at the
# same time, were they not made one after another, for a whole period or more;
# what comes before the last one has begun, or after the first one has ended, is
# left out.
sub h2load(%opt) {
    my $each = int($opt{rate} * $opt{seconds} / $opt{connections} + 0.5);
    my $period_us = 1e6 * $opt{connections} / $opt{rate};
    my $per_ms = max(1, int min($opt{connections} / 50, $opt{rate} / 1000));

    unlink $opt{log};        # it would be added to
    my $output = output('h2load', '--h1', "-c$opt{connections}",
        '-n' . $each * $opt{connections}, '-r', $per_ms, '--rate-period=1ms',
        '--rps=' . $opt{rate} / $opt{connections}, "--log-file=$opt{log}",
        $opt{url});
    die $output if $output !~ / [1-9]\d* done,.* 0 errored, 0 timeout/;

    open my $log, '<', $opt{log} or die "$opt{log}: $!\n";
    my @requests = map { [ split ] } <$log>;
    close $log;

    my $origin = min(map { $_->[0] } @requests);
    my $begin = $origin + 1000 * $opt{connections} / $per_ms;
    my $end = $origin + $each * $period_us - max($period_us, 20_000);
    my $answered = grep {
        $_->[0] + $_->[2] >= $begin && $_->[0] + $_->[2] < $end
    } @requests;
    my @sorted = sort { $a <=> $b } map { $_->[2] / 1000 }
        grep { $_->[0] >= $begin && $_->[0] < $end } @requests;

    return {
        requests => scalar @requests,
        achieved => $answered * 1e6 / ($end - $begin) / $opt{rate},
        refused  => grep({ $_->[1] < 200 || $_->[1] >= 400 } @requests)
            / @requests,
        p50      => $sorted[ @sorted * 0.5 ],
        p99      => $sorted[ @sorted * 0.99 ],
    };
}

1;
