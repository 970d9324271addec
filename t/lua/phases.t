# Where Lua may use limits: in each phase of ngx_lua, a zone in shared memory, a zone that asks
# Redis, one that does so in the background, and a hold.

use v5.36;

use Test::More;

use LimitSliding::Lua;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;

# Remembers what a phase may do.
my $TRY = <<'LUA';
    function try(phase)
        local said = {}
        for _, name in ipairs { 'here', 'there', 'synced' } do
            local zone, err = limits.zone(name)
            local verdict
            if zone then verdict, err = zone:take(phase) end
            said[#said + 1] = verdict and (verdict.admitted and 'admitted' or 'rejected') or err
        end
        local held, err = limits.zone('held')
        if held then held, err = held:hold(phase) end
        said[#said + 1] = held and 'true' or err
        local text = table.concat(said, ' ')
        if phase == 'init' or phase == 'exit_worker' then
            ngx.log(ngx.NOTICE, 'said in ' .. phase .. ': ' .. text)
        else
            ngx.shared.said:set(phase, text)
        end
    end
    try('init')
LUA

# The order of the modules is the order in which their hooks begin a worker.
for my $last (0, 1) {
    my $nginx = lua_nginx(last => $last, worker_processes => 1, init => $TRY);
    my $name = 'limit_sliding loaded ' . ($last ? 'last' : 'first');
    next if $last && !$nginx->is_dynamic;
    subtest $name => sub { try_phases($nginx) };
}
done_testing;

sub try_phases($nginx) {
    $redis->command('FLUSHALL');
    mkdir $nginx->dir . '/tls';
    LimitSliding::Redis::certificates($nginx->dir . '/tls') if $nginx->has_ssl;
    my $ssl = $nginx->has_ssl ? <<'SSL' : '';
    ssl_session_tickets off;
    ssl_session_store_by_lua_block { try('ssl_session_store') }
    server {
        listen 127.0.0.1:%%PORT1%% ssl;
        ssl_certificate %%DIR%%/tls/server.pem;
        ssl_certificate_key %%DIR%%/tls/server.key;
        ssl_certificate_by_lua_block { try('ssl_certificate') }
        location / { return 204; }
    }
SSL
    $nginx->serve(http => <<"HTTP", server => <<'SERVER', later => $ssl);
    limit_sliding_redis shared {
        server ${\ $redis->server}; timeout 20s; connect_timeout 20s;
    }
    limit_sliding_zone \$uri zone=here:1m rate=2 window=30d;
    limit_sliding_zone \$uri zone=there:1m rate=2 window=30d redis=shared;
    limit_sliding_zone \$uri zone=synced:1m rate=2 window=30d redis=shared sync=100ms;
    limit_sliding_zone \$uri zone=held:1m inflight=2;
    lua_shared_dict said 1m;

    init_worker_by_lua_block {
        try('init_worker')
        ngx.timer.at(0, function () try('timer') end)
    }
    exit_worker_by_lua_block { try('exit_worker') }
    upstream chosen {
        server 127.0.0.1:1;
        balancer_by_lua_block {
            try('balancer')
            require('ngx.balancer').set_current_peer('127.0.0.1', ngx.var.server_port)
        }
    }
HTTP
    location = /all {
        set_by_lua_block $set { try('set') return '' }
        rewrite_by_lua_block { try('rewrite') }
        access_by_lua_block { try('access') }
        content_by_lua_block {
            try('content')
            ngx.location.capture('/sub')
            local thread = ngx.thread.spawn(try, 'thread')
            ngx.thread.wait(thread)
            coroutine.wrap(try)('coroutine')
            ngx.say('done')
        }
        header_filter_by_lua_block { try('header_filter') }
        body_filter_by_lua_block { try('body_filter') }
        log_by_lua_block { try('log') }
    }
    location = /sub { content_by_lua_block { try('subrequest') } }
    location = /balanced { proxy_pass http://chosen/empty; }
    location = /empty { return 204; }
SERVER

    # what a phase may do: shared memory, Redis, sync=, hold
    my %may = (
        (map { $_ => 'admitted admitted admitted true' } qw(rewrite access content subrequest thread
            coroutine timer ssl_certificate)),
        (map { $_ => 'admitted cannot yield here admitted true' } qw(set init_worker exit_worker
            header_filter body_filter log balancer ssl_session_store)),
        init => join ' ', ('zones can be used from init_worker_by_lua on') x 4,
    );

    is $nginx->get('/all')->{status}, 200, 'a request through all phases';
    is $nginx->get('/balanced')->{status}, 204, 'a request to an upstream';
    if ($ssl) {
        my $connect = "openssl s_client -connect 127.0.0.1:${\ $nginx->port(1)} -tls1_2 -ign_eof";
        system("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | $connect > /dev/null 2>&1");
    }
    my $said = sub ($phase) { $nginx->lua("say(ngx.shared.said:get('$phase'))") };
    wait_for(sub { $said->('timer') ne 'nil' });

    for my $phase (sort keys %may) {
        next if $phase =~ /^ssl/ && !$ssl || $phase =~ /^init$|exit/;
        is $said->($phase), $may{$phase}, $phase;
    }
    $nginx->stop;
    my ($init, $exit) = map { my $phase = $_;
        join ' ', map { /said in $phase: ([^,\n]*)/ ? $1 : () } $nginx->log } qw(init exit_worker);
    is $init, $may{init}, 'init';
    is $exit, $may{exit_worker}, 'exit_worker';
    $nginx->finish_one;
}
