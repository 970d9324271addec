#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# User-space instructions that a limit adds to a request: those of a whole
# NGINX in one process under callgrind, for the same requests with and without
# the limit.  Counted after each key was used once.
#
#     instructions.pl --nginx PATH --module PATH

use strict;
use warnings;

use File::Temp 'tempdir';
use Getopt::Long;
use IO::Socket::INET;
use Time::HiRes 'sleep';

my %option = (nginx => '/usr/sbin/nginx', requests => 10_000);
GetOptions(\%option, 'nginx=s', 'module=s', 'requests=i')
    or die "usage: $0 --nginx PATH --module PATH [--requests N]\n";

my %limits = (
    'no limit'               => '',
    'limit_req, passed'      => 'limit_req zone=req burst=1000000 nodelay;',
    'limit_sliding, passed'  => 'limit_sliding zone=many;',
    'limit_sliding, draft x' =>
        'limit_sliding zone=some; limit_sliding_headers draft x;',
    'limit_sliding, rejected'=> 'limit_sliding zone=one;',
);

printf "%-26s %10s %10s\n", 'added to a request', '1 key', '100k keys';

my %base;
for my $name ('no limit', 'limit_req, passed', 'limit_sliding, passed',
    'limit_sliding, draft x', 'limit_sliding, rejected')
{
    my %added;

    for my $keys (1, 100_000) {
        my $count = measure($limits{$name}, $keys);
        $base{$keys} //= $count;
        $added{$keys} = $name eq 'no limit' ? $count : $count - $base{$keys};
    }

    printf "%-26s %10.0f %10.0f\n", $name, @added{1, 100_000};
}

# Instructions of one request.
sub measure {
    my ($limit, $keys) = @_;
    my $dir = tempdir(CLEANUP => 1);
    my $port = free_port();

    configure($dir, $port, $limit);

    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDERR, '>', "$dir/valgrind" or die;
        exec 'valgrind', '--tool=callgrind', "--callgrind-out-file=$dir/out",
            $option{nginx}, '-p', $dir, '-c', "$dir/nginx.conf";
        exit 1;
    }

    my $client = client($port, $pid);
    my $next = 0;

    request($client, $next++ * 7919 % $keys) for 1 .. $keys;
    control('-z', $pid);
    request($client, $next++ * 7919 % $keys) for 1 .. $option{requests};
    control('-d', $pid);

    kill QUIT => $pid;
    close $client;
    waitpid $pid, 0;

    return total("$dir/out.1") / $option{requests};
}

# The key is the path, as long for every key, and the answer a small image.
sub configure {
    my ($dir, $port, $limit) = @_;
    my $temp = join "\n", map { "    ${_}_temp_path $dir;" }
        qw(client_body proxy fastcgi uwsgi scgi);

    open my $conf, '>', "$dir/nginx.conf" or die "nginx.conf: $!";
    print $conf <<"CONF";
load_module $option{module};

daemon         off;
master_process off;
pid            $dir/pid;
error_log      $dir/error.log;

# else the clock is read, and costs, as often as the machine is fast; once the
# alarm has gone off, as well
timer_resolution 1h;

events {
}

http {
    access_log off;
    keepalive_requests 100000000;
$temp

    limit_req_zone     \$uri zone=req:32m rate=1000r/s;
    limit_sliding_zone \$uri zone=many:3m rate=4000000r/h;
    limit_sliding_zone \$uri zone=some:3m rate=20000r/h;
    limit_sliding_zone \$uri zone=one:3m  rate=1r/h;

    limit_req_log_level     info;
    limit_sliding_log_level off;

    server {
        listen 127.0.0.1:$port;
        $limit
        location / {
            empty_gif;
        }
    }
}
CONF
    close $conf or die "nginx.conf: $!";
}

sub free_port {
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
        or die "listen: $!";
    return $socket->sockport;
}

sub client {
    my ($port, $pid) = @_;

    for (1 .. 300) {
        my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port");
        return $socket if $socket;
        sleep 0.1;
    }

    kill KILL => $pid;
    die "NGINX did not start\n";
}

sub request {
    my ($client, $key) = @_;
    my $answer = '';

    syswrite $client, sprintf "GET /%07u HTTP/1.1\r\nHost: bench\r\n\r\n", $key;

    until ($answer =~ /^Content-Length: (\d+)\r\n.*?\r\n\r\n/ms
        && length $answer >= $+[0] + $1)
    {
        sysread $client, $answer, 65536, length $answer
            or die "NGINX closed the connection\n";
    }
}

sub control {
    my ($what, $pid) = @_;

    system("callgrind_control $what $pid > /dev/null 2>&1") == 0
        or die "callgrind_control failed\n";
}

sub total {
    my ($file) = @_;

    open my $out, '<', $file or die "$file: $!";
    while (<$out>) {
        return $1 if /^totals: (\d+)/;
    }

    die "no totals in $file\n";
}
