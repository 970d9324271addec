package LimitSliding::Bench;

# Functions that the benchmarks of t/bench share.  Each benchmark prints
# Markdown, which t/bench/report.pl puts into docs/benchmarks.md, and with
# --data writes blocks for gnuplot.

use v5.36;

use Exporter qw(import);
use Getopt::Long qw(GetOptions);
use List::Util qw(max);

our @EXPORT = qw(blocks guard in_parallel median options ratio spread table
    thousands);

# Reads the command line: options as Getopt::Long has them, and their defaults.
# --nginx and --module are always among them, and go to the environment.
# Precondition: the modules that read these two from there are not yet loaded.
sub options($defaults, @accepted) {
    my %option = (nginx => '/usr/sbin/nginx', module => '', %$defaults);
    GetOptions(\%option, 'nginx=s', 'module=s', @accepted) or exit 2;

    $ENV{LIMIT_SLIDING_NGINX} = $option{nginx};
    $ENV{LIMIT_SLIDING_MODULE} = $option{module};
    return %option;
}

# Runs the jobs, which are subs, in processes of their own, so many at a time.
# Returns what each of them returns, a list of numbers, as [...].
sub in_parallel($at_a_time, @jobs) {
    my (@results, %running);

    for my $i (0 .. $#jobs) {
        _finish(\%running, \@results) if keys %running >= $at_a_time;

        my $pid = open(my $pipe, '-|') // die "fork: $!\n";
        if ($pid == 0) {
            say join ' ', $jobs[$i]->();
            exit;
        }
        $running{$pid} = [$i, $pipe];
    }
    _finish(\%running, \@results) while %running;

    return @results;
}

# Waits for any of the jobs that run.  What a job prints fits into a pipe.
sub _finish($running, $results) {
    my $pid = wait;
    die "wait: $!\n" if $pid < 0;
    my ($i, $pipe) = @{ delete $running->{$pid} // return };
    die "a part of it failed\n" if $?;
    $results->[$i] = [ split ' ', readline $pipe ];
    close $pipe;
}

# Compares figures, { name => value }, with those of a section of a file:
# section, name and value a line.  Less is better, or with `more`, more is.
# Returns what is to be said of those that are worse by more than `percent`, or
# that only one side has.  With `renew` writes them there instead.
sub guard($file, $section, $figures, %opt) {
    my @lines = -e $file ? do { open my $in, '<', $file or die "$file: $!\n";
        <$in> } : ();
    my ($ours, $others) = ([], []);
    push @{ /^\Q$section\E\t/ ? $ours : $others }, $_ for @lines;

    if ($opt{renew}) {
        open my $out, '>', $file or die "$file: $!\n";
        print $out sort @$others, map {
            sprintf "%s\t%s\t%.0f\n", $section, $_, $figures->{$_}
        } keys %$figures;
        close $out or die "$file: $!\n";
        return;
    }

    my $worse = 1 + $opt{percent} / 100;
    my %committed = map { chomp; (split /\t/)[1, 2] } @$ours;
    my @problems = map { "$section: $_: in $file only\n" }
        grep { !exists $figures->{$_} } sort keys %committed;

    for my $name (sort keys %$figures) {
        my ($is, $was) = ($figures->{$name}, $committed{$name});
        if (!defined $was) {
            push @problems, "$section: $name: not in $file\n";
        } elsif ($opt{more} ? $is < $was / $worse : $is > $was * $worse) {
            push @problems, sprintf "%s: %s: %s, was %s\n", $section, $name,
                thousands($is), thousands($was);
        }
    }

    return @problems;
}

# Returns the value in the middle, or the mean of both in the middle.
sub median(@values) {
    my @sorted = sort { $a <=> $b } @values;
    return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2;
}

# Returns the median of the ratios of values of the same round.
sub ratio($own, $other) {
    return median(map { $own->[$_] / $other->[$_] } 0 .. $#$own);
}

# Returns "median [min max]", each by a format of printf, or by thousands() if
# there is none.
sub spread($values, $format = undef) {
    my @sorted = sort { $a <=> $b } @$values;
    my @figures = map { s/^-(?=[0.]+$)//r }
        map { $format ? sprintf $format, $_ : thousands($_) }
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

1;
