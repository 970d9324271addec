# NGINX's debug log, in which everything about connections is written: decisions are
# the same, and no secret is told. The password's file has an end of line of Windows.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my $SECRET = 'secret-word-of-redis';

my $redis = LimitSliding::Redis->new(config => { requirepass => $SECRET },
    password => $SECRET)->start;
my $other = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($other)->start;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
$nginx->write_file('password', "$SECRET\r\n");
chmod 0600, $nginx->dir . '/password';
$nginx->start(<<"CONF");
%%GLOBALS%%
error_log %%DIR%%/debug.log debug;
http {
    %%HTTP_GLOBALS%%
    limit_sliding_log_level off;
    limit_sliding_redis shared {
        server ${\ $redis->server};
        password_file password;
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_redis other {
        server ${\ $fake->server};
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=4 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=two:1m rate=2 window=30d redis=other;
    limit_sliding_zone \$arg_key zone=sync:1m rate=2 window=30d redis=shared sync=20ms;
    add_header X-Source \$limit_sliding_source always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /one    { limit_sliding zone=one; empty_gif; }
        location /two    { limit_sliding zone=two; empty_gif; }
        location /both   { limit_sliding zone=one; limit_sliding zone=two; empty_gif; }
        location /sync   { limit_sliding zone=sync; empty_gif; }
        location /paid   { limit_sliding zone=one settle=\$arg_cost; empty_gif; }
        location /limits { limit_sliding_api write=on; }
    }
}
CONF

is $nginx->statuses(5, '/one?key=a'), '200 200 200 200 429', 'one limit';
is header($nginx->get('/one?key=b'), 'X-Source'), 'redis', '... by Redis';
is $nginx->statuses(3, '/both?key=c'), '200 200 429', 'two limits of two servers';
is $nginx->statuses(3, '/paid?key=d&cost=2'), '200 200 429', 'one that is settled';
is $nginx->statuses(3, '/sync?key=e'), '200 200 429', 'one that is told later';
is api_key($nginx, 'one', 'a', 'PUT', '&rate=9')->{http}, 200, 'a limit of its own';
is limits_page($nginx, 'one')->{http}, 200, 'the list of these';

# Clients that leave while Redis is asked, and an answer that comes for nobody
$fake->mode('delay', 0.3);
my @sockets = map { $nginx->send_request("/$_?key=f") } qw(two both two);
push @sockets, $nginx->send_request('/limits/zones/two/limits');
sleep 0.1;
close $_ for @sockets;
sleep 0.5;
$fake->mode('pass');
ok wait_for(sub { header($nginx->get('/two?key=g'), 'X-Source') eq 'redis' }),
    'clients leave';
is api_key($nginx, 'two', 'f')->{used}, 2, '... and pay, up to the limit';

my ($worker) = $nginx->workers;
$nginx->reload;
ok !kill(0, $worker), 'the worker exits';

open my $file, '<', $nginx->dir . '/debug.log' or die $!;
my $log = do { local $/; <$file> };
SKIP: {
    skip 'NGINX without --with-debug', 1 if $log !~ /\[debug\]/;
    like $log, qr/\[debug\] .* post event/, 'the log tells of events';
}
is index($log, $SECRET), -1, '... and no password';

$nginx->finish;
