# Units in flight that Lua holds in Redis: over two nodes, and free at once when the request ends,
# whatever way it does.

use v5.36;

use Test::More;

use LimitSliding::Lua;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my @nodes = map { lua_nginx(worker_processes => 1)->serve(http => <<"HTTP", server => <<'SERVER') } 1 .. 2;
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 2s; connect_timeout 2s; on_error deny; }
    limit_sliding_zone \$arg_key zone=held:1m inflight=2 redis=shared;
    limit_sliding_zone \$arg_key zone=alone:1m inflight=2 redis=shared on_error=local;
    lua_shared_dict kept 1m;
HTTP
    location /held { limit_sliding zone=held; empty_gif; }
    location /wait {
        lua_check_client_abort on;
        access_by_lua_block { ngx.ctx.hold = assert(zone("held"):hold(ngx.var.arg_key)) }
        content_by_lua_block { ngx.sleep(tonumber(ngx.var.arg_s)) ngx.exit(200) }
    }
    location /filter {
        header_filter_by_lua_block {
            ngx.header["X-Said"] = table.concat({ select(2, zone("held"):hold("filter")),
                select(2, zone("held"):peek("filter")) }, ', ')
        }
        empty_gif;
    }
    location /both {
        content_by_lua_block {
            local held, said = zone("held")
            local thread = ngx.thread.spawn(function () said = type((held:hold("both"))) end)
            local _, err = held:leave("both")
            ngx.thread.wait(thread)
            ngx.print(err, ', ', said)
        }
    }
    location /leaving {
        access_by_lua_block {
            ngx.ctx.conn = require("limit_sliding.resty.conn").new("held", 1, 0, 0.5)
            assert(ngx.ctx.conn:incoming("leaving", true))
        }
        content_by_lua_block { ngx.print("done") }
        log_by_lua_block {
            local conn, err = ngx.ctx.conn:leaving("leaving", 1.5)
            ngx.shared.kept:set('leaving', table.concat({ tostring(conn), tostring(err), ngx.ctx.conn.unit_delay }, ' '))
        }
    }
    location /leave {
        content_by_lua_block {
            local held = zone("held")
            assert(held:hold("leave"))
            ngx.print(tostring(held:leave("leave")), ' ', select(2, held:leave("leave")))
        }
    }
SERVER
my ($one, $two) = @nodes;

# Returns how many units of so many a node gets, which its request then gives back.
sub taken($node, $key, $n = 2) {
    return $node->lua(<<"LUA");
        local taken = 0
        for _ = 1, $n do
            local held, err = zone("held"):hold("$key")
            if held then taken = taken + 1 elseif err ~= "rejected" then error(err) end
        end
        say(taken)
LUA
}

# Returns how many units are left, and takes none, so that others get theirs.
sub left($node, $key) { return $node->lua(qq{say(zone("held"):peek("$key").remaining)}) }

sub is_free($node, $key, $name) { ok wait_for(sub { taken($node, $key) eq '2' }), $name }

is_free $_ => ready => 'Redis grants units' for @nodes;

is $one->lua(<<'LUA') =~ s/lease|redis/redis/gr, <<'SAID' =~ s/\n\z//r, 'a key holds up to its limit';
    for _ = 1, 2 do
        local held, verdict = zone("held"):hold("a")
        say(type(held), verdict.remaining, verdict.source)
    end
    local held, err, verdict = zone("held"):hold("a")
    say(held, err, verdict.admitted, verdict.remaining)
LUA
cdata 1 redis
cdata 0 redis
nil rejected false 0
SAID
is_free $two => a => '... until the request ends';

my $request = $one->send_request('/wait?key=b&s=1.5');
ok wait_for(sub { left($two, 'b') eq '1' }), 'the other node sees that a request holds';
is taken($two, 'b'), '1', '... and gets the rest';
is $two->get('/held?key=b')->{status}, 200, '... also by a directive';
is $two->lua('say(told(zone("held"):peek("b")))') =~ s/ \w+\z//r, 'admitted 2 1', '... and sees the rest';
is $two->lua('say(zone("held"):peek("b", { cost = 2 }).admitted)'), 'false', '... for that cost';
is $two->lua('say(zone("held"):hold("b", { cost = 2 }))') =~ s/ cdata.*//r, 'nil rejected', '... and no more';
is $two->lua('say(type((zone("held"):hold("b", { inflight = 3, cost = 2 }))))'), 'cdata', '... but by its own limit';
$one->read_response($request);
is_free $two => b => '... until the request ends';

is $one->lua(<<'LUA'), 'cdata', 'release: the next hold of the request needs no end';
    local zone = zone("held")
    local first, second = zone:hold("c"), zone:hold("c")
    first:release()
    first:release()
    local third = zone:hold("c")
    say(type(third))
LUA
is_free $two => c => '... and all are free';
like $one->get('/leave')->{body}, qr/true the request holds nothing of the key/, 'leave';
is_free $two => leave => '... gives the units back';
is header($one->get('/filter'), 'X-Said'),
    'cannot yield here, cannot yield here', 'a filter of headers';
is $one->lua('say(zone("held"):take("d"))'), 'nil the zone has "inflight=": use hold()', 'take is for rates';
is $one->lua('say(zone("held"):hold(""))'), 'nil empty key', 'an empty key';
is $one->lua('say(zone("held"):hold("e", { inflight = "off" }).release ~= nil)'), 'true', 'no limit';
is $one->lua('say(zone("held"):hold("e", { inflight = 0 }))') =~ s/ cdata.*//r, 'nil rejected', 'a limit of 0';

is $one->lua(<<'LUA'), "0 1\nnil rejected\n0", 'resty.conn';
    local conn = require("limit_sliding.resty.conn").new("held", 1, 0, 0.5)
    say(conn:incoming("f", true))
    say(require("limit_sliding.resty.conn").new("held", 1, 0, 0.5):incoming("f", true))
    say(conn:leaving("f"))
LUA

is $one->lua(<<'LUA'), "0 true\nnil false", '... of two light threads';
    local conn = require("limit_sliding.resty.conn").new("held", 1, 0, 0.5)
    local threads = {}
    for i = 1, 2 do
        threads[i] = ngx.thread.spawn(function ()
            local delay = conn:incoming("i", true)
            say(delay, conn:is_committed())
        end)
    end
    for i = 1, 2 do ngx.thread.wait(threads[i]) end
LUA
$one->get('/leaving');
is $one->lua('say(ngx.shared.kept:get("leaving"))'), '0 nil 1', '... leaves in the log phase';
is_free $two => leaving => '... and all are free';

# A light thread leaves while another one waits for Redis.

$redis->freeze;
my $both = $one->send_request('/both');
sleep 0.3;
$redis->thaw;
like $one->read_response($both)->{body}, qr/the request holds nothing of the key, cdata/,
    'a hold that waits for Redis goes on';

# Clients leave while Redis is asked: the reply may grant units to a request that has ended.

$redis->freeze;
my @left = map { $one->send_request("/wait?key=left&s=30") } 1 .. 5;
sleep 0.3;
close $_ for @left;
sleep 0.2;
$redis->thaw;
is_free $two => left => 'requests that end while Redis is asked hold nothing';
is_free $one => left => '... on either node';

$redis->freeze;
@left = map { $one->send_request("/wait?key=gone&s=0.1") } 1 .. 2;
sleep 0.3;
$redis->thaw;
$one->read_response($_) for @left;
is_free $two => gone => 'requests that Redis answers late hold their units until they end';

# A killed worker

my $killed = $one->send_request('/wait?key=killed&s=30');
ok wait_for(sub { left($two, 'killed') eq '1' }), 'a worker is killed';
$one->kill_worker($one->workers);
is_free $two => killed => '... and its units are free';

# Redis is away

$redis->stop;
ok wait_for(sub { $one->lua('say(zone("held"):hold("g"))') =~ /^nil rejected/ }), 'without Redis: deny';
is $one->lua('say(told(select(2, zone("alone"):hold("g"))))'), 'admitted 2 1 fallback', '... local';
is $one->lua(<<'LUA'), 'cdata cdata nil', '... which holds in this node';
    local zone, types = zone("alone"), {}
    for i = 1, 3 do types[i] = type((zone:hold("h"))) end
    say(table.concat(types, ' '))
LUA

$one->finish_one(allow => [ qr/./ ]);
$two->finish(allow => [ qr/./ ]);
