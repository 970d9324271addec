package LimitSliding::RedisLoad;

# Functions that benchmarks of limits in Redis share: one worker of NGINX, one
# Redis, and beside them t/bench/limiter.lua.

use v5.36;

use Exporter qw(import);

use LimitSliding::Api qw(api);
use LimitSliding::Generator;
use LimitSliding::Peers qw($LUA_PATH lua_modules);
use LimitSliding::Test;

our @EXPORT = qw(complaints lua_limit lua_limiter metered zone);

# Returns the directives that the limiter in Lua needs, to load modules and of
# http{}; nothing if there is no Lua here, or no client for Redis in it.
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

# Returns the directive for a limit an hour.  The server, as limiter.lua takes
# it, and the key are in Lua.
sub lua_limit($server, $key, $rate) {
    return "access_by_lua_block { require('limiter').limit({ $server }, $key,"
        . " 3600000, $rate) }";
}

# Returns the figures of a load, which $load makes and returns, and its cost:
# CPU of the worker, of Redis and of both, us a request, and calls a request.
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

# Returns the JSON of a zone of the API, which is at /limits.
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
