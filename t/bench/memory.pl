#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Keys that a megabyte of shared memory holds, that is, whose limits are still
# kept once more keys came than it has room for; and bytes a key in Redis.
#
#     memory.pl --nginx PATH --module PATH [--data FILE]
#         [--guard FILE [--renew]]
#
# With --guard only ours are measured, in shared memory, and it fails if one is
# worse than the file has it by more than LimitSliding::Bench allows; --renew
# writes the file.

use v5.36;

use FindBin;

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({}, 'data=s', 'guard=s', 'renew');
}

use LimitSliding::Load ();
use LimitSliding::Peers;
use LimitSliding::Redis ();
use LimitSliding::Test;

my $MEGABYTE = 1 << 20;
my $LISTEN = 'listen 127.0.0.1:%%PORT%%';

# name, algorithm, keys that are more than a megabyte has room for, requests
# of each, which are its limit
my @OWN = (
    [ 'counter', 'counter', 80_000, 1 ],
    [ 'fixed', 'fixed', 80_000, 1 ],
    [ 'token_bucket', 'token_bucket', 80_000, 1 ],
    [ 'leaky_bucket', 'leaky_bucket', 80_000, 1 ],
    [ 'counter precision=10', 'counter precision=10', 20_000, 1 ],
    [ 'counter precision=60', 'counter precision=60', 10_000, 1 ],
    [ 'log of 10', 'log', 10_000, 10 ],
    [ 'log of 100', 'log', 2_000, 100 ],
);

my $FEW  = 20;            # keys at a time, of many requests each
my $KEYS = 20_000;        # in Redis, and in HAProxy

# Redis's script of a limiter in Lua has no more to keep than a counter.
if ($option{guard}) {
    guard_own();
} else {
    compare_shared();
    compare_redis() if LimitSliding::Redis::supported();
}

# ---- shared memory ----

sub guard_own() {
    my %figures = map { $_->[0] => own_keys($_, 16) } @OWN;
    my @problems = guard($option{guard}, 'keys a megabyte', \%figures,
        more => 1, renew => $option{renew});
    printf "keys a megabyte: %d figures, %d worse\n", scalar keys %figures,
        scalar @problems;
    die @problems if @problems;
}

sub compare_shared() {
    my @lengths = (16, 64);
    my @results = (
        map({ my $row = $_;
            [ $row->[0], map { own_keys($row, $_) } @lengths ] } @OWN),
        [ 'limit_req', map { limit_req_keys($_) } @lengths ],
        lua_modules()
            ? [ 'Lua, shared dict', map { lua_keys($_) } @lengths ] : (),
        [ 'HAProxy, stick table', map { haproxy_keys($_) } @lengths ],
    );
    my ($standard) = grep { $_->[0] eq 'limit_req' } @results;

    say "### Keys a megabyte\n";
    table([ 'x limit_req', map { "keys of $_ bytes" } @lengths ],
        map { my $result = $_; [ $result->[0], map {
            sprintf '%s (%.2f)', thousands($result->[$_]),
                $result->[$_] / $standard->[$_] } 1, 2 ] } @results);
    blocks($option{data}, \@results);

    my @behind = map { sprintf '%s %.2f x', $_->[0], $_->[1] / $standard->[1]
    } grep { $_->[1] <= $standard->[1] } @results[0 .. $#OWN];
    say "Of a key ours keep a hash, so its length is no matter.";
    say 'Behind limit_req: ', join(', ', @behind),
        ": each part\nof a window has a count, and a log the time of each"
        . " request." if @behind;
    print "\n";
    printf "In short: a megabyte holds %.1f times as many keys as limit_req's"
        . " with `counter`, `fixed`,\n`token_bucket` or `leaky_bucket`.\n\n",
        median(map { $results[$_][1] / $standard->[1] } 0 .. 3);
}

sub path($bytes, $i) {
    return sprintf '/%0*u', $bytes - 1, $i;
}

# NGINX with such a limit, and nothing else.
sub nginx($http, $limit) {
    my $load = $http =~ /^lua_/m
        ? join '', map { "load_module $_;\n" } lua_modules() : '';
    return LimitSliding::Test->new(worker_processes => 1)->start(<<"CONF");
$load
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    error_log %%DIR%%/error.log crit;
    $http
    server {
        $LISTEN;
        location / {
            $limit
            empty_gif;
        }
    }
}
CONF
}

# With full=deny a key that there is no room for is rejected.
sub own_keys($row, $bytes) {
    my (undef, $algorithm, $keys, $requests) = @$row;
    my $nginx = nginx("limit_sliding_zone \$uri zone=one:1m full=deny"
            . " rate=${requests}r/h algorithm=$algorithm;",
        'limit_sliding zone=one; limit_sliding_log_level off;');
    my @paths = map { path($bytes, $_) } 1 .. $keys;
    my $held = 0;

    while (my @some = splice @paths, 0, $requests > 1 ? $FEW : $keys) {
        my $whole = whole_keys($nginx, $requests, @some);
        $held += $whole;
        last if $whole == 0;
    }

    $nginx->stop;
    return checked($row->[0], $held, $keys);
}

# Of these, those of which all requests passed.  A log tells requests apart by
# their millisecond.
sub whole_keys($nginx, $requests, @paths) {
    my %passed;

    for (1 .. $requests) {
        my $statuses = $nginx->load(connections => 1, pipeline => 100,
            requests => \@paths);
        $passed{$_}++ for grep { $statuses->[$_] == 200 } 0 .. $#paths;
        sleep 0.001 if $requests > 1;
    }

    return scalar grep { $_ == $requests } values %passed;
}

# Those that give up the key that was not used for longest: the newest keys are
# asked for first, until one was forgotten.
sub newest_keys($name, $http, $limit, $bytes) {
    my $nginx = nginx($http, $limit);
    my @paths = map { path($bytes, $_) } 1 .. 80_000;

    for ([@paths], [ reverse @paths ]) {
        my $statuses = $nginx->load(connections => 1, pipeline => 100,
            requests => $_);
        $name->{held} = grep { $_ == 429 } @$statuses;
    }

    $nginx->stop;
    return checked($name->{name}, $name->{held}, scalar @paths);
}

sub limit_req_keys($bytes) {
    return newest_keys({ name => 'limit_req' },
        'limit_req_zone $uri zone=one:1m rate=1r/m; limit_req_status 429;',
        'limit_req zone=one;', $bytes);
}

sub lua_keys($bytes) {
    return newest_keys({ name => 'Lua' },
        "lua_package_path '$FindBin::Bin/?.lua;;'; lua_shared_dict one 1m;",
        "access_by_lua_block { require('dict').limit(ngx.shared.one,"
            . ' ngx.var.uri, 3600, 1) }', $bytes);
}

sub checked($name, $held, $keys) {
    die "$name: $held of $keys keys were held\n" if !$held || $held >= $keys;
    return $held;
}

# A table has room for a number of keys, not of bytes: how much HAProxy grows.
sub haproxy_keys($bytes) {
    my $haproxy = start_haproxy(limit => 'pass', bytes => $bytes);
    my $before;

    for my $round (0, 1) {
        my $statuses = LimitSliding::Load::load(port => $haproxy->{port}, connections => 4,
            pipeline => 1,
            requests => [ map { path($bytes, $round * $KEYS + $_) }
                1 .. $KEYS ]);
        die "HAProxy rejects\n" if grep { $_ != 200 } @$statuses;
        $before //= rss_bytes($haproxy->{pid});
    }

    my $grown = rss_bytes($haproxy->{pid}) - $before;
    $haproxy->{stop}->();
    die "HAProxy keeps none of $KEYS keys\n" if $grown <= 0;
    return $MEGABYTE / ($grown / $KEYS);
}

sub rss_bytes($pid) {
    open my $status, '<', "/proc/$pid/status" or die "/proc/$pid: $!\n";
    my ($kilobytes) = join('', <$status>) =~ /^VmRSS:\s+(\d+) kB/m;
    return 1024 * $kilobytes;
}

# ---- Redis ----

# What it has in use, and thus also its tables of keys and of expiries; each
# key of ours is named by a digest.
sub compare_redis() {
    my $redis = LimitSliding::Redis->new->start;
    my @results = map { [ $_->[0], redis_bytes($redis, @$_[1, 3]) ] } @OWN;
    $redis->stop;

    say "### Bytes a key in Redis\n";
    table([ 'x counter', 'bytes a key' ], map { [ $_->[0],
        sprintf '%.0f (%.2f)', $_->[1], $_->[1] / $results[0][1] ] } @results);
}

sub redis_bytes($redis, $algorithm, $requests) {
    my $nginx = nginx('limit_sliding_redis one { server ' . $redis->server
            . '; timeout 5s; on_error deny; }'
            . " limit_sliding_zone \$uri zone=one:8m redis=one"
            . " rate=${requests}r/d algorithm=$algorithm;",
        'limit_sliding zone=one;');
    my $keys = $requests > 10 ? $KEYS / 20 : $KEYS;

    $redis->ask('FLUSHALL');
    my $before = used_bytes($redis);

    my $statuses = $nginx->load(connections => 16, pipeline => 10, requests =>
        [ (map { path(8, $_) } 1 .. $keys) x $requests ]);
    my $passed = grep { $_ == 200 } @$statuses;
    $nginx->stop;

    die "$algorithm: $passed passed\n" if $passed != $keys * $requests;
    die "$algorithm: ", $redis->keys, " keys\n"
        if $redis->ask('DBSIZE') != $keys;

    return (used_bytes($redis) - $before) / $keys;
}

sub used_bytes($redis) {
    return $redis->info('memory')->{used_memory_dataset}
        + $redis->info('memory')->{used_memory_overhead};
}
