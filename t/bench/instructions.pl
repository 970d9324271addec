#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# User-space instructions that a limit adds to a request: those of a whole
# NGINX in one process under callgrind, for the same requests with and without
# the limit.  Counted after each key was used once.  Fails if it is more than
# we promise.
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

# With `paced` requests come at least a millisecond apart, which a log tells
# apart and a queue needs to be empty again; else NGINX's clock stands still.
# [zones for one key, for 100k keys] where they differ.
my @rows = (
    { name => 'limit_req, passed',
      limit => 'limit_req zone=req burst=1000000 nodelay;' },
    # 446 before anything was counted for metrics, which may take 40
    { name => 'counter, passed', at_most => 486,
      limit => 'limit_sliding zone=many;' },
    { name => 'counter, draft x', at_most => 1800,
      limit => 'limit_sliding zone=some; limit_sliding_headers draft x;' },
    { name => 'counter, rejected', at_most => 500, status => 429,
      limit => 'limit_sliding zone=one;' },
    { name => 'fixed, passed', at_most => 500,
      limit => 'limit_sliding zone=fixed;' },
    { name => 'token_bucket, passed', at_most => 600,
      limit => 'limit_sliding zone=tokens;' },
    { name => 'leaky_bucket, passed', at_most => 850, paced => 1,
      limit => 'limit_sliding zone=leaky;' },
    { name => 'precision=10, passed',
      limit => 'limit_sliding zone=precise;' },
    { name => 'log of 100, passed', paced => 1,
      limit => [ map { "limit_sliding zone=$_;" } 'log-busy', 'log' ] },
);

printf "%-26s %10s %10s\n", 'added to a request', '1 key', '100k keys';

my %base;                 # {paced}{keys}
my @failed;

print_row('no limit', map { $base{0}{$_} = measure('', $_, 0) } 1, 100_000);

for my $row (@rows) {
    my $paced = $row->{paced} // 0;
    my @limits = ref $row->{limit} ? @{ $row->{limit} } : ($row->{limit}) x 2;

    my @added = map {
        my $base = $base{$paced}{$_} //= measure('', $_, $paced);
        measure(shift @limits, $_, $paced, $row->{status}) - $base;
    } 1, 100_000;

    print_row($row->{name}, @added);

    push @failed, "$row->{name}: more than $row->{at_most}\n"
        if grep { $_ > ($row->{at_most} // $_) } @added;
}

die @failed if @failed;

sub print_row {
    printf "%-26s %10.0f %10.0f\n", @_;
}

# Instructions of one request.
sub measure {
    my ($limit, $keys, $paced, $status) = @_;
    my $requests = $option{requests} / ($paced ? 4 : 1);
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
    for (1 .. $requests) {
        tick($pid) if $paced;
        my $got = request($client, $next++ * 7919 % $keys);
        die "$limit answered $got\n" if $got != ($status // 200);
    }
    control('-d', $pid);

    kill QUIT => $pid;
    close $client;
    waitpid $pid, 0;

    return total("$dir/out.1") / $requests;
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
    limit_sliding_zone \$uri zone=fixed:3m rate=4000000r/h algorithm=fixed;
    limit_sliding_zone \$uri zone=tokens:3m rate=4000000r/h
        algorithm=token_bucket;
    limit_sliding_zone \$uri zone=leaky:3m rate=4000000r/s burst=100
        algorithm=leaky_bucket;
    limit_sliding_zone \$uri zone=precise:24m rate=4000000r/h precision=10;
    limit_sliding_zone \$uri zone=log:24m rate=100r/h algorithm=log;
    limit_sliding_zone \$uri zone=log-busy:1m rate=100 window=100ms
        algorithm=log;

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

# Lets a millisecond pass, and NGINX, which waits for a request, notice.
sub tick {
    my ($pid) = @_;

    sleep 0.0012;
    kill ALRM => $pid;
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

    return substr $answer, 9, 3;
}

sub control {
    my ($what, $pid) = @_;

    system("callgrind_control $what $pid > /dev/null 2>&1") == 0
        or die "callgrind_control failed\n";
}

sub total {
    my ($file) = @_;

    open my $out, '<', $file or die "$file: $!";
    while (my $line = <$out>) {
        return $1 if $line =~ /^totals: (\d+)/;
    }

    die "no totals in $file\n";
}
