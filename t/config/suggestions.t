# Wrong words of a configuration: the message says what was probably meant.

use v5.36;

use Test::More;

use LimitSliding::Redis ();
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

# Returns what `nginx -t` says of directives in a context, without the place.  A valid
# configuration is warned of the zones that no place uses, as most are here.
sub said($context, $directives) {
    my ($http, $location) = $context eq 'http' ? ($directives, '') : ('', $directives);
    my ($exit, $output, $text) = $nginx->test_config(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$uri zone=known:1m rate=1r/s;
    $http
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { $location }
    }
}
CONF
    my @said = $output =~ /\[(?:emerg|warn)\] \d+#\d+: (.*?) in \S+test\.conf:\d+$/mg;
    return ($exit, grep { $exit || !/^no "limit_sliding" uses the zone/ } @said);
}

# Asserts that there is one error, which ends so.
sub is_meant($context, $directives, $end) {
    my ($exit, @said) = said($context, $directives);

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    isnt $exit, 0, $directives;
    is @said, 1, '... one message' or diag "@said";
    like $said[0], qr/\Q$end\E$/, '... that says what was meant';
}

my $zone = 'limit_sliding_zone $arg_key';
my $limit = 'limit_sliding zone=known';


# parameters of the other directive

is_meant(location => "$limit $_;", "\"$_\" belongs to the directive \"limit_sliding_zone\"")
    for qw(burst=5 delay=2 nodelay window=1m algorithm=log precision=2 strict calendar=utc
        full=deny count_rejected redis=r lease=auto sync=1s on_error=deny limits=f
        limits_max=9 top=off penalty=1m penalty_after=2 penalty_max=1h
        burst burst= Burst=5 no_delay nodelay=on);
is_meant(location => "$limit burst = 5;",
    '"burst" belongs to the directive "limit_sliding_zone"');
is_meant(http => "$zone zone=one:1m rate=1r/s $_;",
    "\"$_\" belongs to the directive \"limit_sliding\"")
    for qw(cost=2 settle=$status count_status=401 after_auth dry_run dry_run=on);
is_meant(location => "limit_sliding \$arg_key $_;",
    'the key "$arg_key" belongs to the directive "limit_sliding_zone"')
    for qw(zone=known zone=known:1m);
is_meant(http => "$_ rate=1r/s;", 'invalid parameter "$arg_b", the key is one word, the first')
    for "$zone \$arg_b zone=one:1m", 'limit_sliding_zone arg zone=one:1m $arg_b';


# names, values and spaces

is_meant(location => $_->[0], "invalid parameter $_->[1]") for (
    [ 'limit_sliding known;', '"known", did you mean "zone=known"?' ],
    [ 'limit_sliding known nodelay;', '"known", did you mean "zone=known"?' ],
    (map { [ "limit_sliding $_;", '"zone", did you mean "zone=known" without spaces?' ] }
        'zone = known', 'zone =known', 'zone known'),
    [ 'limit_sliding zone= known;', '"zone=", did you mean "zone=known" without spaces?' ],
    [ "$limit cost = \$arg_c;", '"cost", did you mean "cost=$arg_c" without spaces?' ],
    [ "$limit rate;", '"rate", it needs a value' ],
    [ 'limit_sliding rate= zone=known;', '"rate=", it needs a value' ],
    [ "$limit dry_run=on;", '"dry_run=on", did you mean "dry_run"?' ],
    [ "$limit dry_run=off;", '"dry_run=off", "dry_run" is off where it is left out' ],
    [ "$limit dry_run on;", '"on", "dry_run" before it has no value' ],
    [ "$limit dry_run=false;", '"dry_run=false", "dry_run" is off where it is left out' ],
    (map { [ "$limit dry_run $_;", "\"$_\", \"dry_run\" before it has no value" ] }
        qw(no yes true 1)),
    [ "$limit dry_run = on;", '"=", "dry_run" before it has no value' ],
    (map { [ "$limit $_;", "\"$_\", did you mean \"dry_run\"?" ] } qw(dry-run dryrun DRY_RUN)),
    [ "$limit Rate=1r/s;", '"Rate=1r/s", did you mean "rate=1r/s"?' ],
    [ "$limit rate:1r/s;", '"rate:1r/s", did you mean "rate=1r/s"?' ],
    [ "$limit wrong;", '"wrong", it must be "zone=", "inflight=", "rate=", "cost=", "settle=",'
        . ' "count_status=", "after_auth" or "dry_run"' ],
    [ 'limit_sliding zone:known;', '"zone:known", did you mean "zone=known"?' ],
    [ 'limit_sliding zone="known";', '"zone="known"", a quote must be before "zone="' ],
    (map { [ "$limit count_status=$_;",
        '"' . s/.* //r . '", did you mean "count_status=401,403" without spaces?' ] }
        '401, 403', '401 ,403', '401 403'),
    [ "$limit count_status=4xx 5xx;",
        '"5xx", did you mean "count_status=4xx,5xx" without spaces?' ],
    [ "$limit cost=1 2;", '"2", it must be "zone=", "inflight=", "rate=", "cost=", "settle=",'
        . ' "count_status=", "after_auth" or "dry_run"' ],
    [ "$limit rate=9 r/s;", '"r/s", did you mean "rate=9r/s" without spaces?' ],
    [ "$limit rate=9r /s;", '"/s", did you mean "rate=9r/s" without spaces?' ],
    (map { [ "limit_sliding_$_->[0];",
        "\"$_->[1]\", did you mean \"$_->[1]=$_->[2]\" without spaces?" ] }
        [ 'log_level error every = 1s', 'every', '1s' ],
        [ 'log_level error every 1s', 'every', '1s' ], [ 'client ipv6 = 64', 'ipv6', '64' ],
        [ 'api write = on', 'write', 'on' ]),
    [ 'limit_sliding_log_level error every=1s more;', '"more", it must be "every="' ],
    (map { [ "limit_sliding_headers $_;", "\"$_\", did you mean \"ratelimit\"?" ] } qw(ietf IETF)),
    (map { [ "limit_sliding_headers $_;",
        "\"$_\", it must be \"off\", \"retry_after\", \"ratelimit\", \"draft\","
            . ' "x_ratelimit" or "x"' ] }
        qw(on all)),
    [ 'limit_sliding_headers retry-after;', '"retry-after", did you mean "retry_after"?' ],
    (map { [ "limit_sliding_headers $_;", "\"$_\", did you mean \"x_ratelimit\"?" ] }
        qw(X-RateLimit x_ratelmit)),
    (map { [ "$limit $_->[0];", "\"$_->[0]\", did you mean \"$_->[1]\"?" ] }
        [ 'rte=5', 'rate=5' ], [ 'rates=5', 'rate=5' ], [ 'setle=$status', 'settle=$status' ],
        [ 'count_statsu=4xx', 'count_status=4xx' ], [ 'dry_rnu', 'dry_run' ],
        [ 'aftr-auth', 'after_auth' ]),
    [ 'limit_sliding_api wriet=on;', '"wriet=on", did you mean "write=on"?' ],
);
is_meant(location => 'limit_sliding zone=known:1m;',
    'invalid zone "zone=known:1m", did you mean "zone=known"?');
is_meant(location => 'limit_sliding zone=knwon;', 'unknown limit_sliding zone "knwon"');
is_meant(http => "$zone $_->[0];", "invalid parameter $_->[1]") for (
    [ 'zone = one:1m rate = 1r/s', '"zone", did you mean "zone=one:1m" without spaces?' ],
    [ 'one:1m rate=1r/s', '"one:1m", did you mean "zone=one:1m"?' ],
    [ 'zone=one:1m 1r/s', '"1r/s", did you mean "rate=1r/s"?' ],
    [ 'zone=one:1m rate=1r/s strict=on', '"strict=on", did you mean "strict"?' ],
    [ 'zone=one :1m rate=1r/s', '":1m", did you mean "zone=one:1m" without spaces?' ],
    [ 'zone=one:1 m rate=1r/s', '"m", did you mean "zone=one:1m" without spaces?' ],
    [ 'zone=one:1m rate=1r/s window=9 s', '"s", did you mean "window=9s" without spaces?' ],
    [ 'zone=one:1m rate=1r/s wrong', '"wrong"' ],
    (map { [ "zone=one:1m rate=1r/s $_->[0]", "\"$_->[0]\", did you mean \"$_->[1]\"?" ] }
        [ 'windows=1m', 'window=1m' ], [ 'algoritm=log', 'algorithm=log' ],
        [ 'nodely', 'nodelay' ], [ 'limts=file', 'limits=file' ]),
    [ 'zone=one:1m rte=5', '"rte=5", did you mean "rate=5"?' ],
    [ 'zone=one:1m limit=5', '"limit=5", did you mean "rate="?' ],
    [ 'zone=one:1m rate=1r/s tops=on', '"tops=on"' ],
    [ 'zone=one:1m rate=1r/s s', '"s"' ],
);
is_meant(http => "$zone zone=one:1m rate=1r/s algorithm=$_->[0];",
    "unknown algorithm \"algorithm=$_->[0]\", did you mean \"$_->[1]\"?")
    for [ 'leaky-bucket', 'leaky_bucket' ], [ 'Log', 'log' ], [ 'token_buckte', 'token_bucket' ];
is_meant(http => "$zone zone=one:1m rate=1r/s algorithm=leaky;",
    'it must be "counter", "log", "fixed", "token_bucket" or "leaky_bucket"');


# times, sizes and rates

is_meant(http => "$zone zone=one:1m rate=1r/s window=$_->[0];",
    qq("year", did you mean "$_->[1]"?)) for (
    [ '1M', '1m' ], [ '5min', '5m' ], [ '2hours', '2h' ], [ 'minute', '1m' ],
    [ '3Days', '3d' ], [ '100MS', '100ms' ], [ '9sec', '9s' ], [ 'hourly', '1h' ],
    [ 'daily', '1d' ], [ 'Month', 'month' ], [ '1months', 'month' ], [ 'yearly', 'year' ],
    [ '1y', 'year' ],
);
is_meant(http => "$zone zone=one:1m rate=1r/s window=$_;", '"month" or "year"')
    for qw(1x fortnight 3months 2y 99999999999999999999s mi);

is_meant(location => 'limit_sliding_log_level error every=1M;',
    'invalid time "every=1M", it must be at least 1ms, did you mean "1m"?');
is_meant(http => "$zone zone=one:1m rate=1r/s penalty=10min;",
    'invalid time "penalty=10min", it must be between 1s and 1y, did you mean "10m"?');

is_meant(http => "$zone zone=one:$_->[0] rate=1r/s;",
    qq(invalid zone size "zone=one:$_->[0]", did you mean "$_->[1]"?)) for (
    [ '10MB', '10m' ], [ '10mb', '10m' ], [ '64KiB', '64k' ], [ '1g', '1024m' ],
    [ '2GB', '2048m' ],
);
is_meant(http => "$zone zone=one:$_ rate=1r/s;", qq(invalid zone size "zone=one:$_"))
    for qw(MB 10x 0g 99999999999999999999g);

my @rates = (
    [ '100/s', '"100r/s"' ], [ '100rps', '"100r/s"' ], [ '100r/min', '"100r/m"' ],
    [ '5rpm', '"5r/m"' ], [ '100req/hour', '"100r/h"' ], [ '7r/day', '"7r/d"' ],
    [ '100R/S', '"100r/s"' ], [ '100perday', '"100r/d"' ],
    (map { [ $_, '"100/month"' ] } '100r/month', '100/months', '100r/1month'),
    [ '100r/y', '"100/year"' ], [ '100r/week', '"100/1w"' ], [ '100r/10min', '"100/10m"' ],
    [ '100r/10s', '"100/10s"' ],
);
for my $place ([ http => "$zone zone=one:1m" ], [ location => $limit ]) {
    my ($context, $begin) = @$place;
    is_meant($context => "$begin rate=$_->[0];", "or hold a variable, did you mean $_->[1]?")
        for @rates;
    is_meant($context => "$begin rate=$_;", 'or hold a variable')
        for qw(1.5r/s 0r/s 100x r/s 1r/x 1r/90d 1r/3months 1r/99999999999999999999s);
}

is_meant(http => "map \$arg_key \$plan { default 1r/s; } $zone zone=one:1m rate=\$plan;",
    '"rate=$plan" varies and needs the "window=" parameter');
is_meant(http => "$zone zone=one:1m rate=1r/s limits=\$host.limits;",
    'invalid file "limits=$host.limits", it cannot hold a variable');
is_meant(http => "$zone zone=one:1m rate=5;",
    '"rate=5" has no unit and needs the "window=" parameter');


# what is accepted, but was hardly meant

sub is_warning($directives, $warning) {
    my ($exit, @said) = said(http => $directives);

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is "$exit @said", "0 $warning", $directives;
}

is_warning("limit_sliding_zone $_ zone=one:1m rate=1r/s;",
    "the key \"$_\" is the same for all requests, did you mean \"\$$_\"?")
    for qw(binary_remote_addr Request_URI);
is_warning("limit_sliding_zone $_ zone=one:1m rate=1r/s;", '')
    for '$binary_remote_addr', 'everybody';
is_warning("$zone zone=one:1m rate=1r/s penalty=10M;",
    '"penalty=10M" is 300 days, minutes are "m"');
is_warning("$zone zone=one:1m rate=1r/s penalty=10m penalty_max=1d;", '');
is_warning("$zone zone=one:1m rate=5/1M;", '"rate=5/1M" is 30 days, minutes are "m"');
is_warning("$zone zone=one:1m rate=5/30d;", '');


# a block of Redis, whose lines have no "="

if (LimitSliding::Redis::supported()) {
    my $in_block = sub ($line) { "limit_sliding_redis shared { server 127.0.0.1:1; $line }" };
    my $unknown = 'in limit_sliding_redis "shared", did you mean';

    is_meant(http => $in_block->($_->[0]), $_->[1]) for (
        [ 'timeout = 50ms;', '"timeout" must have one value, did you mean "timeout 50ms"?' ],
        [ 'timeout=50ms;', qq("timeout=50ms" $unknown "timeout 50ms"?) ],
        [ 'timeout= 50ms;', qq("timeout=" $unknown "timeout 50ms"?) ],
        [ 'timeout=;', qq("timeout=" $unknown "timeout ..."?) ],
        [ 'nope=50ms;', 'unknown parameter "nope=50ms" in limit_sliding_redis "shared"' ],
        [ 'timeout 5ms 6ms;', '"timeout" must have one value' ],
        [ 'timeout 50 ms;', '"timeout" must have one value, did you mean "timeout 50ms"?' ],
        [ 'Timeout 50ms;', qq("Timeout" $unknown "timeout"?) ],
        [ 'on-error deny;', qq("on-error" $unknown "on_error"?) ],
        [ 'on_eror deny;', qq("on_eror" $unknown "on_error"?) ],
        (map { [ "$_->[0];", qq("$_->[1]" belongs to the directive "limit_sliding_zone") ] }
            [ 'sync 100ms', 'sync' ], [ 'lease=auto', 'lease=auto' ]),
        [ 'timeout 100;', 'a time between 1ms and 60s, not a number of seconds' ],
        [ 'timeout 100s;', 'a time between 1ms and 60s' ],
    );

    is_warning($in_block->('timeout 50;'), '"timeout 50" is 50 seconds, did you mean "50ms"?');
    my $synced = $in_block->('') . "$zone zone=one:1m rate=1r/s redis=shared";
    is_warning("$synced sync=50;", '"sync=50" is 50 seconds, did you mean "sync=50ms"?');
    is_warning("$synced sync=$_;", '') for qw(50s 1 50ms);
    is_meant(http => "$synced sync=$_->[0];", $_->[1]) for (
        [ 100, '"sync=100" must be between 10ms and 1m, not a number of seconds' ],
        [ '2m', '"sync=2m" must be between 10ms and 1m' ],
        [ '100MS',
            'invalid time "sync=100MS", it must be between 10ms and 1m, did you mean "100ms"?' ],
    );
}


# what is valid and seldom meant

my $api = 'location /api { limit_sliding_api write=on;';
my %open = (listen => '0.0.0.0:%%PORT%%');

# Returns the warnings of a configuration: that of a server, with more of http{}.
sub warned($server, %opt) {
    my ($exit, $output, $text) = $nginx->test_config(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$arg_key\$auth_user zone=one:1m rate=1r/s;
    limit_sliding_zone \$uri zone=two:1m rate=1r/s;
    limit_sliding zone=one;
    limit_sliding zone=two;
    ${\ ($opt{http} // '')}
    server {
        listen ${\ ($opt{listen} // '127.0.0.1:%%PORT%%')};
        $server
        location /set { auth_request /sub; auth_request_set \$auth_user \$upstream_http_user; }
    }
}
CONF
    is $exit, 0, "$server is valid" or diag $output;
    return join "\n", $output =~ /\[warn\] \d+#\d+: (.*? in \S+test\.conf:\d+)$/mg;
}

for (
    [ '', qr/^no "limit_sliding" uses the zone "idle", it limits nothing in \S+:\d+$/,
        http => "\n$zone zone=idle:1m rate=1r/s;" ],
    [ 'location /r { limit_sliding zone=one; limit_sliding zone=two; return 204; }',
        qr/^"limit_sliding zone=one" limits nothing, as "return" answers before it in \S+:\d+$/ ],
    [ 'location /a { auth_request /sub; auth_request_set $auth_user $upstream_http_user;
        limit_sliding zone=one; limit_sliding zone=two; }',
        qr/^the key of zone "one" has "\$auth_user", which .* it needs "after_auth" in \S+:\d+$/ ],
    [ 'location /d { limit_sliding zone=two; }',
        qr/^"limit_sliding zone=two" replaces "limit_sliding zone=one" of the level above/ ],
    (map { [ 'location /k { limit_sliding zone=one; limit_sliding zone=two; limit_sliding zone=key; }',
        qr/^the key "\Q$_\E" of zone "key" is chosen by clients, .* see docs\/choose.md#the-key in \S+:\d+$/,
        http => "limit_sliding_zone $_ zone=key:1m rate=1r/s;" ] }
        qw($http_x_api_key ${arg_key} $COOKIE_user)),
    [ "$api }", qr/^"limit_sliding_api write=on" is open to everybody, .* in \S+:\d+$/, %open ],
) {
    my ($server, $expected, %opt) = @$_;
    like warned($server, %opt), $expected, '... with one warning';
}

is warned($_->[0], @$_[1 .. $#$_]), '', '... without a warning' for (
    [ '' ],
    [ '', http => "$zone zone=idle:1m rate=1r/s;" . ' server { listen unix:%%DIR%%/api.sock;'
        . ' location / { limit_sliding_api write=on; } }' ],
    [ 'location /r { limit_sliding off; return 204; }' ],
    [ 'location /r { limit_sliding zone=one; limit_sliding zone=two; if ($arg_a) { return 204; } }' ],
    [ 'location /a { auth_request /sub; auth_request_set $auth_user $upstream_http_user;
        limit_sliding zone=one after_auth; limit_sliding zone=two; }' ],
    (map { [ 'location /k { limit_sliding zone=one; limit_sliding zone=two;'
            . " limit_sliding zone=key $_->[1]; }",
        http => "limit_sliding_zone $_->[0] zone=key:1m rate=1r/s;" ] }
        [ '$http_x_api_key', 'after_auth' ], [ '$remote_addr$arg_key', '' ], [ '$args', '' ]),
    [ 'location /d { limit_sliding off; }' ],
    [ "$api limit_sliding zone=two; }" ],
    [ "$api }" ],
    [ "$api }", listen => '127.0.0.1:%%PORT%%; listen [::1]:%%PORT%%' ],
    [ 'location /api { limit_sliding_api; }', %open ],
    (map { [ "$api $_ }", %open ] } 'allow 127.0.0.1; deny all;', 'auth_request /sub;',
        'auth_basic api; auth_basic_user_file users;',
        'limit_except GET { deny all; }', 'internal;'),
    [ "deny all; $api }", %open ],
);


$nginx->finish;
