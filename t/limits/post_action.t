# Clients that leave while their requests wait: NGINX redirects such a request to the
# "post_action" of its place, and frees it only after that.  The wait is over then: what
# the request has waited for comes to nobody, and no phase runs twice.
#
# The test is the upstream of the redirected requests, so that they are under way when
# that comes.

use v5.36;

use Fcntl qw(F_SETLK F_UNLCK F_WRLCK);
use IO::Select;
use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Frames;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;
my $upstream = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1')
    // die "listen: $!";
my $port = $upstream->sockport;
my $nginx = LimitSliding::Test->new(worker_processes => 1);

# What requests wait for, and the limits where they go on once their clients have left.
my %waits = (
    redis => 'limit_sliding zone=remote; empty_gif;',
    one   => 'limit_sliding zone=one; limit_sliding zone=remote; empty_gif;',
    units => 'limit_sliding zone=units; empty_gif;',
    later => 'limit_sliding zone=here; limit_sliding zone=remote after_auth; empty_gif;',
    delay => 'limit_sliding zone=queue; empty_gif;',
    api   => 'limit_sliding_api write=on;',
);
my %then = (
    free  => '',
    here  => 'limit_sliding zone=here;',
    redis => 'limit_sliding zone=remote;',
    one   => 'limit_sliding zone=one;',
    both  => 'limit_sliding zone=queue; limit_sliding zone=remote after_auth;',
);
my $places = join '', (map {
    my $wait = $_;
    map { "location /$wait-$_/ { post_action \@$_; $waits{$wait} }\n" } keys %then;
} keys %waits), map { "location \@$_ { $then{$_} proxy_pass http://127.0.0.1:$port; }\n" } keys %then;

$nginx->write_file('limits', '');
$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared {
        server  @{[ $fake->server ]};
        timeout 20s;
    }
    limit_sliding_zone \$arg_key zone=remote:1m rate=1000 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=one:1m inflight=1;
    limit_sliding_zone \$arg_key zone=units:1m inflight=1 redis=shared;
    limit_sliding_zone \$arg_key zone=here:1m rate=1000 window=30d;
    limit_sliding_zone \$arg_key zone=queue:1m rate=1r/s algorithm=leaky_bucket burst=1000;
    limit_sliding_zone \$arg_key zone=file:1m rate=5 window=30d limits=limits;
    log_format ends "\$request_uri";
HTTP
    http2_listen 127.0.0.1:%%PORT1%%;
    access_log %%DIR%%/access.log ends;
    proxy_read_timeout 30s;

    location /limits { limit_sliding_api; }
    location /plain { limit_sliding zone=remote; limit_sliding zone=queue; empty_gif; }
    $places
SERVER

# Returns the connection of a request that NGINX has sent on; nothing if there is none.
sub receive($seconds = 30) {
    IO::Select->new($upstream)->can_read($seconds) or return;
    my $socket = $upstream->accept // die "accept: $!";
    my $head = '';
    while ($head !~ /\r\n\r\n/) { sysread $socket, $head, 4096, length $head or last }
    return $socket;
}

# Tells how many requests of a path have ended.
sub ended($path) {
    open my $file, '<', $nginx->dir . '/access.log' or return 0;
    return scalar grep { $_ eq "$path\n" } <$file>;
}

# Has a client leave; `come` is what its request has waited for.  The request is
# redirected once, and ends once.
sub leaves($name, $path, $client, $come) {
    close $client;
    my $socket = receive();
    ok $socket, "$name: the request is redirected" or return;
    $come->();
    is $nginx->get("/plain?key=$path")->{status}, 200, "$name: NGINX goes on";
    is receive(0), undef, "$name: no phase runs twice";
    syswrite $socket, "HTTP/1.0 200 OK\r\n\r\n";
    close $socket;
    ok wait_for(sub { ended($path) }), "$name: the request ends";
    is ended($path), 1, "$name: once";
}

# Waits until Redis has answered a request, which NGINX will know half a second later.
sub redis_answers($send) {
    $fake->mode('delay', 0.5);
    my $client = $send->();
    ok wait_for(sub { $fake->stats->{pending} }), 'a request waits for Redis';
    $fake->mode('pass');
    return $client;
}

my $answer_comes = sub { wait_for(sub { !$fake->stats->{pending} }) };

is $nginx->get('/plain')->{status}, 200, 'Redis is connected';


# limits

for (qw(redis/free redis/here redis/redis later/both one/one units/redis)) {
    my ($wait, $then) = split '/';
    my $path = "/$wait-$then/?key=$wait$then";
    my $client = redis_answers(sub { $nginx->send_request($path) });
    leaves("$wait, then $then", $path, $client, $answer_comes);
}
is api_key($nginx, 'remote', 'unitsredis')->{used}, 1, 'a request that waited for units: charged once';

for my $then (qw(free redis)) {
    my $path = "/delay-$then/?key=delay$then";
    $nginx->get("/plain?key=delay$then");
    my $client = $nginx->send_request($path);
    ok wait_for(sub { $nginx->log_lines(qr/delaying request.*GET \Q$path\E/) }),
        'a request is delayed';
    leaves("delay, then $then", $path, $client, sub { sleep 1 });
}

my $path = '/redis-free/?key=reset';
my $client = redis_answers(sub {
    my $socket = $nginx->connect(port => 1);
    syswrite $socket, greeting() . request(1, $path);
    return $socket;
});
syswrite $client, reset_stream(1);
leaves('a stream of HTTP/2 is reset', $path, $client, $answer_comes);


# the API

for ('GET zones/remote/key?key=k', 'PUT zones/remote/key?key=k&rate=5', 'GET zones/remote/limits') {
    my ($method, $what) = split ' ';
    my $path = "/api-free/$what";
    my $client = redis_answers(sub { $nginx->send_request($path, method => $method) });
    leaves("API, $_", $path, $client, $answer_comes);
}

$path = '/api-free/zones/file/key?key=k&rate=5';
open my $file, '+<', $nginx->dir . '/limits' or die "limits: $!";
my $lock = sub ($type) {
    fcntl $file, F_SETLK, pack 's s x![q] q q l x![q]', $type, 0, 0, 0, 0 or die "fcntl: $!";
};
$lock->(F_WRLCK);
$client = $nginx->send_request($path, method => 'PUT');
sleep 0;                  # until the order waits for the file
leaves('API, an order', $path, $client, sub {
    $lock->(F_UNLCK);
    wait_for(sub { -s $file });
});

$nginx->finish;
