# What a call of Lua costs in shared memory: garbage, and instructions beside a count in a
# shared dict, as resty.limit.count makes it.

use v5.36;

use Test::More;

use LimitSliding::Clock real => 'valgrind counts instructions of a worker';

use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Lua;
use LimitSliding::Test;

my $CALLS = 100_000;

my $nginx = lua_nginx(worker_processes => 1);
$nginx->serve(http => <<'HTTP');
    limit_sliding_zone $uri zone=pass:1m rate=4000000 window=30d;
    limit_sliding_zone $uri zone=reject:1m rate=1 window=30d;
    limit_sliding_zone $uri zone=queue:1m rate=100r/s burst=1000000 algorithm=leaky_bucket;
    limit_sliding_zone $uri zone=held:1m inflight=2;
HTTP

# The bytes of garbage that so many calls make, after the first ones. LuaJIT may still compile a
# trace, which takes some hundred bytes once: the least of five rounds counts.
sub garbage($setup, $call, $jit) {
    return $nginx->lua(<<"LUA");
        jit.$jit()
        jit.flush()
        local verdict, options = limits.verdict(), { cost = 1, rate = 100 }
        $setup
        local function calls(n) for i = 1, n do $call end end
        calls(1000)
        collectgarbage() collectgarbage()
        collectgarbage('stop')
        local least = math.huge
        for round = 1, 5 do
            local before = collectgarbage('count')
            calls($CALLS)
            least = math.min(least, (collectgarbage('count') - before) * 1024)
            if least == 0 then break end
        end
        collectgarbage('restart')
        jit.on()
        say(least)
LUA
}

for my $jit (qw(on off)) {
    for my $zone (qw(pass reject queue)) {
        for my $call ('take("a", nil, verdict)', 'take("a", options, verdict)', 'peek("a", nil, verdict)') {
            is garbage("local zone = zone('$zone')", "zone:$call", $jit), 0,
                "jit $jit, $zone: no garbage of $CALLS calls of $call";
        }
    }
    is garbage('local zone = zone("pass")', 'zone:charge("b", 1) zone:give_back("b", 1)', $jit), 0,
        "jit $jit: ... of charge and give_back";
    is garbage('local lim = require("limit_sliding.resty.count").new("pass", 4000000, 2592000)',
        'lim:incoming("c", true)', $jit), 0, "jit $jit: ... of limit_sliding.resty.count";
    cmp_ok garbage('local zone = zone("pass")', 'zone:take("a")', $jit), '>', 0,
        '... a verdict for each call is garbage';
}
$nginx->finish_one;

SKIP: {
    my $reason = uncountable($nginx) || ($ENV{LIMIT_SLIDING_SLOW} && 'the module is not built for speed');
    skip $reason, 4 if $reason;

    my $n = 1000;
    my $zones = join '', map { "limit_sliding_zone \$uri zone=$_:10m rate=4000000r/h algorithm=$_;\n" }
        qw(counter fixed);
    my @loops = map { "for i = 1, $n do $_ end" } 'if not keys[i % 16] then error() end',
        'if dict:incr(keys[i % 16], -1, 4000000, 3600) < 0 then error() end',
        'if not fixed:take(keys[i % 16], nil, verdict).admitted then error() end',
        'if not counter:take(keys[i % 16], nil, verdict).admitted then error() end';
    my $server = LimitSliding::Callgrind->nginx(
        http => "$LUA_LIBRARY lua_shared_dict dict 10m; $zones"
            . 'init_by_lua_block { limits = require "limit_sliding" }',
        locations => [ map { <<"LUA" } @loops ]);
            access_by_lua_block {
                local dict, verdict, keys = ngx.shared.dict, limits.verdict(), {}
                local fixed, counter = limits.zone('fixed'), limits.zone('counter')
                for i = 0, 15 do keys[i] = ('key%06d'):format(i) end
                $_
            }
LUA
    my ($none, @counts) = map { $server->measure(port => $_, keys => 20, requests => 20, status => 200) / $n }
        0 .. $#loops;
    $server->stop;
    my ($dict, $fixed, $counter) = map { $_ - $none } @counts;
    note sprintf 'instructions: dict:incr %.0f, fixed %.0f, counter %.0f', $dict, $fixed, $counter;
    cmp_ok $dict, '>', 100, 'a count in a shared dict takes instructions';
    cmp_ok $fixed, '<=', 0.8 * $dict, 'take() of a fixed window takes less than 0.8 times as many';
    cmp_ok $counter, '<=', 0.9 * $dict, '... and of a sliding window less than 0.9 times';
    cmp_ok $counter, '<=', 400, '... as they are now';
}
done_testing;
