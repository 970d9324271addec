# Calls of Lua while NGINX reloads, clients leave, and Redis comes and goes: no crash, no report of
# a sanitizer, and nothing is held in the end.  LUA_CALLS sets the number of calls.

use v5.36;

use Test::More;

use LimitSliding::Clock real => 'a load that never pauses, beside reloads';

use LimitSliding::Api qw(api_key);
use LimitSliding::Lua;
use LimitSliding::Redis;
use LimitSliding::Test;

my $CALLS = $ENV{LUA_CALLS} // 60_000;
my $CONNECTIONS = 16;

my $redis = LimitSliding::Redis->new->start;
my $nginx = lua_nginx();
my %directives = (http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 50ms; connect_timeout 50ms; }
    limit_sliding_zone \$arg_key zone=here:1m rate=1000000 window=1s;
    limit_sliding_zone \$arg_key zone=there:1m rate=100 window=1s redis=shared;
    limit_sliding_zone \$arg_key zone=leased:1m rate=100 window=1s redis=shared lease=auto;
    limit_sliding_zone \$arg_key zone=held:1m inflight=3;
    lua_shared_dict counts 1m;
HTTP
    location /limits { limit_sliding_api; allow 127.0.0.1; deny all; }
    location /calls {
        lua_check_client_abort on;
        limit_sliding zone=here;
        rewrite_by_lua_block { zone('there'):take(ngx.var.arg_key) }
        access_by_lua_block {
            zone('held'):hold(ngx.var.arg_key)
            local key = ngx.var.arg_key
            local threads = {}
            for i, name in ipairs { 'there', 'leased', 'here' } do
                threads[i] = ngx.thread.spawn(function ()
                    local zone = zone(name)
                    zone:take(key .. i)
                    zone:charge(key, 2)
                    zone:give_back(key, 1)
                    zone:peek(key, { rate = '7/2s' })
                    if i == 1 then zone:forget(key) end
                end)
            end
            if key % 3 == 0 then ngx.thread.kill(threads[1]) end
            ngx.thread.wait(threads[2])
        }
        content_by_lua_block {
            -- In a worker that exits, the first timer's connection stays open: an alert of ngx_lua.
            if not ngx.worker.exiting() then
                ngx.timer.at(0, function (_, key)
                    zone('held'):hold(key)
                    zone('there'):take(key)
                end, ngx.var.arg_key)
            end
            ngx.shared.counts:incr('content', 1, 0)
            if ngx.var.arg_key % 7 == 0 then collectgarbage() end
            ngx.header.content_length = 2
            ngx.print('ok')
        }
        log_by_lua_block {
            local held = zone('held')
            if ngx.var.arg_key % 2 == 0 then held:leave(ngx.var.arg_key) end
            zone('here'):charge(ngx.var.arg_key, 1)
        }
    }
SERVER
$nginx->serve(%directives);

# One process sends requests, some of which it leaves; a request makes a dozen calls.  It goes on
# for some rounds of the faults below.
my $requests = int $CALLS / 12;
my $pid = fork // die "fork: $!";
if (!$pid) {
    my @open;
    my $soonest = now() + 1.2;
    for (my $n = 1; $n <= $requests || now() < $soonest; $n++) {
        my $socket = eval { $nginx->send_request('/calls?key=' . $n % 20) } or next;
        push @open, $socket;
        next if @open < $CONNECTIONS;
        my $oldest = shift @open;
        eval { $nginx->read_response($oldest) } if $n % 5;
        close $oldest;
    }
    require POSIX;
    POSIX::_exit(0);
}

# Meanwhile, NGINX reloads, and Redis is frozen, or dies and comes back.
my ($rounds, $ended) = (0, 0);
until ($ended = waitpid $pid, 1) {
    my $turn = $rounds++ % 3;
    $nginx->hup if $turn == 0;
    $turn == 1 ? $redis->freeze : $redis->kill9 if $turn;
    sleep 0.15;
    $turn == 1 ? $redis->thaw : $redis->start if $turn;
    sleep 0.15;
}
is $?, 0, "$requests requests with a dozen calls each";
cmp_ok $nginx->lua('say(ngx.shared.counts:get("content"))'), '>', $requests / 2, '... most of which end';
cmp_ok $rounds, '>=', 3, '... over reloads and outages';

$nginx->reload;
is $nginx->lua('say(zone("here"):take("end").admitted, zone("there"):take("end").admitted)'), 'true true',
    'limits go on';
ok wait_for(sub { !grep { api_key($nginx, 'held', $_)->{held} } 0 .. 19 }), 'nothing is held in the end';

$nginx->finish;
