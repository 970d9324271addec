#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Limits in Redis beside none and one in shared memory, and beside those that
# take a connection to Redis and a call for each request: a limiter in Lua, and
# with --peer the module of github.com/kjdev/nginx-ratelimit; and beside what
# redis-benchmark gets from Redis with the same script.  All are measured in
# turn, for some rounds: one worker of NGINX, 64 connections, one Redis.
#
#     redis.pl --nginx PATH --module PATH [--peer PATH] [--rounds N]
#         [--seconds N] [--only REGEXP] [--at-least N]
#
# Fails if leases of a hot key are slower than promised, --at-least x shared
# memory, or if a limit lets pass or rejects what it should not.
# Figures are medians over the rounds.  CPU is what the kernel has charged to
# the worker, and to Redis.

use v5.36;

use FindBin;

use lib "$FindBin::Bin/../lib";

my $CONNECTIONS = 64;
my $KEYS        = 100_000;

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ rounds => 6, seconds => 0.5, only => '.',
        'at-least' => 0.95 }, 'peer=s', 'rounds=i', 'seconds=f', 'only=s',
        'at-least=f');
}

use LimitSliding::Generator;
use LimitSliding::Redis ();
use LimitSliding::RedisBenchmark;
use LimitSliding::RedisLoad;
use LimitSliding::Standing;
use LimitSliding::Test;

$| = 1;

if (!LimitSliding::Redis::supported()) {
    print "built without hiredis\n";
    exit;
}

my ($LUA_MODULES, $LUA_PATH) = lua_limiter();

# How to limit: the directives of a location.  `zone` is one of ours, `socket`
# what leads to Redis, `each` one that makes a call for each request.
my @WAYS = (
    { name => 'no limit', key => 'none', limit => sub { '' } },
    { name => 'shared memory', key => 'memory', zone => 1 },
    { name => 'Redis, unix socket', key => 'unix', zone => 1,
      socket => 'unix' },
    { name => 'Redis, TCP', key => 'tcp', zone => 1, socket => 'tcp' },
    { name => 'Redis, lease=auto', key => 'lease', zone => 1,
      socket => 'unix' },
    map { each_of(@$_) } (
        $option{peer} ? [ 'ratelimit', 'peer', \&peer ] : (),
        $LUA_PATH ? [ 'Lua', 'lua', \&lua ] : (),
    ),
);

sub each_of($name, $key, $limit) {
    return map {
        my $socket = $_;
        { name => "$name, " . ($_ eq 'tcp' ? 'TCP' : 'unix socket'),
          key => "$key-$_", each => 1, socket => $_,
          limit => sub ($rate) { $limit->($socket, $rate) } };
    } qw(unix tcp);
}

my %RATES = (high => 4_000_000, low => 1);

my @CASES = (
    { name => thousands($KEYS) . ' distinct keys', rate => 'high',
      keys => $KEYS },
    { name => 'one hot key', rate => 'high', keys => 1, hot => 1 },
    { name => 'one exhausted key', rate => 'low', keys => 1, rejected => 1 },
);

my @failed;
my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 1)->start(config());

print "### Limits in Redis\n\n",
    "wrk sends requests on $CONNECTIONS connections, as fast as one worker of"
    . " NGINX and one Redis answer them.\nFigures are medians of"
    . " $option{rounds} rounds of $option{seconds} s, [min max]. CPU is in us a"
    . " request. `added` is the CPU of NGINX\nthat a limit adds to a request,"
    . " and `calls` are calls of Redis a request. Limiters with a * use a"
    . "\nconnection to Redis for each request in progress, and make a call for"
    . " each request. If the\nmedian of another limiter is better by 1% or"
    . " more, it is named, with the number of rounds in\nwhich it was better."
    . " A small lead, or a lead in some rounds only, may be chance.\n\n";
print "Lua was not measured: this NGINX has no Lua or no lua-resty-redis.\n\n"
    if !$LUA_PATH;

for my $case (@CASES) {
    my %results = measure($case);

    print_table($case, \%results);
    print_ratios($case, \%results);
    say_in_short($case, \%results);
    print_ceilings(\%results) if $results{ceilings};

    next if !$case->{hot} || !$results{lease} || !$results{memory};

    # what else runs on the machine may be to blame: once more, at length
    my $ratio = rates(@results{qw(lease memory)});
    $ratio = rates(compare($case, qw(lease memory)))
        if $ratio < $option{'at-least'};
    push @failed, sprintf "leases of a hot key: %.2f x shared memory\n", $ratio
        if $ratio < $option{'at-least'};
}

complaints($nginx);
$nginx->stop;
$redis->stop;

die @failed if @failed;

# ---- configuration ----

sub config() {
    my $load = join '', map { "load_module $_;\n" } $option{peer} // ();
    my %server = (unix => 'unix:' . $redis->path, tcp => $redis->server);
    my ($upstreams, $zones, $locations) = ('') x 3;

    for my $socket (sort keys %server) {
        $upstreams .= "limit_sliding_redis $socket {"
            . " server $server{$socket}; timeout 1s; on_error deny; }\n";
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
            . " empty_gif; "
            . ($_->{zone} ? "limit_sliding zone=$_->{key}-$rate;"
                : $_->{limit}($rate))
            . " }\n" for @WAYS;
    }

    return <<"CONF";
@{[ $LUA_MODULES // '' ]}
$load
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    error_log %%DIR%%/error.log error;
    limit_sliding_log_level off;
    @{[ $LUA_PATH // '' ]}
    $upstreams
    $zones
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
        location = /limits { limit_sliding_api; }
    }
}
CONF
}

sub lua($socket, $rate) {
    my $server = $socket eq 'unix' ? "'unix:" . $redis->path . "'"
        : "'127.0.0.1', " . $redis->port;
    return lua_limit($server, "'lua:$socket:' .. ngx.var.arg_key",
        $RATES{$rate});
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

    my @ceilings = $case->{keys} > 1 && 'unix' =~ /$option{only}/
        ? ceilings(nginx => $nginx, redis => $redis, path => '/unix-high',
            keys => $KEYS, seconds => $option{seconds}) : ();

    my @ways = grep { $_->{key} eq 'none' || $_->{key} =~ /$option{only}/ }
        @WAYS;

    for my $round (1 .. $option{rounds}) {
        # forth and back, as what else the machine does may come and go
        my %figures = map { $_->{key} => run($_, $case) }
            $round % 2 ? @ways : reverse @ways;

        for my $key (map { $_->{key} } @ways) {
            my ($own, $none) = @figures{ $key, 'none' };
            $own->{ratio} = $own->{rate} / $none->{rate};
            $own->{added} = $own->{nginx} - $none->{nginx};
            push @{ $results{$key}{$_} }, $own->{$_} for keys %$own;
        }
        for my $i (0 .. $#ceilings) {
            my $figures = redis_benchmark($ceilings[$i]);
            push @{ $results{ceilings}[$i]{$_} }, $figures->{$_}
                for keys %$figures;
            $results{ceilings}[$i]{name} = $ceilings[$i]{name};
        }
    }

    return %results;
}

# The figures of some ways, in thrice as many rounds.
sub compare($case, @keys) {
    my %results;

    for my $round (1 .. 3 * $option{rounds}) {
        for my $key ($round % 2 ? @keys : reverse @keys) {
            my ($way) = grep { $_->{key} eq $key } @WAYS;
            push @{ $results{$key}{rate} }, run($way, $case)->{rate};
        }
    }

    return @results{@keys};
}

# A round of one way.
sub run($way, $case) {
    my $path = "/$way->{key}-$case->{rate}";
    my $url = 'http://127.0.0.1:' . $nginx->port;

    my $decided = decided($way, $case);
    my $figures = metered($nginx, $redis, sub {
        wrk(connections => $CONNECTIONS, seconds => $option{seconds},
            arguments => $case->{keys} > 1
                ? [ '-s', "$FindBin::Bin/keys.lua", $url, '--', $path,
                    $case->{keys} ]
                : ["$url$path?key=1"])
    });
    my ($requests, $calls) = @$figures{qw(requests calls)};
    $decided = (decided($way, $case) - $decided) / $requests;

    # those in flight in the end are none of wrk's
    my $slack = 0.01 + $CONNECTIONS / $requests;
    my $expected = $case->{rejected} && $way->{key} ne 'none';
    die "$path: $requests requests, $figures->{rejected} of them rejected\n"
        if abs($figures->{rejected} - ($expected ? 1 : 0)) > 0.01;
    die "$path: $decided decisions a request\n"
        if $way->{zone} && abs($decided - 1) > $slack;
    die "$path: $calls calls a request\n"
        if $way->{each} && abs($calls - 1) > $slack;

    return $figures;
}

# How many requests the zone of a way has decided so far.
sub decided($way, $case) {
    return 0 if !$way->{zone};
    my $zone = zone($nginx, "$way->{key}-$case->{rate}");
    return $zone->{passed} + $zone->{rejected};
}

# ---- printing ----

# A way of a case, and what it is there.  Redis has no part in rejecting what
# has been rejected before.
sub label($way, $case) {
    return $way->{name} . ($way->{each} ? ' *' : '')
        if !$way->{zone} || !$way->{socket} || $case->{rejected};
    return "$way->{name} (" . ($way->{key} eq 'lease' ? 'leased'
        : $case->{keys} > 1 ? 'strict' : 'coalesced') . ')';
}

sub print_table($case, $results) {
    say '#### ', ucfirst $case->{name}, "\n";

    table([ $case->{name}, 'requests/s', 'x no limit', 'p50 ms', 'p99 ms',
            'NGINX', 'added', 'Redis', 'calls' ],
        map {
            my $figures = $results->{ $_->{key} };
            my %spread = map { $_ => spread($figures->{$_}, '%.2f') }
                qw(ratio p50 p99 nginx added redis);
            [ label($_, $case), spread($figures->{rate}),
                @spread{qw(ratio p50 p99 nginx added redis)},
                sprintf '%.4f', median(@{ $figures->{calls} }) ];
        } grep { $results->{ $_->{key} } } @WAYS);
}

# Of two ways, if both were measured.
sub rates($own, $other, $figure = 'rate') {
    return if !$own || !$other;
    return ratio($own->{$figure}, $other->{$figure});
}

sub print_ratios($case, $results) {
    my (@lines, @behind);

    for my $way (grep { $_->{zone} && $_->{socket} && $results->{ $_->{key} } }
        @WAYS) {
        my $own = $results->{ $way->{key} };
        my $name = label($way, $case);
        my @ratios;
        push @ratios, sprintf '%.2f x shared memory',
            rates($own, $results->{memory}) if $results->{memory};

        for my $peer (grep { $results->{ $_->{key} } && $_ != $way
                && $_->{socket} && $_->{socket} eq $way->{socket} } @WAYS) {
            my $other = $results->{ $peer->{key} };
            my $others = $peer->{each} ? $peer->{name} =~ s/,.*//r
                : label($peer, $case);
            push @ratios, sprintf '%.2f x %s, with %.2f x its CPU and %.2f x'
                . ' its p99', rates($own, $other), $others,
                map { ratio($own->{$_}, $other->{$_}) } qw(cpu p99)
                if $peer->{each};

            # of our own, what leases make worse
            my @better = $peer->{each} || $way->{key} eq 'lease'
                ? better($other, $own, qw(rate cpu p50 p99)) : ();
            push @behind, "$others does better than $name: "
                . join(', ', @better) . '.' if @better;
            $behind[-1] .= ' Here a request may wait for calls in progress'
                . ' before its own call is sent.'
                if $peer->{each} && grep { /p50|p99/ } @better;
        }

        push @lines, "$name: requests " . join('; ', @ratios) . '.'
            if @ratios;
    }

    say join "\n", map({ "- $_" } @lines, @behind), '' if @lines;
}

sub say_in_short($case, $results) {
    my ($unix, $lease, $memory, $lua)
        = @$results{qw(unix lease memory lua-unix)};

    if ($case->{hot} && $unix && $lease && $memory) {
        printf "In short: with one hot key, a limit in Redis answers %.2f times"
            . " as many requests a second as a\nlimit in shared memory, and"
            . " %.2f times as many with leases.\n\n", rates($unix, $memory),
            rates($lease, $memory);
    } elsif ($case->{keys} > 1 && $unix && $lua) {
        printf "In short: if Redis decides each request, NGINX answers %.1f"
            . " times as many requests as with a\nlimiter in Lua, and NGINX and"
            . " Redis use %.2f times as much CPU.\n\n", rates($unix, $lua),
            ratio($unix->{cpu}, $lua->{cpu});
    }
}

sub print_ceilings($results) {
    my $own = $results->{unix};
    my @redis = @{ $results->{ceilings} };

    print "#### What one Redis can do with the script\n\n",
        "redis-benchmark runs without NGINX, and sends the command of the module"
        . " with as many keys, and\nnative commands that write a key.\n\n";
    table([ 'redis-benchmark', 'decisions/s', 'Redis us a decision', 'x `SET`' ],
        map { [ $_->{name}, spread($_->{rate}), spread($_->{redis}, '%.2f'),
            sprintf('%.2f', rates($_, $redis[0], 'redis')) ] } @redis,
            { name => 'the module, unix socket', %$own });

    printf "The calls of the module carry %.0f keys each. Redis reaches its"
        . " maximum with full calls and with\nnothing else on the machine, but"
        . " here it shares cores with NGINX and wrk.\n\n",
        1 / median(@{ $own->{calls} });
}
