# limit_sliding_api: paths, methods, one key's state, limits of single keys.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Api qw(read_key state_of);
use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

my @ALGORITHMS = ('counter', 'counter precision=10', 'fixed', 'log',
    'token_bucket', 'leaky_bucket burst=9', 'leaky_bucket burst=9 delay=3',
    'leaky_bucket burst=9 nodelay');

# Returns the name of the zone, and of the place, with this algorithm.
sub name($algorithm) {
    return $algorithm =~ s/\W/-/gr;
}

my %algorithms = places(each => 'rate=10r/d',
    zones => { map { name($_) => "algorithm=$_" } @ALGORITHMS });

$nginx->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$http_key zone=one:1m rate=3r/d;
    limit_sliding_zone \$http_key "zone=sl/as\\"h:32k" rate=3 window=90m
        full=deny top=off;
    limit_sliding_zone \$arg_key zone=variable:32k rate=\$arg_rate window=1d;
    limit_sliding_zone \$binary_remote_addr zone=address:32k rate=3r/d;
    limit_sliding_zone \$limit_sliding_client zone=client:32k rate=3r/d;
    limit_sliding_zone \$arg_key zone=tokens:32k rate=\$arg_rate window=1d
        algorithm=token_bucket;
    limit_sliding_zone \$arg_key zone=static:1m rate=4r/d;
    $algorithms{http}

    limit_sliding_log_level off;
    add_header X-Limit     \$limit_sliding_limit     always;
    add_header X-Remaining \$limit_sliding_remaining always;
HTTP
    location /one    { limit_sliding zone=one; empty_gif; }
    location /limits { limit_sliding_api; }
    location /write/ { limit_sliding_api write=on; }
SERVER

sub json($response) {
    is header($response, 'Content-Type'), 'application/json', '... as JSON';
    is header($response, 'Cache-Control'), 'no-store', '... not to be stored';
    my $json = eval { decode_json($response->{body}) };
    diag $@, $response->{body} if !$json;
    return $json // {};
}

# Returns a text in the form that an argument has.
sub encode($text) {
    return $text =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ger;
}

sub key($zone, $key, $method = 'GET', $more = '') {
    return read_key($nginx->get("/write/zones/$zone/key?key=" . encode($key)
        . $more, method => $method));
}


# ---- everything ----

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT1%%;
        location / { limit_sliding_api write=on; }
    }
HTTP
    location = /exact { limit_sliding_api write=off; }
SERVER

my $json = json($nginx->get('/limits'));
like $json->{version}, qr/^\d+\.\d+\.\d+$/, 'a version';
like $json->{nginx}, qr/^1\.\d+\.\d+$/, "NGINX's";
cmp_ok abs($json->{time_ms} / 1000 - time), '<', 10, 'the time';

my $one = $json->{zones}{one};
is_deeply { map { $_ => $one->{$_} } qw(key rate limit window_ms algorithm
        precision full redis bytes slots_used keys own_limits passed delayed
        rejected delayed_dry_run rejected_dry_run unlimited errors evicted refused bans banned banned_requests penalty top) },
    { key => '$http_key', rate => '3r/d', limit => 3, window_ms => 86_400_000,
        algorithm => 'counter', precision => 'auto', full => 'evict',
        redis => undef, bytes => 1_048_576, slots_used => 0, keys => 0,
        own_limits => 0, passed => 0, delayed => 0, rejected => 0,
        delayed_dry_run => 0, rejected_dry_run => 0, unlimited => 0, errors => 0, evicted => 0,
        bans => 0, banned => 0, banned_requests => 0, penalty => undef,
        refused => 0, top => [] },
    'a zone';
cmp_ok $one->{slots}, '>', 60_000, '... and its slots';
is keys %{ $json->{zones} }, 7 + @ALGORITHMS, 'all zones';
is $json->{zones}{'sl/as"h'}{full}, 'deny', 'a zone of an odd name';
is $json->{zones}{'sl/as"h'}{window_ms}, 90 * 60 * 1000, '... its window';
is $json->{zones}{'sl/as"h'}{top}, undef, '... without top offenders';
is $json->{zones}{variable}{limit}, undef, 'a variable rate: no limit';
is $json->{zones}{'leaky_bucket-burst-9'}{burst}, 9, 'a burst';
is_deeply [ map { $json->{zones}{"leaky_bucket-burst-9$_"}->@{qw(delay nodelay)} }
    '', '-delay-3', '-nodelay' ], [ undef, undef, 3, undef, undef, JSON::PP::true ],
    'delays';
is $json->{zones}{'counter-precision-10'}{precision}, 10, 'a precision';
ok !$json->{zones}{'counter-precision-10'}{strict}, '... which is not strict';

for my $path ('/limits', '/limits/', '/limits?x=y', '/exact', '/write/') {
    is $nginx->get($path)->{status}, 200, "GET $path";
}
is $nginx->get('/', port => 1)->{status}, 200, 'GET / of the root';
is $nginx->get('/zones/one/key?key=a', port => 1)->{status}, 200,
    '... and of a key';


# ---- errors, and what is not allowed ----

$nginx->serve(server => <<'CONF');
    location /except {
        limit_sliding_api write=on;
        limit_except GET { deny 127.0.0.1; }
    }
    location /except-put {
        limit_sliding_api write=on;
        limit_except GET PUT { allow 127.0.0.1; }
    }
    location /denied  { limit_sliding_api write=on; deny all; }
    location /limited { limit_sliding_api; limit_sliding zone=one; }
CONF

for my $path ('/limitsx', '/limits/x', '/limits/metrics/', '/limits/zones',
    '/limits/zones/one', '/limits/zones/one/', '/limits/zones/one/keys?key=a',
    '/limits/zones//key?key=a', '/limits/zones/key?key=a',
    '/limits/zones/none/key?key=a', '/limits/zones/on/key?key=a',
    '/limits/zones/one/key/key?key=a', '/limits/zones/one/x/key?key=a',
    '/limits/dashboar', '/limits/METRICS')
{
    for my $method (qw(GET PUT)) {
        next if $method eq 'PUT' && $path =~ m{/zones/.*/key\?};
        my $response = $nginx->get($path, method => $method);
        is $response->{status}, 404, "$method $path: 404";
        is json($response)->{status}, 404, '... and says so';
    }
}

my $KEY = '/zones/one/key?key=a';
for my $case (
    [ '/limits',         'GET, HEAD', qw(POST PUT DELETE PATCH OPTIONS NONE) ],
    [ '/limits/metrics', 'GET, HEAD', qw(POST PUT DELETE MKCOL) ],
    [ "/limits$KEY",     'GET, HEAD', qw(PATCH NONE) ],
    [ "/write$KEY",      'GET, HEAD, PUT, DELETE, POST', qw(PATCH NONE) ],
    [ '/write/',         'GET, HEAD', qw(PUT DELETE POST) ],
) {
    my ($path, $allow, @methods) = @$case;
    for my $method (@methods) {
        my $response = $nginx->get($path, method => $method);
        is $response->{status}, 405, "$method $path: 405";
        is header($response, 'Allow'), $allow, '... what else is';
        like json($response)->{error}, qr/method/, '... and says so';
    }
}

for my $method (qw(PUT DELETE POST)) {
    my $response = $nginx->get("/limits$KEY&rate=5&cost=5", method => $method);
    is $response->{status}, 403, "$method without write=on: 403";
    like json($response)->{error}, qr/write=on/, '... and says so';
}
is state_of(key('one', 'a')), '0 3 3', '... and nothing was changed';

for my $case (
    [ GET => '' ], [ GET => '?' ], [ GET => '?key=' ], [ GET => '?kez=a' ],
    [ GET => '?key=%' ], [ GET => '?key=a%2' ], [ GET => '?key=a%zz' ],
    [ HEAD => '' ], [ DELETE => '' ], [ DELETE => '?key=%4' ],
    [ PUT => '?key=a' ], [ PUT => '?rate=5' ], [ PUT => '?key=a&rate=' ],
    map({ [ PUT => "?key=a&rate=$_" ] } qw(00 -1 x 1r 1r/x 1r/s/s 1.5 1000000001
        1000000001r/d 99999999999999999999 1r/s%00 %32%zz off1 defaul +5 5%20)),
    [ POST => '?key=a' ], [ POST => '?cost=5' ], [ POST => '?key=a&cost=' ],
    map({ [ POST => "?key=a&cost=$_" ] } qw(0 -0 - x 1x 1.5 --1 +1 5%20 9007199254740993
        -9007199254740993 99999999999999999999 null %32%zz)),
) {
    my ($method, $args) = @$case;
    my $response = $nginx->get("/write/zones/one/key$args", method => $method);
    is $response->{status}, 400, "$method $args: 400";
    like json($response)->{error}, qr/"(?:key|rate|cost)"/, '... and says so'
        if $method ne 'HEAD';
}
is state_of(key('one', 'a')), '0 3 3', '... and nothing was changed';

is $nginx->get('/denied')->{status}, 403, 'deny applies';
is $nginx->get("/denied$KEY", method => 'DELETE')->{status}, 403,
    '... to all';
is $nginx->get("/except$KEY")->{status}, 200, 'limit_except: a look';
is $nginx->get("/except$KEY", method => 'DELETE')->{status}, 403,
    '... and no more';
is json($nginx->get("/except-put$KEY", method => 'DELETE'))->{used}, 0,
    '... or as one says';
is $nginx->statuses(4, '/limited', headers => [ 'Key: limited' ]),
    '200 200 200 429', 'limits apply';

for my $path ('/limits', '/limits/metrics', "/limits$KEY", '/limits/none') {
    my ($get, $head) = map { $nginx->get($path, method => $_) } qw(GET HEAD);
    is_deeply [ map { $head->{$_} } qw(status body) ], [ $get->{status}, '' ],
        "HEAD $path: no body";
    is header($head, $_), header($get, $_), "... the same $_"
        for $path eq '/limits' || $path =~ /metrics/ ? 'Content-Type'
            : qw(Content-Type Content-Length);
}

# A body is read past, and the connection goes on.
my $socket = $nginx->connect;
for my $path ("/write$KEY&rate=3r/d", '/write/', '/write/none') {
    my $response = $nginx->get($path, method => 'PUT', body => 'x' x 50_000,
        socket => $socket);
    cmp_ok $response->{status}, '<', 410, "PUT $path with a body";
}
is $nginx->get('/limits', socket => $socket)->{status}, 200, '... the next';
close $socket;
key('one', 'a', 'PUT', '&rate=default');


# ---- one key ----

$nginx->serve(server => $algorithms{server});

for (@ALGORITHMS) {
    my $name = name($_);
    my @before = map { $_ // 'null' }
        @{ key($name, 'a') }{qw(used limit remaining reset)};
    is "@before", "0 10 10 0", "$_: a key that never came";

    # The first request of a queue leaves at once, the next waits 2.4 hours.
    my $times = /leaky/ ? 1 : 4;
    $nginx->get("/$name?key=a") for 1 .. $times;
    my $after = key($name, 'a');
    is state_of($after), "$times 10 " . (10 - $times), "$_: used";
    cmp_ok $after->{reset}, '>', 0, '... and when it is reset';
    is $after->{reset}, int(($after->{reset_ms} + 999) / 1000), '... rounded';
    is state_of(key($name, 'a')), state_of($after), '... a look uses nothing';

    my $deleted = key($name, 'a', 'DELETE');
    is state_of($deleted), '0 10 10', "$_: forgotten";
    is state_of(key($name, 'a')), '0 10 10', '... indeed';
    next if /leaky/;

    is $nginx->statuses(11, "/$name?key=a"), join(' ', (200) x 10, 429),
        '... has all of its limit again';

    my $put = key($name, 'a', 'PUT', '&rate=12r/d');
    ok $put->{own_limit}, "$_: a limit of its own";
    like state_of($put), qr/^\d+ 12 [12]$/, '... at once';
    is $nginx->get("/$name?key=a")->{status}, 200, '... which admits more';
    is header($nginx->get("/$name?key=a"), 'X-Limit'), 12, '... as told';
    like header($nginx->get("/$name?key=b"), 'X-Limit'), qr/^10$/,
        '... and nobody else';

    $put = key($name, 'a', 'PUT', '&rate=4');
    is $put->{limit}, 4, "$_: another, lower";
    is $put->{remaining}, 0, '... nothing remains';
    is $nginx->get("/$name?key=a")->{status}, 429, '... rejected';
    is key($name, 'a', 'DELETE')->{limit}, 4, '... not forgotten with the rest';
    is $nginx->statuses(5, "/$name?key=a"), '200 200 200 200 429',
        '... in force';

    $put = key($name, 'a', 'PUT', '&rate=off');
    is $put->{own_limit}, 'off', "$_: no limit";
    is $put->{limit}, undef, '... none';
    my $off = $nginx->get("/$name?key=a");
    is "$off->{status}" . header($off, 'X-Limit'), '200', '... not accounted';

    $put = key($name, 'a', 'PUT', '&rate=default');
    ok !$put->{own_limit}, "$_: the zone's limit again";
    is state_of($put), '4 10 6', '... with what was used';
}

is json($nginx->get('/limits'))->{zones}{counter}{own_limits}, 0,
    'no own limit is left';


# ---- a rate that is a variable: as the last request had it ----

my %variable = (server => <<'CONF');
    location /variable { limit_sliding zone=variable; empty_gif; }
    location /tokens   { limit_sliding zone=tokens; empty_gif; }
    location /plan     { limit_sliding zone=static rate=$arg_plan; empty_gif; }
CONF

$nginx->serve(%variable);

is state_of(key('variable', 'a')), '0 null null',
    'a variable rate: nothing is known of a key that never came';
$nginx->get("/variable?key=a&rate=$_") for 9, 5;
is state_of(key('variable', 'a')), '2 5 3', '... the limit of the last request';
is state_of(key('variable', 'b')), '0 null null', '... which is not another\'s';
$nginx->get('/variable?key=a&rate=off');
is state_of(key('variable', 'a')), '2 null null', '... which had none';
$nginx->get('/variable?key=a&rate=nonsense');
is state_of(key('variable', 'a')), '2 null null', '... nor has this one';
$nginx->get('/variable?key=a&rate=1');
is state_of(key('variable', 'a')), '2 1 0', '... which was rejected';
is state_of(key('variable', 'a', 'DELETE')), '0 1 1', '... after it is forgotten';
$nginx->get('/variable?key=a&rate=5') for 1 .. 2;
is state_of(key('variable', 'a', 'PUT', '&rate=7')), '2 7 5',
    '... and a limit of its own';
is header($nginx->get('/variable?key=a&rate=5'), 'X-Limit'), 7, '... in force';
$nginx->get('/tokens?key=a&rate=5') for 1 .. 2;
is state_of(key('tokens', 'a')), '2 5 3', 'a bucket of a variable rate';
cmp_ok key('tokens', 'a')->{reset}, '>', 0, '... and when more remains';
is state_of(key('tokens', 'b')), 'null null null',
    '... nothing is known of another';
is state_of(key('variable', 'a', 'PUT', '&rate=default')), '3 5 2',
    'without a limit of its own: that of the last request';

$nginx->get("/plan?key=a&plan=$_") for 7, '';
is state_of(key('static', 'a')), '2 4 2',
    'a variable rate of a place, which is empty: the zone\'s';
$nginx->get('/plan?key=a&plan=8');
is state_of(key('static', 'a')), '3 8 5', '... which is not';
is state_of(key('static', 'b')), '0 4 4', '... which never was: the zone\'s';
$nginx->get("/plan?key=a$_&plan=$_") for 1 .. 200;
is_deeply [ grep { key('static', "a$_")->{limit} == $_ } 1 .. 200 ],
    [ 1 .. 200 ], 'many keys';

my $template = $nginx->template(%variable);
my $without = $template =~ s/(zone=\w+:32k rate=)\$arg_rate/${1}3/gr;
$nginx->reload($template);
is state_of(key('variable', 'a')), '3 5 2', 'a reload: it is known still';
my $late = LimitSliding::Test->new->start($without);
$late->reload($template);
$late->get('/variable?key=a&rate=5');
is json($late->get('/write/zones/variable/key?key=a'))->{limit}, 5,
    'a rate that becomes a variable by a reload';
$late->reload($without);
is json($late->get('/write/zones/variable/key?key=a'))->{limit}, 3,
    '... and is none any more';
$late->finish_one;

is key('sl/as%22h', 'a')->{zone}, 'sl/as"h', 'a zone of an odd name';


# ---- addresses are shown, and given, as text ----

$nginx->serve(server => <<'CONF');
    location /address { limit_sliding zone=address; empty_gif; }
    location /client {
        set_real_ip_from 127.0.0.1;
        limit_sliding zone=client;
        empty_gif;
    }
CONF

$nginx->get('/address', from => '127.0.0.3') for 1 .. 5;
$nginx->get('/client', headers => [ "X-Real-IP: $_" ])
    for ('2001:db8::1:2:3:4') x 5, ('192.0.2.7') x 4;

is state_of(key('address', '127.0.0.3')), '3 3 0', 'an address';
is key('address', '127.0.0.3')->{key}, '127.0.0.3', '... shown so';
is state_of(key('address', "\x7f\0\0\x03")), '3 3 0', '... or its bytes';
is state_of(key('address', '127.0.0.4')), '0 3 3', 'another';
is key('address', 'x')->{status}, 400, 'none';
is state_of(key('client', '2001:db8::')), '3 3 0', 'a network of IPv6';
is state_of(key('client', '192.0.2.7')), '3 3 0', 'an address of IPv4';
is join(' ', map { "$_->{key}=$_->{rejected}" } map { @{ $_->{top} } }
        @{ json($nginx->get('/limits'))->{zones} }{qw(address client)}),
    '127.0.0.3=2 2001:db8::=2 192.0.2.7=1', '... as top offenders, too';


# ---- any bytes ----

$nginx->serve;

my %shown = (
    'plain' => 'plain', 'qu"ote' => 'qu"ote', 'back\\slash' => 'back\\slash',
    "\x01\x1f\x7f\t" => "\x01\x1f\x7f\t", '</script>&' => '</script>&',
    "caf\xc3\xa9" => "caf\x{e9}", "\xff\xfe" => "\x{fffd}\x{fffd}",
    "\xc3" => "\x{fffd}", "\xe2\x82" => "\x{fffd}\x{fffd}",
    "\xed\xa0\x80" => "\x{fffd}" x 3, "\xc0\x80" => "\x{fffd}" x 2,
    "\xf0\x9f\x98\x80" => "\x{1f600}", "\xf4\x90\x80\x80" => "\x{fffd}" x 4,
    "a b+c%d" => "a b+c%d", 'x' x 3000 => 'x' x 3000,
);
for my $key (sort keys %shown) {
    $nginx->get('/one', headers => [ "Key: $key" ]) for 1 .. 5;
    my $json = key('one', $key);
    is $json->{key}, $shown{$key}, 'a key as text: ' . substr encode($key), 0, 40;
    is $json->{key_uri}, $key =~ s/([^-.~\w])/sprintf '%%%02X', ord $1/gear,
        '... as an argument';
    is state_of($json), '3 3 0', '... and its state' if $key !~ /^\s|\s$/;
}
is key('one', "a\0b")->{key}, "a\0b", 'a key with a zero';

# Rejected keys are told in the same form.
my $response = $nginx->get('/limits');
like $response->{body}, qr/^[^\0-\x09\x0b-\x1f<\x7f]*$/,
    'nothing but JSON, that may stand in a page';
my %top = map { $_->{key} => $_ } @{ json($response)->{zones}{one}{top} };
for my $key (grep { length() < 64 && !/\s$/ } sort keys %shown) {
    is $top{ $shown{$key} }{rejected}, 2, 'rejected: ' . encode($key);
    ok !$top{ $shown{$key} }{truncated}, '... whole';
}
is $top{ 'x' x 64 }{rejected}, 2, 'a long key is cut';
ok $top{ 'x' x 64 }{truncated}, '... and says so';

# A forgotten key is no longer among them.
key('one', 'plain', 'DELETE');
ok !grep({ $_->{key} eq 'plain' }
    @{ json($nginx->get('/limits'))->{zones}{one}{top} }), 'forgotten';


# ---- over a reload, and without room ----

key('one', 'kept', 'PUT', '&rate=9');
$nginx->reload;
is key('one', 'kept')->{limit}, 9, 'own limits outlast a reload';
ok @{ json($nginx->get('/limits'))->{zones}{one}{top} } > 5, '... offenders, too';
$nginx->reload($nginx->template =~ s/zone=one:1m/zone=one:1m top=off/r);
is json($nginx->get('/limits'))->{zones}{one}{top}, undef, 'top=off';
$nginx->reload($nginx->template);
is_deeply json($nginx->get('/limits'))->{zones}{one}{top}, [],
    '... forgets them';

my @statuses = map {
    $nginx->get("/write/zones/variable/key?key=room-$_&rate=9",
        method => 'PUT')->{status}
} 1 .. 30;
is join(' ', sort keys %{ { map { $_ => 1 } @statuses } }), '200 507',
    'no room for more limits';
is $statuses[0], 200, '... the first has one';


# ---- configuration ----

for my $case (
    [ 'location / { limit_sliding_api write=yes; }',
        qr/invalid parameter "write=yes", it must be "write=on" or/ ],
    [ 'location / { limit_sliding_api read=on; }',
        qr/invalid parameter "read=on"/ ],
    [ 'location / { limit_sliding_api; limit_sliding_api; }',
        qr/"limit_sliding_api" directive is duplicate/ ],
    [ 'location ~ x { limit_sliding_api; }',
        qr/"limit_sliding_api" cannot be in a named location, or in one given/ ],
    [ 'location @x { limit_sliding_api; }',
        qr/"limit_sliding_api" cannot be in a named location/ ],
    [ 'limit_sliding_api;', qr/"limit_sliding_api" directive is not allowed/ ],
    [ 'location / { if ($arg_a) { limit_sliding_api; } }',
        qr/"limit_sliding_api" directive is not allowed/ ],
) {
    my ($conf, $error) = @$case;
    my ($exit, $output) = $nginx->test_config(
        "%%GLOBALS%%\nhttp { server { $conf } }");
    ok $exit, "refused: $conf";
    like $output, $error, '... and says why';
}

my ($exit, $output) = $nginx->test_config("%%GLOBALS%%\nhttp {"
    . ' limit_sliding_zone $arg_a zone=a:1m rate=1r/s top=x; }');
like $output, qr/invalid parameter "top=x", it must be "top=on" or "top=off"/,
    'top= is on or off';

$nginx->finish;
