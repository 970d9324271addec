# Draws the dashboard as it is after two minutes of made-up traffic.
# Usage: perl -It/lib t/demo/screenshot.pl FILE.png [SECONDS]
#
# LIMIT_SLIDING_NGINX and LIMIT_SLIDING_MODULE say what runs, as for tests.

use v5.36;

use LimitSliding::Browser;
use LimitSliding::Redis;
use LimitSliding::Test;

my ($FILE, $SECONDS) = (@ARGV, 120);
my $WIDTH = 1100;

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_redis shared { server ${\ $redis->server}; }
    limit_sliding_zone \$limit_sliding_client zone=api:10m rate=100r/m;
    limit_sliding_zone \$http_x_api_key zone=partners:1m rate=600r/m
        redis=shared;
    limit_sliding_zone \$remote_addr\$uri zone=login:32k rate=2r/s
        algorithm=leaky_bucket burst=4;
    limit_sliding_log_level off;
    set_real_ip_from 127.0.0.1;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=api; empty_gif; }
        location /partners { limit_sliding zone=partners; empty_gif; }
        location /login { limit_sliding zone=login; empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF

my @sockets;

# Sends a request, and waits for no answer: some are delayed.
sub ask($path, $address, $key = 'none') {
    push @sockets, $nginx->send_request($path,
        headers => [ "X-Real-IP: $address", "X-Api-Key: $key" ]);
    shift @sockets if @sockets > 500;
}

# About so many times a second, of twenty looks.
sub chance($per_second) {
    return rand() < $per_second / 20;
}

sub traffic($time) {
    my $wave = 1 + sin $time / 12;

    ask('/', '198.51.100.' . int rand 200) for grep { chance(12 * $wave) } 1, 2;
    ask('/', '2001:db8:7::' . int rand 99) if chance(4);
    ask('/', '203.0.113.' . (7 + int rand 3)) if chance(6 + 2 * $wave);
    ask('/partners', '192.0.2.1', 'acme-' . int rand 6) if chance(8 * $wave);
    if ($time > 50 && $time < 85) {
        ask('/', '192.0.2.66') for 1 .. 2;
        ask('/partners', '192.0.2.1', 'batch-import') for 1 .. 2;
    }
    ask('/login', '192.0.2.' . int rand 250) if chance(4);
    ask('/login', '203.0.113.9') if chance(2 + 2 * $wave);
}

my $browser = LimitSliding::Browser->new;
$browser->resize($WIDTH, 800);
$browser->scheme('light');
$browser->visit('http://127.0.0.1:' . $nginx->port . '/limits/dashboard');

my $start = now;
while (now < $start + $SECONDS) {
    traffic(now - $start);
    sleep 0.05;
}

$browser->resize($WIDTH,
    $browser->run('return document.documentElement.offsetHeight'));
open my $file, '>:raw', $FILE or die "$FILE: $!\n";
print $file $browser->screenshot;
close $file or die "$FILE: $!\n";

$browser->quit;
$nginx->stop;
