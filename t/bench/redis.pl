#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Limits in Redis beside none and one in shared memory, and beside those that
# take a connection to Redis and a call for each request: a limiter in Lua, and
# with --peer the module of github.com/kjdev/nginx-ratelimit.  All are measured
# in turn, for some rounds: one worker of NGINX, 64 connections, one Redis.
#
#     redis.pl --nginx PATH --module PATH [--peer PATH] [--rounds N]
#         [--seconds N] [--only REGEXP]
#
# Fails if leases of a hot key are slower than promised beside shared memory.
# Figures are medians over the rounds.  CPU is what the kernel has charged to
# the worker, and to Redis.

use v5.36;

use FindBin;
use Getopt::Long;

use lib "$FindBin::Bin/../lib";

my $CONNECTIONS = 64;
my $KEYS        = 100_000;

my %option;

BEGIN {
    %option = (nginx => '/usr/sbin/nginx', rounds => 3, seconds => 2,
        only => '.');
    GetOptions(\%option, 'nginx=s', 'module=s', 'peer=s', 'rounds=i',
        'seconds=i', 'only=s')
        or die "usage: $0 --nginx PATH --module PATH [--peer PATH]\n";
    $ENV{LIMIT_SLIDING_NGINX} = $option{nginx};
    $ENV{LIMIT_SLIDING_MODULE} = $option{module} // '';
}

use LimitSliding::Redis ();
use LimitSliding::Test;

$| = 1;

if (!LimitSliding::Redis::supported()) {
    print "built without hiredis\n";
    exit;
}

my ($MODULES) = `'$option{nginx}' -V 2>&1` =~ /--modules-path=(\S+)/;
my @LUA = map { ($MODULES // '') . "/${_}_module.so" }
    qw(ndk_http ngx_http_lua);
my $has_lua = 2 == grep { -r } @LUA;

# How to limit: the directives of a location.
my @WAYS = (
    { name => 'no limit', key => 'none', limit => sub { '' } },
    { name => 'shared memory', key => 'memory',
      limit => sub ($rate) { "limit_sliding zone=memory-$rate;" } },
    { name => 'Redis, unix socket', key => 'unix', redis => 1,
      limit => sub ($rate) { "limit_sliding zone=unix-$rate;" } },
    { name => 'Redis, TCP', key => 'tcp', redis => 1,
      limit => sub ($rate) { "limit_sliding zone=tcp-$rate;" } },
    { name => 'Redis, lease=auto', key => 'lease', redis => 1,
      limit => sub ($rate) { "limit_sliding zone=lease-$rate;" } },
    $option{peer} ? (
        { name => 'ratelimit, unix socket', key => 'peer-unix', each => 1,
          limit => sub ($rate) { peer('unix', $rate) } },
        { name => 'ratelimit, TCP', key => 'peer-tcp', each => 1,
          limit => sub ($rate) { peer('tcp', $rate) } },
    ) : (),
    $has_lua ? (
        { name => 'Lua, unix socket', key => 'lua-unix', each => 1,
          limit => sub ($rate) { lua('unix', $rate) } },
        { name => 'Lua, TCP', key => 'lua-tcp', each => 1,
          limit => sub ($rate) { lua('tcp', $rate) } },
    ) : (),
);

my %RATES = (high => 4_000_000, low => 1);

my @CASES = (
    { name => sprintf('%d distinct keys', $KEYS), rate => 'high',
      keys => $KEYS },
    { name => 'one hot key', rate => 'high', keys => 1, hot => 1 },
    { name => 'one exhausted key', rate => 'low', keys => 1, rejected => 1 },
);

my @failed;
my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 1)->start(config());

printf "1 worker, %d connections; medians of %d rounds of %d s, [min max];\n"
    . "CPU in us a request; calls of Redis a request\n"
    . "* a connection to Redis for each request in flight, a call for each\n",
    $CONNECTIONS, $option{rounds}, $option{seconds};

for my $case (@CASES) {
    my %results = measure($case);

    print_table($case, \%results);
    print_ratios(\%results);

    my $ratio = $case->{hot} && ratio(@results{qw(lease memory)});
    push @failed, sprintf "leases of a hot key: %.2f x shared memory\n", $ratio
        if $ratio && $ratio < 0.95;
}

my @lines = $nginx->log_lines(qr/\[(?:error|alert|crit)\]/);
print "\nlogged:\n", map { "$_\n" } @lines[0 .. (@lines > 5 ? 4 : $#lines)]
    if @lines;

$nginx->stop;
$redis->stop;

die @failed if @failed;

# ---- configuration ----

sub config() {
    my $load = join '', map { "load_module $_;\n" }
        $has_lua ? @LUA : (), $option{peer} // ();
    my $lua = $has_lua
        ? "lua_package_path '$FindBin::Bin/?.lua;;';" : '';
    my %server = (unix => 'unix:' . $redis->path, tcp => $redis->server);
    my ($upstreams, $zones, $locations) = ('') x 3;

    for my $socket (sort keys %server) {
        $upstreams .= "limit_sliding_redis $socket {"
            . " server $server{$socket}; timeout 1s; }\n";
        $upstreams .= "upstream $socket { server $server{$socket};"
            . " keepalive 128; }\n" if $option{peer};
    }
    for my $rate (sort keys %RATES) {
        my $per_hour = "rate=$RATES{$rate}r/h";
        $zones .= "limit_sliding_zone \$arg_key zone=$_-$rate:32m $per_hour"
            . ({ memory => '', lease => ' redis=unix lease=auto' }->{$_}
                // " redis=$_")
            . ";\n" for qw(memory unix tcp lease);
        $zones .= "ratelimit_zone $rate key=\$arg_key"
            . " requests=$RATES{$rate} period=1h algo=sliding_window;\n"
            if $option{peer};
        $locations .= "location = /$_->{key}-$rate {"
            . " empty_gif; @{[ $_->{limit}($rate) ]} }\n" for @WAYS;
    }

    return <<"CONF";
$load
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    error_log %%DIR%%/error.log error;
    limit_sliding_log_level off;
    $lua
    $upstreams
    $zones
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
    }
}
CONF
}

sub lua($socket, $rate) {
    my $server = $socket eq 'unix' ? "'unix:" . $redis->path . "'"
        : "'127.0.0.1', " . $redis->port;
    return "access_by_lua_block { require('limiter').limit({ $server },"
        . " 'lua:$socket:' .. ngx.var.arg_key, 3600000, $RATES{$rate}) }";
}

sub peer($socket, $rate) {
    return "ratelimit zone=$rate; ratelimit_pass $socket;"
        . " ratelimit_prefix $socket; ratelimit_log_level info;";
}

# ---- measuring ----

# { way => { figure => [of each round] } }
sub measure($case) {
    my %results;

    # states as they are later on, and connections
    for my $way (@WAYS) {
        $nginx->get("/$way->{key}-$case->{rate}?key=$_") for 1 .. 2;
    }

    for (1 .. $option{rounds}) {
        my $none;
        for my $way (grep { $_->{key} eq 'none'
                || $_->{key} =~ /$option{only}/ } @WAYS) {
            my $figures = run($way, $case);
            $none //= $figures;
            $figures->{ratio} = $figures->{rate} / $none->{rate};
            $figures->{added} = $figures->{nginx} - $none->{nginx};
            push @{ $results{ $way->{key} }{$_} }, $figures->{$_}
                for keys %$figures;
        }
    }

    return %results;
}

# A round of one way.
sub run($way, $case) {
    my $path = "/$way->{key}-$case->{rate}";
    my $url = 'http://127.0.0.1:' . $nginx->port;
    my @keys = $case->{keys} > 1
        ? ('-s', "$FindBin::Bin/keys.lua", $url, '--', $path, $case->{keys})
        : ("$url$path?key=1");
    my @pids = (($nginx->workers)[0], $redis->pid);

    my @cpu = map { cpu_us($_) } @pids;
    my $calls = $redis->calls;

    open my $wrk, '-|', 'wrk', '-t1', "-c$CONNECTIONS",
        "-d$option{seconds}s", '--latency', @keys or die "wrk: $!";
    my $output = do { local $/; <$wrk> };
    close $wrk or die "wrk failed\n$output";

    my ($requests) = $output =~ /([1-9]\d*) requests in/ or die $output;
    my ($rate) = $output =~ /Requests\/sec:\s+([\d.]+)/;
    my ($rejected) = $output =~ /Non-2xx or 3xx responses: (\d+)/;
    my $expected = $case->{rejected} && $way->{key} ne 'none';
    die "$path: $requests requests, ${\($rejected // 0)} rejected\n"
        if abs(($rejected // 0) / $requests - ($expected ? 1 : 0)) > 0.01;

    $cpu[$_] = (cpu_us($pids[$_]) - $cpu[$_]) / $requests for 0, 1;
    $calls = ($redis->calls - $calls) / $requests;

    return {
        rate  => $rate,
        p50   => latency_ms($output, 50),
        p99   => latency_ms($output, 99),
        nginx => $cpu[0],
        redis => $cpu[1],
        calls => $calls,
    };
}

sub latency_ms($output, $percent) {
    my ($value, $unit) = $output =~ /^\s+$percent%\s+([\d.]+)(us|ms|s)$/m
        or die $output;
    return $value * { us => 0.001, ms => 1, s => 1000 }->{$unit};
}

# What a process has used so far, user and system.
sub cpu_us($pid) {
    open my $file, '<', "/proc/$pid/schedstat" or die "/proc/$pid: $!";
    return (split ' ', readline $file)[0] / 1000;
}

sub median(@values) {
    my @sorted = sort { $a <=> $b } @values;
    return ($sorted[ $#sorted / 2 ] + $sorted[ @sorted / 2 ]) / 2;
}

# ---- printing ----

sub print_table($case, $results) {
    printf "\n%-24s %-22s %6s %6s %6s %6s %6s %6s %6s\n", $case->{name},
        'requests/s', 'ratio', 'p50 ms', 'p99 ms', 'NGINX', 'added', 'Redis',
        'calls';

    for my $way (grep { $results->{ $_->{key} } } @WAYS) {
        my $figures = $results->{ $way->{key} };
        my @rates = sort { $a <=> $b } @{ $figures->{rate} };
        my %median = map { $_ => median(@{ $figures->{$_} }) } keys %$figures;

        printf "%-24s %-22s %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %6.3f\n",
            $way->{name} . ($way->{each} ? ' *' : ''),
            sprintf('%.0f [%.0f %.0f]', median(@rates), @rates[0, -1]),
            @median{qw(ratio p50 p99 nginx added redis calls)};
    }
}

# Of rates, over the rounds, as each was measured at one time.
sub ratio($own, $other) {
    return if !$own || !$other;
    return median(map { $own->{rate}[$_] / $other->{rate}[$_] }
        0 .. $#{ $own->{rate} });
}

sub print_ratios($results) {
    for my $way (grep { $_->{redis} && $results->{ $_->{key} } } @WAYS) {
        my $own = $results->{ $way->{key} };
        my @ratios = map {
            my $other = $results->{ $_->{key} };
            sprintf '%.2f x %s', ratio($own, $other), $_->{name};
        } grep {
            $results->{ $_->{key} }
                && ($_->{key} eq 'memory' || $_->{key} =~ /-$way->{key}$/)
        } @WAYS;
        my $p99 = median(map { $own->{p99}[$_] - $results->{none}{p99}[$_] }
            0 .. $#{ $own->{p99} });

        say join ', ', "$way->{name}: added to p99 " . sprintf('%.2f ms', $p99),
            @ratios;
    }
}
