# Wrong words of a configuration: the message says what was probably meant.

use v5.36;

use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

# Returns what `nginx -t` says of directives in a context, without the place.
sub said($context, $directives) {
    my ($http, $location) = $context eq 'http' ? ($directives, '') : ('', $directives);
    my ($exit, $output, $text) = $nginx->test_config(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$arg_key zone=known:1m rate=1r/s;
    $http
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { $location }
    }
}
CONF
    my @said = $output =~ /\[(?:emerg|warn)\] \d+#\d+: (.*?) in \S+test\.conf:\d+$/mg;
    return ($exit, @said);
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
        limits_max=9 top=off penalty=1m penalty_after=2 penalty_max=1h);
is_meant(http => "$zone zone=one:1m rate=1r/s $_;",
    "\"$_\" belongs to the directive \"limit_sliding\"")
    for qw(cost=2 settle=$status count_status=401 after_auth dry_run);


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
    [ "$limit dry_run = on;", '"=", "dry_run" before it has no value' ],
    (map { [ "$limit $_;", "\"$_\", did you mean \"dry_run\"?" ] } qw(dry-run dryrun DRY_RUN)),
    [ "$limit Rate=1r/s;", '"Rate=1r/s", did you mean "rate=1r/s"?' ],
    [ "$limit wrong;", '"wrong"' ],
    [ 'limit_sliding_headers ietf;', '"ietf", did you mean "draft"?' ],
    [ 'limit_sliding_headers retry-after;', '"retry-after", did you mean "retry_after"?' ],
);
is_meant(http => "$zone $_->[0];", "invalid parameter $_->[1]") for (
    [ 'zone = one:1m rate = 1r/s', '"zone", did you mean "zone=one:1m" without spaces?' ],
    [ 'one:1m rate=1r/s', '"one:1m", did you mean "zone=one:1m"?' ],
    [ 'zone=one:1m 1r/s', '"1r/s", did you mean "rate=1r/s"?' ],
    [ 'zone=one:1m rate=1r/s strict=on', '"strict=on", did you mean "strict"?' ],
);


# times, sizes and rates

is_meant(http => "$zone zone=one:1m rate=1r/s window=$_->[0];",
    qq("year", did you mean "$_->[1]"?)) for (
    [ '1M', '1m' ], [ '5min', '5m' ], [ '2hours', '2h' ], [ 'minute', '1m' ],
    [ '3Days', '3d' ], [ '100MS', '100ms' ], [ '9sec', '9s' ],
);
is_meant(http => "$zone zone=one:1m rate=1r/s window=$_;", '"month" or "year"')
    for qw(1x fortnight 1y 99999999999999999999s mi);

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
    [ '100r/month', '"rate=100" with "window=month" of the zone' ],
    [ '100/10s', '"rate=100" with "window=10s" of the zone' ],
);
for my $place ([ http => "$zone zone=one:1m" ], [ location => $limit ]) {
    my ($context, $begin) = @$place;
    is_meant($context => "$begin rate=$_->[0];", "or hold a variable, did you mean $_->[1]?")
        for @rates;
    is_meant($context => "$begin rate=$_;", 'or hold a variable')
        for qw(1.5r/s 0r/s 100x r/s 1r/x);
}


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
        [ 'timeout 100;', 'a time between 1ms and 60s, not a number of seconds' ],
        [ 'timeout 100s;', 'a time between 1ms and 60s' ],
    );

    my $warning = sub ($directives) {
        my ($exit, @said) = said(http => $directives);
        return "$exit @said";
    };
    is $warning->($in_block->('timeout 50;')),
        '0 "timeout 50" is 50 seconds, did you mean "50ms"?', 'timeout 50: a warning';
    my $synced = $in_block->('') . "$zone zone=one:1m rate=1r/s redis=shared";
    is $warning->("$synced sync=50;"),
        '0 "sync=50" is 50 seconds, did you mean "sync=50ms"?', 'sync=50: a warning';
    is $warning->("$synced sync=$_;"), '0 ', "sync=$_: none" for qw(50s 1 50ms);
}

$nginx->finish;
