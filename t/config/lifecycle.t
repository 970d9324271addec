# One charge for a request and zone, on ways through NGINX that phases.t does
# not take: subrequests of all kinds, chains of redirects, bodies, HTTP/2.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

# A server inherits the limits of http{} as a whole, or overrides them.
$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=two:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=ten:1m rate=10 window=30d;
    limit_sliding_zone $http_x_key zone=other:1m rate=10 window=30d;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Remaining $limit_sliding_remaining always;

    limit_sliding zone=ten cost=2;
    limit_sliding_status 430;
    limit_sliding_headers x;
HTTP
    limit_sliding zone=ten;
    limit_sliding_status 429;
    limit_sliding_headers retry_after;

    location /look       { limit_sliding zone=ten cost=0;   empty_gif; }
    location /look-other { limit_sliding zone=other cost=0; empty_gif; }
    location /two        { limit_sliding zone=two;          empty_gif; }
    location /gif        { empty_gif; }
SERVER

# Returns what was counted of a key: '2, 0 of the other zone'.
sub counted(@key) {
    return join ', ', map {
        my $r = $nginx->get("/look$_", headers => [ $key[1][0] ]);
        (10 - header($r, 'X-Remaining')) . ($_ ? ' of the other zone' : '');
    } '', '-other';
}


# Asserts that each request of these cases, [path, status, name, options of
# get], is counted once.
sub once(@cases) {
    for (@cases) {
        my ($path, $status, $name, @options) = @$_;
        my @key = key();

        for my $n (1 .. 2) {
            my $r = $nginx->get($path, @key, @options);
            is $r->{status}, $status, "$name: status";
            is counted(@key), "$n, 0 of the other zone",
                "$name: counted once a request";
        }
    }
}


# what a page includes

my $INCLUDES = <<'CONF';
    location /limited { }
    location /other { limit_sliding zone=other; }

    location /ssi.html    { ssi on; ssi_types *; }
    location /nested.html { ssi on; ssi_types *; }

    location /free-ssi {
        limit_sliding off;
        ssi on;
        ssi_types *;
        alias html/ssi.html;
    }

    location /addition {
        add_before_body /limited;
        add_after_body /other;
        addition_types *;
        alias html/target;
    }
CONF

$nginx->write_file('html/target', 'the target');
$nginx->write_file('html/ssi.html', join '', map {
    qq(<!--#include virtual="/$_" -->) } qw(target nested.html limited other));
$nginx->write_file('html/nested.html',
    '<!--#include virtual="/limited" --><!--#include virtual="/target" -->');
$nginx->write_file('html/limited', 'limited');
$nginx->write_file('html/other', 'other');

$nginx->serve(server => $INCLUDES);

once(
    [ '/ssi.html',           200, 'SSI' ],
    [ '/nested.html',        200, 'nested SSI' ],
    [ '/addition',           200, 'addition' ],
);

my @key = key();
my $r = $nginx->get('/free-ssi', @key);
like $r->{body}, qr/the target.*limited.*other/s, 'limits below: all included';
ok !exists $r->{headers}{'x-status'}, 'limits below: not accounted';
is counted(@key), '0, 0 of the other zone', 'limits below: not counted';


# what is fetched from elsewhere

$nginx->common(http => <<'CONF');
    proxy_cache_path %%DIR%%/temp/cache keys_zone=cache:1m;

    server {
        listen 127.0.0.1:%%PORT2%%;
        limit_sliding off;
        location / { }
        location /post { return 200 posted; }
        location /if   { return 200 content; }
        location /accel-named {
            add_header X-Accel-Redirect @accel;
            return 204;
        }
    }
CONF

my $FETCHED = <<'CONF';
    location /slices {
        slice 4;
        proxy_http_version 1.1;
        proxy_set_header Range $slice_range;
        proxy_pass http://127.0.0.1:%%PORT2%%;
    }

    location /mirrors {
        mirror /limited;
        mirror /other;
        proxy_pass http://127.0.0.1:%%PORT2%%/post;
    }

    location /cached {
        proxy_cache cache;
        proxy_cache_key $uri;
        proxy_cache_valid any 1s;
        proxy_cache_use_stale updating;
        proxy_cache_background_update on;
        proxy_pass http://127.0.0.1:%%PORT2%%/target;
    }
CONF

$nginx->write_file('html/slices', 'x' x 20);

$nginx->serve(server => $INCLUDES . $FETCHED);

once(
    [ '/slices',             200, 'slices' ],
    [ '/mirrors',            200, 'mirrors' ],
    [ '/mirrors', 200, 'mirrors of a POST', method => 'POST', body => 'b' ],
    [ '/cached',             200, 'cache' ],
);

# A subrequest updates in the background what is stale.
@key = key();
is $nginx->statuses(1, '/cached', @key), '200', 'cache: filled';
sleep 1.2;
is $nginx->statuses(2, '/cached', @key), '200 200', 'cache: stale';
is counted(@key), '3, 0 of the other zone', 'cache: once a request';


# subrequests that decide

$nginx->common(http => <<'CONF');
    limit_req_zone $http_x_key zone=req:1m rate=1r/m;
    limit_conn_zone $http_x_key zone=conn:1m;
CONF

my $AUTHS = <<'CONF';
    location /auths {
        limit_req zone=req burst=5 nodelay;
        limit_conn conn 10;
        auth_request /verify;
        add_before_body /limited;
        addition_types *;
        alias html/target;
    }

    location = /verify {
        limit_sliding zone=ten;
        limit_sliding zone=other after_auth;
        limit_req zone=req;
        proxy_pass http://127.0.0.1:%%PORT2%%/target;
    }

    location /refused {
        auth_request /refuse;
        empty_gif;
    }

    location = /refuse {
        limit_sliding zone=other;
        error_page 404 =403 /limited;
    }
CONF

$nginx->serve(server => $INCLUDES . $AUTHS);

once(
    [ '/auths',              200, 'auth_request, limit_req, limit_conn' ],
    [ '/refused',            403, 'auth_request refuses' ],
);


# redirects, and others

my $REDIRECTS = <<'CONF';
    location /recursive {
        recursive_error_pages on;
        error_page 404 = @first;
    }

    location @first {
        recursive_error_pages on;
        try_files /none @second;
    }

    location @second {
        recursive_error_pages on;
        error_page 404 = /gif;
        proxy_intercept_errors on;
        proxy_pass http://127.0.0.1:%%PORT2%%;
    }

    location /rewrite/ {
        rewrite ^/rewrite/a(.*) /rewrite/b$1 last;
        rewrite ^/rewrite/b     /gif         last;
    }

    location /if {
        if ($arg_x) { set $matched 1; }
        if ($arg_y) { proxy_pass http://127.0.0.1:%%PORT2%%; }
        empty_gif;
    }

    location /accel-named { proxy_pass http://127.0.0.1:%%PORT2%%; }
    location @accel { empty_gif; }
CONF

$nginx->serve(server => $REDIRECTS);

once(
    [ '/recursive',          200, 'recursive error_page' ],
    [ '/rewrite/a/b',        200, 'rewrite' ],
    [ '/if',                 200, 'if' ],
    [ '/if?x=1',             200, 'if that matches' ],
    [ '/if?y=1',             200, 'if that has the content' ],
    [ '/accel-named',        200, 'X-Accel-Redirect to a named location' ],
    [ '/none',               404, 'no such file' ],
    [ '/gif', 405, 'PUT', method => 'PUT', body => 'b' x 10000 ],
    [ '/gif', 200, 'HTTP/1.0 keep-alive', version => '1.0' ],
    [ 'http://localhost/gif', 200, 'a whole URI' ],
);


# a page for those who are limited

$nginx->serve(server => <<'CONF');
    location /says-no {
        limit_sliding zone=two;
        error_page 429 = @no;
        empty_gif;
    }

    location @no { return 200 no; }
CONF

@key = key();
is join(' ', map { $nginx->get('/says-no', @key)->{body} eq 'no' ? 'no' : 'gif'
    } 1 .. 4), 'gif gif no no', 'a page by return';


# bodies: what is rejected unread does not upset the connection

$nginx->serve(server => <<'CONF');
    location /upload {
        limit_sliding zone=two;
        client_max_body_size 1m;
        proxy_pass http://127.0.0.1:%%PORT2%%/post;
    }
CONF

my $connection = $nginx->connect;
@key = key();
my @body = (method => 'POST', body => 'b' x 200_000, socket => $connection);
is $nginx->statuses(4, '/upload', @key, @body), '200 200 429 429',
    'bodies on one connection';
is $nginx->get('/gif', key(), socket => $connection)->{status}, 200,
    'which goes on to serve';

my $chunks = sprintf "%x\r\n%s\r\n", 5000, 'b' x 5000;
for my $status (200, 200, 429, 429) {
    print {$connection} join "\r\n", 'POST /upload HTTP/1.1', 'Host: a',
        'X-Key: chunked', 'Transfer-Encoding: chunked', '',
        "${chunks}0", '', '';
    $connection->flush;
    is $nginx->read_response($connection)->{status}, $status,
        'a chunked body';
}

@key = key('Expect: 100-continue', 'Content-Length: 100000');
$nginx->get('/two', headers => [ $key[1][0] ]) for 1 .. 2;
$r = $nginx->get('/upload', @key, method => 'POST');
is $r->{status}, 429, 'Expect: 100-continue: rejected at once';

@key = key();
my $pipelined = join '', map { "GET /two?$_ HTTP/1.1\r\nHost: localhost\r\n"
    . "$key[1][0]\r\n\r\n" } 1 .. 5;
print {$connection} $pipelined;
$connection->flush;
my $answers = '';
while ((my @status = $answers =~ m{HTTP/1\.1 (\d+)}g) < 5) {
    sysread $connection, $answers, 65536, length $answers or last;
}
is join(' ', $answers =~ m{HTTP/1\.1 (\d+)}g), '200 200 429 429 429',
    'requests sent at once';


# inheritance

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT3%%;
        location / { empty_gif; }
        location /none { error_page 404 = @none; alias html/none; }
        location @none { empty_gif; }
    }
HTTP
    location /costly {
        limit_sliding zone=ten cost=3;
        empty_gif;

        location /costly/as  { empty_gif; }
        location /costly/own { limit_sliding zone=ten; empty_gif; }
        location /costly/off {
            limit_sliding off;
            empty_gif;
            location /costly/off/as { empty_gif; }
        }
    }
SERVER

@key = key();
for my $case ([ '/costly', 3 ], [ '/costly/as', 6 ], [ '/costly/own', 7 ],
    [ '/costly/off', 7 ], [ '/costly/off/as', 7 ], [ '/gif', 8 ])
{
    my ($path, $count) = @$case;
    is $nginx->get($path, @key)->{status}, 200, "inheritance: $path: status";
    is counted(@key), "$count, 0 of the other zone", "inheritance: $path";
}

for my $path (qw(/ /none)) {
    @key = key();
    $r = $nginx->get($path, @key, port => 3);
    is $r->{status}, 200, "inherited from http, $path: status";
    is header($r, 'X-RateLimit-Remaining'), 8, "... headers, $path";
    is counted(@key), '2, 0 of the other zone', "... cost, $path";
    is $nginx->statuses(5, $path, @key, port => 3), '200 200 200 200 430',
        "... limit and status, $path";
}


# HTTP/2

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $http_x_key zone=many:1m rate=30 window=30d;
HTTP
    http2_listen 127.0.0.1:%%PORT1%%;

    location /many { limit_sliding zone=many; empty_gif; }

    $INCLUDES $FETCHED $AUTHS $REDIRECTS
SERVER

SKIP: {
    skip 'no nghttp', 1 unless $nginx->has_http2;
    my @http2 = (port => 1);

    sub http2_statuses(@request) {
        return join ' ', map { $_->{status} // 'none' }
            $nginx->http2(@request, port => 1);
    }

    @key = key();
    is http2_statuses('/two', @key), '200', 'HTTP/2: passed';
    is http2_statuses('/two', @key, times => 4), '200 429 429 429',
        'HTTP/2: streams';
    ($r) = $nginx->http2('/two', @key, @http2);
    like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'HTTP/2: Retry-After';
    is header($r, 'X-Status'), 'REJECTED', 'HTTP/2: rejected';
    is $nginx->statuses(1, '/two', @key), '429', 'HTTP/2: one state';

    for my $path (qw(/ssi.html /addition /slices /mirrors /auths /recursive
        /if?y=1 /accel-named /gif))
    {
        @key = key();
        is http2_statuses($path, @key, times => 3), '200 200 200',
            "HTTP/2: $path";
        is counted(@key), '3, 0 of the other zone', "HTTP/2: $path, counted";
    }

    @key = key();
    is http2_statuses('/gif', @key, method => 'HEAD'), '200', 'HTTP/2: HEAD';
    is counted(@key), '1, 0 of the other zone', 'HTTP/2: HEAD counted';

    my %statuses;
    @key = key();
    $statuses{ $_->{status} // 'none' }++
        for $nginx->http2('/many', @key, times => 100, @http2);
    is_deeply \%statuses, { 200 => 30, 429 => 70 }, 'HTTP/2: 100 streams';
}

$nginx->finish;
