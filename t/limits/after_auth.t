# Limits that come after authentication, and key on what it proved.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $remote_user$http_x_test zone=user:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=key:1m rate=3 window=30d;
    limit_sliding_zone $http_x_key zone=more:1m rate=10 window=30d;

    auth_basic_user_file %%DIR%%/htpasswd;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Remaining $limit_sliding_remaining always;
HTTP
    location /look-user { limit_sliding zone=user cost=0; empty_gif; }
    location /look-key  { limit_sliding zone=key  cost=0; empty_gif; }
    location /look-more { limit_sliding zone=more cost=0; empty_gif; }
    location /plain { limit_sliding zone=key after_auth; empty_gif; }
SERVER

$nginx->write_file('htpasswd', "ann:{PLAIN}secret\nbob:{PLAIN}secret\n");

my %login = (
    ann   => 'Authorization: Basic YW5uOnNlY3JldA==',
    bob   => 'Authorization: Basic Ym9iOnNlY3JldA==',
    wrong => 'Authorization: Basic YW5uOndyb25n',      # ann's, wrong password
);

my $unique = 0;

# Returns headers by which no other test is limited, and these.
sub fresh(@headers) {
    $unique++;
    return ("X-Test: -$unique", "X-Key: $unique", @headers);
}

sub statuses($n, $path, @headers) {
    return $nginx->statuses($n, $path, headers => \@headers);
}

# Returns what remains of a zone to a request with these headers.
sub remaining($zone, @headers) {
    return header($nginx->get("/look-$zone", headers => \@headers),
        'X-Remaining');
}


# without authentication

$nginx->write_file('html/page', 'a page');

$nginx->serve(server => <<'CONF');
    location /static { limit_sliding zone=key after_auth; alias html/page; }
    location /return { limit_sliding zone=key after_auth; return 204; }
CONF

is statuses(3, '/plain', fresh()), '200 200 200', 'limit 3';
my @h = fresh();
is statuses(4, '/static', @h), '200 200 200 429', 'a file';
is statuses(4, '/plain', @h), '429 429 429 429', 'one state';
is statuses(4, '/plain'), '200 200 200 200', 'no key, no limit';
@h = fresh();
is statuses(4, '/return', @h), '204 204 204 204', 'return comes before';
is remaining('key', @h), 3, 'and charges nothing';

my $r = $nginx->get('/plain', headers => [ fresh() ]);
is header($r, 'X-Status'), 'PASSED', 'passed: status';
is header($r, 'X-Remaining'), '2', 'passed: remaining';


# auth_basic

$nginx->serve(server => <<'CONF');
    location /basic {
        auth_basic closed;
        limit_sliding zone=user after_auth;
        empty_gif;

        location /basic/403 { limit_sliding_status 403; empty_gif; }
        location /basic/401 { limit_sliding_status 401; empty_gif; }
        location /basic/off { limit_sliding off; empty_gif; }
        location /basic/dry { limit_sliding_dry_run on; empty_gif; }
    }

    location /deny {
        deny all;
        limit_sliding zone=key after_auth;
        empty_gif;
    }
CONF

@h = fresh();
is statuses(5, '/basic', @h, $login{wrong}), '401 401 401 401 401',
    'wrong passwords are not limited';
is remaining('user', @h, $login{ann}), 2, 'and consume nothing';
is statuses(3, '/basic', @h, $login{ann}), '200 200 429', 'a right one is';
is statuses(3, '/basic', @h, $login{bob}), '200 200 429', 'each user alone';
is statuses(2, '/basic', @h, $login{wrong}), '401 401',
    'who is not let in does not learn of limits';
is statuses(2, '/basic', @h), '401 401', 'no password';
is statuses(1, '/basic/off', @h, $login{ann}), '200', 'off below';

$r = $nginx->get('/basic', headers => [ @h, $login{ann} ]);
is header($r, 'X-Status'), 'REJECTED', 'rejected: status';
is header($r, 'X-Zone'), 'user', 'rejected: zone';
like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'rejected: Retry-After';
ok !exists $r->{headers}{'www-authenticate'}, 'rejected: not asked to log in';
like join("\n", $nginx->log_lines(qr/limiting/)),
    qr/limiting requests, excess: 1\.000 by zone "user", client: 127\.0\.0\.1/,
    'rejected: logged';

@h = fresh();
is statuses(3, '/basic/403', @h, $login{ann}), '200 200 403',
    'limit_sliding_status 403';
is statuses(1, '/basic/401', @h, $login{ann}), '401',
    'limit_sliding_status 401';
is statuses(2, '/basic/dry', @h, $login{ann}), '200 200', 'dry run';
is statuses(1, '/basic/dry', @h, $login{wrong}), '401',
    'dry run: grants nothing';

@h = fresh();
is statuses(4, '/deny', @h), '403 403 403 403', 'never grants access';
is remaining('key', @h), 3, 'and took nothing from those that have none';

my $connection = $nginx->connect;
@h = fresh($login{ann});
is join(' ', map { $nginx->get('/basic', headers => \@h,
    socket => $connection)->{status} } 1 .. 4), '200 200 429 429', 'keepalive';
is $nginx->get('/plain', headers => [ fresh() ], socket => $connection)
    ->{status}, 200, 'which goes on to serve';


# satisfy

my $TEN = <<'CONF';
    limit_sliding_zone $remote_user$http_x_test zone=ten:1m rate=10 window=30d;
CONF

$nginx->serve(http => $TEN, server => <<'SERVER');
    location /any {
        satisfy any;
        auth_basic closed;
        limit_sliding zone=ten after_auth;
        limit_sliding zone=key after_auth;

        location /any/deny { deny all;  empty_gif; }
        location /any/open { allow all; empty_gif; }
        location /any/403  { allow all; limit_sliding_status 403; empty_gif; }
        location /any/401  { allow all; limit_sliding_status 401; empty_gif; }
        location /any/none { deny all;  auth_basic off; empty_gif; }
    }

    location /all {
        satisfy all;
        auth_basic closed;
        limit_sliding zone=ten after_auth;
        limit_sliding zone=key after_auth;

        location /all/deny { deny all;  empty_gif; }
        location /all/open { allow all; empty_gif; }
    }
SERVER

for my $case (
    [ '/any/deny', 'ann',   '200 200 200 429', 'any: users' ],
    [ '/any/deny', 'wrong', '401 401 401 401', 'any: wrong passwords' ],
    [ '/any/deny', '',      '401 401 401 401', 'any: no password' ],
    [ '/any/open', '',      '200 200 200 429', 'any: addresses' ],
    [ '/any/open', 'wrong', '200 200 200 429', 'any: whoever they are' ],
    [ '/any/403',  '',      '200 200 200 403', 'any: rejected with 403' ],
    [ '/any/403',  'ann',   '200 200 200 403', 'any: a user, with 403' ],
    [ '/any/401',  '',      '200 200 200 401', 'any: rejected with 401' ],
    [ '/any/none', '',      '403 403 403 403', 'any: nobody' ],
    [ '/all/open', 'ann',   '200 200 200 429', 'all: users' ],
    [ '/all/open', 'wrong', '401 401 401 401', 'all: wrong passwords' ],
    [ '/all/deny', 'ann',   '403 403 403 403', 'all: wrong addresses' ],
) {
    my ($path, $user, $expected, $name) = @$case;
    @h = fresh($user ? $login{$user} : ());
    is statuses(4, $path, @h), $expected, "satisfy $name";

    my $passed = () = $expected =~ /200/g;
    is remaining('key', @h), 3 - $passed, "satisfy $name: consumed";
}


# auth_request

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $api_user$http_x_test zone=api:1m rate=2 window=30d;
    limit_sliding_zone $api_user zone=known:1m rate=100 window=30d;

    map $api_plan $rate { default ''; pro 5; staff off; }

    server {
        listen 127.0.0.1:%%PORT1%%;

        location / { return 401; }
        location /forbidden { return 403; }
        location /ann { add_header X-User ann; return 204; }
        location /bob {
            add_header X-User bob;
            add_header X-Plan pro;
            return 200;
        }
        location /staff {
            add_header X-User staff;
            add_header X-Plan staff;
            return 200;
        }
    }
HTTP
    location /api {
        auth_request /verify;
        auth_request_set $api_user $upstream_http_x_user;
        auth_request_set $api_plan $upstream_http_x_plan;
        limit_sliding zone=api rate=$rate after_auth;
        empty_gif;
    }

    location /api-early {
        auth_request /verify;
        auth_request_set $api_user $upstream_http_x_user;
        limit_sliding zone=known;
        empty_gif;
    }

    location = /verify {
        internal;
        proxy_pass http://127.0.0.1:%%PORT1%%/$http_x_token;
    }
SERVER

@h = fresh();
is statuses(3, '/api', @h), '401 401 401', 'auth_request: no token';
is statuses(2, '/api', @h, 'X-Token: forbidden'), '403 403',
    'auth_request: forbidden';
is statuses(4, '/api', @h, 'X-Token: ann'), '200 200 429 429',
    'auth_request: a user';
is statuses(6, '/api', @h, 'X-Token: bob'), '200 200 200 200 200 429',
    'auth_request: a user and a plan';
is statuses(6, '/api', @h, 'X-Token: staff'), '200 200 200 200 200 200',
    'auth_request: a plan that is off';
is header($nginx->get('/api-early', headers => [ 'X-Token: ann' ]),
    'X-Status'), '', 'before authentication the user is not known yet';


# two stages

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $TEN
    limit_sliding_zone \$http_x_full zone=full:1m rate=1 window=30d;
HTTP
    location /look-ten { limit_sliding zone=ten cost=0; empty_gif; }

    location /stages {
        auth_basic closed;
        limit_sliding zone=user after_auth;
        limit_sliding zone=key;
        empty_gif;
    }

    location /stages-full {
        auth_basic closed;
        limit_sliding zone=more;
        limit_sliding zone=ten after_auth;
        limit_sliding zone=full after_auth;
        empty_gif;
    }

    location /full-stages {
        auth_basic closed;
        limit_sliding zone=full;
        limit_sliding zone=more;
        limit_sliding zone=ten after_auth;
        empty_gif;
    }
SERVER

@h = fresh();
is statuses(2, '/stages', @h, $login{wrong}), '401 401', 'stages: guesses';
is remaining('key', @h), 1, 'stages: consume from the first';
is remaining('user', @h, $login{ann}), 2, 'stages: not from the second';
is statuses(1, '/stages', @h, $login{ann}), '200', 'stages: a user';
is remaining('key', @h), 0, 'stages: consumes from the first';
is remaining('user', @h, $login{ann}), 1, 'stages: and from the second';
is statuses(2, '/stages', @h, $login{ann}), '429 429',
    'stages: the first rejects';
is remaining('user', @h, $login{ann}), 1,
    'stages: and the second is not consumed';

@h = fresh('X-Full: b', $login{ann});
is statuses(4, '/stages-full', @h), '200 429 429 429',
    'all or nothing: the second stage is full';
is remaining('ten', @h), 9, 'all or nothing: in the second stage';
is remaining('more', @h), 6, 'all or nothing: the first had passed';

@h = fresh('X-Full: c', $login{ann});
is statuses(4, '/full-stages', @h), '200 429 429 429',
    'all or nothing: the first stage is full';
is remaining('ten', @h), 9, 'all or nothing: the second is not reached';
is remaining('more', @h), 9, 'all or nothing: in the first';

$r = $nginx->get('/stages', headers => [ fresh($login{ann}) ]);
is header($r, 'X-Zone'), 'user', 'stages: the tightest of both describes';
is header($r, 'X-Remaining'), 1, 'stages: what remains of it';


# where a request goes

mkdir $nginx->dir . '/html/dir';
$nginx->write_file('html/dir/index.html', 'an index');

$nginx->serve(server => <<'CONF');
    location /try-files {
        limit_sliding zone=key after_auth;
        try_files /none @free;
    }

    location /try-files-code {
        limit_sliding zone=key after_auth;
        try_files /none =404;
    }

    location @free { limit_sliding off; empty_gif; }

    location /again {
        limit_sliding zone=more after_auth;
        error_page 404 = @again;
    }

    location @again { limit_sliding zone=more after_auth; empty_gif; }

    location /before-again {
        limit_sliding zone=more;
        error_page 404 = @again;
    }

    location /dir/ { limit_sliding zone=more after_auth; }

    location /page {
        limit_sliding zone=key after_auth;
        error_page 429 = @page;
        empty_gif;
    }

    location @page { limit_sliding zone=key after_auth; empty_gif; }

    location /status {
        auth_basic closed;
        limit_sliding zone=user after_auth count_status=404;
    }
CONF

is statuses(4, '/try-files', fresh()), '200 200 200 429',
    'try_files comes after';
is statuses(4, '/try-files-code', fresh()), '404 404 404 429',
    'try_files with a code comes after';
is statuses(4, '/page', fresh()), '200 200 200 200', 'error_page';

for my $path (qw(/again /before-again /dir/)) {
    @h = fresh();
    is statuses(1, $path, @h), '200', "once: $path";
    is remaining('more', @h), 9, "once: $path: charged";
}

@h = fresh($login{ann});

# One after the other on one connection: each finds those before it counted.
is $nginx->statuses(3, '/status', headers => \@h, socket => $nginx->connect), '404 404 429',
    'with count_status';
@h = fresh();
is statuses(3, '/status', @h, $login{wrong}), '401 401 401',
    'with count_status: wrong passwords';
is remaining('user', @h, $login{ann}), 2, 'with count_status: not counted';

$nginx->finish;
