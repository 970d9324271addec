# sync= and answers that come while a request waits for something else, or after a
# worker was stopped.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT = 4;

my $told = LimitSliding::Redis->new->start;
my $asked = LimitSliding::Redis->new->start;

# Makes an NGINX with two zones, and how its Redis's are spoken to.
sub node($sync, $settings) {
    my $nginx = LimitSliding::Test->new->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_log_level off;
    add_header X-Worker \$pid always;
    limit_sliding_redis told  { server @{[ $told->server ]}; $settings }
    limit_sliding_redis asked { server @{[ $asked->server ]}; $settings }
    limit_sliding_zone \$arg_key zone=told:1m  rate=$LIMIT window=30d redis=told sync=$sync;
    limit_sliding_zone \$arg_key zone=asked:1m rate=1 window=30d redis=asked;
HTTP
    location /told { limit_sliding zone=told; empty_gif; }
    location /both { limit_sliding zone=told; limit_sliding zone=asked; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
    return $nginx;
}

sub used($nginx, $key) {
    return api_key($nginx, 'told', $key)->{used} // -1;
}

# Returns how many bytes lie in the kernel that a Redis has not read.
sub queued($redis) {
    my $port = sprintf ':%04X', $redis->port;
    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    return sum0 map { /^ *\d+: \S+$port \S+ 01 \S+:(\S+)/ ? hex $1 : () } <$file>;
}

# Has two requests wait for the Redis of the other limit, which admits one of them.
# `meanwhile` is called while they wait. Returns their statuses.
sub wait_both($nginx, $key, $meanwhile) {
    $asked->freeze;
    my @sockets = map { $nginx->send_request("/both?key=$key") } 1 .. 2;
    $meanwhile->();
    $asked->thaw;
    return join ' ', sort map { $nginx->read_response($_)->{status} // 'none' } @sockets;
}


# An answer comes while a limit of the same place waits for another Redis: what was
# reserved is not forgotten.

my $nginx = node('5s', 'timeout 10s; connect_timeout 10s;');
$nginx->serve;

is wait_both($nginx, 'a', sub {
    is $nginx->statuses(1, '/told?key=a'), '200', 'one passes beside two that wait';
    is used($nginx, 'a'), 1, '... and Redis has answered';
}), '200 429', '... one of which is rejected';
is $nginx->statuses($LIMIT, '/told?key=a'), '200 200 429 429', '... the limit holds';
$nginx->finish_one;

# What Redis was told meanwhile is given back there, too.

$nginx = node('50ms', 'timeout 10s; connect_timeout 10s;');
$nginx->serve;

is wait_both($nginx, 'b', sub {
    sleep 0.05;
    is used($nginx, 'b'), 2, 'Redis is told of two that wait';
}), '200 429', '... one of which is rejected';
sleep 0.05;
is used($nginx, 'b'), 1, '... it is given back';
is $nginx->statuses($LIMIT, '/told?key=b'), '200 200 200 429', '... the limit holds';
sleep 0.05;
is used($nginx, 'b'), $LIMIT, '... and Redis knows of all';
$nginx->finish_one;


# A worker is stopped while its call is under way, and reads the answer once another
# one has told more of the key, which it does after both timeouts and two seconds.

$nginx = node('50ms', 'timeout 200ms; connect_timeout 200ms;');
$nginx->serve;

my $first = $nginx->connect;
my $worker = header($nginx->get('/told?key=warm', socket => $first), 'X-Worker');
sleep 0.05;
is used($nginx, 'warm'), 1, 'a worker has a connection';

$told->freeze;
is $nginx->get('/told?key=c', socket => $first)->{status}, 200, 'one passes';
cmp_ok queued($told), '>', 0, '... whose call is under way';
kill 'STOP', $worker or die "kill: $!";
$told->thaw;
sleep 3.5;
is $nginx->statuses($LIMIT - 1, '/told?key=c'), '200 200 200', '... and three by the other';
sleep 0.05;
is used($nginx, 'c'), $LIMIT, '... which tells Redis of all';
kill 'CONT', $worker or die "kill: $!";
sleep 0;                  # until it has read the answer
is $nginx->get('/told?key=c', socket => $first)->{status}, 429, '... the limit holds';
is $nginx->statuses($LIMIT, '/told?key=c'), '429 429 429 429', '... for all workers';

$nginx->finish_one;


# A cost for which Redis has room only in later windows, and replies that take longer than a
# window: no unit is taken for one of a window that has ended, but for those that the node has
# paid off before Redis heard of them.

my $slow = LimitSliding::FakeRedis->new($told)->start;
$nginx = LimitSliding::Test->new(worker_processes => 1)->serve(
    http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis slow { server @{[ $slow->server ]}; timeout 5s; connect_timeout 5s; }
    limit_sliding_zone \$arg_key zone=told:1m rate=100 window=200ms redis=slow sync=10ms;
HTTP
    location /told { limit_sliding zone=told settle=$arg_cost; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
$slow->mode('delay', 0.5);
is $nginx->statuses(1, '/told?key=settled&cost=20000'), '200', 'slow replies: a cost is settled';
sleep 3;
$slow->mode('pass');
ok wait_for(sub { used($nginx, 'settled') > 50 }), '... over many windows';
cmp_ok api($nginx)->{redis}{slow}{unsettled}, '<=', 2 * 100,
    '... and nothing of it is lost after the first reply';
$nginx->finish;
