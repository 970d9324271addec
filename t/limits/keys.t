# Keys may hold any bytes. None crashes NGINX, none forges a line in its log.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    add_header X-Status $limit_sliding_status always;
CONF


# NUL: 127.0.0.1 and 127.0.0.2 in binary differ after two of them

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $binary_remote_addr zone=address:1m rate=2 window=30d;
HTTP
    location /address { limit_sliding zone=address; empty_gif; }

    location /realip {
        set_real_ip_from 127.0.0.1;
        real_ip_header X-Address;
        limit_sliding zone=address;
        empty_gif;
    }
SERVER

for my $address (map { "127.0.0.$_" } 1, 2, 3) {
    is $nginx->statuses(3, '/address', from => $address), '200 200 429',
        "key with NUL: $address";
}

# 0.0.0.0 has nothing but NUL, 10.10.10.10 nothing but newlines.
for my $address (qw(0.0.0.0 0.0.0.10 10.0.0.0 10.10.10.10 255.255.255.254
    ::1 ::2))
{
    is $nginx->statuses(3, '/realip', headers => ["X-Address: $address"]),
        '200 200 429', "key $address in binary";
}


# newlines, control characters, quotes, invalid UTF-8

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $uri zone=uri:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=header:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=arg:1m rate=2 window=30d;
HTTP
    location /uri    { limit_sliding zone=uri;    empty_gif; }
    location /header { limit_sliding zone=header; empty_gif; }
    location /arg    { limit_sliding zone=arg;    empty_gif; }
SERVER

my $forged = '2026/01/01 00:00:00 [alert] 1#1: *1 forged';

my $forged_uri = '%0a' . $forged =~ s/([ #])/sprintf '%%%02x', ord $1/ger;

for my $key ($forged_uri, "%0d$forged_uri", '%ff%fe%80', '%c3', '%ed%a0%80',
    '%01%02%1b[31m', '%22quoted%22', '%5c', '%25', '%7f', '%e2%82%ac')
{
    is $nginx->statuses(4, "/uri/$key"), '200 200 429 429', "key $key";
}

is $nginx->statuses(3, '/uri/%41'), '200 200 429', 'key decoded';
is $nginx->statuses(1, '/uri/A'), '429', 'is the same as plain';

for my $key ("\xff\xfe", "\x80", "a\tb", '"', '\\', '%00', '$uri') {
    my $name = join ' ', map { sprintf '%02x', ord } split //, $key;
    is $nginx->statuses(3, '/header', headers => ["X-Key: $key"]),
        '200 200 429', "key $name, raw";
}

is $nginx->statuses(3, '/arg?key=%00a'), '200 200 429',
    'an argument is not decoded';
is $nginx->statuses(3, '/arg?key=%00b'), '200 200 429', 'so this is another';


# long keys: only their hash is kept, so none is too long

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=arg:1m rate=2 window=30d;
    limit_sliding_zone $uri$uri zone=twice:1m rate=2 window=30d;

    large_client_header_buffers 4 160k;
    client_header_buffer_size 160k;
HTTP
    location /arg   { limit_sliding zone=arg;   empty_gif; }
    location /twice { limit_sliding zone=twice; empty_gif; }
SERVER

for my $bytes (65535, 65536, 150000) {
    my $long = 'k' x $bytes;
    is $nginx->statuses(3, "/arg?key=$long"), '200 200 429', "key of $bytes bytes";
    substr($long, -1) = 'K';
    is $nginx->statuses(3, "/arg?key=$long"), '200 200 429', 'the last byte counts';
}

my $path = "/twice/$forged_uri%0a" . 'k' x 40000;
is $nginx->statuses(3, $path), '200 200 429', 'a long key with newlines';
is scalar $nginx->log_lines(qr/\[error\] (?!.*limiting requests)/), 0,
    'nothing but rejections is logged';

is $nginx->statuses(3, '/arg?key=after'), '200 200 429',
    'NGINX is well after all';

# No line of the log was forged: that is what finish() looks for.
$nginx->finish;
