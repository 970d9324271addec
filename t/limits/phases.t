# When a request is limited: before authentication, and once, wherever NGINX
# takes the request after that.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_zone $http_x_key zone=two:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=ten:1m rate=10 window=30d;

    auth_basic_user_file %%DIR%%/htpasswd;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Remaining $limit_sliding_remaining always;
CONF

$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");

sub login(@options) {
    my %options = @options;
    push @{ $options{headers} }, 'Authorization: Basic dXNlcjpzZWNyZXQ=';
    return %options;
}


# before authentication

$nginx->serve(server => <<'CONF');
    location /auth {
        auth_basic closed;
        limit_sliding zone=two;
        empty_gif;
    }

    location /auth-403 {
        auth_basic closed;
        limit_sliding zone=two;
        limit_sliding_status 403;
        empty_gif;
    }

    location /deny {
        deny all;
        limit_sliding zone=two;
        empty_gif;
    }
CONF

is $nginx->statuses(4, '/auth', key()), '401 401 429 429',
    'guesses at a password are limited';
is $nginx->statuses(3, '/auth', login(key())), '200 200 429',
    'and so are users';

my @key = key();
is $nginx->statuses(2, '/auth', @key), '401 401', 'after two guesses';
is $nginx->statuses(1, '/auth', login(@key)), '429', 'a password does not help';

is $nginx->statuses(3, '/auth-403', login(key())), '200 200 403',
    'limit_sliding_status 403 beside auth_basic';
is $nginx->statuses(3, '/deny', key()), '403 403 429', 'before access';


# satisfy any: neither granted nor overruled

$nginx->serve(server => <<'CONF');
    location /any {
        satisfy any;
        limit_sliding zone=two;

        location /any/closed {
            deny all;
            auth_basic closed;
            empty_gif;
        }

        location /any/deny {
            deny all;
            empty_gif;
        }

        location /any/open {
            allow all;
            auth_basic closed;
            empty_gif;
        }

        location /any/open-401 {
            allow all;
            auth_basic closed;
            limit_sliding_status 401;
            empty_gif;
        }

        location /any/open-403 {
            allow all;
            auth_basic closed;
            limit_sliding_status 403;
            empty_gif;
        }

        location /any/closed-dry {
            deny all;
            auth_basic closed;
            limit_sliding_dry_run on;
            empty_gif;
        }
    }
CONF

is $nginx->statuses(3, '/any/closed', key()), '401 401 429',
    'satisfy any: to be admitted is not to have access';
is $nginx->statuses(3, '/any/deny', key()), '403 403 429',
    'satisfy any, nobody has access';
is $nginx->statuses(3, '/any/closed', login(key())), '200 200 429',
    'satisfy any: users';
is $nginx->statuses(3, '/any/open', key()), '200 200 429', 'satisfy any: open';
is $nginx->statuses(3, '/any/open-403', key()), '200 200 403',
    'satisfy any: open, rejected with 403';
is $nginx->statuses(3, '/any/open-401', key()), '200 200 401',
    'satisfy any: open, rejected with 401';
is $nginx->statuses(3, '/any/open-401', login(key())), '200 200 401',
    'satisfy any: users rejected with 401';
is $nginx->statuses(3, '/any/closed-dry', key()), '401 401 401',
    'satisfy any: a dry run grants nothing';
is $nginx->statuses(1, '/any/closed', headers => []), '401',
    'satisfy any: an empty key grants nothing';

my $r = $nginx->get('/any/open-401', key());
is header($r, 'X-Status'), 'PASSED', 'satisfy any: passed';

@key = key();
my $connection = $nginx->connect;
is $nginx->statuses(4, '/any/open-401', @key, socket => $connection),
    '200 200 401 401', 'rejected with 401 on one connection';
is $nginx->statuses(1, '/any/open-401', key(), socket => $connection), '200',
    'which goes on to serve';


# one charge for a request and zone

$nginx->write_file('html/target', 'the target');

# Asserts that each of these cases, [path, status, name], is charged once for a
# request.
sub charged_once(@cases) {
    for (@cases) {
        my ($path, $status, $name) = @$_;
        @key = key();

        $r = $nginx->get($path, @key);
        is $r->{status}, $status, "$name: status";
        is header($r, 'X-Status'), 'PASSED', "$name: passed";
        is header($r, 'X-Remaining'), '9', "$name: charged";

        $nginx->get($path, @key);
        is header($nginx->get('/target', @key), 'X-Remaining'), '7',
            "$name: once for each request";
    }
}


# ... that is redirected

mkdir $nginx->dir . "/html/$_" for qw(dir free-dir);
$nginx->write_file("html/$_/index.html", 'the index') for qw(dir free-dir);

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT1%%;
        location / {
            add_header X-Accel-Redirect /target;
            return 200;
        }
    }
HTTP
    location /target { limit_sliding zone=ten; }

    location /error-page {
        limit_sliding zone=ten;
        error_page 404 = /target;
    }

    location /error-page-named {
        limit_sliding zone=ten;
        error_page 404 = @named;
    }

    location /try-files {
        limit_sliding zone=ten;
        try_files /nonexistent /target;
    }

    location /try-files-named {
        limit_sliding zone=ten;
        try_files /nonexistent @named;
    }

    location @named {
        limit_sliding zone=ten;
        empty_gif;
    }

    location /dir/ { limit_sliding zone=ten; }

    location /free-dir/ {
        location = /free-dir/index.html { limit_sliding zone=ten; }
    }

    location /accel {
        limit_sliding zone=ten;
        proxy_pass http://127.0.0.1:%%PORT1%%;
    }
SERVER

charged_once(
    [ '/error-page',       200, 'error_page' ],
    [ '/error-page-named', 200, 'error_page to a named location' ],
    [ '/try-files',        200, 'try_files' ],
    [ '/try-files-named',  200, 'try_files to a named location' ],
    [ '/dir/',             200, 'index' ],
    [ '/free-dir/',        200, 'index, limited after the redirect only' ],
    [ '/accel',            200, 'X-Accel-Redirect' ],
);


# ... that has subrequests

$nginx->write_file('html/ssi.html',
    '<!--#include virtual="/target" --> ' x 3);

$nginx->serve(server => <<'CONF');
    location /target { limit_sliding zone=ten; }

    location /auth-request {
        auth_request /verify;
        limit_sliding zone=ten;
        empty_gif;
    }

    location /verify {
        limit_sliding zone=ten;
        empty_gif;
    }

    location /mirror {
        mirror /verify;
        limit_sliding zone=ten;
        empty_gif;
    }

    location /ssi.html {
        ssi on;
        ssi_types *;
        limit_sliding zone=ten;
    }
CONF

charged_once(
    [ '/auth-request', 200, 'auth_request' ],
    [ '/mirror',       200, 'mirror' ],
    [ '/ssi.html',     200, 'SSI' ],
);


# limits below others, or after a redirect to them

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=other:1m rate=10 window=30d;
HTTP
    location /target { limit_sliding zone=ten;   empty_gif; }
    location /other  { limit_sliding zone=other; empty_gif; }

    location /auth-request-only {
        auth_request /target;
        empty_gif;
    }

    location /to-other {
        limit_sliding zone=ten;
        error_page 404 = @both;
    }

    location @both {
        limit_sliding zone=ten;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

@key = key();
$r = $nginx->get('/auth-request-only', @key);
is $r->{status}, 200, 'limit in a subrequest only: passed';
ok !exists $r->{headers}{'x-status'}, 'and not accounted';

@key = key();
$r = $nginx->get('/to-other', @key);
is $r->{status}, 200, 'redirected to a second zone: status';
is header($nginx->get('/target', @key), 'X-Remaining'), '8',
    'redirected to a second zone: the first is charged once';
is header($nginx->get('/other', @key), 'X-Remaining'), '8',
    'redirected to a second zone: it is charged as well';


# a page for those who are limited

$nginx->write_file('html/limited', 'be patient');

$nginx->serve(server => <<'CONF');
    location /two { limit_sliding zone=two; empty_gif; }

    location /page {
        limit_sliding zone=two;
        error_page 429 /limited;
        empty_gif;
    }

    location /limited { limit_sliding zone=two; }

    location /page-named {
        limit_sliding zone=two;
        error_page 429 = @limited;
        empty_gif;
    }

    location @limited {
        limit_sliding zone=two;
        empty_gif;
    }
CONF

@key = key();
is $nginx->statuses(2, '/page', @key), '200 200', 'page: passed';
for (1 .. 2) {
    $r = $nginx->get('/page', @key);
    is $r->{status}, 429, 'page: rejected';
    is $r->{body}, 'be patient', 'page: not limited again';
    is header($r, 'X-Status'), 'REJECTED', 'page: still a rejected request';
    like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'page: Retry-After';
}

@key = key();
is $nginx->statuses(4, '/page-named', @key), '200 200 200 200',
    'page in a named location with the same limit';
is header($nginx->get('/page-named', @key), 'X-Status'), 'REJECTED',
    'and still a rejected request';
is $nginx->statuses(1, '/two', @key), '429', 'which did not get anything';


# beside others

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_req_zone $http_x_key zone=req:1m rate=1r/m;
HTTP
    location /two { limit_sliding zone=two; empty_gif; }

    location /return {
        limit_sliding zone=two;
        return 204;
    }

    location /limit-req {
        limit_req zone=req;
        auth_request /verify;
        limit_sliding zone=two;
        empty_gif;
    }

    location /verify {
        limit_sliding zone=ten;
        empty_gif;
    }
SERVER

@key = key();
is $nginx->statuses(4, '/return', @key), '204 204 204 204',
    'return is answered before any limit';
is header($nginx->get('/two', @key), 'X-Remaining'), '1',
    'and charges nothing';

@key = key();
is $nginx->statuses(3, '/limit-req', @key), '200 503 503', 'beside limit_req';
is header($nginx->get('/two', @key), 'X-Remaining'), '0',
    'what limit_req rejects is not charged';
is $nginx->statuses(1, '/two', @key), '429', 'nor forgotten';

is $nginx->statuses(3, '/two', key(), version => '1.0'), '200 200 429',
    'HTTP/1.0';

@key = key();
$connection = $nginx->connect;
is $nginx->statuses(4, '/two', @key, socket => $connection), '200 200 429 429',
    'keepalive';

$r = $nginx->get('/two', socket => $connection);
is $r->{status}, 200, 'keepalive: no key';
ok !exists $r->{headers}{'x-status'}, 'keepalive: nothing of the last request';

$r = $nginx->get('/two', key(), socket => $connection);
is header($r, 'X-Status'), 'PASSED', 'keepalive: another key';

$nginx->finish;
