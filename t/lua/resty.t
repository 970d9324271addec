# Programs written for lua-resty-limit-traffic, with another `require` and a zone in place of
# a dict: what limit_sliding.resty.count, .req and .conn return.
#
# The tables have the results of lua-resty-limit-traffic 0.09 for the same calls.  A result
# behind "|" is ours, where it differs, as docs/lua.md says.

use v5.36;

use Test::More;

use LimitSliding::Api qw(api_key);
use LimitSliding::Lua;
use LimitSliding::Test;

# LIMIT_SLIDING_RESTY, a checkout of lua-resty-limit-traffic, has the tables checked on it
# as well.
my $OLD = $ENV{LIMIT_SLIDING_RESTY};
my $nginx = lua_nginx(worker_processes => 1);
$nginx->serve(server => 'location /limits { limit_sliding_api write=on; }', http => <<"HTTP");
    @{[ $OLD ? "lua_shared_dict old_count 1m; lua_shared_dict old_req 1m; lua_shared_dict old_conn 1m;" : '' ]}
    limit_sliding_zone \$arg_key zone=count:1m rate=9/1h algorithm=fixed;
    limit_sliding_zone \$arg_key zone=req:1m rate=1r/s algorithm=leaky_bucket burst=4;
    limit_sliding_zone \$arg_key zone=slow:1m rate=1r/m algorithm=leaky_bucket;
    limit_sliding_zone \$arg_key zone=conn:1m inflight=9;
HTTP

# Runs calls of an object one after the other, and compares what they return: [ call, result ].
# Numbers are rounded to hundredths, and nil at the end counts for nothing.
sub compare($name, $module, $new, @rows) {
    my $chunk = "local function result(...)\n"
        . "if select('#', ...) == 0 then return 'nothing' end\n"
        . "local values = { ... }\n"
        . "local n = select('#', ...)\n"
        . "while n > 1 and values[n] == nil do n = n - 1 end\n"
        . "for i = 1, n do\n"
        . "local value = values[i]\n"
        . "if type(value) == 'number' then value = math.floor(value * 100 + 0.5) / 100 end\n"
        . "values[i] = tostring(value) end\n"
        . "return table.concat(values, ' ', 1, n) end\n"
        . "local lim = assert(require('$module').new($new))\n"
        . join '', map { "say(result(lim:$_->[0]))\n" } @rows;
    my @said = split /\n/, $nginx->lua($chunk);
    for my $row (@rows) {
        my ($call, $result) = @$row;
        my ($theirs, $ours) = split /\|/, $result;
        is shift(@said), $module =~ /^resty/ ? $theirs : $ours // $theirs, "$name: $call";
    }
    fail "$name: $_" for @said;
}

# The rows for ours and, if they are here, for theirs.
sub both($kind, $new, @rows) {
    compare("ours, $kind", "limit_sliding.resty.$kind", $new, @rows);
    compare("theirs, $kind", "resty.limit.$kind", $new =~ s/"/"old_/r, @rows) if $OLD;
}

if ($OLD) {
    $nginx->lua("package.path = '$OLD/lib/?.lua;' .. package.path");
}

# In count, "rejected" requests of theirs count as well.
both count => '"count", 3, 3600',
    [ 'incoming("a", true)', '0 2' ],
    [ 'incoming("a", false)', '0 1' ],
    [ 'incoming("a", true)', '0 1' ],
    [ 'uncommit("a")', '2' ],
    [ 'incoming("a", true)', '0 1' ],
    [ 'incoming("a", true)', '0 0' ],
    [ 'incoming("a", false)', 'nil rejected' ],
    [ 'incoming("a", true)', 'nil rejected' ],
    [ 'uncommit("a")', '0|1' ],
    [ 'incoming("b", true)', '0 2' ];

# The clock of NGINX stands still in a request.
both req => '"req", 2, 3',
    [ 'incoming("a", true)', '0 0' ],
    [ 'incoming("a", false)', '0.5 1' ],
    [ 'incoming("a", true)', '0.5 1' ],
    [ 'incoming("a", true)', '1 2' ],
    [ 'incoming("a", true)', '1.5 3' ],
    [ 'incoming("a", true)', 'nil rejected' ],
    [ 'incoming("a", false)', 'nil rejected' ],
    [ 'uncommit("a")', 'true' ],
    [ 'incoming("a", true)', '1.5 3' ],
    [ 'uncommit("a")', 'true' ],
    [ 'set_rate(4)', 'nothing' ],
    [ 'incoming("a", true)', '0.75 3' ],
    [ 'set_burst(1)', 'nothing' ],
    [ 'incoming("a", false)', 'nil rejected' ],
    [ 'set_burst(4)', 'nothing' ],
    [ 'incoming("a", true)', '1 4' ],
    [ 'uncommit("none")', 'nil not found|true' ],
    [ 'incoming("none", false)', '0 0' ];
both req => '"req", 1, 0',
    [ 'incoming("b", true)', '0 0' ],
    [ 'incoming("b", true)', 'nil rejected' ];

both conn => '"conn", 2, 1, 0.5',
    [ 'incoming("a", false)', '0 1' ],
    [ 'is_committed()', 'false' ],
    [ 'incoming("a", true)', '0 1' ],
    [ 'is_committed()', 'true' ],
    [ 'incoming("a", true)', '0 2' ],
    [ 'incoming("a", false)', '0.5 3' ],
    [ 'incoming("a", true)', '0.5 3' ],
    [ 'incoming("a", true)', 'nil rejected' ],
    [ 'is_committed()', 'false' ],
    [ 'leaving("a", 1.5)', '2' ],
    [ 'incoming("a", true)', '1 3' ],
    [ 'uncommit("a")', '2' ],
    [ 'set_burst(0)', 'nothing' ],
    [ 'incoming("a", true)', 'nil rejected' ],
    [ 'set_conn(4)', 'nothing' ],
    [ 'incoming("a", true)', '0 3' ],
    [ 'set_conn(1)', 'nothing' ],
    [ 'leaving("a")', '2' ],
    [ 'set_conn(4)', 'nothing' ],
    [ 'incoming("a", true)', '0 3' ],
    [ 'leaving("a")', '2' ],
    [ 'leaving("a")', '1' ],
    [ 'leaving("a")', '0' ],
    [ 'leaving("a")', '-1|nil the request holds nothing of the key' ];

api_key($nginx, 'req', 'own', 'PUT', '&rate=60/1m');
compare('own limit', 'limit_sliding.resty.req', '"req", 2, 3', map { [ 'incoming("own", true)', $_ ] }
    '0 0', '1 1', '2 2', '3 3', 'nil rejected');

# What combine() of resty.limit.traffic calls: all but the last look, the last one commits, then
# the others do; one that rejects has the others take back.
is $nginx->lua(<<'LUA'), "0 8\n0 8\n0 3\nnil rejected\n0 8 3", 'calls of combine()';
    local count = require('limit_sliding.resty.count').new('count', 9, 3600)
    local conn = require('limit_sliding.resty.conn').new('conn', 1, 3, 0.5)
    local req = require('limit_sliding.resty.req').new('req', 2, 0)
    assert(count:incoming('c', false) and conn:incoming('c', false))
    say(req:incoming('c', true), select(2, count:incoming('c', true)))
    conn:incoming('c', true)
    say(0, (select(2, count:incoming('c', false))) + 1)
    local zone = zone('conn')
    say(0, zone:peek('c', { inflight = 4 }).remaining)
    say(req:incoming('c', true))
    say(0, (select(2, count:incoming('c', false))) + 1, zone:peek('c', { inflight = 4 }).remaining)
LUA

is $nginx->lua(<<'LUA'), "0 nil\nnil rejected\n3 5 0", 'combine() of lua-resty-limit-traffic' if $OLD;
    local combine = require('resty.limit.traffic').combine
    local limiters = {
        require('limit_sliding.resty.count').new('count', 5, 3600),
        require('limit_sliding.resty.conn').new('conn', 1, 3, 0.5),
        require('limit_sliding.resty.req').new('req', 2, 0),
    }
    local keys, states = { 'd', 'd', 'd' }, {}
    say(combine(limiters, keys, states), nil)
    say(combine(limiters, keys, states))
    local peek = { inflight = 4 }
    say(zone('conn'):peek('d', peek).remaining, limiters[1].zone:peek('d', { rate = '5/1h' }).limit, states[3])
LUA

# Errors of new() and set_...

for ([ count => '"none", 1, 1', 'unknown zone "none"' ], [ req => '"none", 1, 1', 'unknown zone "none"' ],
    [ conn => '"none", 1, 1, 1', 'unknown zone "none"' ],
    [ count => '"count", 1, 0.05', 'invalid rate "1/50ms"' ],
    [ count => '"conn", 1, 1', 'unknown option "rate"' ],
    [ req => '"count", 1, 1', 'zone "count" must have algorithm=leaky_bucket' ],
    [ req => '"req", 0.5, 1', 'rate 0.5 is less than one request in the window of zone "req", 1000 ms' ],
    [ req => '"req", 1, 5', 'burst 5 is more than that of zone "req", 4' ],
    [ conn => '"count", 1, 1, 1', 'zone "count" must have inflight=' ],
    [ conn => '"conn", 1, 0.5, 1', 'invalid inflight "1.5"' ])
{
    my ($kind, $new, $error) = @$_;
    is $nginx->lua("say(require('limit_sliding.resty.$kind').new($new))"), "nil $error", "$kind: $error";
}
is $nginx->lua('say(require("limit_sliding.resty.req").new("slow", 0.5, 0):incoming("a", true))'), '0 0',
    'a slow rate in a zone with a longer window';
for ([ count => '"count", 0, 1' ], [ req => '"req", 0, 1' ], [ conn => '"conn", 1, -1, 1' ]) {
    my ($kind, $new) = @$_;
    like $nginx->lua("require('limit_sliding.resty.$kind').new($new)"), qr/assertion failed/, "$kind: $new";
}
like $nginx->lua('require("limit_sliding.resty.req").new("req", 1, 1):set_burst(9)'),
    qr/burst 9 is more than that of zone "req", 4/, 'set_burst: an error of the caller';
like $nginx->lua('require("limit_sliding.resty.req").new("req", 1, 1):set_rate(0.1)'),
    qr/rate 0.1 is less than one request/, '... and set_rate';

$nginx->finish;
