# Calls of Lua for which Redis is asked: a coroutine waits for each, and for each returns once.

use v5.36;

use Test::More;

use LimitSliding::Lua;
use LimitSliding::Redis;
use LimitSliding::Test;

# Calls of each kind while Redis is dead; the torture has 1,000,000.
my $CALLS = $ENV{LUA_CALLS} // 20_000;

my $redis = LimitSliding::Redis->new->start;
my $nginx = lua_nginx(worker_processes => 1);
my @ALGORITHMS = qw(counter log fixed token_bucket leaky_bucket);

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server ${\ $redis->server}; timeout 20s; connect_timeout 20s;
    }
    ${\ join '', map { "limit_sliding_zone \$uri zone=$_:1m rate=2 window=30d algorithm=$_ "
        . ($_ eq 'leaky_bucket' ? 'burst=1 ' : '') . "redis=shared;\n" } @ALGORITHMS }
    limit_sliding_zone \$uri zone=hundred:1m rate=100 window=30d redis=shared;
    limit_sliding_zone \$uri zone=leased:1m rate=100 window=30d redis=shared lease=10;
    limit_sliding_zone \$uri zone=few:1m rate=10 window=30d redis=shared lease=5;
    limit_sliding_zone \$uri zone=synced:1m rate=2 window=30d redis=shared sync=100ms;
    limit_sliding_zone \$uri zone=recorded:1m rate=1 window=30d redis=shared count_rejected;
    limit_sliding_zone \$uri zone=banned:1m rate=1 window=30d redis=shared penalty=10m;
    lua_shared_dict counts 1m;
HTTP
    location = /hundred { limit_sliding zone=hundred; empty_gif; }
    location /limits { limit_sliding_api write=on; }
    location = /abort {
        lua_check_client_abort on;
        content_by_lua_block {
            ngx.shared.counts:incr('begun', 1, 0)
            zone('counter'):take('abort')
            ngx.shared.counts:incr('ended', 1, 0)
        }
    }
SERVER

sub lua($chunk) { return $nginx->lua($chunk) }

sub told($zone, $n, $call) {
    return lua("for _ = 1, $n do say(told(zone('$zone'):$call)) end");
}

# Decisions

for my $name (@ALGORITHMS) {
    is told($name, 2, 'take("a")'), "admitted 2 1 redis\nadmitted 2 0 redis", "$name: take";
    like told($name, 2, 'take("a")'), qr/^rejected 2 0 (?:redis|cache)\nrejected 2 0 cache$/, '... at its limit';
    is told($name, 3, 'peek("b")'), join("\n", ('admitted 2 2 redis') x 3), '... peek';
    is lua("say(zone('$name'):charge('b', 2))"), 'true nil', '... charge';
    is told($name, 1, 'peek("b")'), 'rejected 2 0 redis', '... of units of Redis';
    is lua("zone('$name'):charge('b', 3) say(zone('$name'):give_back('b', 4))"), 'true nil', '... give_back';
    is told($name, 1, 'peek("b")'), 'admitted 2 1 redis', '... of the newest units first';
    is lua("say(zone('$name'):forget('b'))"), 'true nil', '... forget';
    is told($name, 1, 'peek("b")'), 'admitted 2 2 redis', '... all of them';
    my $left = $name eq 'leaky_bucket' ? 0 : 1;
    is told($name, 1, 'take("c", { cost = 2, rate = 3 })'), "admitted 3 $left redis", '... cost and rate';
    is told($name, 1, 'take("c", { rate = "2/1h" })'), 'admitted 2 1 redis', '... window';
    is told($name, 1, 'take("c", { rate = "off" })'), 'admitted inf inf local', '... off';
    is told($name, 1, 'take("c", { rate = "0" })'), 'rejected 0 0 local', '... 0';
    is told($name, 1, 'take("c", { cost = 9 })'), 'rejected 2 0 redis', '... above the limit'
        if $name !~ /bucket/;
    is lua("say(zone('$name'):forget('c', { rate = '2/1h' }))") . told($name, 1, 'peek("c", { rate = "2/1h" })'),
        'true niladmitted 2 2 redis', '... forget, in another window';
}
is told(counter => 1, 'take("")'), 'nil empty key', 'an empty key';
is told(counter => 2, 'take(("x"):rep(100000))'), "admitted 2 1 redis\nadmitted 2 0 redis", 'a long key';

is lua(<<'LUA'), '100 20', 'light threads at once: the limit, exactly';
    local n, threads = { [true] = 0, [false] = 0 }, {}
    local zone = zone('hundred')
    for i = 1, 120 do
        threads[i] = ngx.thread.spawn(function ()
            local admitted = zone:take('k').admitted
            n[admitted] = n[admitted] + 1
        end)
    end
    for i = 1, 120 do ngx.thread.wait(threads[i]) end
    say(n[true], n[false])
LUA

# Limits of keys in Redis

$redis->command('SET', 'limit_sliding:counter:{' . digest('own') . '}:limit', 5);
is told(counter => 1, 'take("own")'), 'admitted 5 4 redis', 'a key has its own limit in Redis';
$redis->command('SET', 'limit_sliding:counter:{' . digest('off') . '}:limit', 'off');
is told(counter => 1, 'take("off")'), 'admitted inf inf redis', 'off';
is lua('say(zone("counter"):charge("off", 5))'), 'true nil', '... counts nothing';

my $own = 'limit_sliding:counter:{' . digest('windows') . '}:limit';
is told(counter => 1, 'take("windows", { rate = "2/1h" })'), 'admitted 2 1 redis', 'a key in the window of the caller';
$redis->command('SET', $own, '5/2h');
is told(counter => 1, 'take("windows", { rate = "2/1h" })'), 'admitted 5 4 redis', '... and in that of its own limit';
is lua("say(zone('counter'):forget('windows', { rate = '2/1h' }))") . told(counter => 1, 'peek("windows")'),
    'true niladmitted 5 5 redis', '... is forgotten in its own window';
$redis->command('DEL', $own);
is told(counter => 1, 'peek("windows", { rate = "2/1h" })'), 'admitted 2 2 redis', '... and in that of the caller';

for my $name (qw(synced counter)) {
    my $limit = "limit_sliding:$name:{" . digest('blocked') . '}:limit';
    $redis->command('SET', $limit, 0);
    ok wait_for(sub { told($name, 1, 'take("blocked")') =~ /^rejected 0/ }), "$name: a key is blocked";
    $redis->command('DEL', $limit);
    is lua("say(zone('$name'):forget('blocked'))"), 'true nil', '... no more, and is forgotten';
}

# Other ways to decide

like told(leased => 3, 'take("a")'), qr/^admitted 100 \d+ redis\nadmitted 100 \d+ lease\nadmitted 100 \d+ lease$/,
    'lease';
is told(few => 1, 'peek("a")') . told(few => 6, 'take("a")') =~ s/.*\n//sr, 'admitted 10 10 redisadmitted 10 4 redis',
    '... has all units of the limit';
is told(few => 2, 'peek("a")') . told(few => 1, 'take("a")'), "admitted 10 4 lease\nadmitted 10 4 leaseadmitted 10 3 lease",
    '... which peek sees';
is told(few => 1, 'peek("a", { cost = 4 })') =~ s/ \w+\z//r, 'rejected 10 0', '... not more';
is told(synced => 3, 'take("a")'), "admitted 2 1 cache\nadmitted 2 0 cache\nrejected 2 0 cache", 'sync';
is lua('say(zone("synced"):charge("b", 2))') . told(synced => 1, 'peek("b")'), 'true nilrejected 2 0 cache',
    '... charge';
is lua('say(zone("synced"):give_back("b", 1))') . told(synced => 1, 'peek("b")'), 'true niladmitted 2 1 cache',
    '... give_back';
# The reply to a report that was under way tells of both units. A rejection asks again.
ok wait_for(sub {
    told(synced => 1, 'take("b", { cost = 2 })');
    told(synced => 1, 'peek("b")') eq 'admitted 2 1 cache';
}), '... in Redis as well';
is lua('say(zone("synced"):forget("b"))') . told(synced => 1, 'peek("b")'), 'true niladmitted 2 2 cache', '... forget';
told(recorded => 3, 'take("a")');
like told(recorded => 1, 'peek("a")'), qr/^rejected 1 0 /, 'count_rejected';
like told(banned => 3, 'take("a")'), qr/^admitted 1 0 redis\nrejected 1 0 \w+\nrejected 1 0 local$/, 'penalty';
$nginx->get('/limits/zones/banned/key?key=a&rate=0', method => 'PUT');
like lua('local v = zone("banned"):take("a") say(v.limit, v.retry_after_ms)'), qr/^0 inf$/,
    '... and has no end for a blocked key';

# Coroutines that end while they wait

$redis->freeze;
my @aborted = map { $nginx->send_request('/abort') } 1 .. 20;
ok wait_for(sub { lua('say(ngx.shared.counts:get("begun"))') eq 20 }), 'twenty requests wait';
close $_ for @aborted;
is lua(<<'LUA'), 'killed', 'light threads wait as well';
    local zone = zone('counter')
    for i = 1, 20 do
        local thread = ngx.thread.spawn(function () zone:take('killed' .. i) end)
        assert(ngx.thread.kill(thread))
    end
    collectgarbage() collectgarbage()
    say('killed')
LUA
my $woken = $nginx->send_request('/lua', method => 'POST', body => <<'LUA');
    local other = require('ngx.semaphore').new(0)
    pcall(string.gsub, 'x', '.', function () other:wait(10) end)
    ngx.thread.spawn(function () other:post() end)
    say(told(zone('counter'):take('woken')))
    say(told(zone('counter'):take('woken')))
LUA
sleep 0.2;
$redis->thaw;
is $nginx->read_response($woken, 'POST')->{body}, "admitted 2 1 redis\nadmitted 2 0 redis",
    'a coroutine that something else resumes waits on';
is told(counter => 1, 'take("later")'), 'admitted 2 1 redis', '... and leave their asks when they are ended';
is lua('collectgarbage() collectgarbage() say(ngx.shared.counts:get("ended"))'), 'nil', '... and do not go on';
is told(counter => 1, 'take("killed1")'), 'admitted 2 0 redis', '... their units stay';

is lua(<<'LUA'), 'admitted 2 1 redis', 'seventy thousand waits that end early leave nothing behind';
    local zone = zone('counter')
    for i = 1, 70000 do
        assert(ngx.thread.kill(ngx.thread.spawn(function () zone:take('early') end)))
    end
    say(told(zone:take('after')))
LUA

# Redis refuses

$redis->command(qw(CONFIG SET maxmemory 1));
is lua("say(zone('hundred'):charge('full', 1))"), 'nil redis did not do it, see the log',
    'Redis has no memory';
$redis->command(qw(CONFIG SET maxmemory 0));


# Redis is dead

$nginx->serve(http => <<"HTTP");
    ${\ join '', map { "limit_sliding_redis $_ { server 127.0.0.1:9; timeout 50ms; connect_timeout 50ms; }\n" }
        qw(dead charged given forgotten) }
    ${\ join '', map { "limit_sliding_zone \$uri zone=$_:1m rate=2 window=30d redis=$_;\n" }
        qw(charged given forgotten) }
    ${\ join '', map { "limit_sliding_zone \$uri zone=$_:1m rate=2 window=30d redis=dead on_error=$_;\n" }
        qw(local allow deny) }
    limit_sliding_zone \$uri zone=pace:1m rate=10r/s burst=50 algorithm=leaky_bucket redis=dead on_error=allow;
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 5ms; connect_timeout 20s; }
    limit_sliding_zone \$uri zone=slow:8m rate=2 window=30d redis=shared;
HTTP
is told(local => 3, 'take("a")'), "admitted 2 1 fallback\nadmitted 2 0 fallback\nrejected 2 0 fallback",
    'Redis is dead: on_error=local';
is told(allow => 3, 'take("a")'), join("\n", ('admitted 2 2 fallback') x 3), '... allow';
is lua('say(require("limit_sliding.resty.req").new("pace", 10, 20):incoming("a", true))'), '0 0', '... a queue';
is told(deny => 1, 'take("a")'), 'rejected 2 0 fallback', '... deny';
my %call = (charged => 'charge("a", 1)', given => 'give_back("a", 1)', forgotten => 'forget("a")');
for my $zone (sort keys %call) {
    is lua("say(zone('$_'):$call{$zone})"), 'nil redis does not answer', "... $call{$zone}, $_"
        for $zone, 'local';
}

# Replies come late, on time, and never; each call returns once.
for my $zone (qw(local slow)) {
    my $said = lua(<<"LUA");
        local zone, n, threads, returned = zone('$zone'), $CALLS / 100, {}, {}
        for i = 1, 100 do
            threads[i] = ngx.thread.spawn(function ()
                for j = 1, n do
                    local verdict, err = zone:take('key' .. i * n + j)
                    local id = i * n + j
                    returned[id] = (returned[id] or 0) + 1
                    if not verdict then say(err) end
                    if j % 50 == 0 then ngx.sleep(0) end
                end
            end)
        end
        for i = 1, 100 do assert(ngx.thread.wait(threads[i])) end
        local once, more = 0, 0
        for _, times in pairs(returned) do
            if times == 1 then once = once + 1 else more = more + 1 end
        end
        say(once, more)
LUA
    is $said, "$CALLS 0", "$zone: $CALLS calls return once each";
}

$nginx->finish(allow => [ qr/client 127/ ]);
