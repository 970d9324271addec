#!/usr/bin/perl

# Starts a real NGINX from nginx.conf beside this file. Shows in a table what a
# client sees when it asks too often.
#
# Usage: demo.pl --nginx FILE [--module FILE]
# Without a module the NGINX is taken to have it linked in.

use strict;
use warnings;

use FindBin;
use Getopt::Long;
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Demo;

# The limit of nginx.conf, and what is sent against it.
my $LIMIT  = 5;
my $WINDOW = 2;
my $BURST  = 8;
my $PROBES = 10;
my $PAUSE  = 0.4;
my $REST   = 3.5;

# NGINX's clock is coarse and cached: a window that is surely one is shorter.
my $SLACK = 0.05;

my %option;
GetOptions(\%option, 'nginx=s', 'module=s') && $option{nginx}
    or die "usage: demo.pl --nginx FILE [--module FILE]\n";

$| = 1;

# One request; prints its row and returns its status, and the seconds when it
# was sent and when it was answered.
sub row {
    my ($nginx, $number, $since) = @_;

    my $elapsed  = time - $since;
    my $response = $nginx->get('/');
    my $answered = time - $since;
    my $headers  = $response->{headers};

    printf "%4d  %6.2f s  %6d  %9s  %11s\n", $number, $elapsed,
        $response->{status}, $headers->{'x-ratelimit-remaining'} // '',
        $headers->{'retry-after'} // '';

    return [ $response->{status}, $elapsed, $answered ];
}

# The most rows in a window.
sub most {
    my $most = 0;
    while (my $first = shift) {
        my $n = 1 + grep { $_->[2] < $first->[1] + $WINDOW - $SLACK } @_;
        $most = $n if $n > $most;
    }
    return $most;
}

sub demo {
    my ($nginx) = @_;

    print "At most $LIMIT requests in a sliding window of $WINDOW s:\n",
        "    limit_sliding_zone ... rate=$LIMIT window=${WINDOW}s;\n",
        "$BURST requests at once, one each $PAUSE seconds, ",
        "one after $REST seconds.\n\n",
        "   #      time  status  remaining  Retry-After\n";

    my $start = time;
    my $sent  = 0;
    my @burst = map { row($nginx, ++$sent, $start) } 1 .. $BURST;
    print "\n";
    my @later;
    for my $pause (($PAUSE) x $PROBES, $REST) {
        print "\n" if $pause == $REST;
        sleep $pause;
        push @later, row($nginx, ++$sent, $start);
    }

    my @passed = grep { $_->[0] == 200 } @burst, @later;
    my @refused = grep { $_->[0] == 429 } @burst, @later;
    printf "\n%d requests passed, %d were refused.\n", scalar @passed,
        scalar @refused;

    # So that a demo which does not show what it says is no success.
    my $shown = $burst[0][0] == 200 && $burst[-1][0] == 429
        && grep({ $_->[0] == 200 } @later)
        && most(@passed) <= $LIMIT
        && @passed + @refused == @burst + @later;
    die "That is not what it should show.\n", $nginx->log if !$shown;
}

my $nginx = Demo->new(%option, conf => "$FindBin::Bin/nginx.conf")->start;
demo($nginx);
