# Units in flight that Lua holds are free at once when the request ends, whatever way it does.

use v5.36;

use Test::More;

use LimitSliding::Api qw(api_key);
use LimitSliding::Lua;
use LimitSliding::Test;

my $nginx = lua_nginx(worker_processes => 1);
$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=held:1m inflight=2;
    limit_sliding_zone $arg_key zone=rate:1m rate=2r/h;
    lua_shared_dict kept 1m;
HTTP
    location /limits { limit_sliding_api write=on; allow 127.0.0.1; deny all; }
    location /held { limit_sliding zone=held; empty_gif; }
    location /wait {
        lua_check_client_abort on;
        access_by_lua_block { ngx.ctx.hold = assert(zone("held"):hold(ngx.var.arg_key)) }
        content_by_lua_block { ngx.sleep(tonumber(ngx.var.arg_s)) ngx.exit(tonumber(ngx.var.arg_exit) or 200) }
    }
    location /exec {
        access_by_lua_block { assert(zone("held"):hold(ngx.var.arg_key)) return ngx.exec('/second', ngx.var.args) }
    }
    location /second { content_by_lua_block { say(told(zone("held"):peek(ngx.var.arg_key)))
        ngx.print(ngx.ctx.lines[1]) } }
    location /fails { access_by_lua_block { assert(zone("held"):hold(ngx.var.arg_key)) error("on purpose") } }
    location /log {
        access_by_lua_block { assert(zone("held"):hold(ngx.var.arg_key)) }
        content_by_lua_block { ngx.print("done") }
        log_by_lua_block {
            local held = zone("held")
            local left, err = held:leave(ngx.var.arg_key)
            local again, why = held:leave(ngx.var.arg_key)
            ngx.shared.kept:set('log', table.concat({ tostring(left), tostring(err), tostring(again), tostring(why) }, ' '))
        }
    }
SERVER

sub held($key) { return api_key($nginx, 'held', $key)->{held} }

sub is_free($key, $name) { ok wait_for(sub { held($key) == 0 }), $name }

# Holds of one request

is $nginx->lua(<<'LUA'), "cdata 1\ncdata 0\nnil rejected false", 'a key holds up to its limit';
    for _ = 1, 2 do
        local held, verdict = zone("held"):hold("a")
        say(type(held), verdict.remaining)
    end
    local held, err, verdict = zone("held"):hold("a")
    say(held, err, verdict.admitted)
LUA
is_free a => '... until the request ends';
is $nginx->lua(<<'LUA'), "1\n2 2\n2", 'release';
    local zone = zone("held")
    local first = zone:hold("b")
    say(zone:peek("b").remaining)
    first:release()
    local free = zone:peek("b").remaining
    first:release()
    say(free, zone:peek("b").remaining)
    first = nil
    collectgarbage()
    say(zone:peek("b").remaining)
LUA
is $nginx->lua(<<'LUA'), '0', 'a hold that Lua has dropped is held until the request ends';
    for _ = 1, 2 do zone("held"):hold("c") end
    collectgarbage() collectgarbage()
    say(zone("held"):peek("c").remaining)
LUA
is_free c => '... and then free';
is $nginx->lua(<<'LUA'), "cdata 3\nnil\n2", 'cost and limit of the caller';
    local zone = zone("held")
    local held, verdict = zone:hold("d", { cost = 2, inflight = 5 })
    say(type(held), verdict.remaining)
    say((zone:hold("d")))
    held:release()
    say(zone:peek("d").remaining)
LUA
is $nginx->lua('say(zone("held"):hold("d", { rate = 5 }))'), 'nil unknown option "rate"', '... is no rate';
is $nginx->lua('say(zone("held"):hold("d", { inflight = "5r/s" }))'), 'nil invalid inflight "5r/s"',
    '... and a number';
is $nginx->lua('say(zone("rate"):hold("d"))'), 'nil the zone has no "inflight=": use take()', 'another zone';
is $nginx->lua('say(zone("held"):hold(""))'), 'nil empty key', 'an empty key';
is $nginx->lua('say(pcall(zone("held"):hold("dot").release))'), 'false call hold:release()', 'a dot in place of a colon';

api_key($nginx, 'held', 'off', 'PUT', '&inflight=off');
is $nginx->lua('for _ = 1, 3 do say(type(zone("held"):hold("off"))) end'), "cdata\ncdata\ncdata", 'own limit: off';
api_key($nginx, 'held', 'off', 'PUT', '&inflight=0');
is $nginx->lua('say(zone("held"):hold("off"))') =~ s/ cdata.*//r, 'nil rejected', '... 0';
is held('off'), 0, '... hold nothing';

# Ends of requests

for ([ 200, 'finished' ], [ 500, 'failed' ], [ 444, 'closed' ]) {
    my ($status, $name) = @$_;
    my $request = $nginx->send_request("/wait?key=$name&s=0.2&exit=$status");
    ok wait_for(sub { held($name) == 1 }), "a request is $name: it holds";
    is $nginx->get("/held?key=$name")->{status}, 200, '... beside requests of a location';
    $nginx->read_response($request);
    is_free $name => '... and is free';
}
my $aborted = $nginx->send_request('/wait?key=aborted&s=30');
ok wait_for(sub { held('aborted') == 1 }), 'the client leaves';
close $aborted;
is_free aborted => '... and its request ends';

like $nginx->get('/exec?key=e')->{body}, qr/^(?:\w+\r\n)?admitted 2 1 local/, 'a hold outlives a redirect';
is_free e => '... and not the request';
$nginx->get('/fails?key=f');
is_free f => 'an error of Lua';
$nginx->get('/log?key=g');
is $nginx->lua('say(ngx.shared.kept:get("log"))'), 'true nil nil the request holds nothing of the key',
    'leave() ends a hold of this request by its key';
is held('g'), 0, '... once';

# Timers have requests of their own

$nginx->lua(<<'LUA');
    ngx.timer.at(0, function ()
        zone("held"):hold("timer")
        ngx.sleep(0.2)
    end)
LUA
ok wait_for(sub { held('timer') == 1 }), 'a timer holds';
is_free timer => '... until it ends';
$nginx->lua(<<'LUA');
    ngx.timer.at(0, function ()
        for _ = 1, 10000 do zone("held"):hold("loop"):release() end
        ngx.shared.kept:set('loop', 'ended')
    end)
LUA
ok wait_for(sub { $nginx->lua('say(ngx.shared.kept:get("loop"))') eq 'ended' }), 'ten thousand holds of a timer';
is held('loop'), 0, '... are free';

# A killed worker, and one that a reload ends while a request goes on

my ($old) = $nginx->workers;
my $long = $nginx->send_request('/wait?key=reload&s=2');
ok wait_for(sub { held('reload') == 1 }), 'a request goes on over a reload';
$nginx->hup;
ok wait_for(sub { grep { $_ != $old } $nginx->workers }), '... with new workers';
is held('reload'), 1, '... and holds';
$nginx->read_response($long);
is_free reload => '... until it ends';
ok wait_for(sub { !grep { $_ == $old } $nginx->children }), 'the old worker ends';

my $killed = $nginx->send_request('/wait?key=killed&s=30');
ok wait_for(sub { held('killed') == 1 }), 'a worker is killed';
$nginx->kill_worker($nginx->workers);
is_free killed => '... and its units are free';

$nginx->finish(allow => [ qr/on purpose|stack traceback|coroutine 0:|^\t/ ]);
