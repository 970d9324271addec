#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Keys that a megabyte of shared memory keeps, once more came than it has room
# for; and bytes a key in Redis.
#
#     memory.pl --nginx PATH --module PATH [--data FILE] [--share N]
#         [--guard FILE [--renew]]
#
# With --share, a memory of one in so many parts of a megabyte is measured.
# With --guard only ours are measured, in shared memory, and it fails if one is
# worse than the file has it by more than 5%, as the keys that meet in a line
# depend on the zone's secret; --renew writes the file.

use v5.36;

use FindBin;
use List::Util qw(min);

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ share => 1 }, 'data=s', 'share=i', 'guard=s', 'renew');
}

use LimitSliding::Load ();
use LimitSliding::Peers;
use LimitSliding::Redis ();
use LimitSliding::RedisLoad;
use LimitSliding::Test;

my $MEGABYTE = 1 << 20;
my $MEMORY   = $MEGABYTE / 1024 / $option{share} . 'k';
# Limiters: `limit` rejects a key after so many `requests`; `keys` are more than
# a megabyte has room for.
my @OWN = (
    own('counter', 80_000),
    own('fixed', 80_000),
    own('token_bucket', 80_000),
    own('leaky_bucket', 80_000),
    own('counter precision=10', 12_000),
    own('counter precision=60', 4_000),
    own('log', 12_000, 10),
    own('log', 1_500, 100),
);
my @PEERS = (
    {   name     => 'limit_req',
        http     => "limit_req_zone \$uri zone=one:$MEMORY rate=1r/m;"
            . ' limit_req_status 429;',
        limit    => 'limit_req zone=one;',
        keys     => 80_000,
        requests => 1,
    },
    lua_modules() ? {
        name     => 'Lua, shared dict',
        http     => "$LUA_PATH lua_shared_dict one $MEMORY;",
        limit    => "access_by_lua_block { require('dict').limit("
            . 'ngx.shared.one, ngx.var.uri, 3600, 1) }',
        keys     => 80_000,
        requests => 1,
    } : (),
);

my @LENGTHS = (16, 64);   # of keys, in bytes
my $FEW     = 20;         # keys at a time, of many requests each
my $MANY    = 20_000;     # in Redis, and in HAProxy
$_->{keys} /= $option{share} for @OWN, @PEERS;

if ($option{guard}) {
    guard_own();
} else {
    compare_shared();
    compare_redis() if LimitSliding::Redis::supported();
}

sub own($algorithm, $keys, $requests = 1) {
    return {
        name     => $algorithm . ($requests > 1 ? " of $requests" : ''),
        own      => 1,
        http     => "limit_sliding_zone \$uri zone=one:$MEMORY"
            . " algorithm=$algorithm rate=${requests}r/d;",
        limit    => 'limit_sliding zone=one; limit_sliding_log_level off;',
        keys     => $keys,
        requests => $requests,
    };
}

# ---- shared memory ----

sub guard_own() {
    # which busy logs a zone keeps that evicts is chance: a tenth more or less
    my %figures = map { $_->{name} => $_->{requests} > 1
        ? taken_in($_)->{all} : kept($_, $LENGTHS[0]) } @OWN;
    my @problems = guard($option{guard}, 'keys a megabyte', \%figures,
        more => 1, percent => 5, renew => $option{renew});
    printf "keys a megabyte: %d figures, %d worse\n", scalar keys %figures,
        scalar @problems;
    die @problems if @problems;
}

sub compare_shared() {
    my @results = map { my $row = $_;
        [ $row->{name}, (map { kept($row, $_) } @LENGTHS),
            $row->{own} ? taken_in($row)->{at_first} : () ] } @OWN, @PEERS;
    push @results, [ 'HAProxy, stick table', map { haproxy_keys($_) }
        @LENGTHS ] if haproxy_version();

    my ($standard) = grep { $_->[0] eq 'limit_req' } @results;
    my $cell = sub ($keys, $of) {
        return $keys ? sprintf '%s (%.2f)', thousands($keys), $keys / $of : '';
    };

    say "### Keys a megabyte\n";
    table([ 'x limit_req', (map { "keys of $_ bytes" } @LENGTHS),
            'before one is evicted' ],
        map { [ $_->[0], $cell->($_->[1], $standard->[1]),
            $cell->($_->[2], $standard->[2]),
            $cell->($_->[3], $standard->[1]) ] } @results);
    blocks($option{data}, \@results);

    say_who_is_behind($standard, @results[0 .. $#OWN]);
    printf "In short: with `counter`, `fixed`, `token_bucket` or"
        . " `leaky_bucket`, a megabyte holds %.1f times\nas many keys of 16 bytes as with"
        . " limit_req, and %.1f times as many keys of 64 bytes.\n\n",
        map { my $length = $_; median(map { $results[$_][$length]
            / $standard->[$length] } 0 .. 3) } 1, 2;
}

sub say_who_is_behind($standard, @own) {
    my @behind = map { my $length = $_;
        my @less = map { sprintf '%s %.2f x', $_->[0],
            $_->[$length] / $standard->[$length] }
            grep { $_->[$length] <= $standard->[$length] } @own;
        @less ? "with keys of $LENGTHS[ $length - 1 ] bytes "
            . join(', ', @less) : ();
    } 1, 2;

    say 'limit_sliding stores a hash of a key, so the length of the key does'
        . " not matter. A key can be in\nsome places only. If all of them are"
        . ' taken, a key is forgotten before the zone is full.';
    say 'These hold fewer keys than limit_req: ', join('; ', @behind), '. They'
        . " store a count\nfor each part of a window, or the time of each"
        . ' request.' if @behind;
    print "\n";
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
        listen 127.0.0.1:%%PORT%%;
        location / {
            $limit
            empty_gif;
        }
    }
}
CONF
}

# Statuses, in the order of the keys.
sub statuses($nginx, @paths) {
    return @{ $nginx->load(connections => 1, pipeline => 100,
        requests => \@paths) };
}

# Keys that are rejected once all have been used up to their limit.  The newest
# are asked for first, so that one that was given up takes the place of another
# only when that was asked for.
sub kept($row, $bytes) {
    my $nginx = nginx(@$row{qw(http limit)});
    my @paths = map { path($bytes, $_) } 1 .. $row->{keys};

    fill($nginx, $row, @paths);
    my $kept = grep { $_ == 429 } statuses($nginx, reverse @paths);

    $nginx->stop;
    die "$row->{name}: $kept of $row->{keys} keys were kept\n"
        if !$kept || $kept >= $row->{keys};
    return $kept;
}

# Keys that a zone takes in with full=deny, { at_first => before it refuses one,
# all }.
sub taken_in($row) {
    my $nginx = nginx($row->{http} =~ s/;/ full=deny;/r, $row->{limit});
    my $keys = fill($nginx, $row,
        map { path($LENGTHS[0], $_) } 1 .. $row->{keys});

    $nginx->stop;
    return $keys;
}

# Uses keys up to their limit; returns how many could be, { at_first => before
# the first one that could not, all }.  A log tells requests apart by their
# millisecond.
sub fill($nginx, $row, @paths) {
    my ($at_first, $all, $refused) = (0) x 3;

    while (my @some = splice @paths, 0,
        $row->{requests} > 1 ? $FEW : $row->{keys})
    {
        my %refused;
        for (1 .. $row->{requests}) {
            my @statuses = statuses($nginx, @some);
            $refused{$_} = 1 for grep { $statuses[$_] != 200 } 0 .. $#some;
            sleep 0.001 if $row->{requests} > 1;
        }
        $at_first += min(scalar @some, keys %refused) if !$refused;
        $all += @some - keys %refused;
        $refused ||= %refused;
    }

    return { at_first => $at_first, all => $all };
}

# A table has room for a number of keys, not of bytes: how much HAProxy grows.
sub haproxy_keys($bytes) {
    my $haproxy = start_haproxy(limit => 'pass', bytes => $bytes);
    my $before;

    for my $round (0, 1) {
        my $statuses = LimitSliding::Load::load(port => $haproxy->{port},
            connections => 4, requests => [ map {
                path($bytes, $round * $MANY + $_) } 1 .. $MANY ]);
        die "HAProxy rejects\n" if grep { $_ != 200 } @$statuses;
        $before //= rss_bytes($haproxy->{pid});
    }

    my $grown = rss_bytes($haproxy->{pid}) - $before;
    $haproxy->{stop}->();
    die "HAProxy keeps none of $MANY keys\n" if $grown <= 0;
    return $MEGABYTE / ($grown / $MANY);
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
    my $server = $redis->server;
    my @results = map { my $row = $_; [ $row->{name}, redis_bytes($redis,
        $row->{name}, $row->{requests},
        "limit_sliding_redis one { server $server; timeout 5s;"
            . " on_error deny; } " . $row->{http} =~ s/;/ redis=one;/r,
        $row->{limit}) ] } @OWN;
    my (undef, $lua) = lua_limiter();
    push @results, [ 'Lua', redis_bytes($redis, 'Lua', 1, $lua,
        lua_limit("'127.0.0.1', " . $redis->port, "'lua:' .. ngx.var.uri",
            1)) ] if $lua;
    $redis->stop;

    say "### Bytes a key in Redis\n";
    table([ 'x counter', 'bytes a key' ], map { [ $_->[0],
        sprintf '%.0f (%.2f)', $_->[1], $_->[1] / $results[0][1] ] } @results);
}

sub redis_bytes($redis, $name, $requests, $http, $limit) {
    my $nginx = nginx($http, $limit);
    my $keys = int $MANY / $option{share} / ($requests > 10 ? 20 : 1);

    $redis->ask('FLUSHALL');
    my $before = $redis->info('memory')->{used_memory};

    my $statuses = $nginx->load(connections => 16, pipeline => 10, requests =>
        [ (map { path(16, $_) } 1 .. $keys) x $requests ]);
    my $passed = grep { $_ == 200 } @$statuses;
    $nginx->stop;

    die "$name: $passed passed\n" if $passed != $keys * $requests;
    die "$name: ", $redis->ask('DBSIZE'), " keys\n"
        if $redis->ask('DBSIZE') != $keys;

    return ($redis->info('memory')->{used_memory} - $before) / $keys;
}
