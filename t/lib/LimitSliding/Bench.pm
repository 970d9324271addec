package LimitSliding::Bench;

# What the benchmarks of t/bench share.  Each prints Markdown, which
# t/bench/report.pl puts into docs/benchmarks.md, and with --data writes blocks
# for gnuplot.

use v5.36;

use Exporter qw(import);
use List::Util qw(max min);

our @EXPORT = qw(blocks cpu_us h2load median output ratio spread table thousands
    wrk);

my %running;              # pid => 1, of what must not outlive us

# (value) -> the middle one, or the mean of both in the middle
sub median(@values) {
    my @sorted = sort { $a <=> $b } @values;
    return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2;
}

# Median of the ratios of what was measured in the same round.
sub ratio($own, $other) {
    return median(map { $own->[$_] / $other->[$_] } 0 .. $#$own);
}

# "median [min max]", each by a format of printf, or with thousands() if none.
sub spread($values, $format = undef) {
    my @sorted = sort { $a <=> $b } @$values;
    my @figures = map { $format ? sprintf $format, $_ : thousands($_) }
        median(@sorted), @sorted[0, -1];
    return "$figures[0] [$figures[1] $figures[2]]";
}

# 1234567.8 -> 1,234,568
sub thousands($value) {
    my $figures = sprintf '%.0f', $value;
    1 while $figures =~ s/^(-?\d+)(\d{3})/$1,$2/;
    return $figures;
}

# Prints a table, of which the first row is the head and the first column is
# text.
sub table(@rows) {
    my @width = map { my $i = $_; max(3, map { length $_->[$i] } @rows) }
        0 .. $#{ $rows[0] };
    my $line = sub ($row) {
        return '| ' . join(' | ', map {
            sprintf $_ ? '%*s' : '%-*s', $width[$_], $row->[$_] // ''
        } 0 .. $#width) . " |\n";
    };

    print $line->(shift @rows), '|',
        join('|', '-' x ($width[0] + 2),
            map { '-' x ($_ + 1) . ':' } @width[1 .. $#width]), "|\n",
        map { $line->($_) } @rows;
    print "\n";
}

# Writes blocks of rows for gnuplot, [[value, ...], ...] each, to a file, if
# there is one to be written.
sub blocks($path, @blocks) {
    return if !defined $path;

    open my $file, '>', $path or die "$path: $!\n";
    print $file join "\n\n", map {
        join '', map { join("\t", @$_) . "\n" } @$_
    } @blocks;
    close $file or die "$path: $!\n";
}

# What a process has used so far, user and system.
sub cpu_us($pid) {
    open my $file, '<', "/proc/$pid/schedstat" or die "/proc/$pid: $!\n";
    return (split ' ', readline $file)[0] / 1000;
}

# What a command prints; dies if it fails.
sub output(@command) {
    my $pid = open my $pipe, '-|', @command or die "$command[0]: $!\n";
    $running{$pid} = 1;
    my $output = do { local $/; <$pipe> // '' };
    close $pipe or die "$command[0] failed\n$output";
    delete $running{$pid};

    return $output;
}

# A command that was under way when something else failed.
END { kill KILL => keys %running }

# Requests as fast as they are answered: wrk(connections => 64, seconds => 2,
# arguments => [...]).  Returns { requests, rate (a second), rejected (a share
# of 1), p50, p99 (ms) }.
sub wrk(%opt) {
    my $output = output('wrk', '-t1', "-c$opt{connections}",
        "-d$opt{seconds}s", '--latency', @{ $opt{arguments} });

    my ($requests) = $output =~ /([1-9]\d*) requests in/ or die $output;
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
