# Whatever way a request ends, what it holds is free at once.

use v5.36;

use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER SO_RCVBUF);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Frames;
use LimitSliding::Test;
use LimitSliding::Upstream;

# It accepts connections, and never answers.
my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
    LocalAddr => '127.0.0.1') // die "listen: $!";
my $SILENT = 'http://127.0.0.1:' . $silent->sockport;
my $CLOSED = LimitSliding::Test::reserve_port();
my $LONG = 'x' x 200_000;
my $SLOW = 1;             # seconds until a slow response
my $UPGRADED = 2;         # ... until the upstream closes an upgraded connection

my $upstream = LimitSliding::Upstream->new(sub ($request) {
    return { framing => 'raw', parts => [
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            . "Connection: Upgrade\r\n\r\nhello", sub { sleep $UPGRADED } ] }
        if $request->{path} =~ /upgrade/;
    return { framing => 'raw', parts => ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"] }
        if $request->{path} =~ /short/;
    return { framing => 'raw', parts => [ sub { sleep $SLOW },
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow" ] }
        if $request->{path} =~ /slow/;
    return { status => 500, parts => ['error'] } if $request->{path} =~ /error/;
    return { headers => ['X-Accel-Redirect: /small'], parts => [''] }
        if $request->{path} =~ /accel-to/;
    return { framing => 'raw', parts => [ sub { sleep $SLOW }, "HTTP/1.1 200 OK\r\n"
        . "Cache-Control: max-age=1\r\nContent-Length: 5\r\n\r\nstale" ] }
        if $request->{path} =~ /stale/;
    return { parts => ['fine'] };
});
my $UP = 'http://' . $upstream->server;

my $nginx = LimitSliding::Test->new;
$nginx->write_file('html/page', $LONG);
$nginx->write_file('html/small', 'small');
$nginx->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$arg_key zone=held:1m inflight=1;
    limit_sliding_zone \$arg_key zone=queue:1m rate=1 window=1h algorithm=leaky_bucket burst=9;
    limit_sliding_zone \$arg_key zone=asked:1m rate=9 window=1h redis=silent;
    limit_sliding_redis silent { server ${\ ($SILENT =~ s/^http:..//r)}; timeout 20s; }
    proxy_cache_path %%DIR%%/cache keys_zone=cache:1m;
    limit_sliding zone=held;
    server {
        listen 127.0.0.1:%%PORT%%;
        http2_listen 127.0.0.1:%%PORT1%%;
        location / { }
        location /limits { limit_sliding off; limit_sliding_api; }
        location /silent { proxy_pass $SILENT; }
        location /timeout { proxy_pass $SILENT; proxy_read_timeout 100ms; }
        location /refused { proxy_pass http://127.0.0.1:$CLOSED->{port}; }
        location /up/ { proxy_pass $UP/; proxy_http_version 1.1; }
        location /unbuffered/ { proxy_pass $UP/; proxy_buffering off; }
        location /upgrade {
            proxy_pass $UP;
            proxy_http_version 1.1;
            proxy_set_header Upgrade \$http_upgrade;
            proxy_set_header Connection upgrade;
        }
        location /cached/ {
            proxy_pass $UP/;
            proxy_cache cache;
            proxy_cache_valid 200 1h;
            proxy_cache_key cached;
        }
        location /errors { error_page 404 = \@page; root %%DIR%%/none; }
        location \@page { try_files /small =500; }
        location /redirected { rewrite ^ /small last; }
        location /accel/ { proxy_pass $UP/; error_page 500 =200 /small; proxy_intercept_errors on; }
        location /denied { deny all; }
        location = /auth { internal; proxy_pass $UP/; }
        location /asked { auth_request /auth; empty_gif; }
        location /accel-to { proxy_pass $UP; }
        location /stale {
            proxy_pass $UP;
            proxy_cache cache;
            proxy_cache_key stale;
            proxy_cache_use_stale updating;
            proxy_cache_background_update on;
        }
        location = /auth-slow { internal; proxy_pass $UP/slow; }
        location /auth-waits { auth_request /auth-slow; empty_gif; }
        location /queued { limit_sliding zone=held; limit_sliding zone=queue; empty_gif; }
        location /in-redis { limit_sliding zone=held; limit_sliding zone=asked; empty_gif; }
        location /after-auth {
            limit_sliding zone=held after_auth;
            auth_request /auth;
            proxy_pass $SILENT;
        }
        location /later { error_page 404 = \@answer; root %%DIR%%/none; }
        location \@answer { return 204; }
        location /after { add_after_body /small; add_before_body /small; try_files /small =500; }
        location /mirrored { mirror /mirror; empty_gif; }
        location /mirror { internal; proxy_pass $UP/slow; }
        location /precondition { alias %%DIR%%/html/small; }
        location /big { client_max_body_size 10; proxy_pass $UP/; }
        location /body { proxy_pass $UP/; client_body_timeout 100ms; }
        location /post { post_action /silent-after; empty_gif; }
        location /silent-after { internal; proxy_pass $UP/slow; }
        location /slice { slice 1k; proxy_set_header Range \$slice_range; proxy_pass $UP/; }
    }
}
CONF

my $passed = 0;

# Asserts that the zone holds so many units, once NGINX has done what it can without time.
sub holds($units, $name) {
    sleep 0;
    my $zone = api($nginx)->{zones}{held};
    is "$zone->{held} $zone->{in_flight}", "$units $units", $name;
    return $zone;
}

# Asserts that one more request has passed, and that none is in flight.
sub ended($name, $more = 1) {
    my $zone = holds(0, "$name: all is free");
    is $zone->{passed} - $passed, $more, '... and was held';
    $passed = $zone->{passed};
}

sub answers($path, $status, $name, %opt) {
    is $nginx->get("$path?key=k", %opt)->{status}, $status, $name;
    ended($name);
}

# Sends a request, waits until it holds a unit, and returns its connection.
sub begin($path, %opt) {
    my $client = $nginx->send_request("$path?key=k", %opt);
    holds(1, "$path: held");
    return $client;
}


# requests that NGINX ends

answers('/small', 200, 'a file');
answers('/small', 304, 'not modified', headers => ['If-None-Match: *']);
answers('/precondition', 412, 'a filter that finalizes the request',
    headers => ['If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT']);
answers('/none', 404, 'no file');
answers('/small', 405, 'a wrong method', method => 'POST');
answers('/denied', 403, 'denied in the same phase');
answers('/asked', 200, 'auth_request');
answers('/errors', 200, 'error_page');
answers('/later', 204, 'return after error_page');
answers('/redirected', 200, 'rewrite');
answers('/accel/error', 200, 'an error of the upstream');
answers('/accel-to', 200, 'X-Accel-Redirect');
answers('/refused', 502, 'no upstream');
answers('/timeout', 504, 'an upstream that times out');
answers('/up/', 200, 'an upstream');
answers('/unbuffered/', 200, 'an upstream without buffers');
answers('/up/short', 200, 'an upstream that breaks off');
answers('/unbuffered/short', 200, '... without buffers');
answers('/cached/', 200, 'a miss of the cache');
answers('/cached/', 200, 'a hit');
answers('/after', 200, 'subrequests');
is $nginx->get('/big?key=k', method => 'POST', body => $LONG)->{status}, 413,
    'a body that is too large';
ended('... before any limit', 0);
answers('/slice', 200, 'slices');

my $keep = $nginx->connect;
is $nginx->get('/small?key=k', socket => $keep)->{status}, 200, 'keepalive';
ended('keepalive, while the connection stays');
is $nginx->get('/small?key=k', socket => $keep)->{status}, 200, '... the next request';
ended('... of the same connection');

# A subrequest in the background, and a post_action, belong to the request, as long
# as the client stays.
my $open = $nginx->connect;
is $nginx->get('/mirrored?key=k', socket => $open)->{status}, 200, 'a mirror';
is $nginx->get('/small?key=k')->{status}, 429, '... is in flight after the response';
sleep $SLOW;
ended('... until it ends');
is $nginx->get('/stale?key=k')->{status}, 200, 'a response to be cached';
ended('... once it is there');
sleep 2.1;                # past max-age, which ends at a full second
is $nginx->get('/stale?key=k', socket => $open)->{status}, 200, 'a stale one';
is $nginx->get('/small?key=k')->{status}, 429, '... is in flight while it is updated';
sleep $SLOW;
ended('... until that ends');
is $nginx->get('/post?key=k', socket => $open)->{status}, 200, 'a post_action';
is $nginx->get('/small?key=k')->{status}, 429, '... is in flight after the response';
sleep $SLOW;
ended('... until it ends');


# clients that leave

close begin('/silent');
ended('a client that leaves');

my $client = begin('/silent');
setsockopt $client, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
close $client;
ended('a connection that is reset');

$client = begin('/up/slow');
close $client;
ended('a client that leaves during a response');

my $page = $nginx->connect;
setsockopt $page, SOL_SOCKET, SO_RCVBUF, 4096;
syswrite $page, "GET /page?key=k HTTP/1.1\r\nHost: a\r\n\r\n";
sysread $page, my $some, 1000;
close $page;
ended('a client that does not read all');

$client = $nginx->connect;
syswrite $client, "POST /up/?key=k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour";
holds(1, 'a body to come');
close $client;
ended('a client that leaves during its body');

$client = $nginx->connect;
syswrite $client, "POST /body?key=k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour";
$nginx->read_response($client);
ended('a body that never comes');


# ... while they wait in each phase that can wait

$nginx->get('/queued?key=k');
ended('the queue is in use');
my %waits = (
    '/queued'     => 'a queue',
    '/in-redis'   => 'Redis',
    '/auth-waits' => 'a slow authentication',
    '/after-auth' => 'an upstream, with after_auth',
);
# A request that leaves before Redis has decided does not count as passed.
sub was_decided($path) { return $path eq '/in-redis' ? 0 : 1 }

for my $path (sort keys %waits) {
    close begin($path);
    ended("a client that leaves while it waits for $waits{$path}", was_decided($path));
}

$client = $nginx->connect;
syswrite $client, "POST /mirrored?key=k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfour";
holds(1, 'a body that mirror reads');
close $client;
ended('a client that leaves during a body that mirror reads');


# an upgraded connection

for my $who (qw(client upstream)) {
    $client = begin('/upgrade', headers => ['Upgrade: websocket']);
    my $answer = '';
    sysread $client, $answer, 4096, length $answer while $answer !~ /hello/;
    like $answer, qr/^HTTP\/1.1 101/, 'an upgraded connection';
    is $nginx->get('/small?key=k')->{status}, 429, '... is in flight';
    if ($who eq 'client') { close $client } else { sleep $UPGRADED }
    ended("... until the $who closes it");
}


# HTTP/2

SKIP: {
    skip 'no nghttp', 1 unless $nginx->has_http2;

    my $socket = $nginx->connect(port => 1);
    syswrite $socket, greeting() . request(1, '/silent?key=k');
    holds(1, 'HTTP/2: a stream');
    syswrite $socket, reset_stream(1);
    ended('... that is reset');

    syswrite $socket, request(3, '/silent?key=k') . reset_stream(3);
    ended('... at once');

    my $stream = 5;
    for my $path (sort keys %waits) {
        syswrite $socket, request($stream, "$path?key=k");
        holds(1, "HTTP/2: a stream that waits for $waits{$path}");
        syswrite $socket, reset_stream($stream);
        ended('... that is reset', was_decided($path));
        $stream += 2;
    }

    syswrite $socket, request($stream, '/silent?key=k');
    holds(1, 'HTTP/2: a stream');
    close $socket;
    ended('... whose connection closes');

    is +($nginx->http2('/small?key=k', port => 1))[0]{status}, 200, 'HTTP/2: a file';
    ended('... that ends');
}

$nginx->finish;
