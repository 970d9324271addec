# What a decision costs Redis, in instructions beside a native SET key value PX ms,
# and what it costs the worker, beside a request without a limit.

use v5.36;

use File::Temp qw(tempdir);
use List::Util qw(sum);
use Test::More;

use LimitSliding::Clock real => 'valgrind counts instructions of Redis and a worker';

use LimitSliding::Callgrind qw(control_callgrind uncountable valgrind);
use LimitSliding::Redis;
use LimitSliding::RedisBenchmark;
use LimitSliding::Test;

my $reason = uncountable(LimitSliding::Test->new);
plan skip_all => $reason if $reason;

# A Redis whose instructions are counted, with little to do beside calls.
my $dir = tempdir(CLEANUP => 1);
open my $program, '>', "$dir/redis-server" or die "$dir: $!";
print $program "#!/bin/sh\nexec @{[ valgrind($dir) ]} redis-server \"\$@\"\n";
close $program;
chmod 0755, "$dir/redis-server";
my $redis = LimitSliding::Redis->new(program => "$dir/redis-server",
    config => { hz => 1, 'dynamic-hz' => 'no' })->start;

# The most instructions of a decision, x SET: with 12 keys a call, and with one.
my %zones = (
    counter => [ 'rate=1000 window=1h', 3.3, 7.7 ],
    few     => [ 'rate=20 window=1h', 2.1, 6.9 ],
    fixed   => [ 'rate=1000 window=1h algorithm=fixed', 2.7, 6.5 ],
    bucket  => [ 'rate=1000 window=1h algorithm=token_bucket', 3.8, 8.0 ],
);

# The most instructions to take a unit in flight and give it back, x a decision of a
# counter.
my ($HELD_12, $HELD_1) = (1.3, 1.8);

my $dumps = 0;
sub counted(@blocks) {
    my $control = sub (@words) { control_callgrind($dir, $redis->pid, @words) };
    send_blocks($redis, @blocks[0 .. 3]);
    $control->('-i', 'on');
    $control->('-d');
    $dumps++;
    send_blocks($redis, @blocks[4 .. 9]);
    $control->('-d');
    my $file = "$dir/out." . ++$dumps;
    $control->('-i', 'off');
    open my $out, '<', $file or die "$file: $!";
    my ($total) = map { /^totals: (\d+)/ ? $1 : () } <$out>;
    return $total / 6 / 16;
}

my (@sets, %decisions);
for my $zone (sort keys %zones) {
    my $words = $zones{$zone}[0];
    # a Redis of its own, whose script knows this algorithm alone
    my $one = LimitSliding::Test->new->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_redis shared {
        server @{[ $redis->server ]}; timeout 30s; connect_timeout 30s;
    }
    limit_sliding_zone \$arg_key zone=$zone:1m $words redis=shared;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=$zone; empty_gif; }
    }
}
CONF
    $one->get('/?key=first');
    my ($set, undef, $single, $dozen) = map { counted(@{ $_->{blocks} }) / $_->{keys} }
        ceilings(nginx => $one, redis => $redis, path => '/', keys => 50, seconds => 0);
    $one->finish_one;

    push @sets, $set;
    $decisions{$zone} = [ $dozen, $single ];
}
# Requests in flight: units are taken by one message, and given back by another.
my $held = LimitSliding::Test->new->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_redis shared {
        server @{[ $redis->server ]}; timeout 30s; connect_timeout 30s;
    }
    limit_sliding_zone \$arg_key zone=held:1m inflight=1000 redis=shared;
    add_header X-Source \$limit_sliding_source always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=held; empty_gif; }
    }
}
CONF
wait_for(sub { header($held->get('/?key=first'), 'X-Source') eq 'redis' });
my ($pair, $pair_12) = map {
    2 * counted(hold_blocks(nginx => $held, redis => $redis, path => '/', keys => $_)) / $_
} 1, 12;
$held->finish_one;

my $set = sum(@sets) / @sets;
note sprintf 'SET: %.0f (%s)', $set, join ' ', map { sprintf '%.0f', $_ } @sets;
for my $zone (sort keys %zones) {
    my (undef, $most_12, $most_1) = @{ $zones{$zone} };
    my ($dozen, $single) = map { $_ / $set } @{ $decisions{$zone} };
    note sprintf '%s: %.2f x SET with 12 keys a call, %.2f x with one', $zone, $dozen, $single;
    cmp_ok $dozen, '<=', $most_12, "$zone: 12 keys a call";
    cmp_ok $single, '<=', $most_1, "$zone: a key a call";
}
note sprintf 'in flight: %.2f x a counter with 12 keys a call, %.2f x with one',
    $pair_12 / $decisions{counter}[0], $pair / $decisions{counter}[1];
cmp_ok $pair_12 / $decisions{counter}[0], '<=', $HELD_12, 'in flight: 12 keys a call';
cmp_ok $pair / $decisions{counter}[1], '<=', $HELD_1, 'in flight: a key a call';
$redis->stop;

# The worker: requests one after the other, each a call of its own.
my $fast = LimitSliding::Redis->new->start;
my $server = LimitSliding::Callgrind->nginx(http => <<"CONF",
    limit_sliding_redis shared { server @{[ $fast->server ]}; timeout 30s; connect_timeout 30s; }
    limit_sliding_zone \$uri zone=shared:10m rate=1000000 window=1h redis=shared;
CONF
    locations => [ '', 'limit_sliding zone=shared;' ]);
my ($none, $asked) = map {
    $server->measure(port => $_, keys => 100, requests => 1000, status => 200)
} 0, 1;
$server->stop;
note sprintf 'the worker: %.0f without a limit, %.0f more if Redis decides', $none, $asked - $none;
cmp_ok $asked - $none, '<=', 7_300, 'the worker, a call for each request';

done_testing;
