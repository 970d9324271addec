# $limit_sliding_client: an address without the part that clients choose.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_zone $http_x_test$limit_sliding_client zone=test:1m rate=2
        window=30d;

    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Remaining $limit_sliding_remaining always;
CONF

my $unique = 0;

# Returns the statuses of one request from each address. Each call has keys of
# its own.
sub from($path, @addresses) {
    my $test = 't' . ++$unique;
    return join ' ', map {
        $nginx->get($path, headers => [ "X-Test: $test", "X-Real-IP: $_" ])
            ->{status};
    } @addresses;
}


# the default: a whole IPv4 address, a /64 of IPv6

$nginx->serve(server => <<'CONF');
    limit_sliding zone=test;
    location /default { empty_gif; }
CONF

is from('/default', ('192.0.2.1') x 3), '200 200 429', 'an IPv4 address';
is from('/default', map { "192.0.2.$_" } 1 .. 4), '200 200 200 200',
    'its neighbours';
is from('/default', ('2001:db8::1') x 3), '200 200 429', 'an IPv6 address';
is from('/default', qw(2001:db8::1 2001:db8::2 2001:db8::3)), '200 200 429',
    'who walks a /64';
is from('/default', qw(2001:db8::1 2001:db8::ffff:ffff:ffff:ffff
    2001:db8::8000:0:0:0)), '200 200 429', '... to its ends';
is from('/default', (qw(2001:db8::1 2001:db8:0:1::1)) x 3),
    '200 200 200 200 429 429', 'the /64 beside it';
is from('/default', map { "2001:db8:0:$_\::1" } 1 .. 4), '200 200 200 200',
    'those further on';

my $passed = grep { $_ eq '200' } split / /, from('/default',
    map { sprintf '2001:db8:1:2:%x:%x:%x:%x', map { int rand 65536 } 1 .. 4 }
        1 .. 200);
is $passed, 2, '200 addresses of a /64 are one client';


# IPv4 in IPv6 is IPv4

$nginx->serve(server => <<'CONF');
    limit_sliding zone=test;
    location /default { empty_gif; }
    location /ipv4-24 { limit_sliding_client ipv4=24; empty_gif; }
    location /ipv6-3  { limit_sliding_client ipv6=3;  empty_gif; }
CONF

is from('/default', qw(192.0.2.1 ::ffff:192.0.2.1 ::ffff:c000:201)),
    '200 200 429', 'mapped addresses are those of IPv4';
is from('/default', map { "::ffff:192.0.2.$_" } 1 .. 4), '200 200 200 200',
    'and not one /64';
is from('/ipv4-24', qw(::ffff:192.0.2.1 192.0.2.2 ::ffff:192.0.2.3)),
    '200 200 429', 'their prefix is that of IPv4';
is from('/ipv6-3', map { "::ffff:192.0.2.$_" } 1 .. 4), '200 200 200 200',
    'and not that of IPv6';


# prefixes

# Asserts of each case, [place, addresses, another address], that the addresses
# of a place are one client, and the last one is another.
sub one_client(@cases) {
    for (@cases) {
        my ($place, @same) = @$_;
        my $another = pop @same;
        is from($place, @same, $another), '200 200 429 200',
            "$place: @same are one, $another is another";
    }
}

$nginx->serve(server => <<'CONF');
    limit_sliding zone=test;
    location /ipv4-32 { limit_sliding_client ipv4=32; empty_gif; }
    location /ipv4-24 { limit_sliding_client ipv4=24; empty_gif; }
    location /ipv4-20 { limit_sliding_client ipv4=20; empty_gif; }
    location /ipv4-9  { limit_sliding_client ipv4=9;  empty_gif; }
    location /ipv4-1  { limit_sliding_client ipv4=1;  empty_gif; }
CONF

one_client(
    [ '/ipv4-32', qw(192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.0) ],
    [ '/ipv4-24', qw(192.0.2.0 192.0.2.1 192.0.2.255 192.0.3.0) ],
    [ '/ipv4-20', qw(192.0.16.0 192.0.31.255 192.0.20.1 192.0.32.0) ],
    [ '/ipv4-9',  qw(10.128.0.0 10.255.255.255 10.200.1.1 10.127.255.255) ],
    [ '/ipv4-1',  qw(128.0.0.0 254.255.255.255 192.0.2.1 127.255.255.255) ],
    [ '/ipv4-24', qw(2001:db8::1 2001:db8::2 2001:db8::3 2001:db8:0:1::) ],
);

$nginx->serve(server => <<'CONF');
    limit_sliding zone=test;
    location /ipv6-128 { limit_sliding_client ipv6=128; empty_gif; }
    location /ipv6-127 { limit_sliding_client ipv6=127; empty_gif; }
    location /ipv6-64  { limit_sliding_client ipv6=64;  empty_gif; }
    location /ipv6-60  { limit_sliding_client ipv6=60;  empty_gif; }
    location /ipv6-48  { limit_sliding_client ipv6=48;  empty_gif; }
    location /ipv6-32  { limit_sliding_client ipv6=32;  empty_gif; }
    location /ipv6-3   { limit_sliding_client ipv6=3;   empty_gif; }
CONF

one_client(
    [ '/ipv6-128', qw(2001:db8::1 2001:db8::1 2001:db8::1 2001:db8::) ],
    [ '/ipv6-127', qw(2001:db8::2 2001:db8::3 2001:db8::2 2001:db8::1) ],
    [ '/ipv6-64',  qw(2001:db8::1 2001:db8::2 2001:db8::3 2001:db8:0:1::1) ],
    [ '/ipv6-60',  qw(2001:db8:0:10:: 2001:db8:0:1f:: 2001:db8:0:12::1
        2001:db8:0:20::) ],
    [ '/ipv6-48',  qw(2001:db8:1:2:: 2001:db8:1:ffff:: 2001:db8:1::3
        2001:db8:2::) ],
    [ '/ipv6-32',  qw(2001:db8:1:2:: 2001:db8:ffff:: 2001:db8::3
        2001:db9::) ],
    [ '/ipv6-3',   qw(2001:db8:: 3fff:ffff:: 2fff::1 4000::) ],
    [ '/ipv6-48',  qw(192.0.2.1 192.0.2.1 192.0.2.1 192.0.2.2) ],
);

# 32.1.13.184 and 2001:db8::/32 begin with the same four bytes.
is from('/ipv6-32', qw(2001:db8::1 2001:db8::2 32.1.13.184 32.1.13.184)),
    '200 200 200 200', 'IPv4 and IPv6 do not meet';


# both, and inherited

$nginx->serve(server => <<'CONF');
    limit_sliding zone=test;

    location /both {
        limit_sliding_client ipv4=24 ipv6=56;
        empty_gif;

        location /both/ipv4 { limit_sliding_client ipv4=16; empty_gif; }
        location /both/as   { empty_gif; }
    }
CONF

one_client(
    [ '/both',      qw(192.0.2.0 192.0.2.1 192.0.2.255 192.0.3.0) ],
    [ '/both',      qw(2001:db8:0:100:: 2001:db8:0:1ff:: 2001:db8:0:112::1
        2001:db8:0:200::) ],
    [ '/both/as',   qw(192.0.2.0 192.0.2.1 192.0.2.255 192.0.3.0) ],
    [ '/both/ipv4', qw(192.0.2.0 192.0.3.1 192.0.255.255 192.1.0.0) ],
);


# a place of a redirect has a prefix of its own

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_test$limit_sliding_client zone=more:1m rate=10
        window=30d;
HTTP
    location /redirect {
        limit_sliding zone=test;
        limit_sliding_client ipv4=32;
        error_page 404 = @wide;
    }

    location @wide {
        limit_sliding zone=more;
        limit_sliding_client ipv4=24;
        empty_gif;
    }

    location /look {
        limit_sliding zone=more cost=0;
        limit_sliding_client ipv4=24;
        empty_gif;
    }
SERVER

is from('/redirect', qw(192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.1 192.0.2.1)),
    '200 200 200 200 429', 'before a redirect: each by itself';
my $look = $nginx->get('/look',
    headers => [ "X-Test: t$unique", 'X-Real-IP: 192.0.2.99' ]);
is header($look, 'X-Remaining'), 6, 'after it: all together';


# addresses of connections

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $limit_sliding_client zone=client:1m rate=2 window=30d;
    limit_sliding_zone $limit_sliding_client zone=pair:1m rate=2 window=30d;

    server {
        listen unix:%%DIR%%/plain.sock;
        real_ip_header X-Other;
        location / { limit_sliding zone=client; empty_gif; }
    }

    server {
        listen unix:%%DIR%%/trusted.sock;
        set_real_ip_from unix:;
        location / { limit_sliding zone=pair; empty_gif; }
    }
HTTP
    real_ip_header X-Other;
    location / { limit_sliding zone=client; empty_gif; }
SERVER

for my $address (map { "127.0.0.$_" } 1, 2, 3) {
    is $nginx->statuses(3, '/', from => $address), '200 200 429',
        "without realip: $address";
}
is $nginx->statuses(1, '/', headers => [ 'X-Real-IP: 192.0.2.1' ]), '429',
    'without realip: a header does not help';


# Unix sockets: one client, unless realip knows better

my @unix = (unix => $nginx->dir . '/plain.sock');
is $nginx->statuses(3, '/', @unix), '200 200 429', 'a Unix socket';
my $r = $nginx->get('/', @unix);
is header($r, 'X-Status'), 'REJECTED', 'a Unix socket: accounted';

@unix = (unix => $nginx->dir . '/trusted.sock');
for my $address (qw(192.0.2.1 192.0.2.2 2001:db8::1)) {
    is $nginx->statuses(3, '/', @unix, headers => [ "X-Real-IP: $address" ]),
        '200 200 429', "a Unix socket, realip: $address";
}
is $nginx->statuses(1, '/', @unix, headers => [ 'X-Real-IP: 2001:db8::2' ]),
    '429', 'a Unix socket, realip: the same /64';


# wrong prefixes

for my $wrong ('ipv4=33', 'ipv4=-1', 'ipv4=', 'ipv4=x', 'ipv4=24x', 'ipv6=129',
    'ipv6=', 'ipv6=64.0', 'ipv5=1', '64', 'ipv4=24 ipv4=24')
{
    my ($exit, $output) = $nginx->test_config(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_client $wrong;
}
CONF
    my ($word) = $wrong =~ /(\S+)$/;
    my ($value) = $word =~ /=(.+)/;
    $value //= $word;
    isnt $exit, 0, "limit_sliding_client $wrong: fails";
    like $output, qr/\[emerg\] .*"(?:\Q$word\E|\Q$value\E)".*:\d+$/m,
        "limit_sliding_client $wrong: says why";
}

$nginx->finish;
