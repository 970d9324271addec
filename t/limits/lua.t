# Lua (Debian's libnginx-mod-http-lua) beside limits: loaded before and after
# this module, with access_by_lua at the phase's end, where ngx_lua puts it, and
# not postponed. Limits run before it in all of these cases, and what they count
# is exact.

use v5.36;

use Test::More;

use LimitSliding::Peers qw(lua_modules);
use LimitSliding::Redis ();
use LimitSliding::Test;

my $HAS_LUA = LimitSliding::Test->new->has_lua;
my @LUA = $HAS_LUA ? () : lua_modules();
plan skip_all => 'no ngx_lua: libnginx-mod-http-lua' if !$HAS_LUA && !@LUA;

my $redis = LimitSliding::Redis::supported()
    && LimitSliding::Redis->new->start;
my $REDIS = $redis ? 'redis=shared' : '';
my $shared = $redis
    ? "limit_sliding_redis shared { server ${\ $redis->server}; timeout 20s;"
        . ' connect_timeout 20s; on_error deny; }' : '';

my $nginx;

for my $last ('ours', @LUA ? 'lua' : ()) {
    for my $early ('off', 'on') {
        subtest "loaded last: $last; access_by_lua_no_postpone $early" =>
            sub { try_lua($last, $early) };
    }
}
done_testing;

sub try_lua($last, $early) {
    plan skip_all => 'the module is compiled in'
        if $last eq 'lua' && !LimitSliding::Test->is_dynamic;

    $nginx = LimitSliding::Test->new(
        ($last eq 'ours' ? 'before' : 'after') => \@LUA);
    $nginx->common(http => <<"HTTP", server => <<'SERVER');
    access_by_lua_no_postpone $early;
    lua_shared_dict ran 1m;

    limit_sliding_log_level off;
    $shared
    limit_sliding_zone \$arg_key zone=two:1m rate=2 window=30d;

    ${\ lua_functions() }
HTTP
    default_type text/plain;
    set $user '';

    location = /ran {
        content_by_lua_block {
            answer(ngx.shared.ran:get(ngx.var.arg_place
                .. ngx.var.arg_key) or 0)
        }
    }
    location /used {
        limit_sliding zone=two cost=0;
        limit_sliding_headers x;
        empty_gif;
    }
    location /access {
        limit_sliding zone=two;
        access_by_lua_block { ran('access') }
        empty_gif;
    }
SERVER
    $redis->command('FLUSHALL') if $redis;

    try_access();
    try_after_access();
    try_rewrite();
    try_variables();
    try_subrequests();
    try_waiting();
    try_many();

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $nginx->finish_one;
}

sub get($path, $key, @request) {
    return $nginx->get("$path?key=$key", @request)->{body};
}

sub statuses($path, $key, $n = 4) {
    return $nginx->statuses($n, "$path?key=$key");
}

# Returns how often Lua ran at a place for a key.
sub ran($place, $key) {
    return $nginx->get("/ran?place=$place&key=$key")->{body};
}

# Returns what a key has used of its two.
sub used($key) {
    return 2 - header($nginx->get("/used?key=$key"), 'X-RateLimit-Remaining');
}

sub try_access() {
    $nginx->serve(server => <<'CONF');
    location /exit {
        limit_sliding zone=two;
        access_by_lua_block { ngx.exit(ngx.HTTP_FORBIDDEN) }
        empty_gif;
    }
    location /exit-429 {
        limit_sliding zone=two;
        access_by_lua_block { ngx.exit(429) }
        empty_gif;
    }
    location /granted {
        limit_sliding zone=two;
        satisfy any;
        deny all;
        access_by_lua_block { ngx.exit(ngx.OK) }
        empty_gif;
    }
    location /granted-all {
        limit_sliding zone=two;
        access_by_lua_block { ngx.exit(ngx.OK) }
        empty_gif;
    }
CONF

    is statuses('/access', 'a'), '200 200 429 429', 'access_by_lua';
    is ran('access', 'a'), 2, '... ran';
    is statuses('/exit', 'b'), '403 403 429 429', 'ngx.exit(403)';
    is used('b'), 2, '... counted';
    is statuses('/exit-429', 'c'), '429 429 429 429', 'ngx.exit(429)';
    is used('c'), 2, '... counted';
    is statuses('/granted', 'd'), '200 200 429 429',
        'satisfy any, ngx.exit(ngx.OK)';
    is statuses('/granted-all', 'e'), '200 200 429 429',
        'satisfy all, ngx.exit(ngx.OK)';
}

# Limits depend on what access_by_lua finds out, or answers.
sub try_after_access() {
    $nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $user zone=user:1m rate=2 window=30d;
    limit_sliding_zone $user zone=plan:1m rate=$plan window=1h;
HTTP
    location /user {
        limit_sliding zone=user after_auth;
        access_by_lua_block { ngx.sleep(0.001) ngx.var.user = ngx.var.arg_key }
        empty_gif;
    }
    location /plan {
        set $plan '';
        limit_sliding zone=plan after_auth;
        access_by_lua_block {
            ngx.var.user, ngx.var.plan = ngx.var.arg_key, '3r/h'
        }
        empty_gif;
    }
    location /login {
        limit_sliding zone=two count_status=401;
        access_by_lua_block {
            if not ngx.var.http_authorization then ngx.exit(401) end
        }
        empty_gif;
    }
    location /said {
        limit_sliding zone=two;
        access_by_lua_block { ngx.say('said in access') }
        empty_gif;
    }
SERVER

    is statuses('/user', 'f'), '200 200 429 429',
        'after_auth, by what access_by_lua has found';
    is statuses('/plan', 'f'), '200 200 200 429', '... and its rate';
    is $nginx->statuses(4, '/login?key=v', headers => ['Authorization: a']),
        '200 200 200 200', 'count_status: what Lua lets in';
    # A worker gives units back when the client has its response.
    wait_for(sub { used('v') == 0 });
    is statuses('/login', 'v'), '401 401 429 429', '... and does not';
    is statuses('/said', 'g'), '200 200 429 429',
        'answered in access';
}

# Lua rewrites and redirects requests.
sub try_rewrite() {
    $nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $user zone=user:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=many:1m rate=50 window=30d;
HTTP
    location /rewrite {
        limit_sliding zone=user;
        rewrite_by_lua_block { ran('rewrite') ngx.var.user = ngx.var.arg_key }
        empty_gif;
    }
    location /answered {
        limit_sliding zone=two;
        rewrite_by_lua_block { ngx.exit(204) }
    }
    location /exec {
        limit_sliding zone=two;
        access_by_lua_block {
            ngx.sleep(0.001)
            return ngx.exec('/access', ngx.var.args)
        }
    }
    location /exec-rewrite {
        limit_sliding zone=two;
        rewrite_by_lua_block { return ngx.exec('/access', ngx.var.args) }
    }
    location /exec-content {
        limit_sliding zone=two;
        content_by_lua_block { return ngx.exec('@named', ngx.var.args) }
    }
    location @named {
        limit_sliding zone=two;
        limit_sliding zone=many;
        content_by_lua_block { answer(limits()) }
    }
SERVER

    is statuses('/rewrite', 'h'), '200 200 429 429',
        'a key made by rewrite_by_lua';
    is ran('rewrite', 'h'), 4, '... which runs first';
    is statuses('/answered', 'i'), '204 204 204 204', 'answered in rewrite';
    is used('i'), 0, '... not counted';
    is statuses($_, "j$_"), '200 200 429 429', "$_: counted once"
        for qw(/exec /exec-rewrite /exec-content);
}

sub try_variables() {
    $nginx->serve(server => <<'CONF');
    location /variables {
        limit_sliding zone=two;
        limit_sliding_headers off;
        rewrite_by_lua_block { ngx.ctx.rewrite = limits() }
        access_by_lua_block { ngx.ctx.access = limits() }
        content_by_lua_block {
            ngx.sleep(0)
            answer(ngx.ctx.rewrite .. '; ' .. ngx.ctx.access .. '; '
                .. limits())
        }
        header_filter_by_lua_block {
            ngx.header['X-Limits'] = limits()
            ngx.header['X-Client'] = #ngx.var.limit_sliding_client
        }
        log_by_lua_block {
            ngx.shared.ran:set('log' .. ngx.var.arg_key, limits())
        }
    }
    location /read-only {
        limit_sliding zone=two;
        content_by_lua_block {
            answer(pcall(function ()
                ngx.var.limit_sliding_remaining = 7
            end) and 'set' or 'refused')
        }
    }
CONF

    my $r = $nginx->get('/variables?key=k');
    my $passed = qr/PASSED two 2 1 \d+ local/;
    my $none = 'nil nil nil nil nil nil';
    like $r->{body}, qr/^$none; $passed; $passed$/, 'variables';
    like header($r, 'X-Limits'), qr/^$passed$/, 'header_filter_by_lua';
    is header($r, 'X-Client'), 4, 'an address, binary';
    ok wait_for(sub { ran('log', 'k') =~ /^$passed$/ }), 'log_by_lua';

    # A worker logs a request when the client has its response, so the next one
    # could be logged before it.
    $nginx->get('/variables?key=k');
    wait_for(sub { ran('log', 'k') =~ /^PASSED two 2 0 / });
    $nginx->get('/variables?key=k');
    ok wait_for(sub { ran('log', 'k') =~ /^REJECTED two 2 0 \d+ local$/ }),
        'log_by_lua, rejected';
    is get('/read-only', 'l'), 'refused', 'variables are read-only';
}

# Returns the directives of a section with limits that may hold a request back.
sub waiting() {
    return (http => <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=far:1m rate=2 window=30d $REDIS;
    limit_sliding_zone \$arg_key zone=many:1m rate=50 window=30d;
    limit_sliding_zone \$arg_key zone=faraway:1m rate=50 window=30d $REDIS;
    limit_sliding_zone \$arg_key zone=queue:1m rate=20r/s burst=9
        algorithm=leaky_bucket;
HTTP
    location /far {
        limit_sliding zone=far;
        access_by_lua_block { ran('far') ngx.sleep(0.002) ran('slept') }
        content_by_lua_block { answer(limits()) }
    }
    location /faraway {
        limit_sliding zone=faraway;
        limit_sliding zone=many after_auth;
        access_by_lua_block { ran('faraway') ngx.sleep(0.001) }
        content_by_lua_block { ngx.sleep(0.001) answer('content') }
    }
    location /queue {
        limit_sliding zone=queue;
        access_by_lua_block { ran('queue') ngx.sleep(0.001) }
        empty_gif;
    }
SERVER
}

sub capturing() {
    return <<'CONF';
    location /capture {
        limit_sliding zone=many;
        content_by_lua_block {
            local args = { args = ngx.var.args }
            local text = {}
            for i = 1, 3 do
                text[i] = ngx.location.capture('/access', args).status
            end
            local all = { ngx.location.capture_multi {
                { '/exit-none', args }, { '/far', args },
                { '/faraway', args }, { '/queue', args } } }
            for _, response in ipairs(all) do
                text[#text + 1] = response.status
            end
            answer(table.concat(text, ' '))
        }
    }
    location /exit-none { limit_sliding zone=two; empty_gif; }
CONF
}

sub try_subrequests() {
    my %waiting = waiting();
    $nginx->serve(%waiting, server => <<"CONF");
    $waiting{server}
    ${\ capturing() }
    location /capture-access {
        limit_sliding zone=far;
        access_by_lua_block {
            if ngx.location.capture('/access', { args = ngx.var.args }
                ).status ~= 200 then ngx.exit(500) end
        }
        content_by_lua_block { answer(limits()) }
    }
CONF

    is get('/capture', 'm'), '200 200 200 200 200 200 200',
        'ngx.location.capture';
    is used('m'), 0, '... is not limited';
    is statuses('/capture-access', 'n'), '200 200 429 429',
        'ngx.location.capture in access';
}

sub try_waiting() {
    my %waiting = waiting();
    $nginx->serve(%waiting, server => <<"CONF");
    $waiting{server}
    location /far-exit {
        limit_sliding zone=far;
        access_by_lua_block { ngx.sleep(0.001) ngx.exit(403) }
        empty_gif;
    }
    location /body {
        limit_sliding zone=far;
        access_by_lua_block { ngx.req.read_body() }
        content_by_lua_block { answer(#ngx.req.get_body_data()) }
    }
    location /read-in-rewrite {
        limit_sliding zone=far;
        rewrite_by_lua_block { ngx.req.read_body() }
        content_by_lua_block { answer(#ngx.req.get_body_data()) }
    }
CONF

    my $source = $redis ? 'redis' : 'local';
    like get('/far', 'o'), qr/^PASSED far 2 1 \d+ $source$/, 'in Redis';
    is statuses('/far', 'o'), '200 429 429 429', '... limited';
    is ran($_, 'o'), 2, "... Lua ran: $_"
        for qw(far slept);
    is statuses('/far-exit', 'p'), '403 403 429 429',
        'in Redis: ngx.exit(403)';
    is get($_, "q$_", method => 'POST', body => 'x' x 5000), 5000,
        "in Redis: $_" for qw(/body /read-in-rewrite);
    is statuses('/queue', 'r'), '200 200 200 200', 'delayed';
}

# Many requests come at once, and some clients go away.
sub try_many() {
    my %waiting = waiting();
    $nginx->serve(%waiting, server => $waiting{server} . capturing());

    for my $path ('/faraway', '/capture') {
        my %count;
        $count{ $_ // 'none' }++ for @{ $nginx->load(
            requests => [ ("$path?key=s$path") x 400 ]) };
        is_deeply \%count, { 200 => 50, 429 => 350 }, "$path: exactly 50";
    }
    is ran('faraway', 's/faraway'), 50, '... Lua ran';

    for (1 .. 100) {
        close $nginx->send_request("/faraway?key=t$_");
        close $nginx->send_request("/queue?key=t");
    }
    is statuses('/faraway', 'u', 2), '200 200', 'clients went away';
}

# ran() counts, answer() is all of a response, limits() tells the variables.
sub lua_functions() {
    return <<'CONF';
    init_by_lua_block {
        function ran(place)
            ngx.shared.ran:incr(place .. (ngx.var.arg_key or ''), 1, 0)
        end
        function answer(text)
            ngx.header['Content-Length'] = #tostring(text)
            ngx.print(text)
        end
        function limits()
            local text = {}
            for _, name in ipairs { 'status', 'zone', 'limit', 'remaining',
                                    'reset', 'source' } do
                text[#text + 1] = ngx.var['limit_sliding_' .. name] or 'nil'
            end
            return table.concat(text, ' ')
        end
    }
CONF
}
