# HTTP/2: exact over streams; streams that wait and are reset or sent a body.

use v5.36;

use Test::More;

use LimitSliding::Frames;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;
my @PORT = (port => 1);

plan skip_all => 'no nghttp' unless $nginx->has_http2;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    log_format streams "$request_uri $status";

    limit_sliding_log_level notice;
    add_header X-Remaining $limit_sliding_remaining always;
HTTP
    http2_listen 127.0.0.1:%%PORT1%% reuseport;
    access_log %%DIR%%/access.log streams;

    location /free { empty_gif; }
SERVER


# exact, over both workers

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=forty:1m rate=40 window=30d;
HTTP
    location /forty { limit_sliding zone=forty; empty_gif; }
SERVER

SKIP: {
    skip 'no h2load', 2 unless grep { -x "$_/h2load" } split /:/, $ENV{PATH};

    my $url = 'http://127.0.0.1:' . $nginx->port(1) . '/forty?key=';
    for my $case ([ one => 1000, 64, 4 ], [ streams => 1000, 8, 100 ]) {
        my ($key, $n, $connections, $streams) = @$case;
        my $said = `h2load -n $n -c $connections -m $streams '$url$key'`;
        my ($passed, $rejected) = $said =~ /(\d+) 2xx, \d+ 3xx, (\d+) 4xx/;
        is "$passed $rejected", '40 960',
            "$connections connections with $streams streams each: 40 pass";
    }
}


sub connection() {
    my $socket = $nginx->connect(@PORT);
    send_frames($socket, greeting());
    return $socket;
}

sub send_frames($socket, @frames) {
    syswrite $socket, join '', @frames or die "send: $!";
}

# Reads until this stream has begun to answer. Returns true if it says 200.
sub is_answered($socket, $stream) {
    local $SIG{ALRM} = sub { die "no answer in stream $stream\n" };
    alarm 30;

    while (1) {
        my ($type, $flags, $id, $payload) = read_frame($socket)
            or die 'connection closed';

        if ($type == $HEADERS && $id == $stream) {
            alarm 0;
            return $payload =~ /^[\x20-\x3f]?\x88/;
        }
    }
}


# A stream that is reset while it waits ends at once, others go on, and its
# request counts. Its time comes when it is gone.

my $QUICK = <<'CONF';
    limit_sliding_zone $arg_key zone=quick:1m rate=2r/s burst=9
        algorithm=leaky_bucket;
CONF

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $QUICK
    limit_sliding_zone \$arg_key zone=slow:1m rate=1r/h burst=2
        algorithm=leaky_bucket;
HTTP
    location /slow  { limit_sliding zone=slow;            empty_gif; }
    location /look  { limit_sliding zone=slow cost=0;     empty_gif; }
    location /after { limit_sliding zone=slow after_auth; empty_gif; }
    location /quick { limit_sliding zone=quick;           empty_gif; }
SERVER

# Returns the lines of the access log that match.
sub logged($regexp) {
    open my $log, '<', $nginx->dir . '/access.log' or die "access.log: $!";
    return grep { $_ =~ $regexp } <$log>;
}

# Asserts that n requests with this URI are delayed once NGINX has them.
sub are_delayed($n, $uri) {
    sleep 0;
    is scalar $nginx->log_lines(qr/delaying request.*\Q$uri\E/), $n, "$uri: $n delayed";
}

for my $path (qw(/slow?key=reset /after?key=after /quick?key=quick)) {
    my $socket = connection();
    send_frames($socket, request(1, $path));
    ok is_answered($socket, 1), "$path: one passes";

    send_frames($socket, map { request($_, $path) } 3, 5);
    are_delayed(2, $path);
    send_frames($socket, reset_stream(3), reset_stream(5));
    sleep 0;
    is scalar logged(qr/^\Q$path\E 499$/), 2, "$path: reset streams are gone";

    send_frames($socket, request(7, '/free'));
    ok is_answered($socket, 7), "$path: others are served";
}

is header(($nginx->http2('/look?key=reset', @PORT))[0], 'X-Remaining'), 0,
    'they did count';
sleep 1;
is +($nginx->http2('/free', @PORT))[0]{status}, 200, 'their time has come';


# the same, together with its request, or with its connection

my $socket = connection();
send_frames($socket, map { (request($_, '/slow?key=a'), reset_stream($_)) }
    map { 2 * $_ + 1 } 0 .. 9);
send_frames($socket, request(21, '/free'));
ok is_answered($socket, 21), 'reset at once: others are served';

$socket = connection();
send_frames($socket, map { request($_, '/slow?key=closed') } 1, 3, 5);
are_delayed(2, '/slow?key=closed');
close $socket;
sleep 0;
is scalar logged(qr{^/slow\?key=closed 499$}), 2, 'closed: its streams are gone';


# a body that comes while its request waits

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $QUICK
    server {
        listen 127.0.0.1:%%PORT2%%;
        location / { add_header X-Length \$http_content_length; return 200; }
    }
HTTP
    location /upload {
        limit_sliding zone=quick;
        proxy_pass http://127.0.0.1:%%PORT2%%;
    }
SERVER

$socket = connection();
send_frames($socket, request(1, '/upload?key=b'));
ok is_answered($socket, 1), 'upload: one passes';
send_frames($socket, request(3, '/upload?key=b', 'POST'));
are_delayed(1, '/upload?key=b');
send_frames($socket, frame($DATA, 0, 3, 'b' x 10_000),
    frame($DATA, $END_STREAM, 3, 'b' x 10_000));
ok is_answered($socket, 3), 'upload: so does one that was delayed';
close $socket;

$nginx->finish;
