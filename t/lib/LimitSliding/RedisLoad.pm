package LimitSliding::RedisLoad;

# What benchmarks of limits in Redis share: one worker of NGINX, one Redis, and
# beside them t/bench/limiter.lua.

use v5.36;

use Exporter qw(import);

use LimitSliding::Api qw(api);
use LimitSliding::Generator;
use LimitSliding::Peers qw($LUA_PATH lua_modules);
use LimitSliding::Test;

our @EXPORT = qw(complaints lua_limit lua_limiter metered zone);

# What the limiter in Lua needs: directives to load modules, and of http{};
# nothing if there is no Lua here, or no client for Redis in it.
sub lua_limiter() {
    my $load = join '', map { "load_module $_;\n" } lua_modules();
    return if !$load;

    my $nginx = LimitSliding::Test->new(worker_processes => 1);
    my $started = eval {
        $nginx->start(<<"CONF");
$load
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    $LUA_PATH
    init_by_lua_block { require('limiter') }
}
CONF
    };
    $nginx->stop if $started;

    return $started ? ($load, $LUA_PATH) : ();
}

# The directive for a limit an hour; a server as limiter.lua takes it, in Lua
# as the key is.
sub lua_limit($server, $key, $rate) {
    return "access_by_lua_block { require('limiter').limit({ $server }, $key,"
        . " 3600000, $rate) }";
}

# Figures of a load, which $load makes and returns, and what it has cost: CPU
# of the worker, of Redis and of both, us a request, and calls a request.
sub metered($nginx, $redis, $load) {
    my @pids = (($nginx->workers)[0], $redis->pid);
    my @before = map { cpu_us($_) } @pids;
    my $calls = $redis->calls;

    my $figures = $load->();

    my $requests = $figures->{requests};
    my @cpu = map { (cpu_us($pids[$_]) - $before[$_]) / $requests } 0, 1;
    return {
        %$figures,
        nginx => $cpu[0],
        redis => $cpu[1],
        cpu   => $cpu[0] + $cpu[1],
        calls => ($redis->calls - $calls) / $requests,
    };
}

# What the API, at /limits, tells of a zone.
sub zone($nginx, $name) {
    return api($nginx)->{zones}{$name};
}

# Warns of what NGINX has logged.
sub complaints($nginx) {
    my @lines = $nginx->log_lines(qr/\[(?:error|alert|crit)\]/);
    warn "logged:\n", map { "$_\n" } @lines[0 .. (@lines > 5 ? 4 : $#lines)]
        if @lines;
}

1;
