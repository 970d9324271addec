#!/usr/bin/perl

# Starts two real NGINXs from nginx-redis.conf beside this file, and a real
# Redis. Shows in a table one limit over both, and what becomes of it when Redis
# is killed and comes back.
#
# Usage: redis.pl --nginx FILE [--module FILE]
# Without a module the NGINX is taken to have it linked in.

use strict;
use warnings;

use FindBin;
use Getopt::Long;
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Demo qw(free_port run stop);

# The limit of nginx-redis.conf, and what is sent against it.
my $LIMIT  = 6;
my $WINDOW = 2;
my $BURST  = 8;

my %option;
GetOptions(\%option, 'nginx=s', 'module=s') && $option{nginx}
    or die "usage: redis.pl --nginx FILE [--module FILE]\n";

$| = 1;

my $port = free_port();
my @nginx = map { Demo->new(%option, values => { REDIS => $port },
    conf => "$FindBin::Bin/nginx-redis.conf") } 1 .. 2;
my $redis;
my $sent = 0;

sub start_redis {
    my $dir = $nginx[0]->dir;
    $redis = run($port, "$dir/logs/redis", 'redis-server', '--port', $port,
        '--bind', '127.0.0.1', '--save', '', '--dir', "$dir/logs");
}

# Requests to one instance and the other in turn; prints a row of each, and
# returns [status, source] of each.
sub rows {
    my ($n) = @_;
    return map {
        my $which    = $sent++ % 2;
        my $response = $nginx[$which]->get('/');
        my $headers  = $response->{headers};
        my $source   = $headers->{'x-source'} // '';
        printf "%4d  %8s  %6d  %9s  %s\n", $sent, qw(A B)[$which],
            $response->{status}, $headers->{'x-remaining'} // '', $source;
        [ $response->{status}, $source ];
    } 1 .. $n;
}

# Waits until both decide by Redis, and returns how long that took.
sub recovered {
    my $start = time;
    for (1 .. 500) {
        return time - $start if 2 == grep {
            ($_->get('/look')->{headers}{'x-source'} // '') eq 'redis'
        } @nginx;
        sleep 0.02;
    }
    die "Redis is not asked again.\n", map { $_->log } @nginx;
}

start_redis();
$_->start for @nginx;
recovered();

print "At most $LIMIT requests in $WINDOW s, over two instances of NGINX:\n",
    "    limit_sliding_zone ... rate=$LIMIT window=${WINDOW}s redis=shared;\n",
    "\n   #  instance  status  remaining  source\n";
my @first = rows($BURST);

printf "\n%d seconds later Redis is killed. Each instance counts by itself:\n",
    2 * $WINDOW;
sleep 2 * $WINDOW + 0.1;
stop($redis, 'KILL');
my @killed = rows(2 * $LIMIT + 2);

print "\nRedis comes back, with nothing in it, ";
start_redis();
printf "and decides again after %.2f s:\n", recovered();
my @last = rows($BURST);

# So that a demo which shows nothing is no success.
sub statuses {
    return join ' ', map { $_->[0] } @_;
}

sub sources {
    my %of = map { $_->[1] => 1 } @_;
    return join ' ', sort keys %of;
}

sub limited {
    my ($passed, $refused) = @_;
    return join ' ', (200) x $passed, (429) x $refused;
}

my $shown = statuses(@first) eq limited($LIMIT, $BURST - $LIMIT)
    && statuses(@killed) eq limited(2 * $LIMIT, 2)
    && statuses(@last) eq limited($LIMIT, $BURST - $LIMIT)
    && sources(@first[0 .. $LIMIT - 1]) eq 'redis'
    && sources(@killed) eq 'fallback'
    && sources(@last[0 .. $LIMIT - 1]) eq 'redis';
die "That is not what it should show.\n", map { $_->log } @nginx
    if !$shown;
