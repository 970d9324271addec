# What clients are told: Retry-After, RateLimit, X-RateLimit.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_zone $http_x_key zone=two:1m rate=2 window=30d;
CONF

# Returns the headers about limits, as 'name: value'. Seconds become N, since
# they depend on when a window began.
sub told($r) {
    my @told;
    for my $name (sort keys %{ $r->{headers} }) {
        next if $name !~ /^(?:retry-after|x-?ratelimit.*|ratelimit.*)$/;
        push @told, map { "$name: $_" } @{ $r->{headers}{$name} };
    }
    return join ' | ', map {
        s/(?<=[;]t=)[1-9]\d*\b/N/gr =~ s/(?<=^retry-after: )[1-9]\d*$/N/r
            =~ s/(?<=^x-ratelimit-reset: )[1-9]\d*$/N/r
    } @told;
}

my $POLICY = 'ratelimit-policy: "two";q=2;w=2592000';

sub draft($remaining) {
    return qq(ratelimit: "two";r=$remaining;t=N | $POLICY);
}

sub x($remaining) {
    return "x-ratelimit-limit: 2 | x-ratelimit-remaining: $remaining"
        . ' | x-ratelimit-reset: N';
}

my $RETRY = 'retry-after: N';


# which headers

$nginx->serve(server => <<'CONF');
    location /default { limit_sliding zone=two; empty_gif; }
    location /free    { limit_sliding_headers retry_after draft x; empty_gif; }

    location /set {
        limit_sliding zone=two;

        location /set/off   { limit_sliding_headers off;         empty_gif; }
        location /set/retry { limit_sliding_headers retry_after; empty_gif; }
        location /set/draft { limit_sliding_headers draft;       empty_gif; }
        location /set/x     { limit_sliding_headers x;           empty_gif; }
        location /set/retry-draft {
            limit_sliding_headers retry_after draft;
            empty_gif;
        }
        location /set/draft-x {
            limit_sliding_headers draft x;
            empty_gif;
        }
        location /set/all {
            limit_sliding_headers x draft retry_after;
            empty_gif;
        }
        location /set/names {
            limit_sliding_headers x_ratelimit ratelimit;
            empty_gif;
        }
    }
CONF

for my $case (
    [ '/default',         '', $RETRY ],
    [ '/set/off',         '', '' ],
    [ '/set/retry',       '', $RETRY ],
    [ '/set/draft',       draft(1), draft(0) ],
    [ '/set/x',           x(1), x(0) ],
    [ '/set/retry-draft', draft(1), draft(0) . " | $RETRY" ],
    [ '/set/draft-x',     draft(1) . ' | ' . x(1), draft(0) . ' | ' . x(0) ],
    [ '/set/all',         draft(1) . ' | ' . x(1),
        draft(0) . " | $RETRY | " . x(0) ],
    [ '/set/names',       draft(1) . ' | ' . x(1), draft(0) . ' | ' . x(0) ],
) {
    my ($path, $passed, $rejected) = @$case;
    my @key = key();

    my $r = $nginx->get($path, @key);
    is $r->{status}, 200, "$path: passed";
    is told($r), $passed, "$path: passed, headers";

    $nginx->get($path, @key);
    $r = $nginx->get($path, @key);
    is $r->{status}, 429, "$path: rejected";
    is told($r), $rejected, "$path: rejected, headers";
}

is told($nginx->get('/free', key())), '', 'headers without a limit: none';


# the same, by a server{} with all of them

$nginx->common(server => <<'CONF');
    limit_sliding_headers retry_after draft x;
    limit_sliding zone=two;

    location /all { empty_gif; }
CONF

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    map $http_x_plan $rate { staff off; }
HTTP
    location /off       { limit_sliding_headers off; empty_gif; }
    location /off/x     { limit_sliding_headers x;   empty_gif; }
    location /unlimited { limit_sliding off;         empty_gif; }
    location /plan      { limit_sliding zone=two rate=$rate; empty_gif; }
    location /watched   { limit_sliding zone=two dry_run;    empty_gif; }
    location /return    { return 204; }
SERVER

my $PASSED = draft(1) . ' | ' . x(1);
my $REJECTED = draft(0) . " | $RETRY | " . x(0);

for my $case (
    [ '/all',       $PASSED, $REJECTED, 'inherited' ],
    [ '/off',       '', '',             'off' ],
    [ '/off/x',     x(1), x(0),         'own' ],
    [ '/unlimited', '', '',             'no limit' ],
    [ '/watched',   '', '',             'watched' ],
    [ '/return',    '', '',             'return' ],
) {
    my ($path, $passed, $rejected, $name) = @$case;
    my @key = key();
    is told($nginx->get($path, @key)), $passed, "$name: passed";
    $nginx->get($path, @key);
    is told($nginx->get($path, @key)), $rejected, "$name: then";
}

is told($nginx->get('/all')), '', 'no key: none';
is told($nginx->get('/plan', key('X-Plan: staff'))), '',
    'rate off: none';


# what they say

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=half:1m rate=9 window=500ms;
    limit_sliding_zone $http_x_key zone=second:1m rate=9 window=1s;
    limit_sliding_zone $http_x_key zone=odd:1m rate=9 window=90s;
HTTP
    location /cost { limit_sliding zone=two cost=3; empty_gif; }
    location /look { limit_sliding zone=two cost=0; empty_gif; }
    location /half { limit_sliding zone=half;       empty_gif; }
    location /second { limit_sliding zone=second;   empty_gif; }
    location /odd  { limit_sliding zone=odd;        empty_gif; }
SERVER

my @key = key();
my $r = $nginx->get('/all', @key);
my ($t) = header($r, 'RateLimit') =~ /;t=(\d+)$/;
is header($r, 'X-RateLimit-Reset'), $t, 'passed: both resets agree';
my $month = 30 * 86400;
cmp_ok $t, '>=', $month, 'passed: reset, at least';
cmp_ok $t, '<=', 2 * $month, 'passed: reset, at most';

$nginx->get('/all', @key);
$r = $nginx->get('/all', @key);
($t) = header($r, 'RateLimit') =~ /;t=(\d+)$/;
is header($r, 'X-RateLimit-Reset'), $t, 'rejected: both resets agree';
cmp_ok header($r, 'Retry-After'), '>=', $t, 'rejected: Retry-After is no less';

$r = $nginx->get('/cost', @key);
is $r->{status}, 429, 'a cost above the limit';
ok !exists $r->{headers}{'retry-after'}, 'no Retry-After';
is told($r), draft(0) . ' | ' . x(0), 'but the rest';

$r = $nginx->get('/look', key());
like header($r, 'RateLimit'), qr/^"two";r=2(?:;t=0)?$/, 'nothing used: all';
is header($r, 'X-RateLimit-Reset'), 0, 'nothing used: reset';

$r = $nginx->get('/half', key());
is header($r, 'RateLimit-Policy'), '"half";q=9', 'no w below one second';
like header($r, 'RateLimit'), qr/^"half";r=8;t=1$/, 'seconds are rounded up';
$r = $nginx->get('/second', key());
is header($r, 'RateLimit-Policy'), '"second";q=9;w=1', 'w of one second';
$r = $nginx->get('/odd', key());
is header($r, 'RateLimit-Policy'), '"odd";q=9;w=90', 'w in seconds';


# several limits: members of a list

$nginx->common(http => <<'CONF');
    limit_sliding_zone $http_x_key zone=ten:1m rate=10r/h;
    auth_basic_user_file %%DIR%%/htpasswd;
CONF

$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");

$nginx->serve(server => <<'CONF');
    location /several {
        limit_sliding zone=ten;
        limit_sliding zone=two;
        empty_gif;
    }

    location /stages {
        auth_basic closed;
        limit_sliding zone=two after_auth;
        limit_sliding zone=ten;
        empty_gif;
    }
CONF

# Returns the sorted names of the limits in a header that is a list.
sub names($r, $name) {
    my @names = header($r, $name) =~ /(?:^|, )"(\w+)";/g;
    return sort @names;
}

@key = key();
$r = $nginx->get('/several', @key);
is header($r, 'RateLimit-Policy'), '"ten";q=10;w=3600, "two";q=2;w=2592000',
    'several: policies';
like header($r, 'RateLimit'), qr/^"ten";r=9;t=\d+, "two";r=1;t=\d+$/,
    'several: what remains';
is header($r, 'X-RateLimit-Limit'), 2, 'several: X- of the tightest';

$nginx->get('/several', @key);
$r = $nginx->get('/several', @key);
is $r->{status}, 429, 'several: rejected';
is header($r, 'RateLimit-Policy'), '"ten";q=10;w=3600, "two";q=2;w=2592000',
    'several: rejected, policies';
like header($r, 'RateLimit'), qr/^"ten";r=8;t=\d+, "two";r=0;t=\d+$/,
    'several: rejected, what remains';
is header($r, 'X-RateLimit-Remaining'), 0, 'several: rejected, X-';
my @t = header($r, 'RateLimit') =~ /;t=(\d+)/g;
cmp_ok header($r, 'Retry-After'), '>=', $_, 'several: Retry-After >= t' for @t;

my @login = key('Authorization: Basic dXNlcjpzZWNyZXQ=');
$r = $nginx->get('/stages', @login);
is join(' ', names($r, 'RateLimit')), 'ten two',
    'two stages: both';
is header($r, 'X-RateLimit-Limit'), 2, 'two stages: X- of the tightest';
$r = $nginx->get('/stages', key());
is $r->{status}, 401, 'two stages: not granted';
is header($r, 'RateLimit-Policy'), '"ten";q=10;w=3600',
    'two stages: the second was not reached';


# odd names

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key "zone=quo\"te\\:1m" rate=3 window=30d;
    limit_sliding_zone $http_x_key "zone=new\r\nline:1m" rate=3 window=30d;
    limit_sliding_zone $http_x_key "zone=two words, and;q=1:1m" rate=3
        window=30d;
    limit_sliding_zone $http_x_key zone=größe:1m rate=3 window=30d;
HTTP
    location /quote { limit_sliding "zone=quo\"te\\"; empty_gif; }
    location /new   { limit_sliding "zone=new\r\nline"; empty_gif; }
    location /words { limit_sliding "zone=two words, and;q=1"; empty_gif; }
    location /utf8  { limit_sliding zone=größe; empty_gif; }
SERVER

$r = $nginx->get('/quote', key());
is header($r, 'RateLimit-Policy'), '"quo\\"te\\\\";q=3;w=2592000',
    'quotes and backslashes are escaped';
like header($r, 'RateLimit'), qr/^"quo\\"te\\\\";r=2;t=\d+$/,
    'and where it says what remains';

$r = $nginx->get('/words', key());
is header($r, 'RateLimit-Policy'), '"two words, and;q=1";q=3;w=2592000',
    'separators are quoted';

for my $path (qw(/new /utf8)) {
    $r = $nginx->get($path, key());
    is $r->{status}, 200, "$path: passed";
    is @{ $r->{headers}{ratelimit} // [] }, 1, "$path: one header";

    # Structured Fields have strings of this form.
    for my $name (qw(RateLimit RateLimit-Policy)) {
        like header($r, $name),
            qr/^"(?:[ !#-\[\]-~]|\\["\\])*";(?:r=2;t=\d+|q=3;w=2592000)$/,
            "$path: $name is well-formed";
    }
}


# other responses

$nginx->write_file('html/file', 'a file');
$nginx->write_file('html/page', 'a page');
mkdir $nginx->dir . '/html/dir';
$nginx->write_file('html/dir/index.html', 'an index');

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT2%%;
        location / { root html; try_files /file =404; }
        location /proxy/404 { return 404; }
        location /proxy/redirect { return 302 /elsewhere; }
        location /proxy/accel { add_header X-Accel-Redirect /file; return 204; }
    }
HTTP
    location /file   { }
    location /proxy/ { proxy_pass http://127.0.0.1:%%PORT2%%; }
    location /dir/   { }

    location /rejected-page {
        error_page 429 /page;
        empty_gif;
    }

    location /rejected-named {
        error_page 429 = @named;
        empty_gif;
    }

    location /to-more { error_page 404 = @more; }
    location /to-free { error_page 404 = @free; }
    location @named   { empty_gif; }
    location @free    { limit_sliding off; empty_gif; }
    location @more    { limit_sliding zone=two; limit_sliding zone=ten;
                        empty_gif; }

    location /auth {
        auth_basic closed;
        empty_gif;
    }
SERVER

for my $case (
    [ '/file',           200, 'a file' ],
    [ '/file',           200, 'HEAD', method => 'HEAD' ],
    [ '/file',           200, 'HTTP/1.0', version => '1.0' ],
    [ '/file',           206, 'a range', headers => ['Range: bytes=0-1'] ],
    [ '/file',           416, 'no such range', headers => ['Range: bytes=9-'] ],
    [ '/file',           412, 'changed', headers => ['If-Match: "x"'] ],
    [ '/file',           304, 'not modified', headers => ['If-None-Match: *'] ],
    [ '/file',           405, 'POST', method => 'POST', body => 'x' ],
    [ '/proxy/file',     200, 'proxied' ],
    [ '/proxy/404',      404, 'proxied, 404' ],
    [ '/proxy/redirect', 302, 'proxied, 302' ],
    [ '/proxy/accel',    200, 'proxied, X-Accel-Redirect' ],
    [ '/none',           404, 'no such file' ],
    [ '/dir/',           200, 'an index' ],
    [ '/dir',            301, 'a redirect' ],
    [ '/to-free',        200, 'error_page, unlimited there' ],
    [ '/auth',           401, 'authentication' ],
) {
    my ($path, $status, $name, %options) = @$case;
    my (undef, $headers) = key(@{ delete $options{headers} // [] });

    $r = $nginx->get($path, headers => $headers, %options);
    is $r->{status}, $status, "$name: status";
    is told($r), $PASSED, "$name: passed";

    $nginx->get('/all', headers => $headers);
    $r = $nginx->get($path, headers => $headers, %options);
    is $r->{status}, 429, "$name: over it";
    is told($r), $REJECTED, "$name: rejected";
}

for my $path (qw(/rejected-page /rejected-named)) {
    @key = key();
    $nginx->get($path, @key) for 1 .. 2;
    $r = $nginx->get($path, @key);
    is told($r), $REJECTED, "$path: once";
}

@key = key();
$r = $nginx->get('/to-more', @key);
is_deeply [ map { scalar @{ $r->{headers}{$_} // [] } } qw(x-ratelimit-limit
    x-ratelimit-remaining x-ratelimit-reset) ], [ 1, 1, 1 ],
    'more limits after a redirect: not twice';
is join(' ', names($r, 'RateLimit')), 'ten two',
    'more limits after a redirect: each once';
is join(' ', names($r, 'RateLimit-Policy')), 'ten two',
    'more limits after a redirect: policies';


# The fields of an upstream with the names of ours are replaced, and only where ours are sent.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT1%%;
        add_header X-RateLimit-Limit 7;
        add_header x-ratelimit-remaining 7;
        add_header X-RateLimit-Other 7;
        add_header RateLimit '"theirs";r=7';
        add_header RateLimit-Policy '"theirs";q=7';
        location / { return 204; }
    }
HTTP
    location /x/     { limit_sliding_headers x;     limit_sliding zone=two; proxy_pass http://127.0.0.1:%%PORT1%%/; }
    location /draft/ { limit_sliding_headers draft; limit_sliding zone=two; proxy_pass http://127.0.0.1:%%PORT1%%/; }
SERVER

my $theirs = 'ratelimit: "theirs";r=7 | ratelimit-policy: "theirs";q=7';
is told($nginx->get('/x/', key())), "$theirs | x-ratelimit-limit: 2 | x-ratelimit-other: 7"
    . ' | x-ratelimit-remaining: 1 | x-ratelimit-reset: N', 'an upstream with fields: x';
is told($nginx->get('/draft/', key())), draft(1) . ' | x-ratelimit-limit: 7'
    . ' | x-ratelimit-other: 7 | x-ratelimit-remaining: 7', 'an upstream with fields: draft';

# A name of a zone here has a line feed, and warnings of nginx -t name the zone.
$nginx->finish(allow => [ qr/^line" replaces "limit_sliding zone=two"/,
    qr/^line" is chosen by clients,/ ]);
