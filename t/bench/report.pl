#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Runs the benchmarks one after the other, prints what they print, and writes
# docs/benchmarks.md of report.md and that, and their plots.  That of accuracy by
# limit is docs/algorithms-accuracy.svg, whenever it was measured.
#
#     report.pl --nginx PATH --module PATH --build DIRECTORY
#         [--parts 'NAME ...'] [--peer PATH] [--smoke]
#
# With --parts only these are run, and no page is written.  With --smoke all is
# done in seconds, to see that it works: figures of so few rounds say nothing, so
# the page goes to a directory of the build.

use v5.36;

use File::Copy qw(copy);
use FindBin;
use Time::HiRes ();

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ parts => '' }, 'build=s', 'parts=s', 'peer=s',
        'smoke');
}

use LimitSliding::Peers;

my $DATA = "$option{build}/bench";
my $DOCS = $option{smoke} ? "$DATA/smoke" : "$FindBin::Bin/../../docs";
mkdir $DOCS;

# A part is a program, NAME.pl or what was built of NAME.c, and NAME.gp, which
# draws its data.
my @PARTS = qw(instructions memory core load redis redis_load accuracy);
my %EXTRA = (redis => [ $option{peer} ? ('--peer', $option{peer}) : () ]);

# Options of the parts with --smoke.  `make bench-quick` counts the instructions
# of all that is ours.
my %SMOKE = (
    instructions => [ qw(--requests 20 --keys 300 --only),
        '^counter$|headers off|^fixed|^limit_req|^Lua' ],
    memory     => [qw(--share 16)],
    core       => [qw(--round-us 500 100000)],
    load       => [qw(--rounds 1 --seconds 0.3 --keys 1000)],
    redis      => [qw(--rounds 1 --seconds 0.2 --at-least 0)],
    redis_load => [qw(--rounds 1 --seconds 0.6 --rates 1000 --kept-up 0)],
    accuracy   => [qw(--replays 2)],
);

my %asked = map { $_ => 1 } split ' ', $option{parts};
for my $part (sort keys %asked) {
    die "no part '$part', they are: @PARTS\n" if !grep { $_ eq $part } @PARTS;
}

$| = 1;

my (%printed, @failed);
my $started = time;

for my $part (grep { !%asked || $asked{$_} } @PARTS) {
    my $begun = Time::HiRes::time();
    print "## $part\n\n";
    $printed{$part} = run($part);
    printf "(%.0f s)\n\n", Time::HiRes::time() - $begun;
}

die map { "$_ failed\n" } @failed if @failed;
draw('accuracy', 'accuracy_limits', "$DOCS/algorithms-accuracy.svg")
    if exists $printed{accuracy};
write_report() if !%asked;

# What it prints, which is shown as it comes.
sub run($part) {
    my $script = "$FindBin::Bin/$part.pl";
    my @command = -e $script
        ? ($script, '--nginx', $option{nginx}, '--module', $option{module},
            @{ $EXTRA{$part} // [] })
        : "$DATA/$part";
    unlink "$DATA/$part.data";
    push @command, '--data', "$DATA/$part.data"
        if -e "$FindBin::Bin/$part.gp";
    push @command, @{ $SMOKE{$part} } if $option{smoke};
    my $text = '';

    open my $out, '-|', @command or die "$command[0]: $!\n";
    while (my $line = <$out>) {
        print $line;
        $text .= $line;
    }
    close $out or push @failed, $part;

    return $text;
}

# Draws a part's data by a script of gnuplot.
sub draw($part, $script, $picture) {
    system('gnuplot', '-c', "$FindBin::Bin/$script.gp", "$DATA/$part.data",
        $picture) == 0 or die "the plot of $part failed\n";
}

# What is said in short is collected at the top.
sub write_report() {
    my @short;

    for my $text (@printed{@PARTS}) {
        while ($text =~ s/^In short: (.*?)\n(?:\n|\z)//ms) {
            push @short, '- ' . ucfirst($1 =~ s/\n/\n  /gr);
        }
        $text =~ s/\s+\z//;
    }

    my %texts = (%printed, short => join("\n", @short), machine => machine(),
        minutes => sprintf('%.0f', (time - $started) / 60));

    open my $frame, '<', "$FindBin::Bin/report.md" or die "report.md: $!\n";
    my $page = do { local $/; <$frame> };
    $page =~ s/\@(\w+)\@/$texts{$1} \/\/ die "no part '$1'\n"/ge;

    # of what a build without hiredis does not measure there is no picture
    for my $part (grep { -e "$DATA/$_.data" } @PARTS) {
        draw($part, $part, "$DATA/$part.svg");
    }
    for my $part (grep { -e "$DATA/$_.data" } @PARTS) {
        copy("$DATA/$part.svg", "$DOCS/benchmarks-$part.svg")
            or die "benchmarks-$part.svg: $!\n";
    }

    open my $out, '>', "$DOCS/benchmarks.md" or die "benchmarks.md: $!\n";
    print $out $page;
    close $out or die "benchmarks.md: $!\n";

    print "$DOCS/benchmarks.md is written\n" =~ s{.*/(docs/)}{$1}r;
}

sub machine() {
    my ($cpu) = slurp('/proc/cpuinfo') =~ /^model name\s*: (.*)/m;
    my ($system) = slurp('/etc/os-release') =~ /^PRETTY_NAME="(.*)"/m;
    my ($nginx) = `'$option{nginx}' -v 2>&1` =~ m{nginx/([\d.]+)};
    my ($redis) = `redis-server --version` =~ /v=([\d.]+)/;
    my ($kernel) = slurp('/proc/sys/kernel/osrelease') =~ /^(\d+\.\d+)/;
    my $haproxy = haproxy_version() // 'none';
    chomp(my $cores = `nproc`);

    return "$cores cores of " . ($cpu // 'an unknown processor')
        . ", $system, Linux $kernel; NGINX $nginx,\nHAProxy $haproxy,"
        . " Redis $redis.";
}

sub slurp($path) {
    open my $file, '<', $path or return '';
    local $/;
    return scalar readline $file;
}
