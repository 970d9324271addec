#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Limits in Redis as load rises: what a request waits, and how many calls it
# costs, where every request is decided by Redis, where those for one key share
# calls, and where units are leased; beside a limiter in Lua that makes a call
# for each, a limit in shared memory, and none.  h2load offers so many requests
# a second, whether they are answered or not: one worker, one Redis.
#
#     redis_load.pl --nginx PATH --module PATH [--rounds N] [--seconds N]
#         [--rates N,N...] [--kept-up N] [--data FILE]
#
# Fails if a limit is not applied as it is said to be.  Figures are medians over
# the rounds.  --data is for redis_load.gp.

use v5.36;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(all max sum);

use lib "$FindBin::Bin/../lib";

# Of connections, so that keys of their own are never asked for twice at once.
my $CONNECTIONS = 100;

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ rounds => 3, seconds => 0.8,
        rates => '1000,5000,10000,20000,30000,40000', 'kept-up' => 0.95 },
        'rounds=i', 'seconds=f', 'rates=s', 'kept-up=f', 'data=s');
}

# Of the rate, to be told of latencies: below that they are those of a queue
# that grows for as long as one looks.
my $KEPT_UP = $option{'kept-up'};

use LimitSliding::Generator;
use LimitSliding::Redis ();
use LimitSliding::RedisLoad;
use LimitSliding::Standing;
use LimitSliding::Test;

$| = 1;

if (!LimitSliding::Redis::supported()) {
    print "built without hiredis\n";
    # what is there is of another build
    unlink $option{data} if defined $option{data};
    exit;
}

my ($LUA_MODULES, $LUA_PATH) = lua_limiter();
my @RATES = split /,/, $option{rates};

# In the order of the blocks that redis_load.gp reads.  A round has a hot key of
# its own, as units that are left in the end were leased for its highest rate.
# `sources`: all that may decide, of what the API tells, first what decides
# most.
my @WAYS = (
    { key => 'leased', zone => '$arg_round', options => 'redis=one lease=auto',
      sources => [qw(lease redis)] },
    { key => 'coalesced', zone => '$arg_round', options => 'redis=one',
      sources => ['redis'] },
    { key => 'strict', zone => '$connection', options => 'redis=one',
      sources => ['redis'] },
    { key => 'Lua' },
    { key => 'shared memory', zone => '$connection', options => '' },
    { key => 'no limit' },
);
my @BLOCKS = map { $_->{key} } @WAYS;
@WAYS = grep { $_->{key} ne 'Lua' } @WAYS if !$LUA_PATH;

my $log = tempdir(CLEANUP => 1) . '/log';
my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 1)->start(config());

my %results = measure();

complaints($nginx);
$nginx->stop;
$redis->stop;

# Rates at which the tool, and NGINX itself, are not what is measured.
my @rates = grep { kept_up('no limit', $_) } @RATES;
die "not even $RATES[0] requests a second are possible here\n" if !@rates;

print_tables();
print_ratios();
blocks($option{data}, map { block($_) } @BLOCKS);

# ---- configuration ----

sub config() {
    my ($zones, $locations) = ('') x 2;

    for my $i (0 .. $#WAYS) {
        my $way = $WAYS[$i];
        my $limit = '';

        if ($way->{zone}) {
            $zones .= "limit_sliding_zone $way->{zone} zone=$i:8m"
                . " rate=4000000r/h $way->{options};\n";
            $limit = "limit_sliding zone=$i;";
        } elsif ($way->{key} eq 'Lua') {
            $limit = lua_limit("'unix:@{[ $redis->path ]}'",
                "'lua:' .. ngx.var.connection", 4_000_000);
        }
        $locations .= "location = /$i { empty_gif; $limit }\n";
    }

    return <<"CONF";
@{[ $LUA_MODULES // '' ]}
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    error_log %%DIR%%/error.log error;
    limit_sliding_log_level off;
    @{[ $LUA_PATH // '' ]}
    limit_sliding_redis one {
        server   unix:@{[ $redis->path ]};
        timeout  1s;
        on_error deny;
    }
    $zones
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
        location = /limits { limit_sliding_api; }
    }
}
CONF
}

# ---- measuring ----

# { way => { rate => { figure => [of each round] } } }
sub measure() {
    my %results;

    # connections, and scripts
    for my $i (0 .. $#WAYS) {
        $nginx->get("/$i?round=0") for 1 .. 2;
    }

    for my $round (1 .. $option{rounds}) {
        for my $rate (@RATES) {
            # forth and back, as what else the machine does may come and go
            for my $i ($round % 2 ? 0 .. $#WAYS : reverse 0 .. $#WAYS) {
                my $figures = run($i, $rate, $round);
                push @{ $results{ $WAYS[$i]{key} }{$rate}{$_} }, $figures->{$_}
                    for keys %$figures;
            }
        }
    }

    return %results;
}

# A round of one way, the i-th, at one rate.
sub run($i, $rate, $round) {
    my $way = $WAYS[$i];
    my %decided = decided($i);

    my $figures = metered($nginx, $redis, sub {
        h2load(seconds => $option{seconds}, log => $log, rate => $rate,
            url => 'http://127.0.0.1:' . $nginx->port . "/$i?round=$round",
            connections => $CONNECTIONS)
    });

    my %now = decided($i);
    $decided{$_} = $now{$_} - $decided{$_} for keys %now;
    check($way, $figures, %decided);

    return $figures;
}

# What the zone of a way has decided so far, by what decided it.
sub decided($i) {
    return if !$WAYS[$i]{zone};
    my $zone = zone($nginx, $i);
    return (passed => $zone->{passed}, %{ $zone->{sources} // {} });
}

# Dies unless requests were let pass, each by what the way stands for.  One in
# a hundred may fail, as they do where Redis gets no CPU for a second.
sub check($way, $figures, %decided) {
    my ($requests, $calls) = @$figures{qw(requests calls)};
    my $shares = sub { all { abs($_ - 1) <= 0.01 } @_ };

    die "$way->{key}: $figures->{refused} of the requests were refused\n"
        if !$shares->(1 - $figures->{refused});
    die "$way->{key}: $calls calls a request\n"
        if $way->{key} eq 'Lua' ? !$shares->($calls)
            : $way->{sources} ? $calls == 0 : $calls > 0;
    return if !$way->{zone};

    die "$way->{key}: $requests requests, $decided{passed} let pass\n"
        if !$shares->($decided{passed} / $requests);
    return if !$way->{sources};

    my @by = @decided{ @{ $way->{sources} } };
    die "$way->{key}: $by[0] of $requests decided by $way->{sources}[0]\n"
        if $by[0] < $requests / 2;
    my $by = sum(@by);
    die "$way->{key}: $by of $requests decided by @{ $way->{sources} }\n"
        if !$shares->($by / $requests);
}

# ---- printing ----

sub median_of($way, $rate, $figure) {
    return median(@{ $results{$way}{$rate}{$figure} });
}

sub kept_up($way, $rate) {
    return $results{$way} && median_of($way, $rate, 'achieved') >= $KEPT_UP;
}

# Of what was measured in the same round.
sub ratio_of($own, $other, $rate, $figure) {
    return ratio(map { $results{$_}{$rate}{$figure} } $own, $other);
}

sub print_tables() {
    print "### Limits in Redis as load rises\n\n",
        "This test has one worker of NGINX and one Redis on a unix socket."
        . " h2load runs on the same machine\nwith $CONNECTIONS connections, and"
        . " sends requests at a fixed rate, whether they are answered or not."
        . "\nFigures are medians of $option{rounds} rounds of"
        . " $option{seconds} s, [min max]. Leased (`lease=auto`) and coalesced"
        . " use one hot key.\nStrict, shared memory and Lua use a key for each"
        . " connection, so each request needs a separate\ndecision. If Lua is"
        . " better by 1% or more in the median of the ratios, this is said,"
        . " with the number\nof rounds in which it was better. A lead in some"
        . " rounds only may be chance.\n\n";
    print "Lua was not measured: this NGINX has no Lua or no lua-resty-redis."
        . "\n\n" if !$results{Lua};

    my @beyond = grep { !kept_up('no limit', $_) } @RATES;

    print 'The tables do not show ',
        join(' and ', map { thousands($_) } @beyond),
        " a second, because even h2load and an NGINX\nwithout a limit do not"
        . " reach this rate.\n" if @beyond;
    print 'If less than ', 100 * $KEPT_UP, '% of the requests were answered,'
        . " latencies are omitted, because they are those\nof a growing queue."
        . " The tables above, with requests as fast as they are answered, show"
        . " the maximum\nof each limiter better.\n\n";

    print_table('Answered, of what was offered', sub ($way, $rate) {
        spread($results{$way}{$rate}{achieved}, '%.2f')
    });
    for my $figure (qw(p50 p99)) {
        print_table("Latency, $figure in ms", sub ($way, $rate) {
            kept_up($way, $rate)
                && spread($results{$way}{$rate}{$figure}, '%.2f')
        });
    }
    print_table('Calls of Redis a request', sub ($way, $rate) {
        sprintf '%.4f', median_of($way, $rate, 'calls')
    });
    for my $of (qw(nginx redis)) {
        my $name = { nginx => 'NGINX', redis => 'Redis' }->{$of};
        print_table("CPU of $name, us a request", sub ($way, $rate) {
            spread($results{$way}{$rate}{$of}, '%.1f')
        });
    }
}

# A cell is (way, rate) -> text, or nothing.
sub print_table($title, $cell) {
    print "#### $title\n\n";
    table([ 'requests/s offered', map { $_->{key} } @WAYS ],
        map {
            my $rate = $_;
            [ thousands($rate), map { $cell->($_->{key}, $rate) || '-' } @WAYS ]
        } @rates);
}

sub print_ratios() {
    my @own = grep { $results{$_} } qw(leased coalesced strict);

    say '- Highest of these rates that is kept up with: ',
        join(', ', map { top_in_words($_) } @WAYS), '.';

    for my $rate ($rates[0], $rates[-1] > $rates[0] ? $rates[-1] : ()) {
        say '- Calls a request at ', thousands($rate), ' a second: ',
            join(', ', map { sprintf "$_ %.2g",
                median_of($_, $rate, 'calls') } @own), '.';
    }
    print_lua(@own) if $results{Lua};
    say '';
}

# The highest rate that a way keeps up with, 0 if there is none.
sub top($way) {
    return max 0, grep { kept_up($way, $_) } @rates;
}

# Where that is the highest of all rates, it may do more.
sub top_in_words($way) {
    my ($own, $lua) = map { top($_) } $way->{key}, 'Lua';
    my ($at_least, $at_most) = map { $_ == $rates[-1] } $own, $lua;
    my $ratio = $way->{zone} && $own && $lua && !($at_least && $at_most)
        ? sprintf ' (%s%.2f x Lua)', $at_least ? 'at least '
            : $at_most ? 'at most ' : '', $own / $lua : '';

    return "$way->{key} " . ($own ? thousands($own) : 'none')
        . ($at_least ? ' at least' : '') . $ratio;
}

# Beside Lua, at the highest rate which all keep up with, and wherever that
# does better.
sub print_lua(@own) {
    my @common = grep { my $rate = $_; all { kept_up($_, $rate) } @own, 'Lua' }
        @rates;
    return if !@common;

    my $rate = $common[-1];
    say '- Beside Lua, at ', thousands($rate), ' a second: ', join('; ', map {
        my $own = $_;
        sprintf "$own %.2f x its p50, %.2f x its p99, %.2f x its CPU,"
            . ' %.2g x its calls',
            map { ratio_of($own, 'Lua', $rate, $_) } qw(p50 p99 cpu calls)
    } @own), '.';

    for my $own (@own) {
        my @better = map {
            my $rate = $_;
            map { "$_ at " . thousands($rate) } better(
                $results{Lua}{$rate}, $results{$own}{$rate}, qw(p50 p99 cpu))
        } @common;
        say "- Lua does better than $own: ", join(', ', @better), '.',
            !grep({ /p50|p99/ } @better) ? '' : {
                coalesced => ' A request that arrives during a call for its key'
                    . ' waits for this call and then for its own.',
                strict    => ' A request may wait for the end of the event loop'
                    . ' iteration, and for other requests to fill its call.',
                leased    => ' All requests that find no units wait for the'
                    . ' same call.',
            }->{$own} if @better;
    }
}

# Rows of a way for gnuplot: rate, p50, p99, calls a request; NaN where there
# is nothing to be told.
sub block($way) {
    return [ map {
        my $rate = $_;
        my $kept_up = kept_up($way, $rate);
        [ $rate, map({ $kept_up ? median_of($way, $rate, $_) : 'NaN' }
                qw(p50 p99)),
            $results{$way} ? median_of($way, $rate, 'calls') : 'NaN' ]
    } @rates ];
}
