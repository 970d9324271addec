# Costs are settled once, however a request ends.  The test is the upstream as
# well, so that it decides what has been sent when something happens.

use v5.36;

use IO::Select;
use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;
my $upstream = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1')
    // die "listen: $@";
my $port = $upstream->sockport;

my %conf = (http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $arg_key zone=one:1m rate=1000 window=30d;
    limit_sliding_zone $arg_key zone=sent:1m rate=1000000000 window=30d;
    log_format ends "$arg_key $status";
    map $http_upgrade $hop { default upgrade; '' ''; }
HTTP
    http2_listen 127.0.0.1:%%PORT1%% reuseport;
    access_log %%DIR%%/access.log ends;
    proxy_http_version 1.1;
    proxy_buffering off;
    proxy_read_timeout 30s;

    location /limits { limit_sliding_api; }
    location /up {
        limit_sliding zone=one settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:$port;
        proxy_set_header Upgrade \$http_upgrade;
        proxy_set_header Connection \$hop;
    }
    location /sent {
        limit_sliding zone=sent settle=\$bytes_sent;
        proxy_pass http://127.0.0.1:$port;
    }
    location /short {
        limit_sliding zone=one settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:$port;
        proxy_read_timeout 300ms;
    }
    location /next {
        limit_sliding zone=one settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:$port;
        proxy_intercept_errors on;
        error_page 500 502 = /up;
    }
SERVER

$nginx->common(%conf);
$nginx->serve;

sub used($key, $zone = 'one') { return api_key($nginx, $zone, $key)->{used} }

# Asserts what a request of this key has cost once it has ended.
sub costs($key, $cost, $name) {
    sleep 0;                  # until NGINX knows that it has ended
    return is used($key), $cost, $name;
}

# Waits for a request that NGINX has sent on; returns its connection.
sub receive {
    IO::Select->new($upstream)->can_read(30) or die "no request\n";
    my $socket = $upstream->accept // die "accept: $!";
    my $head = '';
    while ($head !~ /\r\n\r\n/) { sysread $socket, $head, 4096, length $head or last }
    return $socket;
}

sub answer($socket, $cost, @more) {
    syswrite $socket, join "\r\n", 'HTTP/1.1 200 OK', "X-Cost: $cost", 'Content-Length: 1000',
        @more, '', 'begun';
}

# Sends a request, and returns its connection and that of the upstream, which
# has begun to answer.
sub begin($uri, $cost) {
    my $client = $nginx->send_request($uri);
    my $server = receive();
    answer($server, $cost);
    IO::Select->new($client)->can_read(30) or die "no response\n";
    return ($client, $server);
}


# a client that goes away

my ($client, $server) = begin('/up?key=abort', 70);
is used('abort'), 1, 'under way: reserved';
close $client;
costs('abort', 70, 'aborted: settled');
close $server;

$client = $nginx->send_request('/up?key=early');
$server = receive();
close $client;
ok IO::Select->new($server)->can_read(0), 'aborted early: the upstream knows';
is used('early'), 1, 'aborted before the response began: the reservation stands';
close $server;

($client, $server) = begin('/sent?key=bytes', 0);
close $client;
sleep 0;
cmp_ok used('bytes', 'sent'), '>', 50, 'aborted: what was sent is charged';
close $server;


# an upstream that fails

($client, $server) = begin('/up?key=broken', 30);
close $server;
costs('broken', 30, 'the upstream breaks off: settled');
close $client;

$client = $nginx->send_request('/up?key=closed');
close receive();
is $nginx->read_response($client)->{status}, 502, 'the upstream closes';
costs('closed', 1, 'no response: the reservation stands');

$client = $nginx->send_request('/short?key=slow');
$server = receive();
is $nginx->read_response($client)->{status}, 504, 'the upstream is late';
costs('slow', 1, 'late: the reservation stands');
close $server;

$client = $nginx->send_request('/next?key=next');
close receive();
$server = receive();
answer($server, 40);
close $server;
$nginx->read_response($client);
costs('next', 40, 'error_page asks another one: settled once, by the last');


# streams of HTTP/2

SKIP: {
    skip 'no nghttp', 1 unless $nginx->has_http2;

    my $frame = sub ($type, $flags, $stream, $payload = '') {
        substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $stream) . $payload;
    };
    my $path = '/up?key=reset';
    my $socket = $nginx->connect(port => 1);
    syswrite $socket, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . $frame->(4, 0, 0)
        . $frame->(1, 5, 1, "\x82\x86\x04" . chr(length $path) . "$path\x01\x09localhost");
    $server = receive();
    answer($server, 55);
    ok wait_for(sub { sysread $socket, my $buffer, 65536; $buffer =~ /begun/ }),
        'HTTP/2: the response has begun';
    syswrite $socket, $frame->(3, 0, 1, pack 'N', 8);
    costs('reset', 55, 'HTTP/2: a stream that is reset is settled');
    close $server;
}


# upgraded connections

$client = $nginx->send_request('/up?key=upgraded', socket => $nginx->connect,
    headers => [ 'Upgrade: websocket', 'Connection: upgrade' ]);
$server = receive();
syswrite $server, "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    . "X-Cost: 20\r\n\r\n";
sysread $client, my $said, 4096;
like $said, qr/ 101 /, 'upgraded';
syswrite $client, 'ping';
sysread $server, $said, 4096;
is $said, 'ping', 'upgraded: both ways';
is used('upgraded'), 1, 'upgraded: reserved while it is open';
close $client;
costs('upgraded', 20, 'upgraded: settled when it closes');
close $server;


# reload and shutdown while a stream runs

($client, $server) = begin('/up?key=reload', 80);
my @old = $nginx->workers;
$nginx->hup;
ok wait_for(sub { my %now = map { $_ => 1 } $nginx->workers; keys %now == 2 && !grep { $now{$_} } @old }),
    'new workers serve';
is used('reload'), 1, 'reload: reserved';
syswrite $server, 'x' x 995;
close $server;
is length $nginx->read_response($client)->{body}, 1000, 'reload: the stream goes on';
costs('reload', 80, 'reload: the old worker settles');

$nginx->stop;
$nginx->start("worker_shutdown_timeout 1s;\n" . $nginx->template);
($client, $server) = begin('/up?key=shutdown', 90);
$nginx->hup;
sleep 1.099;              # the master tells old workers 100 ms after it has started new ones
is used('shutdown'), 1, 'shutdown: a stream goes on until the timeout';
sleep 0.001;
costs('shutdown', 90, 'shutdown: a stream that is cut off is settled');
close $_ for $client, $server;


# a worker that is killed

$nginx->serve;
($client, $server) = begin('/up?key=killed', 60);
my @workers = $nginx->workers;
$nginx->kill_worker($_) for @workers;
ok wait_for(sub { 2 == $nginx->workers }), 'killed: others come';
is used('killed'), 1, 'killed: the reservation stands';
close $_ for $client, $server;

$nginx->finish(allow => [ qr/open socket .* left in connection/, qr/aborting/ ]);
