#!/usr/bin/perl

# Starts a real NGINX from live.conf beside this file, a real Redis, and
# made-up traffic, until Ctrl-C: to look at the dashboard and the API.
#
# Usage: live.pl --nginx FILE [--module FILE] [--draw DIRECTORY]
# Without a module the NGINX is taken to have it linked in. With --draw it
# draws the dashboard after ten minutes, and again after Redis has been away for
# half a minute, light and dark each, and ends.

use strict;
use warnings;

use FindBin;
use Getopt::Long;
use IO::Socket::INET;
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Demo qw(free_port run stop);

my $SECONDS = 600;        # until it draws
my $OUTAGE  = 36;         # seconds without Redis until it draws again
my $TICK    = 0.05;       # seconds between two looks at what is to be sent
my $OPEN    = 500;        # connections whose answers may be on their way
my $WIDTH   = 1100;       # of the picture

my %option;
GetOptions(\%option, 'nginx=s', 'module=s', 'draw=s') && $option{nginx}
    or die "usage: live.pl --nginx FILE [--module FILE] [--draw DIRECTORY]\n";

$| = 1;

# Stopped by Ctrl-C, it has done what it was to do.
if (!$option{draw}) {
    $SIG{$_} = sub { exit 0 } for qw(INT TERM HUP);
}

my $redis = free_port();
my $nginx = Demo->new(%option, values => { REDIS => $redis },
    conf => "$FindBin::Bin/live.conf");
my $dir = $nginx->dir;
my $server = run($redis, "$dir/logs/redis", 'redis-server', '--port', $redis,
    '--bind', '127.0.0.1', '--save', '', '--dir', "$dir/logs");
$nginx->start;

my @sockets;

# Sends a request, and waits for no answer: some are delayed.
sub ask {
    my ($path, $address, $key) = @_;
    my $socket = IO::Socket::INET->new('127.0.0.1:' . $nginx->port) or return;
    print $socket "GET $path HTTP/1.0\r\nX-Real-IP: $address\r\n",
        defined $key ? "X-Api-Key: $key\r\n" : (), "\r\n";
    push @sockets, $socket;
    shift @sockets if @sockets > $OPEN;
}

# Whether something that happens about so many times a second happens now.
sub chance {
    my ($per_second) = @_;
    return rand() < $per_second * $TICK;
}

# Sends what is due: clients that come and go in waves, some that ask too often
# from time to time, and one that tries passwords.
sub traffic {
    my ($time) = @_;
    my $wave = 1 + sin $time / 12;

    for (1, 2) {
        ask('/', '198.51.100.' . int rand 200) if chance(12 * $wave);
    }
    ask('/', '2001:db8:7::' . int rand 99) if chance(4);
    ask('/', '203.0.113.' . (7 + int rand 3)) if chance(6 + 2 * $wave);
    ask('/partners', '192.0.2.1', 'acme-key-' . int rand 6) if chance(8 * $wave);
    if ($time % 90 > 50 && $time % 90 < 85) {
        ask('/', '192.0.2.66') if chance(5);
        ask('/partners', '192.0.2.1', 'batch-import-key') if chance(18);
    }
    ask('/login', '192.0.2.' . int rand 250) if chance(4);
    ask('/login', '203.0.113.9') if chance(2 + $wave / 2);
}

my $start = time;

# Sends traffic for so many seconds.
sub run_for {
    my ($seconds) = @_;
    my $end = time + $seconds;
    while (time < $end) {
        traffic(time - $start);
        sleep $TICK;
    }
}

my $url = $nginx->url('/limits/dashboard');
if (!$option{draw}) {
    print "The dashboard: $url\n",
        'The API: curl ', $nginx->url('/limits'), "\n",
        'A request: curl -i ', $nginx->url('/'), "\n",
        "Configuration and log: $dir/nginx.conf, $dir/logs/error.log\n",
        "Traffic runs. Stop: Ctrl-C\n";
    run_for(3600) while 1;
}

require LimitSliding::Browser;
my $browser = LimitSliding::Browser->new;
$browser->resize($WIDTH, 800);
$browser->visit($url);
run_for($SECONDS);

# Draws the whole page, light and dark.
sub draw {
    my ($name) = @_;
    $browser->resize($WIDTH,
        $browser->run('return document.documentElement.offsetHeight'));
    for (['light', ''], ['dark', '-dark']) {
        my ($scheme, $end) = @$_;
        $browser->scheme($scheme);
        my $path = "$option{draw}/$name$end.png";
        open my $file, '>:raw', $path or die "$path: $!\n";
        print $file $browser->screenshot;
        close $file or die "$path: $!\n";
    }
}

$browser->run('openCard("Zone api")');
draw('dashboard');
stop($server);
$browser->run('toggleCard("Zone api"); openCard("Zone partners")');
run_for($OUTAGE);
draw('dashboard-outage');
$browser->quit;
