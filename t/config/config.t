# Configurations, wrong and right, as `nginx -t` sees them.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

# Returns a configuration with these directives, { context => text }, where the
# context is main, http, server or location.
sub config(%at) {
    my $conf = <<'CONF';
%%GLOBALS%%
[main]
http {
    %%HTTP_GLOBALS%%
    limit_req_zone $binary_remote_addr zone=req:1m rate=1r/s;
    limit_sliding_zone $uri zone=known:1m rate=1r/s;
    [http]
    server {
        listen 127.0.0.1:%%PORT%%;
        [server]
        location / {
            [location]
        }
    }
}
CONF
    return $conf =~ s/\[(\w+)\]/$at{$1} \/\/ ''/ger;
}


my $zone = 'limit_sliding_zone $uri';

# Matches a quoted word: of name=value the value alone will do, if there is one,
# and of a name the name with "=".
sub quoted($word) {
    my ($value) = $word =~ /=(.+)/ or return qr/"\Q$word\E=?"/;
    return qr/"\Q$word\E"|"\Q$value\E"/;
}

# Asserts that directives in this context are wrong, that the message quotes the
# word and matches `more`, and that it names the line of the last directive. It
# names none if the last argument is 'no line', since NGINX finds unknown
# variables after it has read all lines.
sub is_wrong($context, $directives, $word, $more = undef, $no_line = undef) {
    my ($exit, $output, $text) = $nginx->test_config(
        config($context => "$directives # blamed"));
    my ($before) = $text =~ /^(.*)# blamed/s;
    my $line = 1 + $before =~ tr/\n//;

    my @emerg = grep { /\[emerg\]/ } split /\n/, $output;
    my $place = $no_line ? qr// : qr{ in \S+/test\.conf:$line$};

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    subtest $directives =~ s/\n/ /gr => sub {
        isnt $exit, 0, 'fails';
        is @emerg, 1, 'with one line';
        like $emerg[0], quoted($word), 'that quotes the word';
        like $emerg[0], $place, 'and names file and line';
        like $emerg[0], $more, 'and more' if $more;
    } or diag $output;
}

is_wrong(@$_) for (
    [ http => "limit_sliding_zone;", 'limit_sliding_zone' ],
);


# the zone and its size

is_wrong(@$_) for (
    [ http => "limit_sliding_zone zone=one:1m rate=1r/s;", 'zone=one:1m',
        qr/must have a key/ ],
    [ http => "$zone rate=1r/s;",                       'zone' ],
    [ http => "$zone zone= rate=1r/s;",                 'zone=' ],
    [ http => "$zone zone=:1m rate=1r/s;",              'zone=:1m' ],
    [ http => "$zone zone=one rate=1r/s;",              'zone=one' ],
    [ http => "$zone zone=one: rate=1r/s;",             'zone=one:' ],
    [ http => "$zone zone=one:abc rate=1r/s;",          'zone=one:abc' ],
    [ http => "$zone zone=one:-1m rate=1r/s;",          'zone=one:-1m' ],
    [ http => "$zone zone=one:1mm rate=1r/s;",          'zone=one:1mm' ],
    [ http => "$zone zone=one:0 rate=1r/s;",            'zone=one:0' ],
    [ http => "$zone zone=one:16k rate=1r/s;",          'zone=one:16k' ],
    [ http => "$zone zone=one:31k rate=1r/s;",          'zone=one:31k' ],
    [ http => "$zone zone=one:99999999999999999999m rate=1r/s;",
        'zone=one:99999999999999999999m' ],
);


# the rate

is_wrong(@$_) for (
    (map { [ http => "$zone zone=one:1m$_;", 'rate',
        qr/"limit_sliding_zone" must have "rate=" or "inflight=" parameter in / ] } '', ' window=1m'),
    [ http => "$zone rate=1r/s;", 'zone=', qr/must have "zone=" parameter in / ],
    [ http => "$zone zone=one:1m rate=;",               'rate=' ],
    [ http => "$zone zone=one:1m rate=0r/s;",           'rate=0r/s' ],
    [ http => "$zone zone=one:1m rate=-1r/s;",          'rate=-1r/s' ],
    [ http => "$zone zone=one:1m rate=+1r/s;",          'rate=+1r/s' ],
    [ http => "$zone zone=one:1m rate=1.5r/s;",         'rate=1.5r/s' ],
    [ http => "$zone zone=one:1m rate=0x1r/s;",         'rate=0x1r/s' ],
    [ http => "$zone zone=one:1m rate=1r/x;",           'rate=1r/x' ],
    [ http => "$zone zone=one:1m rate=1r/;",            'rate=1r/' ],
    [ http => "$zone zone=one:1m rate=1r;",             'rate=1r' ],
    [ http => "$zone zone=one:1m rate=1r/ss;",          'rate=1r/ss' ],
    [ http => "$zone zone=one:1m rate=1/s;",            'rate=1/s' ],
    [ http => "$zone zone=one:1m rate=r/s;",            'rate=r/s' ],
    [ http => "$zone zone=one:1m rate=abc;",            'rate=abc' ],
    [ http => "$zone zone=one:1m rate=99999999999999999999r/s;",
        'rate=99999999999999999999r/s' ],
    [ http => "$zone zone=one:1m rate=18446744073709551617r/s;",
        'rate=18446744073709551617r/s' ],
);


# requests in flight

my $flight = "$zone zone=one:1m inflight=5";
is_wrong(@$_) for (
    [ http => "$zone zone=one:1m inflight=;",    'inflight=' ],
    [ http => "$zone zone=one:1m inflight=0;",   'inflight=0', qr/between 1 and 4194302/ ],
    [ http => "$zone zone=one:1m inflight=-1;",  'inflight=-1' ],
    [ http => "$zone zone=one:1m inflight=4194303;", 'inflight=4194303' ],
    [ http => "$zone zone=one:1m inflight=5r/s;", 'inflight=5r/s' ],
    (map { [ http => "$flight $_;", $_, qr/cannot be with "inflight="/ ] }
        qw(rate=1r/s window=1m algorithm=counter algorithm=fixed calendar=utc precision=2
            strict burst=5 delay=1 nodelay count_rejected penalty=1m penalty_after=2
            penalty_max=1h lease=auto sync=100ms)),
    [ http => "$flight on_error=deny;", 'on_error=deny', qr/needs the "redis=" parameter/ ],
    (map { [ http => "$flight;\nlimit_sliding zone=one $_;", $_, qr/zone "one" of "inflight="/ ] }
        qw(rate=1r/s rate=$arg_rate)),
    (map { [ http => "$flight;\nlimit_sliding zone=one $_;", s/=.*/=/r,
        qr/zone "one" of "inflight="/ ] } qw(settle=$arg_cost count_status=401)),
    (map { [ http => "limit_sliding zone=known $_;", $_, qr/zone "known" of "rate="/ ] }
        qw(inflight=5 inflight=$arg_n)),
    [ http => "limit_sliding zone=known rate=1r/s inflight=5;", 'rate=1r/s', qr/with "inflight=5"/ ],
    [ http => "$flight;\nlimit_sliding zone=one inflight=0;", 'inflight=0' ],
    [ http => "$zone zone=one:16k inflight=5;",  'zone=one:16k' ],
);


# a window of the rate

is_wrong(@$_) for (
    (map { [ http => "$zone zone=one:1m $_;", 'rate=5/15m',
        qr/"rate=5\/15m" has another window than "window=1h"/ ] }
        'rate=5/15m window=1h', 'window=1h rate=5/15m', 'window=1h rate=5/15m algorithm=fixed'),
    [ http => "$zone zone=one:1m rate=5/month window=30d algorithm=fixed;", 'rate=5/month',
        qr/"rate=5\/month" has another window than "window=30d"/ ],
    (map { my ($context, $begin) = @$_; map { [ $context => "$begin $_->[0];", @$_ ] } (
        [ 'rate=5/day', qr/"rate=5\/day" belongs to "algorithm=fixed" only/ ],
        [ 'rate=1000000001/1m', qr/\b1000000001\b.*\b60000 ms\b.*\b1000000000\b/ ],
        map { [ "rate=$_", qr/a window from 100ms to 30d as "\/15m"/ ] }
            qw(5/ 5/99ms 5/31d 5/1x 5/1h/1h 5r/1h 5r/s/1h 0/1h /1h off/1h),
    ) } [ http => "$zone zone=one:1m" ], [ location => 'limit_sliding zone=known' ]),
);


# a bare number is per window

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=10;",             'rate=10' ],
    [ http => "$zone zone=one:1m rate=0 window=1m;",    'rate=0' ],
);


# the window

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=1r/s window=;",     'window=' ],
    [ http => "$zone zone=one:1m rate=1r/s window=0;",    'window=0' ],
    [ http => "$zone zone=one:1m rate=99r/s window=99ms;", 'window=99ms' ],
    [ http => "$zone zone=one:1m rate=1r/d window=31d;",  'window=31d' ],
    [ http => "$zone zone=one:1m rate=1r/d window=2592000001ms;",
        'window=2592000001ms' ],
    [ http => "$zone zone=one:1m rate=1r/s window=abc;",  'window=abc' ],
    [ http => "$zone zone=one:1m rate=1r/s window=-1s;",  'window=-1s' ],
    [ http => "$zone zone=one:1m rate=1r/s window=1.5s;", 'window=1.5s' ],
    [ http => "$zone zone=one:1m rate=1r/s window=10x;",  'window=10x' ],
    [ http => "$zone zone=one:1m rate=1r/s window=99999999999999999999s;",
        'window=99999999999999999999s' ],
    [ http => "$zone zone=one:1m rate=1r/s window=fortnight;",
        'window=fortnight', qr/it must be a time, "day", "week", "month" or "year"/ ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed window=months;",
        'window=months', qr/"month"/ ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed window=Day;",
        'window=Day', qr/"day"/ ],
    (map { [ http => "$zone zone=one:1m rate=1r/s window=month $_;",
        'window=month', qr/belongs to "algorithm=fixed" only/ ] }
        '', map { "algorithm=$_" } qw(counter log token_bucket leaky_bucket)),
    [ http => "$zone algorithm=log rate=1 window=day zone=one:1m;",
        'window=day', qr/belongs to "algorithm=fixed" only/ ],
);


# the calendar

is_wrong(@$_) for (
    (map { my $calendar = $_; map { [ http => "$zone zone=one:1m rate=1r/s"
        . " calendar=$calendar $_;", "calendar=$calendar",
        qr/belongs to "algorithm=fixed" only/ ] }
        '', 'algorithm=log', 'algorithm=counter', 'algorithm=token_bucket' }
        qw(local utc)),
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed calendar=;",
        'calendar=' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed calendar=berlin;",
        'calendar=berlin', qr/it must be "calendar=utc" or "calendar=local"/ ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed calendar=utc"
        . ' calendar=local;', 'calendar=local', qr/duplicate/ ],
);


# penalties

is_wrong(@$_) for (
    (map { [ http => "$zone zone=one:1m rate=1r/s $_;", $_, qr/needs "penalty="/ ] }
        qw(penalty_after=2 penalty_max=1h)),
    (map { [ http => "$zone zone=one:1m rate=1r/s penalty=1m $_;", $_,
        qr/must be between 1 and 1000/ ] } map { "penalty_after=$_" } qw(0 1001 -1 x 1.5)),
    (map { [ http => "$zone zone=one:1m rate=1r/s $_;", $_,
        qr/must be between 1s and 1y/ ] }
        map { "penalty=$_" } qw(0 x -1 1ms 10x 366d 2y 99999999999999999999)),
    (map { [ http => "$zone zone=one:1m rate=1r/s penalty=1s $_;", $_,
        qr/must be between 1s and 1y/ ] } map { "penalty_max=$_" } qw(0 x 366d)),
    [ http => "$zone zone=one:1m rate=1r/s penalty_max=59s penalty=1m;", 'penalty_max=59s',
        qr/is less than the penalty of 60s/ ],
    [ http => "$zone zone=one:1m rate=1r/s penalty=1m penalty=2m;", 'penalty=2m',
        qr/duplicate/ ],
    [ http => "$zone zone=one:1m rate=1r/s penalty=;", 'penalty=' ],
);


# the limit that follows from both

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=1r/m window=1s;",   'rate=1r/m',
        qr/\b0\b.*\b1\b/ ],
    [ http => "$zone zone=one:1m rate=23r/d window=1h;",  'rate=23r/d',
        qr/\b0\b.*\b1\b/ ],
    [ http => "$zone zone=one:1m rate=2000000000r/s;",    'rate=2000000000r/s',
        qr/\b2000000000\b.*\b1000000000\b/ ],
    [ http => "$zone zone=one:1m rate=1000000001 window=1s;",
        'rate=1000000001', qr/\b1000000001\b.*\b1000000000\b/ ],
    [ http => "$zone zone=one:1m rate=33333334r/d window=month algorithm=fixed;",
        'rate=33333334r/d', qr/\b1000000020\b.*\b1000000000\b/ ],
    [ http => "$zone zone=one:1m rate=300000r/s window=1h;",
        'rate=300000r/s', qr/\b1080000000\b.*\b1000000000\b/ ],
    (map { [ http => "$zone zone=one:1m rate=1000000001 window=1h algorithm=$_;",
        'rate=1000000001', qr/\b1000000001\b.*\b1000000000\b/ ] }
        qw(fixed token_bucket leaky_bucket)),
    (map { [ http => "$zone $_ zone=one:1m rate=4194303 window=1h;",
        'rate=4194303', qr/\b4194303\b.*\b4194302\b/ ] }
        qw(algorithm=log precision=2 precision=60)),
);


# other parameters of a zone

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=1r/s full=;",       'full=' ],
    [ http => "$zone zone=one:1m rate=1r/s full=maybe;",  'full=maybe' ],
    [ http => "$zone zone=one:1m rate=1r/s full=evictor;", 'full=evictor' ],
    [ http => "$zone zone=one:1m rate=1r/s foo=bar;",     'foo=bar' ],
    [ http => "$zone zone=one:1m rate=1r/s burst=5;",     'burst=5',
        qr/belongs to/ ],
    (map { [ http => "$zone zone=one:1m rate=1r/s nodelay $_;", 'nodelay',
        qr/belongs to "algorithm=leaky_bucket" only/ ] }
        '', 'burst=5 algorithm=token_bucket'),
    [ http => "$zone zone=one:1m rate=1r/s algorithm=fixed delay=2;", 'delay=2',
        qr/belongs to "algorithm=leaky_bucket" only/ ],
    (map { [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket $_;", $_,
        qr/must be between 1 and 1000000000/ ] }
        map { "delay=$_" } qw(0 -1 x 1.5 1000000001)),
    [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket nodelay delay=2;",
        'nodelay', qr/cannot be with "delay="/ ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket nodelay nodelay;",
        'nodelay', qr/duplicate/ ],
    [ http => "$zone zone=one:1m rate=1r/s Window=1m;",   'Window=1m' ],
);


# algorithms, and what belongs to them

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=1r/s algorithm=;",  'algorithm=' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=gcra;",
        'algorithm=gcra', qr/leaky_bucket/ ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=Log;", 'algorithm=Log' ],
    [ http => "$zone zone=one:1m rate=1r/s precision=;",  'precision=' ],
    [ http => "$zone zone=one:1m rate=1r/s precision=0;", 'precision=0' ],
    [ http => "$zone zone=one:1m rate=1r/s precision=61;", 'precision=61',
        qr/\b1\b.*\b60\b/ ],
    [ http => "$zone zone=one:1m rate=1r/s precision=-1;", 'precision=-1' ],
    [ http => "$zone zone=one:1m rate=1r/s precision=abc;",
        'precision=abc', qr/auto/ ],
    [ http => "$zone zone=one:1m rate=1r/s strict=on;", 'strict=on' ],
    [ http => "$zone zone=one:1m rate=1r/s count_rejected=on;", 'count_rejected=on' ],
    [ http => "$zone zone=one:1m rate=1r/s count_rejected count_rejected;", 'count_rejected' ],
    (map { [ http => "$zone zone=one:1m rate=1r/s algorithm=$_ strict;",
        'strict', qr/belongs to/ ] }
        qw(log fixed token_bucket leaky_bucket)),
    (map { [ http => "$zone zone=one:1m rate=1r/s algorithm=$_ precision=2;",
        'precision=2', qr/belongs to/ ] }
        qw(log fixed token_bucket leaky_bucket)),
    (map { [ http => "$zone zone=one:1m rate=1r/s algorithm=$_ burst=2;",
        'burst=2', qr/belongs to/ ] } qw(counter log fixed)),
    [ http => "$zone zone=one:1m rate=1r/s algorithm=token_bucket burst=0;",
        'burst=0' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=token_bucket burst=-1;",
        'burst=-1' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket burst=;",
        'burst=' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket burst=1x;",
        'burst=1x' ],
    [ http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket"
        . ' burst=1000000001;', 'burst=1000000001', qr/\b1000000000\b/ ],
    [ http => "$zone zone=one:1m rate=1r/d algorithm=token_bucket burst=50;",
        'burst=50', qr/49 days/ ],
    [ http => "$zone zone=one:1m rate=1r/s redis=shared;", 'redis=shared' ],
    [ http => "$zone zone=one:1m rate=1r/s lease=auto;",  'lease=auto' ],
);


# variable rates

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m rate=\$arg_rate;",       'rate=$arg_rate',
        qr/window=/ ],
    [ http => "$zone zone=one:1m rate=\$ window=1m;",     'rate=$',
        qr/variable/ ],
    [ http => "$zone zone=one:1m rate=off;",              'rate=off' ],
);


# twice

is_wrong(@$_) for (
    [ http => "$zone zone=one:1m zone=two:1m rate=1r/s;",
        'zone=two:1m' ],
    [ http => "$zone zone=one:1m rate=1r/s rate=2r/s;",   'rate=2r/s' ],
    [ http => "$zone zone=one:1m rate=1r/s window=1m window=2m;",
        'window=2m' ],
    [ http => "$zone zone=one:1m rate=1r/s full=deny full=deny;",
        'full=deny' ],
    [ http => "$zone zone=one:1m rate=1r/s;\n"
        . "$zone zone=one:1m rate=1r/s;",                 'one' ],
    [ http => "$zone zone=one:1m rate=1r/s;\n"
        . "$zone zone=one:2m rate=1r/s;",                 'one' ],
    [ http => "$zone zone=req:1m rate=1r/s;",             'req',
        qr/is that of a zone of ngx_http_limit_req_module/ ],
    (map { my ($other, $more) = @$_; map { [ http => $_, 'one', $more ] }
        "$zone zone=one:1m rate=1r/s; $other", "$other $zone zone=one:1m rate=1r/s;" }
        [ 'limit_req_zone $arg_key zone=one:1m rate=1r/s;',
            qr/is that of a zone of ngx_http_limit_req_module/ ],
        [ 'limit_req zone=one;', qr/"one" is used by ngx_http_limit_req_module, did you mean/ ],
        [ 'limit_conn one 1;', qr/"one" is used by ngx_http_limit_conn_module, did you mean/ ]),
);


# the key

is_wrong(@$_) for (
    [ http => 'limit_sliding_zone $nope zone=one:1m rate=1r/s;', 'nope',
        qr/unknown/, 'no line' ],
    [ http => 'limit_sliding_zone ${arg_key zone=one:1m rate=1r/s;',
        'arg_key' ],
);


# limit_sliding

is_wrong(@$_) for (
    [ location => 'limit_sliding;',                       'limit_sliding' ],
    [ location => 'limit_sliding zone=;',                 'zone=' ],
    [ location => 'limit_sliding zone=nope;',             'nope' ],
    [ server   => 'limit_sliding zone=nope;',             'nope' ],
    [ http     => 'limit_sliding zone=nope;',             'nope' ],
    [ location => 'limit_sliding zone=know;',             'know' ],
    [ location => 'limit_sliding zone=req;',              'req' ],
    [ location => 'limit_sliding known;',                 'known' ],
    [ location => 'limit_sliding on;',                    'on' ],
    [ location => 'limit_sliding foo=bar;',               'foo=bar' ],
    [ location => 'limit_sliding zone=known foo=bar;',    'foo=bar' ],
    [ location => 'limit_sliding zone=known nodelay;',    'nodelay' ],
    [ location => 'limit_sliding zone=known zone=known;', 'zone=known' ],
    [ location => "limit_sliding zone=known;\n"
        . 'limit_sliding zone=known;',                    'zone=known' ],
    [ location => 'limit_sliding off zone=known;',        'off',
        qr/stands alone/ ],
    [ location => 'limit_sliding zone=known off;',        'off',
        qr/stands alone/ ],
);


# its parameters

is_wrong(@$_) for (
    [ location => 'limit_sliding rate=1r/s;',             'zone' ],
    [ location => 'limit_sliding zone=known rate=;',      'rate=' ],
    [ location => 'limit_sliding zone=known rate=abc;',   'rate=abc' ],
    [ location => 'limit_sliding zone=known rate=0r/s;',  'rate=0r/s' ],
    [ location => 'limit_sliding zone=known rate=off;',   'rate=off' ],
    [ location => 'limit_sliding zone=known rate=1r/m;',  'rate=1r/m',
        qr/\b0\b.*\b1\b/ ],
    [ location => 'limit_sliding zone=known rate=2000000000r/s;',
        'rate=2000000000r/s', qr/\b1000000000\b/ ],
    [ location => 'limit_sliding zone=known rate=999999999999999999r/s;',
        'rate=999999999999999999r/s', qr/\b1000000000\b/ ],
    [ location => 'limit_sliding zone=known cost=;',      'cost=' ],
    [ location => 'limit_sliding zone=known cost=-1;',    'cost=-1' ],
    [ location => 'limit_sliding zone=known cost=1.5;',   'cost=1.5' ],
    [ location => 'limit_sliding zone=known cost=abc;',   'cost=abc' ],
    [ location => 'limit_sliding zone=known cost=1' . '0' x 30 . ';',
        'cost=1' . '0' x 30 ],
    [ location => 'limit_sliding zone=known cost=1 cost=2;', 'cost=2' ],
    [ location => 'limit_sliding zone=known settle=;', 'settle=' ],
    [ location => 'limit_sliding zone=known settle=5;', 'settle=5' ],
    [ location => 'limit_sliding zone=known settle=$;', '$' ],
    [ location => 'limit_sliding zone=known settle=$uri settle=$status;', 'settle=$status' ],
    [ location => 'limit_sliding zone=known count_status=;',
        'count_status=' ],
    [ location => 'limit_sliding zone=known count_status=99;',
        'count_status=99' ],
    [ location => 'limit_sliding zone=known count_status=600;',
        'count_status=600' ],
    [ location => 'limit_sliding zone=known count_status=6xx;',
        'count_status=6xx' ],
    [ location => 'limit_sliding zone=known count_status=40x;',
        'count_status=40x' ],
    [ location => 'limit_sliding zone=known count_status=401,;',
        'count_status=401,' ],
    [ location => 'limit_sliding zone=known after_auth=1;', 'after_auth=1' ],
    [ location => 'limit_sliding zone=known dry_run=on;', 'dry_run=on' ],
    [ location => 'limit_sliding zone=known dry_run dry_run;', 'dry_run' ],
    [ location => "limit_sliding off;\nlimit_sliding zone=known;",
        'zone=known' ],
    [ location => "limit_sliding zone=known;\nlimit_sliding off;", 'off' ],
);


# the others

is_wrong(@$_) for (
    [ location => 'limit_sliding_status 399;',            '399' ],
    [ location => 'limit_sliding_status 600;',            '600' ],
    [ location => 'limit_sliding_status abc;',            'abc' ],
    [ location => 'limit_sliding_status -429;',           '-429' ],
    [ location => 'limit_sliding_status;',       'limit_sliding_status' ],
    [ location => 'limit_sliding_status 429 430;', 'limit_sliding_status' ],
    [ location => "limit_sliding_status 429;\nlimit_sliding_status 430;",
        'limit_sliding_status' ],
    [ location => 'limit_sliding_log_level loud;',        'loud' ],
    [ location => 'limit_sliding_log_level crit;',        'crit' ],
    [ location => 'limit_sliding_log_level every=1s;',    'every=1s' ],
    [ location => 'limit_sliding_log_level error every=;',     'every=' ],
    [ location => 'limit_sliding_log_level error every=abc;',  'every=abc' ],
    [ location => 'limit_sliding_log_level error every=-1s;',  'every=-1s' ],
    [ location => 'limit_sliding_log_level error foo=bar;',    'foo=bar' ],
    [ location => "limit_sliding_log_level warn;\n"
        . 'limit_sliding_log_level error;',     'limit_sliding_log_level' ],
    [ location => 'limit_sliding_dry_run maybe;',         'maybe' ],
    [ location => 'limit_sliding_dry_run;',      'limit_sliding_dry_run' ],
    [ location => "limit_sliding_dry_run on;\nlimit_sliding_dry_run on;",
        'limit_sliding_dry_run' ],

    [ location => 'limit_sliding_headers;',      'limit_sliding_headers' ],
    [ location => 'limit_sliding_headers y;',             'y' ],
    [ location => 'limit_sliding_headers off x;',         'off' ],
    [ location => 'limit_sliding_headers x off;',         'off' ],
    [ location => 'limit_sliding_headers x x;',           'x' ],
    [ location => "limit_sliding_headers x;\nlimit_sliding_headers draft;",
        'limit_sliding_headers' ],
    [ location => 'limit_sliding_client;',       'limit_sliding_client' ],
    [ location => 'limit_sliding_client ipv4=33;',        'ipv4=33' ],
    [ location => 'limit_sliding_client ipv4=-1;',        'ipv4=-1' ],
    [ location => 'limit_sliding_client ipv4=;',          'ipv4=' ],
    [ location => 'limit_sliding_client ipv6=129;',       'ipv6=129' ],
    [ location => 'limit_sliding_client ipv6=abc;',       'ipv6=abc' ],
    [ location => 'limit_sliding_client ipv5=8;',         'ipv5=8' ],
    [ location => 'limit_sliding_client ipv4=8 ipv4=9;',  'ipv4=9' ],
);


# elsewhere

is_wrong(@$_) for (
    [ main     => "$zone zone=one:1m rate=1r/s;", 'limit_sliding_zone' ],
    [ server   => "$zone zone=one:1m rate=1r/s;", 'limit_sliding_zone' ],
    [ location => "$zone zone=one:1m rate=1r/s;", 'limit_sliding_zone' ],
    [ main     => 'limit_sliding zone=known;',    'limit_sliding' ],
    [ http     => "upstream u {\nlimit_sliding zone=known;", 'limit_sliding' ],
    [ location => "if (\$arg_x) {\nlimit_sliding zone=known;",
        'limit_sliding' ],
    [ main     => 'limit_sliding_status 429;',    'limit_sliding_status' ],
    [ main     => 'limit_sliding_log_level warn;', 'limit_sliding_log_level' ],
    [ main     => 'limit_sliding_dry_run on;',    'limit_sliding_dry_run' ],
);


# Asserts that directives, { context => text }, are right.
sub is_right($name, %at) {
    my ($exit, $output) = $nginx->test_config(config(%at));

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    subtest $name => sub {
        is $exit, 0, 'is right';
        unlike $output, qr/\[(?!notice)\w+\](?!.* no "limit_sliding" uses the zone)/,
            'without a warning, but for zones that no place uses';
    } or diag $output;
}

is_right(@$_) for (
    [ 'zone after its use',
        server => 'limit_sliding zone=late;',
        http => "$zone zone=early:1m rate=1r/s; limit_sliding zone=late;"
            . " $zone zone=late:1m rate=1r/s;" ],
    (map { [ "requests in flight: $_", http => "$zone zone=one:32k $_;"
        . ' limit_sliding zone=one cost=2 after_auth dry_run;' ] }
        'inflight=1', 'inflight=4194302', 'inflight=$arg_n',
        'inflight=5 full=deny top=off limits_max=5'),
    [ 'requests in flight at a place', http => "$zone zone=one:1m inflight=5;"
        . ' limit_sliding zone=one inflight=$arg_n; limit_sliding zone=known;' ],
    [ 'smallest zone', http => "$zone zone=one:32k rate=1r/s;" ],
    [ 'bytes', http => "$zone zone=one:100000 rate=1r/s;" ],
    [ 'large zone', http => "$zone zone=one:64m rate=1r/s;" ],
    [ 'zone beside limit_req',
        http => "$zone zone=one:1m rate=1r/s;",
        location => 'limit_req zone=req; limit_sliding zone=one;' ],
    [ 'parameters in another order',
        http => "$zone full=deny rate=1r/s window=1m zone=one:1m;" ],
    (map { [ "rate $_", http => "$zone zone=one:1m rate=$_;" ] }
        qw(1r/s 10r/m 1000r/h 1r/d 1000000000r/s 1000000000r/d),
        '5/15m', '100/10s', '1000000000/30d', '5/15m window=15m', '5/15m window=900',
        '5/month algorithm=fixed', '5/month window=month algorithm=fixed calendar=local'),
    (map { [ "rate $_ of a place", location => "limit_sliding zone=known rate=$_;" ] }
        qw(5/15m 5/1s 100/30d)),
    (map { [ "window $_", http => "$zone zone=one:1m rate=10r/s window=$_;" ] }
        qw(100ms 500ms 10s 1m 1h 1m30s 60)),
    (map { my $window = $_; map { [ "window $window $_", http => "$zone zone=one:1m"
        . " rate=24r/d window=$window algorithm=fixed $_;" ] }
        '', 'calendar=utc', 'calendar=local' } qw(day week month year 1h)),
    (map { [ "bare rate, window $_",
        http => "$zone zone=one:1m rate=1 window=$_;" ] } qw(100ms 1d 4w 30d)),
    (map { [ "largest limit, $_",
        http => "$zone zone=one:1m rate=1000000000 window=30d $_;" ] }
        'precision=1', map { "algorithm=$_" }
        qw(counter fixed token_bucket leaky_bucket)),
    (map { [ "largest limit, $_",
        http => "$zone zone=one:1m rate=4194302 window=30d $_;" ] }
        qw(algorithm=log precision=2 precision=60)),
    (map { [ "largest burst of a $_", http => "$zone zone=one:1m"
        . " rate=1000000000 window=30d algorithm=$_ burst=1000000000;" ] }
        qw(token_bucket leaky_bucket)),
    (map { [ $_, http => "$zone zone=one:1m rate=1r/s algorithm=leaky_bucket $_;" ] }
        'burst=5 nodelay', 'nodelay', 'burst=5 delay=2', 'burst=5 delay=9'),
    [ 'smallest limit', http => "$zone zone=one:1m rate=24r/d window=1h;" ],
    (map { [ "full $_", http => "$zone zone=one:1m rate=1r/s full=$_;" ] }
        qw(evict deny)),
    (map { [ "key $_", http => "limit_sliding_zone $_ zone=one:1m rate=1r/s;" ]
        } qw($binary_remote_addr $binary_remote_addr$uri text "quoted"
            text-${uri}-$arg_a)),
    (map { [ "status $_", location => "limit_sliding_status $_;" ] }
        qw(400 429 503 599)),
    (map { [ "level $_", location => "limit_sliding_log_level $_;" ],
        [ "level $_, every", location => "limit_sliding_log_level $_ every=1s;"
        ] } qw(info notice warn error off)),
    (map { [ "every $_", location => "limit_sliding_log_level warn every=$_;" ]
        } qw(1s 500ms 1m 1h)),
    (map { [ "all in $_", $_ => 'limit_sliding zone=known;'
        . ' limit_sliding_status 503; limit_sliding_log_level info every=1m;'
        . ' limit_sliding_dry_run on;' ] } qw(http server location)),
    (map { [ "off in $_", $_ => 'limit_sliding off;' ] }
        qw(http server location)),
    [ 'again at every level',
        map { $_ => 'limit_sliding zone=known;' } qw(http server location) ],
    [ 'several limits',
        http => "$zone zone=one:1m rate=1r/s; $zone zone=two:1m rate=1r/h;",
        location => 'limit_sliding zone=one; limit_sliding zone=two;'
            . ' limit_sliding zone=known;' ],
);

$nginx->finish;
