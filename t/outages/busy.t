# A worker that is busy, or stopped, for longer than `timeout` takes what Redis has
# answered meanwhile, and does not blame Redis for its own delay.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Peers qw(lua_modules);
use LimitSliding::Redis;
use LimitSliding::Test;

my $TIMEOUT = 0.3;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

my @LUA = LimitSliding::Test->new->has_lua ? () : lua_modules();
my $HAS_LUA = @LUA || LimitSliding::Test->new->has_lua;

my $nginx = LimitSliding::Test->new(worker_processes => 1, before => \@LUA);
$nginx->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server ${\ $fake->server};
        timeout ${\ int 1000 * $TIMEOUT}ms; connect_timeout 5s; on_error allow;
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=100 window=30d redis=shared;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /limits { limit_sliding_api; }
    location /one    { limit_sliding zone=one; empty_gif; }
SERVER

sub source($response) { return header($response, 'X-Source') }

# Returns how often Redis was blamed.
sub failures() {
    return api($nginx)->{redis}{shared}{failed_calls};
}

# Lets Redis decide once, so that there is a connection.
sub connected() {
    return ok wait_for(sub { source($nginx->get('/one?key=first')) eq 'redis' }),
        'Redis decides';
}


# A stopped worker: its timers end before it reads the reply that has come meanwhile,
# as the system ends its wait for events without any.

$nginx->serve;
connected();
for my $attempt (1 .. 3) {
    $fake->mode('delay', $TIMEOUT / 2);
    $fake->forget;
    my $socket = $nginx->send_request("/one?key=$attempt");
    is $fake->stats->{commands}{EVALSHA}, 1, 'Redis is asked';
    my ($worker) = $nginx->workers;
    kill 'STOP', $worker;
    sleep 2 * $TIMEOUT;
    kill 'CONT', $worker;
    is source($nginx->read_response($socket)), 'redis', '... and was read in the end';
    $fake->mode('pass');
}
is failures(), 0, '... nothing has failed';


# Long turns of the event loop, one after the other: what one of them asks is sent at its
# end, and the next one has begun before that was answered.

SKIP: {
    skip 'no ngx_lua: libnginx-mod-http-lua', 3 if !$HAS_LUA;

    my $busy_us = 1.2e6 * $TIMEOUT;
    $nginx->serve(server => <<"SERVER");
    location /busy {
        rewrite_by_lua_block {
            local ffi = require "ffi"
            ffi.cdef "int usleep(unsigned);"
            ffi.C.usleep($busy_us)
        }
        limit_sliding zone=one;
        empty_gif;
    }
SERVER
    connected();
    my @sockets = map { $nginx->send_request("/busy?key=$_") } 1 .. 6;
    is join(' ', map { source($nginx->read_response($_)) } @sockets),
        join(' ', ('redis') x 6), 'long turns: Redis decides all the same';
    is failures(), 0, '... nothing has failed';
}


# A Redis that does not answer is blamed in time.

$fake->mode('mute');
is source($nginx->get('/one?key=mute')), 'fallback', 'a Redis that hangs';
is failures(), 1, '... has failed';
$fake->mode('pass');

$nginx->finish;
