#!/usr/bin/perl

# Reports the branches of src that tests took, from what gcov says of programs
# built with --coverage, and fails below the bounds.
#
# A branch is a way out of a condition, by its line.  A header's is taken if any
# file that includes it takes it, and a template's if one of its instances does:
# instances with equal numbers of branches in a line are one, since `if constexpr`
# alone can tell them apart.  Calls that might throw make no branches here.
#
# t/coverage/exceptions lists lines of src/core of which tests take no, or not
# always, every branch, each with its reason.  An entry without such a line is an
# error; one for a line whose every branch was taken is told, as some branches are
# taken by chance.
#
# Usage: report.pl [--list] [--only PREFIX] DIR...; the DIRs hold .gcno and .gcda
# files, --list prints the lines with branches not taken, of all floors, and how often
# each branch was taken: two for a condition, true and false or the reverse.

use v5.32;
use warnings;
use feature 'signatures';
no warnings 'experimental::signatures';

use Cwd qw(realpath);
use File::Find qw(find);
use FindBin;
use Getopt::Long qw(GetOptions);
use JSON::PP;

# The least percentage of each floor of src.
# Most branches of the shim refuse other binaries, which `make drift` builds.
my %BOUNDS = ('src/core' => 100, 'src/redis' => 90, 'src/http' => 90, 'src/ngx' => 90,
    'src/shim' => 50);

my $ROOT       = realpath("$FindBin::Bin/../..");
my $EXCEPTIONS = "$FindBin::Bin/exceptions";

my %option = (only => '');
GetOptions(\%option, 'list', 'only=s') && @ARGV
    or die "usage: report.pl [--list] [--only PREFIX] DIR...\n";

# $taken{file}{line}{instance}[i] is how often branch i was taken.
my %taken;
my $failed = 0;

read_directory(realpath($_) // die "$_: $!\n") for @ARGV;
my $missed = missed();
check_exceptions($missed);
check_bounds($missed);
exit $failed;

# ---- what gcov says ----

sub read_directory ($dir) {
    my @notes;
    find({ wanted => sub { push @notes, $_ if /\.gcno$/ }, no_chdir => 1 }, $dir);
    die "$dir: no .gcno file: built without --coverage\n" if !@notes;

    # gcov takes the data beside a file of notes, and none for no data
    while (my @some = splice @notes, 0, 20) {
        open my $gcov, '-|', 'gcov', '--branch-probabilities', '--stdout',
            '--json-format', @some or die "gcov: $!\n";
        while (<$gcov>) {
            add($_) for @{ decode_json($_)->{files} };
        }
        close $gcov or die "gcov failed on files of $dir\n";
    }
}

sub add ($file) {
    my $path = realpath($file->{file}) // return;
    $path =~ s{^\Q$ROOT\E/(?=src/)}{} or return;

    my %starts = map { $_->{name} => $_->{start_line} } @{ $file->{functions} };
    for my $line (@{ $file->{lines} }) {
        my @counts = map { $_->{count} } grep { !$_->{throw} } @{ $line->{branches} };
        next if !@counts;

        my $start = $starts{ $line->{function_name} // '' };
        my $n = 1;
        ($start, $n) = enclosing($file, $line->{line_number}) if !defined $start;
        $n = 1 if @counts % $n != 0;
        my $each = @counts / $n;
        my $sum = $taken{$path}{ $line->{line_number} }{"$start/$each"} //= [];
        $sum->[$_ % $each] += $counts[$_] for keys @counts;
    }
}

# Returns the first line of the function that a line is in, and how many instances
# it has.  Of a template's lambdas gcov gives the branches one after another, and
# names no function.
sub enclosing ($file, $line) {
    my ($start, $n) = (0, 1);
    for (@{ $file->{functions} }) {
        next if $_->{start_line} > $line || $_->{end_line} < $line
            || $_->{start_line} < $start;
        ($start, $n) = $_->{start_line} == $start ? ($start, $n + 1) : ($_->{start_line}, 1);
    }
    return ($start, $n);
}

# ---- what was not taken ----

# src/core/table/slot.hpp -> src/core
sub floor ($path) {
    return join '/', (split m{/}, $path)[0, 1];
}

# The numbers of branches not taken, by file and line.
sub missed() {
    my %missed;
    for my $path (keys %taken) {
        for my $line (keys %{ $taken{$path} }) {
            my $count = grep { $_ == 0 } map { @$_ } values %{ $taken{$path}{$line} };
            $missed{$path}{$line} = $count if $count;
        }
    }
    return \%missed;
}

sub text_of ($path) {
    state %texts;
    return $texts{$path} //= do {
        open my $file, '<', "$ROOT/$path" or die "$path: $!\n";
        chomp(my @lines = map { s/^\s+//r } <$file>);
        [ '', @lines ];
    };
}

# Takes branches that are explained out of the missed ones.  An entry is a line
# "FILE: CODE", and its reason, or that of several, follows on lines that are indented.
sub check_exceptions ($missed) {
    open my $file, '<', $EXCEPTIONS or die "$EXCEPTIONS: $!\n";
    my (@entries, @unexplained);
    while (<$file>) {
        next if /^#|^\s*$/;
        if (/^\s+\S/) { $_->{reason} = 1 for splice @unexplained; next }
        /^(\S+): (.*\S)/ or die "$EXCEPTIONS:$.: not FILE: CODE\n";
        push @entries, { at => "$EXCEPTIONS:$.", path => $1, code => $2 };
        push @unexplained, $entries[-1];
    }

    for my $entry (@entries) {
        my ($path, $code) = @$entry{qw(path code)};
        my $lines = -e "$ROOT/$path" ? text_of($path) : [];
        my @at = grep { $lines->[$_] eq $code } keys @$lines;
        my @open = grep { $missed->{$path}{$_} } @at;
        complain($entry, 'has no reason') if !$entry->{reason};
        complain($entry, 'names a line that is not there') if !@at;
        say "$entry->{path}: all branches were taken: $entry->{code}" if @at && !@open;
        for (@open) {
            delete $missed->{$path}{$_};
            delete $taken{$path}{$_};
        }
    }
    printf "%d lines are excused by t/coverage/exceptions\n", scalar @entries;
}

sub complain ($entry, $what) {
    say "FAILED  $entry->{at}: $entry->{path}: \"$entry->{code}\" $what";
    $failed = 1;
}

sub check_bounds ($missed) {
    my (%all, %open);
    for my $path (keys %taken) {
        $all{ floor($path) } += @$_ for map { values %$_ } values %{ $taken{$path} };
        $open{ floor($path) } += $_ for values %{ $missed->{$path} // {} };
    }

    for my $floor (sort keys %all) {
        next if index($floor, $option{only}) != 0;
        my ($all, $open) = ($all{$floor}, $open{$floor} // 0);
        my $percent = 100 * ($all - $open) / $all;
        my $bound = $BOUNDS{$floor} // 90;
        my $holds = $percent >= $bound;
        printf "%s  %-16s %5d of %5d branches, %6.2f%%, at least %d%%\n",
            $holds ? 'ok    ' : 'FAILED', $floor, $all - $open, $all, $percent, $bound;
        $failed = 1 if !$holds;
        list($floor, $missed) if $option{list} || (!$holds && $bound == 100);
    }
}

sub list ($floor, $missed) {
    for my $path (sort grep { floor($_) eq $floor } keys %$missed) {
        for my $line (sort { $a <=> $b } keys %{ $missed->{$path} }) {
            printf "    %s:%d: %d not taken: %s\n", $path, $line,
                $missed->{$path}{$line}, text_of($path)->[$line];
            say "        taken: @$_" for values %{ $taken{$path}{$line} };
        }
    }
}
