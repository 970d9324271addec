# limit_sliding_api: keys that are addresses of clients, cut as a zone cuts
# them.

use v5.36;

use Test::More;

use LimitSliding::Api qw(api api_key);
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $limit_sliding_client zone=client:1m rate=3r/d;
    limit_sliding_zone ${limit_sliding_client} zone=wide:1m rate=3r/d;
    limit_sliding_zone $binary_remote_addr zone=address:1m rate=3r/d;

    set_real_ip_from 127.0.0.1;
    set_real_ip_from unix:;
    limit_sliding_log_level off;
HTTP
    listen unix:%%DIR%%/nginx.sock;

    location /client  { limit_sliding zone=client;  empty_gif; }
    location /address { limit_sliding zone=address; empty_gif; }

    location /after {
        limit_sliding zone=client after_auth dry_run;
        empty_gif;
    }

    location /wide {
        limit_sliding_client ipv4=20 ipv6=52;
        limit_sliding zone=wide;
        empty_gif;
    }

    location /limits {
        limit_sliding_api write=on;
        limit_sliding_client ipv4=8 ipv6=16;
    }
SERVER

sub from($address, $path, $times = 1, %options) {
    return $nginx->statuses($times, $path, %options,
        headers => [ "X-Real-IP: $address" ]);
}

sub key($zone, $key, @order) {
    $key =~ s/([^\w.:])/sprintf '%%%02X', ord $1/gae;
    return api_key($nginx, $zone, $key, @order);
}

# Returns the state of a key, "key: used of limit", or the error.
sub state_of($json) {
    return "$json->{http} $json->{error}" if $json->{http} != 200;
    return "$json->{key}: $json->{used} of $json->{limit}";
}


# an address of a network

$nginx->serve;

is from('2001:db8:1:2:3::7', '/client', 4), '200 200 200 429', 'a client';

for my $key ('2001:db8:1:2:3::7', '2001:db8:1:2::', '2001:DB8:1:2:0:0:0:1') {
    is state_of(key('client', $key)), '2001:db8:1:2::: 3 of 3',
        "$key: the client's network";
}
is state_of(key('client', '2001:db8:1:3::')), '2001:db8:1:3::: 0 of 3',
    'another network';

is state_of(key('client', '2001:db8:1:2::9', 'DELETE')),
    '2001:db8:1:2::: 0 of 3', 'DELETE: forgotten';
is from('2001:db8:1:2:3::7', '/client', 4), '200 200 200 429',
    '... and not blocked any more';

my $put = key('client', '2001:db8:1:2::9', 'PUT', '&rate=5r/d');
is state_of($put), '2001:db8:1:2::: 3 of 5', 'PUT: a limit of its own';
is from('2001:db8:1:2:ffff::7', '/client', 3), '200 200 429', '... in force';
is key('client', '2001:db8:1:2::8', 'PUT', '&rate=default')->{limit}, 3,
    '... and removed';

is from('192.0.2.7', '/client', 2), '200 200', 'IPv4';
is state_of(key('client', $_)), '192.0.2.7: 2 of 3', "... as $_"
    for '192.0.2.7', '::ffff:192.0.2.7', '::ffff:c000:207';
is state_of(key('client', '192.0.2.6')), '192.0.2.6: 0 of 3', '... and no other';


# the prefixes of the places that the zone limits, not that of the API

is from('192.0.17.1', '/wide', 2), '200 200', 'a place with other prefixes';
is from('2001:db8:1:1234::1', '/wide', 3), '200 200 200', '... of IPv6, too';
is state_of(key('wide', $_)), '192.0.16.0: 2 of 3', "... $_ of IPv4"
    for '192.0.17.1', '192.0.31.255', '192.0.16.0', '::ffff:192.0.20.1';
is state_of(key('wide', $_)), '2001:db8:1:1000::: 3 of 3', "... $_ of IPv6"
    for '2001:db8:1:1fff::9', '2001:db8:1:1000::';


# ... of several places, or of all requests of a server

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $Limit_Sliding_Client zone=several:1m rate=3r/d;
    limit_sliding_zone $limit_sliding_client zone=catch-all:1m rate=3r/d;
    limit_sliding_zone $limit_sliding_client zone=some:1m rate=3r/d;
    limit_sliding_zone $limit_sliding_client zone=unused:1m rate=3r/d;

    # All requests of this server are of a location.
    server {
        listen 127.0.0.1:%%PORT1%%;
        limit_sliding zone=catch-all;
        location / { limit_sliding_client ipv6=40; empty_gif; }
        location /limits { limit_sliding_api; }
    }

    # Some requests of this server are of none.
    server {
        listen 127.0.0.1:%%PORT2%%;
        limit_sliding zone=some;
        location /some { limit_sliding_client ipv6=40; empty_gif; }
        location /limits { limit_sliding_api; }
    }
HTTP
    location /several/48 {
        limit_sliding_client ipv6=48;
        limit_sliding zone=several;
        empty_gif;
    }

    location /several/56 {
        limit_sliding_client ipv6=56;
        limit_sliding zone=several;
        empty_gif;
    }
SERVER

is from('2001:db8:1:234::1', "/several/$_", 2), '200 200',
    "a place with /$_" for 48, 56;
is state_of(key('several', '2001:db8:1:234::1')), '2001:db8:1:200::: 2 of 3',
    'several prefixes: the longest';
is state_of(key('several', '2001:db8:1::')), '2001:db8:1::: 2 of 3',
    '... which leaves the others\' networks as they are';

is from('2001:db8:1:2::1', '/', 2, port => 1), '200 200',
    'a server whose "location /" has a prefix';
is state_of(key('catch-all', '2001:db8:1:2::1')), '2001:db8::: 2 of 3',
    '... which is that of all its requests';
is from('2001:db8:1:2::1', '/some', 2, port => 2), '200 200',
    'a server without such a location';
is state_of(key('some', '2001:db8:1:2::1')), '2001:db8:1:2::: 0 of 3',
    '... has its own prefix, too';

is state_of(key('unused', '2001:db8:1:2::1')), '2001:db8:1:2::: 0 of 3',
    'a zone that limits nothing: the longest prefix of the locations of the API';


# $binary_remote_addr is not cut

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_real_ip zone=text:1m rate=3r/d;
HTTP
    location /text { limit_sliding zone=text; empty_gif; }
SERVER

from('192.0.2.7', '/client', 2);
from('2001:db8:1:2:3::7', '/client', 4);
is from('2001:db8:1:2::7', '/address', 2), '200 200', 'a single address';
is state_of(key('address', '2001:db8:1:2::7')), '2001:db8:1:2::7: 2 of 3',
    '... as it is';
is state_of(key('address', '2001:db8:1:2::')), '2001:db8:1:2::: 0 of 3',
    '... and no other';
is state_of(key('address', '255.255.255.255')), '255.255.255.255: 0 of 3',
    'the last address of IPv4';

is state_of(key('client', "\xc0\0\2\7")), '192.0.2.7: 2 of 3',
    'the bytes of an address';


# keys of a Unix socket are its name

my @unix = (unix => $nginx->dir . '/nginx.sock');
for my $zone (qw(client address)) {
    is $nginx->statuses(4, "/$zone", @unix), '200 200 200 429',
        "$zone: a Unix socket";
    is state_of(key($zone, 'unix:')), 'unix:: 3 of 3', '... is a client as well';
}


# every key that is shown can be asked for as it is shown

my $zones = api($nginx)->{zones};
for my $zone (qw(client address)) {
    my @top = @{ $zones->{$zone}{top} };
    cmp_ok scalar @top, '>=', 1, "$zone: top offenders";
    for my $top (@top) {
        is api_key($nginx, $zone, $top->{key_uri})->{key}, $top->{key},
            "... $top->{key}";
    }
}


# what is no address

for my $zone (qw(client wide address)) {
    for my $key (qw(notanip x none 192.0.2 192.0.2.256 1.2.3.4.5 1..2.3 ...
        1.2.3. 0x7f.1.2.3 2001:db8::/64 [::1] : ::: 2001:db8::1::
        12345::1 fe80::1%eth0 2001:db8 unix 10.0.0.0/8 localhost.and.me),
        ' 192.0.2.7', '192.0.2.7 ', "192.0.2.7\0", 'abcd', '0123456789abcdef',
        "\1\2\3", "\1" x 15, "\1" x 17, '1' x 300)
    {
        for my $method (qw(GET DELETE PUT)) {
            my $json = key($zone, $key, $method,
                $method eq 'PUT' ? '&rate=9' : '');
            like "$json->{http} " . ($json->{error} // 'no error'),
                qr/^400 "key" must be an address/,
                "$zone: $method of \"" . $key =~ s/[^ -~]/?/gr . '"';
        }
    }
}
is api($nginx)->{zones}{$_}{own_limits}, 0,
    "$_: and has no limit of its own" for qw(client wide address);
is key('text', 'notanip')->{http}, 200, 'a zone of other keys takes any';

$nginx->finish;
