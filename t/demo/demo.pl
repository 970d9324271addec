#!/usr/bin/perl

# Starts a real NGINX from nginx.conf beside this file, in a directory and on a
# port of its own.  Shows in a table what a client sees when it asks too often,
# or with --run keeps that NGINX in the foreground.
#
# Usage: demo.pl --nginx FILE [--module FILE] [--run]
# Without a module the NGINX is taken to have it linked in.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp;
use Getopt::Long;
use HTTP::Tiny;
use IO::Socket::INET;
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

# The limit of nginx.conf, and what is sent against it.
my $LIMIT  = 5;
my $WINDOW = 2;
my $BURST  = 8;
my $PROBES = 10;
my $PAUSE  = 0.4;
my $REST   = 3.5;

my %option;
GetOptions(\%option, 'nginx=s', 'module=s', 'run') && $option{nginx}
    or die "usage: demo.pl --nginx FILE [--module FILE] [--run]\n";

$| = 1;

my $dir  = File::Temp->newdir('limit_sliding.XXXXXX', TMPDIR => 1);
my $port = free_port();
my $nginx;

# A signal must pass through END, which stops NGINX.
$SIG{$_} = sub { exit($option{run} ? 0 : 1) } for qw(INT TERM HUP);

sub free_port {
    my $socket = IO::Socket::INET->new(
        Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0)
        or die "no free port: $!\n";
    return $socket->sockport;
}

sub slurp {
    my ($file) = @_;
    open my $fh, '<', $file or return '';
    local $/;
    return <$fh> // '';
}

sub spew {
    my ($file, $text) = @_;
    open my $fh, '>', $file or die "$file: $!\n";
    print $fh $text;
    close $fh or die "$file: $!\n";
}

# Workers run as another user if we are root, and must be able to read.
sub prepare {
    chmod 0755, $dir or die "$dir: $!\n";
    for my $sub (qw(html logs temp)) {
        mkdir "$dir/$sub", 0755 or die "$dir/$sub: $!\n";
        chmod 0755, "$dir/$sub";
    }
    spew("$dir/html/index.html", "Hello.\n");
    chmod 0644, "$dir/html/index.html";

    my $conf = slurp(dirname(__FILE__) . '/nginx.conf');
    my $load = $option{module} ? "load_module $option{module};" : '';
    $conf =~ s/^%%MODULE%%$/$load/m;
    $conf =~ s/%%PORT%%/$port/;
    $conf =~ s/^error_log .*/error_log stderr;/m if $option{run};
    spew("$dir/nginx.conf", $conf);
}

sub start {
    defined($nginx = fork) or die "fork: $!\n";
    if ($nginx == 0) {
        open STDERR, '>', "$dir/logs/stderr" if !$option{run};
        exec $option{nginx}, '-p', "$dir/", '-c', "$dir/nginx.conf",
            '-g', 'daemon off;'
            or POSIX::_exit(127);
    }

    for (1 .. 100) {
        return if IO::Socket::INET->new("127.0.0.1:$port");
        last if waitpid($nginx, WNOHANG);
        sleep 0.05;
    }
    die "$option{nginx} does not start\n", slurp("$dir/logs/stderr"),
        slurp("$dir/logs/error.log");
}

END {
    my $status = $?;
    if ($nginx) {
        kill TERM => $nginx;
        waitpid $nginx, 0;
    }
    $? = $status;
}

# One request; prints its row and returns its status.
sub row {
    my ($client, $number, $since) = @_;

    my $elapsed  = time - $since;
    my $response = $client->get("http://127.0.0.1:$port/");
    my $headers  = $response->{headers};

    printf "%4d  %6.2f s  %6d  %9s  %11s\n", $number, $elapsed,
        $response->{status}, $headers->{'x-ratelimit-remaining'} // '',
        $headers->{'retry-after'} // '';

    return $response->{status};
}

sub demo {
    my $client = HTTP::Tiny->new(timeout => 5);

    print "At most $LIMIT requests in a sliding window of $WINDOW s:\n",
        "    limit_sliding_zone ... rate=$LIMIT window=${WINDOW}s;\n",
        "$BURST requests at once, one each $PAUSE seconds, ",
        "one after $REST seconds.\n\n",
        "   #      time  status  remaining  Retry-After\n";

    my $start = time;
    my $sent  = 0;
    my @burst = map { row($client, ++$sent, $start) } 1 .. $BURST;
    print "\n";
    my @later;
    for my $pause (($PAUSE) x $PROBES, $REST) {
        print "\n" if $pause == $REST;
        sleep $pause;
        push @later, row($client, ++$sent, $start);
    }

    my %seen;
    $seen{$_}++ for @burst, @later;
    printf "\n%d requests passed, %d were refused.\n", $seen{200} // 0,
        $seen{429} // 0;

    # So that a demo which shows nothing is no success.
    my $shown = $burst[0] == 200 && $burst[-1] == 429
        && grep({ $_ == 200 } @later)
        && ($seen{200} // 0) + ($seen{429} // 0) == @burst + @later;
    die "That is not what it should show.\n", slurp("$dir/logs/error.log")
        if !$shown;
}

prepare();
start();

if ($option{run}) {
    print "NGINX listens on http://127.0.0.1:$port/ with $dir/nginx.conf\n",
        "Try: curl -i http://127.0.0.1:$port/    Stop: Ctrl-C\n";
    waitpid $nginx, 0;
    undef $nginx;
} else {
    demo();
}
