# Limits that Redis decides: what clients, operators and Redis itself see.
# Timeouts are long, since nothing here is about them.

use v5.36;

use MIME::Base64 qw(encode_base64);
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

srand 1;

my $redis = LimitSliding::Redis->new(config => {
    user => 'limiter on >word ~acl:* +@all -@admin',
})->start;
my ($server, $path) = ($redis->server, $redis->path);

my $nginx = LimitSliding::Test->new;

$nginx->common(listen => 'reuseport', http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server $server;
        timeout 5s;
        connect_timeout 5s;
    }

    limit_sliding_zone \$arg_key zone=two:1m rate=2 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=ten:1m rate=10 window=30d redis=shared;

    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Zone      \$limit_sliding_zone      always;
    add_header X-Limit     \$limit_sliding_limit     always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Reset     \$limit_sliding_reset     always;
    add_header X-Source    \$limit_sliding_source    always;
    add_header X-Worker    \$pid                     always;
HTTP
    location /two      { limit_sliding zone=two; empty_gif; }
    location /ten      { limit_sliding zone=ten cost=$arg_cost; empty_gif; }
    location /look-ten { limit_sliding zone=ten cost=0; empty_gif; }
SERVER

# Returns "status, remaining" of a request.
sub ask($path, %opt) {
    my $r = $nginx->get($path, %opt);
    return ($r->{status} // 'none') . ', ' . header($r, 'X-Remaining');
}

sub left($place, $key) {
    return header($nginx->get("/look-$place?key=$key"), 'X-Remaining');
}


# a limit that bites

$nginx->serve(server => <<'CONF');
    location /503 {
        limit_sliding zone=two;
        limit_sliding_status 503;
        empty_gif;
    }
    location /403 {
        limit_sliding zone=two;
        limit_sliding_status 403;
        empty_gif;
    }
CONF

is $redis->connections, 0, 'nobody connects before there is need';

my $r = $nginx->get('/two?key=a');
is $r->{status}, 200, 'first request';
is header($r, 'X-Status'), 'PASSED', 'first request: status';
is header($r, 'X-Zone'), 'two', 'first request: zone';
is header($r, 'X-Limit'), 2, 'first request: limit';
is header($r, 'X-Remaining'), 1, 'first request: remaining';
like header($r, 'X-Reset'), qr/^[1-9]\d*$/, 'first request: reset';
is header($r, 'X-Source'), 'redis', 'first request: source';
is header($r, 'Retry-After'), '', 'first request: no Retry-After';

$r = $nginx->get('/two?key=a');
is $r->{status}, 200, 'second request';
is header($r, 'X-Remaining'), 0, 'second request: remaining';
is header($r, 'X-Source'), 'redis', 'second request: source';

$r = $nginx->get('/two?key=a');
is $r->{status}, 429, 'third request';
is header($r, 'X-Status'), 'REJECTED', 'third request: status';
is header($r, 'X-Remaining'), 0, 'third request: remaining';
is header($r, 'X-Source'), 'redis', 'third request: source';
my $retry = header($r, 'Retry-After');
cmp_ok $retry, '>=', 1, 'third request: Retry-After';
cmp_ok $retry, '<=', 2 * 30 * 86400, 'third request: Retry-After';

is $nginx->statuses(3, '/two?key=b'), '200 200 429', 'another key';
is $nginx->statuses(3, '/two'), '200 200 200', 'an empty key';
is header($nginx->get('/two'), 'X-Status'), '', 'an empty key is nobody';
is $nginx->statuses(3, '/503?key=s'), '200 200 503', 'another status';
is $nginx->statuses(3, '/403?key=st'), '200 200 403', 'another status: 403';

like((join "\n", $nginx->log_lines(qr/limiting/)),
    qr/\[error\].* limiting requests, excess: 1\.000 by zone "two", client/,
    'the log line of limit_req');


# what is known to be refused

$nginx->serve(server => <<'CONF');
    location /quiet {
        limit_sliding zone=two;
        limit_sliding_log_level off;
        empty_gif;
    }
CONF

# NGINX refuses from memory for a second of its clock, and then asks Redis
# again.
is header($nginx->get('/quiet?key=a'), 'X-Source'), 'redis', 'Redis refuses';
sleep 0.999;
my ($calls, %sources, %workers, %statuses) = $redis->calls;
$nginx->load(requests => [ ('/quiet?key=a') x 500 ],
    each => sub ($i, $status, $head) {
        $statuses{$status}++;
        $sources{$1}++   if $head =~ /^X-Source: (\w+)/m;
        $workers{$1}++   if $head =~ /^X-Worker: (\d+)/m;
        $retry = $1      if $head =~ /^Retry-After: (\d+)/m;
    });
is_deeply \%statuses, { 429 => 500 }, 'refused 500 times';
is_deeply \%sources, { cache => 500 }, '... from memory';
is keys %workers, 2, '... by both workers';
is $redis->calls, $calls, '... and Redis is not asked';
cmp_ok $retry, '>=', 1, '... with Retry-After';
sleep 0.001;
is header($nginx->get('/quiet?key=a'), 'X-Source'), 'redis', '... but after a second';

# At a high limit, where the next unit is free in 10 ms, a refusal holds for 25.
$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=high:1m rate=100r/s window=1m
        algorithm=token_bucket burst=10 redis=shared;
HTTP
    location /high {
        limit_sliding zone=high;
        limit_sliding_log_level off;
        empty_gif;
    }
SERVER
$nginx->get('/high?key=h') for 1 .. 10;
($calls, %statuses) = ($redis->calls);
for (1 .. 200) {
    for (1 .. 2) {
        $r = $nginx->get('/high?key=h');
        $statuses{ $r->{status} }++;
        $retry = header($r, 'Retry-After') || $retry;
    }
    sleep 0.005;
}
my $rejections = $redis->calls - $calls - $statuses{200};
cmp_ok $rejections, '<=', 1 + 1 / 0.025,
    'a high limit: Redis rejects no more than every 25 ms';
cmp_ok $statuses{429}, '>', $rejections, '... and memory rejects more';
is $retry, 1, '... with the same Retry-After';


# what clients are told

$nginx->serve(server => <<'CONF');
    location /headers {
        limit_sliding zone=two;
        limit_sliding_headers retry_after draft x;
        empty_gif;
    }
CONF

$nginx->get('/headers?key=h');
$r = $nginx->get('/headers?key=h');
is header($r, 'X-RateLimit-Limit'), 2, 'X-RateLimit-Limit';
is header($r, 'X-RateLimit-Remaining'), 0, 'X-RateLimit-Remaining';
like header($r, 'X-RateLimit-Reset'), qr/^[1-9]\d*$/, 'X-RateLimit-Reset';
is header($r, 'RateLimit-Policy'), '"two";q=2;w=2592000', 'RateLimit-Policy';
like header($r, 'RateLimit'), qr/^"two";r=0;t=[1-9]\d*$/, 'RateLimit';
for my $source (qw(redis cache)) {
    $r = $nginx->get('/headers?key=h');
    is $r->{status}, 429, "refused, $source";
    like header($r, 'RateLimit'), qr/^"two";r=0;t=[1-9]\d*$/,
        "RateLimit, $source";
    my ($t) = header($r, 'RateLimit') =~ /t=(\d+)/;
    cmp_ok header($r, 'Retry-After'), '>=', $t, "Retry-After, $source";
}


# keys in Redis

my %blocks = (http => <<"HTTP", server => <<'SERVER');
    large_client_header_buffers 4 160k;
    limit_sliding_redis plain {
        server $server;
        key_format plain;
        key_prefix "p:";
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_redis unix {
        server unix:$path;
        database 3;
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_redis acl {
        server $server;
        user limiter;
        password_file %%DIR%%/password;
        key_prefix "acl:";
        timeout 5s;
        connect_timeout 5s;
    }

    limit_sliding_zone \$http_x_key zone=plain:1m rate=3 window=30d redis=plain;
    limit_sliding_zone \$arg_key zone=unix:1m rate=2 window=30d redis=unix;
    limit_sliding_zone \$arg_key zone=acl:1m rate=2 window=30d redis=acl;
    limit_sliding_zone \$arg_key zone=bucket:1m rate=1000 window=300ms algorithm=token_bucket
        redis=plain;
HTTP
    location /plain { limit_sliding zone=plain; empty_gif; }
    location /unix  { limit_sliding zone=unix;  empty_gif; }
    location /acl   { limit_sliding zone=acl;   empty_gif; }
    location /bucket { limit_sliding zone=bucket; empty_gif; }
SERVER

$nginx->write_file('password', "word\n");
chmod 0600, $nginx->dir . '/password';

$nginx->serve(%blocks);

my @names = $redis->keys;
my ($sha_a, $sha_b) = map { digest($_) } qw(a b);
ok grep({ $_ eq "limit_sliding:two:{$sha_a}:c2592000s" } @names), 'a digest of the key';
ok grep({ $_ eq "limit_sliding:two:{$sha_b}:c2592000s" } @names), '... of each';
is scalar grep({ !/^limit_sliding:\w+:\{[\w-]{22}\}:[ct]\d+m?s$/ } @names), 0,
    '... and nothing else'
    or diag "@names";
is scalar grep({ $redis->command('PTTL', $_) <= 0 } @names), 0,
    'all of them expire';

# Each state of a bucket lasts for a window after its request, or longer, though
# most requests leave the expiry as it is.
my $shortest = 'none';
for (1 .. 200) {
    $nginx->get('/bucket?key=b');
    my $lasts = $redis->ask('PTTL', 'p:bucket:{b}:t300ms');
    $shortest = $lasts if $shortest eq 'none' || $lasts < $shortest;
    sleep 0.007;
}
cmp_ok $shortest, '>=', 300, 'a bucket lasts for a window after each request';

for my $key ('key', 'of {braces}', '}{', '100%', 'K' x 300, "\x{c3}\x{a9}:*?") {
    is $nginx->statuses(4, '/plain', headers => [ "X-Key: $key" ]),
        '200 200 200 429', "a plain key: $key";
    is $redis->command('EXISTS', "p:plain:{$key}:c2592000s"), 1, '... as it is';
}

my $long = 'k' x 65536;
is $nginx->statuses(4, '/plain', headers => [ "X-Key: $long" ]), '200 200 200 429',
    'a plain key that is too long for a name';
is $redis->command('EXISTS', 'p:plain:{' . digest($long) . '}:c2592000s'), 1, '... by its digest';

is $nginx->statuses(3, '/unix?key=u'), '200 200 429', 'by a unix socket';
my $own = $redis->connect;
LimitSliding::Redis::send_command($own, 'SELECT', 3);
LimitSliding::Redis::receive_reply($own);
LimitSliding::Redis::send_command($own, 'KEYS', '*');
is_deeply LimitSliding::Redis::receive_reply($own),
    [ 'limit_sliding:unix:{' . digest('u') . '}:c2592000s' ], '... in database 3';
close $own;

is $nginx->statuses(3, '/acl?key=u'), '200 200 429', 'as an ACL user';
ok grep({ $_ eq 'acl:acl:{' . digest('u') . '}:c2592000s' } $redis->keys),
    '... with its prefix';
ok grep({ $_->{user} eq 'limiter' } $redis->clients), '... who is connected';


# a limit of a key's own

$nginx->serve(server => <<'CONF');
    location /fields {
        limit_sliding zone=two;
        limit_sliding_headers draft x;
        empty_gif;
    }
CONF

sub override($zone, $key, $value) {
    $redis->command('SET', "limit_sliding:$zone:{" . digest($key)
        . '}:limit', $value);
}

override('two', 'vip', 5);
is $nginx->statuses(6, '/two?key=vip'), '200 200 200 200 200 429',
    'a higher limit of its own';
my $fields = $nginx->get('/fields?key=vip');
is header($fields, 'X-RateLimit-Limit'), 5, '... in header fields';
like header($fields, 'RateLimit-Policy'), qr/;q=5;/, '... of both kinds';
override('two', 'vip2', 5);
like header($nginx->get('/fields?key=vip2'), 'RateLimit-Policy'), qr/;q=5;/,
    '... and when it passes';
override('ten', 'low', 1);
is $nginx->statuses(2, '/ten?key=low'), '200 429', 'a lower one';
is header($nginx->get('/ten?key=low'), 'X-Limit'), 1, '... which shows';
is header($nginx->get('/ten?key=high'), 'X-Limit'), 10, '... for it alone';
override('two', 'rate', '10r/d');
is header($nginx->get('/two?key=rate'), 'X-Limit'), 300,
    '10 a day are 300 a month';
is header($nginx->get('/two?key=rate'), 'X-Remaining'), 298, '... remaining';
override('two', 'plenty', '100');
is header($nginx->get('/two?key=plenty'), 'X-Remaining'), 99, 'plenty';
override('two', 'plenty', '2');
is ask('/two?key=plenty'), '200, 0', '... taken back at once';
is ask('/two?key=plenty'), '429, 0', '... and used up';
for my $bad ('many', '', '-1', '10r/x', '1' x 100, "\0") {
    override('two', 'bad', $bad);
    $nginx->get('/look-ten?key=bad');
    is header($nginx->get('/two?key=bad'), 'X-Limit'), 2,
        "what is no rate does not count: '$bad'";
}
$nginx->load(connections => 32, requests => [ ('/two?key=bad') x 64 ]);
is scalar $nginx->log_lines(qr/\[error\].*invalid limit of a key of zone "two"/),
    1, '... by all workers together it is logged once a minute';


# costs, and rates of a request

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=plan:1m rate=$arg_rate window=30d
        redis=shared;
HTTP
    location /plan { limit_sliding zone=plan; empty_gif; }
SERVER

is ask('/ten?key=c&cost=3'), '200, 7', 'a cost of 3';
is ask('/ten?key=c&cost=0'), '200, 7', 'a look';
is ask('/ten?key=c&cost=8'), '429, 7', 'more than there is';
is ask('/ten?key=c&cost=7'), '200, 0', 'what there is';
is ask('/ten?key=c'), '429, 0', 'nothing left';
$r = $nginx->get('/ten?key=c2&cost=11');
is $r->{status}, 429, 'more than the limit';
is header($r, 'Retry-After'), '', '... has no Retry-After';
is left('ten', 'c2'), 10, '... and takes nothing';

is header($nginx->get('/plan?key=p&rate=7'), 'X-Limit'), 7, 'a variable rate';
is header($nginx->get('/plan?key=p&rate=1r/d'), 'X-Limit'), 30, 'another';
is header($nginx->get('/plan?key=p&rate=off'), 'X-Status'), '', 'off';
is header($nginx->get('/plan?key=p'), 'X-Status'), '', 'none';


# several zones, all or nothing

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=week:1m rate=10 window=7d redis=shared;
    limit_sliding_zone $arg_key zone=here:1m rate=10 window=30d;
    limit_sliding_zone $arg_key zone=here2:1m rate=2 window=30d;
HTTP
    location /look-week { limit_sliding zone=week cost=0; empty_gif; }
    location /look-here { limit_sliding zone=here cost=0; empty_gif; }

    location /ten-two {
        limit_sliding zone=ten;
        limit_sliding zone=two;
        empty_gif;
    }
    location /two-ten {
        limit_sliding zone=two;
        limit_sliding zone=ten;
        empty_gif;
    }
    location /three {
        limit_sliding zone=ten;
        limit_sliding zone=week;
        limit_sliding zone=two;
        empty_gif;
    }
    location /here-two {
        limit_sliding zone=here;
        limit_sliding zone=two;
        empty_gif;
    }
    location /ten-here2 {
        limit_sliding zone=ten;
        limit_sliding zone=here2;
        empty_gif;
    }
SERVER

is $nginx->statuses(5, '/ten-two?key=s1'), '200 200 429 429 429',
    'two zones: the tighter one decides';
is left('ten', 's1'), 8, '... and the other is not charged for that';
is $nginx->statuses(3, '/two-ten?key=s2'), '200 200 429', 'in this order, too';
is left('ten', 's2'), 8, '... and the other is not charged for that';
is header($nginx->get('/two-ten?key=s2'), 'X-Zone'), 'two', '... the tight one';
$calls = $redis->calls;
$nginx->get('/three?key=s3');
cmp_ok $redis->calls - $calls, '<=', 1, 'three zones, one call';
is $nginx->statuses(3, '/three?key=s3'), '200 429 429', 'three zones';
is left('ten', 's3') . left('week', 's3'), '88', '... all or nothing';

is $nginx->statuses(4, '/here-two?key=s4'), '200 200 429 429',
    'memory and Redis: Redis decides';
is left('here', 's4'), 8, '... and memory is not charged for that';
is $nginx->statuses(4, '/ten-here2?key=s5'), '200 200 429 429',
    'memory and Redis: memory decides';
is left('ten', 's5'), 8, '... and Redis is not charged for that';


# dry run, statuses, authentication

$nginx->write_file('htpasswd', "ann:{PLAIN}secret\n");

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $remote_user zone=user:1m rate=2 window=30d
        redis=shared;

    auth_basic_user_file %%DIR%%/htpasswd;

    server {
        listen 127.0.0.1:%%PORT1%%;
        location /verified { return 200; }
    }
HTTP
    location /dry {
        limit_sliding zone=two;
        limit_sliding_dry_run on;
        empty_gif;
    }
    location /watch {
        limit_sliding zone=two dry_run;
        limit_sliding zone=ten;
        empty_gif;
    }
    location /count {
        limit_sliding zone=two count_status=404;
    }
    location /count/ok {
        limit_sliding zone=two count_status=404;
        empty_gif;
    }
    location /basic {
        auth_basic closed;
        limit_sliding zone=user after_auth;
        empty_gif;
    }
    location /early {
        auth_basic closed;
        limit_sliding zone=two;
        empty_gif;
    }
    location /any {
        satisfy any;
        auth_basic closed;
        deny all;
        limit_sliding zone=two;
        empty_gif;
    }
    location /verified {
        auth_request /verify;
        limit_sliding zone=two;
        empty_gif;
    }
    location = /verify {
        internal;
        proxy_pass http://127.0.0.1:%%PORT1%%/verified;
        proxy_pass_request_body off;
        proxy_set_header Content-Length '';
    }
SERVER

is $nginx->statuses(4, '/dry?key=d'), '200 200 200 200', 'dry run';
is header($nginx->get('/dry?key=d'), 'X-Status'), 'REJECTED_DRY_RUN',
    '... is told';
is $nginx->statuses(4, '/watch?key=d2'), '200 200 200 200',
    'one of two is watched';
is left('ten', 'd2'), 6, '... and the other counts';

is $nginx->statuses(3, '/count/ok?key=cs'), '200 200 200',
    'count_status: others do not count';
is $nginx->get('/count?key=cs')->{status}, 404, 'count_status: one counts';
is $nginx->get('/count?key=cs')->{status}, 404, '... and a second';
is $nginx->get('/count?key=cs')->{status}, 429, '... then none passes';
is $nginx->get('/count/ok?key=cs')->{status}, 429, '... at all';

is $nginx->statuses(4, '/basic'), '401 401 401 401',
    'after_auth: nobody is not counted';
my $ann = 'Authorization: Basic ' . encode_base64('ann:secret', '');
is $nginx->statuses(3, '/basic', headers => [$ann]), '200 200 429',
    'after_auth: somebody is';
is $nginx->statuses(3, '/early?key=e'), '401 401 429', 'before authentication';
is $nginx->get('/early?key=e', headers => [$ann])->{status}, 429,
    '... it is refused';
is $nginx->statuses(3, '/any?key=y'), '401 401 429',
    'satisfy any: nobody passes for being within a limit';
is $nginx->statuses(3, '/any?key=y2', headers => [$ann]), '200 200 429',
    'satisfy any: somebody';
is $nginx->statuses(3, '/verified?key=v'), '200 200 429', 'auth_request';


# ways through NGINX

$nginx->write_file('html/target', 'the target');
$nginx->write_file('html/ssi.html',
    '<!--#include virtual="/target" --> ' x 3);
mkdir $nginx->dir . '/html/dir';
$nginx->write_file('html/dir/index.html', 'the index');

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    client_max_body_size 10m;

    server {
        listen 127.0.0.1:%%PORT1%%;
        location /length { return 200 "$http_content_length"; }
    }
HTTP
    http2_listen 127.0.0.1:%%PORT2%%;

    location /free { empty_gif; }

    location /ssi.html { limit_sliding zone=ten; ssi on; }
    location /target   { limit_sliding zone=ten; }
    location /dir/     { limit_sliding zone=ten; }
    location /try {
        limit_sliding zone=ten;
        try_files /nope /nope2 /target;
    }
    location /body {
        limit_sliding zone=ten;
        proxy_pass http://127.0.0.1:%%PORT1%%/length;
    }
    location /page {
        limit_sliding zone=two;
        error_page 429 = @full;
        empty_gif;
    }
    location @full {
        limit_sliding zone=two;
        limit_sliding zone=ten;
        add_header X-Full 1;
        empty_gif;
    }
SERVER

is $nginx->get('/ssi.html?key=w', version => '1.0')->{body},
    'the target the target the target ', 'subrequests';
is left('ten', 'w'), 9, '... are not counted';
is $nginx->get('/dir/?key=w2')->{body}, 'the index', 'an index';
is left('ten', 'w2'), 9, '... counts once';
is $nginx->get('/try?key=w3')->{body}, 'the target', 'try_files';
is left('ten', 'w3'), 9, '... counts once';
my $body = 'x' x 3_000_000;
is $nginx->get('/body?key=w4', method => 'POST', body => $body)->{body},
    length $body, 'a body';
is left('ten', 'w4'), 9, '... counts once';
$nginx->statuses(2, '/page?key=w5');
is header($nginx->get('/page?key=w5'), 'X-Full'), 1, 'error_page';
is left('ten', 'w5'), 10, '... is of what was refused already';
is $nginx->get('/two?key=w6', method => 'HEAD')->{status}, 200, 'HEAD';
is $nginx->get('/two?key=w6', version => '1.0')->{status}, 200, 'HTTP/1.0';
is $nginx->get('/two?key=w6')->{status}, 429, '... both counted';

my $socket = $nginx->connect;
is join(' ', map { $nginx->get('/two?key=k', socket => $socket)->{status} }
    1 .. 4), '200 200 429 429', 'one connection, one after the other';
is $nginx->get('/free', socket => $socket)->{status}, 200, '... and goes on';

my $statuses = $nginx->load(connections => 1, pipeline => 10,
    requests => [ ('/two?key=k2', '/free', '/ten?key=k2') x 4 ]);
is "@$statuses", '200 200 200 200 200 200 429 200 200 429 200 200',
    'one connection, all at once';

SKIP: {
    skip 'no nghttp', 2 if !$nginx->has_http2;
    my %got;
    $got{ $_->{status} // 'none' }++
        for $nginx->http2('/two?key=k3', times => 50, port => 2);
    is_deeply \%got, { 200 => 2, 429 => 48 }, '50 streams at once';
    %got = ();
    $got{ $_->{status} // 'none' }++
        for $nginx->http2('/ten?key=k4', times => 9, port => 2);
    is_deeply \%got, { 200 => 9 }, '... that pass';
}


# each algorithm, with a bound of 10: the same as in memory

my %algorithms = (
    counter   => '',
    precision => 'precision=10',
    log       => 'algorithm=log',
    fixed     => 'algorithm=fixed',
    tokens    => 'algorithm=token_bucket',
    few       => 'algorithm=token_bucket burst=6',
    leaky     => 'algorithm=leaky_bucket burst=9',
);

my %redis = places(zones => \%algorithms, limit => 'cost=$arg_cost',
    each => 'rate=10 window=30d redis=shared');
my %memory = places(limit => 'cost=$arg_cost', each => 'rate=10 window=30d',
    zones => { map { ("local-$_" => $algorithms{$_}) } keys %algorithms });

$nginx->serve(map { ($_ => $redis{$_} . $memory{$_}) } qw(http server));

for my $name (sort keys %algorithms) {
    my (@redis, @memory);
    for my $key (1 .. 10) {
        # A bucket of leaky delays requests, but for those that cost nothing.
        my @costs = map { $name eq 'leaky' ? (0, 11)[rand 2] : int rand 6 }
            1 .. 20;
        @costs = (1, 0, 11, 0) if $name eq 'leaky' && $key == 1;
        for my $cost (@costs) {
            my $query = "key=same-$key&cost=$cost";
            my $r = $nginx->get("/$name?$query");
            my $memory = ask("/local-$name?$query");
            # Memory knows what is to be refused, but not what remains.
            $memory =~ s/, .*// if header($r, 'X-Source') eq 'cache';
            push @redis,  "$key/$cost: $r->{status}"
                . ($memory =~ /,/ ? ', ' . header($r, 'X-Remaining') : '');
            push @memory, "$key/$cost: $memory";
        }
    }
    is_deeply \@redis, \@memory, "$name: the same decisions as in memory";
}


# ... and Retry-After is when it opens again

$nginx->serve(places(each => 'rate=4 window=2s redis=shared', zones => {
    map { ("short-$_" => $algorithms{$_} =~ s/ burst=9//r) } keys %algorithms
}));

my %after;
for my $name (sort keys %algorithms) {
    my $r;
    for (1 .. 10) {
        $r = $nginx->get("/short-$name?key=after");
        last if $r->{status} == 429;
    }
    is $r->{status}, 429, "$name: full";
    $after{$name} = now + header($r, 'Retry-After');
    cmp_ok header($r, 'Retry-After'), '<=', 4, "$name: Retry-After";
    cmp_ok header($r, 'Retry-After'), '>=', 1, "$name: Retry-After";
}
for my $name (sort { $after{$a} <=> $after{$b} } keys %algorithms) {
    my $wait = $after{$name} - now;
    sleep $wait if $wait > 0;
    is $nginx->get("/short-$name?key=after")->{status}, 200,
        "$name: open again after that time";
}


# connections

$nginx->serve(%blocks);
$nginx->load(connections => 32, requests => [ map {
    my $path = $_;
    map { [ "$path?key=load-$_", "X-Key: load-$_" ] } 1 .. 50;
} qw(/two /plain /unix /acl) ]);

cmp_ok scalar($redis->clients), '<=', 2 * 4,
    'one connection at most for a worker and Redis';

$nginx->finish;
