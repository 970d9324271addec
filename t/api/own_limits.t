# What the API says of wrong arguments, each in its own words, and the list of
# own limits in shared memory.

use v5.36;

use JSON::PP qw(decode_json);
use List::Util qw(min uniq);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Generator qw(cpu_us);
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 1);

$nginx->write_file('sparse', join '', map { "s$_ 5\n" } 1 .. 4000);
my $sparse = "limit_sliding_zone \$http_key zone=sparse:1m rate=3r/d limits_max=1000000"
    . ' limits=' . $nginx->dir . '/sparse;';
$nginx->serve(http => $sparse . <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_key zone=one:1m rate=3r/d limits_max=3000;
    limit_sliding_zone $http_key zone=fixed:1m rate=3r/d algorithm=fixed;
    limit_sliding_zone $http_key zone=log:1m rate=3r/d algorithm=log;
    limit_sliding_zone $http_key zone=none:1m rate=3r/d;
    limit_sliding_zone $http_key zone=many:1m rate=3r/d limits_max=3100;
    limit_sliding_zone $binary_remote_addr zone=address:1m rate=3r/d;
    limit_sliding_zone $limit_sliding_client zone=client:1m rate=3r/d;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /one { limit_sliding zone=one; empty_gif; }
    location /client { limit_sliding zone=client; empty_gif; }
SERVER


# ---- wrong arguments ----

my $FORM = '"rate" must be as "10r/s", "100" or "1000/1h", or "0", "off" or "default", not ';
my $NUMBER = '"rate" must have a positive integer of 18 digits at most before its window, not ';
my $WINDOW = '"rate" must have a window from 100ms to 30d, or "day", "week", "month" or "year", not ';
my $TTL = '"ttl" must be a time from 1s to 10y, as "90s" or "7d", not ';
my $COST = '"cost" must be an integer from 1 to 2^53, or from -2^53 to -1, not ';
my $ADDRESS = 'must be an address, as "192.0.2.7" or "2001:db8::1", not ';
my $N = '"n" must be an integer from 1 to 1000, not ';
my $long = 'x' x 48;
my $BOUNDS = '"rate" must allow 1 to 1000000000 requests in a window of';

my @wrong = (
    [ GET => 'one/key?',                   '"key" must be given' ],
    [ GET => 'one/key?key=',               '"key" must not be empty' ],
    [ GET => 'one/key?key=a%zz',           '"key" must be percent-encoded, not "a%zz"' ],
    [ GET => 'one/key?key=a%2',            '"key" must be percent-encoded, not "a%2"' ],
    [ GET => 'address/key?key=localhost',  "\"key\" $ADDRESS\"localhost\"" ],
    [ GET => 'client/key?key=1.2.3',       "\"key\" $ADDRESS\"1.2.3\"" ],
    [ PUT => 'one/key?rate=5',             '"key" must be given' ],
    [ PUT => 'one/key?key=a',              '"rate" must be given' ],
    [ PUT => 'one/key?key=a&rate=',        '"rate" must not be empty' ],
    [ PUT => 'one/key?key=a&rate=%',       '"rate" must be percent-encoded, not "%"' ],
    [ PUT => 'one/key?key=a&rate=x',       "$FORM\"x\"" ],
    [ PUT => 'one/key?key=a&rate=-1',      "$FORM\"-1\"" ],
    [ PUT => 'one/key?key=a&rate=1r/x',    "$FORM\"1r/x\"" ],
    [ PUT => 'one/key?key=a&rate=5r/h/1h', "$FORM\"5r/h/1h\"" ],
    [ PUT => 'one/key?key=a&rate=of%22f',  "$FORM\"of\"f\"" ],
    [ PUT => 'one/key?key=a&rate=%ff%00',  "$FORM\"\x{fffd}\0\"" ],
    [ PUT => "one/key?key=a&rate=$long",   "$FORM\"$long\"" ],
    [ PUT => "one/key?key=a&rate=y$long",  "$FORM\"y" . substr($long, 1) . '..."' ],
    [ PUT => 'one/key?key=a&rate=0/1h',    "$NUMBER\"0\"" ],
    [ PUT => 'one/key?key=a&rate=/1h',     "$NUMBER\"\"" ],
    [ PUT => 'one/key?key=a&rate=-5/1h',   "$NUMBER\"-5\"" ],
    [ PUT => 'one/key?key=a&rate=off/1h',  "$NUMBER\"off\"" ],
    [ PUT => 'one/key?key=a&rate=1234567890123456789/1h', "$NUMBER\"1234567890123456789\"" ],
    [ PUT => 'one/key?key=a&rate=5/',      "$WINDOW\"\"" ],
    [ PUT => 'one/key?key=a&rate=5/x',     "$WINDOW\"x\"" ],
    [ PUT => 'one/key?key=a&rate=5/99ms',  "$WINDOW\"99ms\"" ],
    [ PUT => 'one/key?key=a&rate=5/31d',   "$WINDOW\"31d\"" ],
    [ PUT => 'one/key?key=a&rate=5/Month', "$WINDOW\"Month\"" ],
    [ PUT => 'one/key?key=a&rate=5/1h/1h', "$WINDOW\"1h/1h\"" ],
    [ PUT => 'one/key?key=a&rate=5/month', '"rate" must have a window from 100ms to 30d, as the '
        . 'zone is not "algorithm=fixed", not "month"' ],
    [ PUT => 'one/key?key=a&rate=1000000001', "$BOUNDS 86400000 ms, not 1000000001 as \"1000000001\"" ],
    [ PUT => 'one/key?key=a&rate=1000000001/1h',
        "$BOUNDS 3600000 ms, not 1000000001 as \"1000000001/1h\"" ],
    [ PUT => 'one/key?key=a&rate=999999999999999999r/s',
        "$BOUNDS 86400000 ms, not more than 18446744073709551615 as \"999999999999999999r/s\"" ],
    [ PUT => 'log/key?key=a&rate=4194303/1h', '"rate" must allow 1 to 4194302 requests in a window '
        . 'of 3600000 ms, not 4194303 as "4194303/1h"' ],
    [ PUT => 'one/key?key=a&rate=5&ttl=',      '"ttl" must not be empty' ],
    [ PUT => 'one/key?key=a&rate=5&ttl=%4',    '"ttl" must be percent-encoded, not "%4"' ],
    [ PUT => 'one/key?key=a&rate=5&ttl=0',     "$TTL\"0\"" ],
    [ PUT => 'one/key?key=a&rate=5&ttl=999ms', "$TTL\"999ms\"" ],
    [ PUT => 'one/key?key=a&rate=5&ttl=11y',   "$TTL\"11y\"" ],
    [ PUT => 'one/key?key=a&rate=5&ttl=-1',    "$TTL\"-1\"" ],
    [ PUT => 'one/key?key=a&rate=5&ttl=soon',  "$TTL\"soon\"" ],
    [ PUT => 'one/key?key=a&rate=default&ttl=1h',
        '"ttl" must not be given with the rate "default", as "1h"' ],
    [ POST => 'one/key?key=a',             '"cost" must be given' ],
    [ POST => 'one/key?key=a&cost=',       '"cost" must not be empty' ],
    [ POST => 'one/key?key=a&cost=0',      "$COST\"0\"" ],
    [ POST => 'one/key?key=a&cost=1.5',    "$COST\"1.5\"" ],
    [ POST => 'one/key?key=a&cost=9007199254740993', "$COST\"9007199254740993\"" ],
    [ GET => 'one/limits?n=',              '"n" must not be empty' ],
    [ GET => 'one/limits?n=0',             "$N\"0\"" ],
    [ GET => 'one/limits?n=1001',          "$N\"1001\"" ],
    [ GET => 'one/limits?n=-1',            "$N\"-1\"" ],
    [ GET => 'one/limits?n=ten',           "$N\"ten\"" ],
    [ GET => 'one/limits?after=',          '"after" must not be empty' ],
    [ GET => 'one/limits?after=%x',        '"after" must be percent-encoded, not "%x"' ],
    [ GET => 'address/limits?after=home',  "\"after\" $ADDRESS\"home\"" ],
);

for (@wrong) {
    my ($method, $path, $error) = @$_;
    my $json = decode_json($nginx->get("/limits/zones/$path", method => $method)->{body});
    is $json->{status}, 400, "$method " . substr $path, 0, 50;
    is $json->{error}, $error, '... says why';
}

is_deeply limits_page($nginx, 'one')->{limits}, [], 'nothing was set';
is state_of(api_key($nginx, 'one', 'a')), '0 3 3', '... nor charged';
is $nginx->get('/limits/zones/one/limits', method => $_)->{status}, 405, "$_ of the list: 405"
    for qw(PUT POST DELETE);
is $nginx->get("/limits/zones/$_")->{status}, 404, "$_: 404"
    for 'no/limits', '/limits', 'one/limits/', 'limits';
is $nginx->get('/limits/zones/one/limits', method => 'HEAD')->{body}, '', 'HEAD: no body';


# ---- what is right ----

sub put($zone, $key, $rate) {
    my $json = api_key($nginx, $zone, $key, 'PUT', "&rate=$rate");
    is $json->{http}, 200, "$zone: $rate" or diag $json->{error};
    return $json;
}

for my $case (
    [ one => '5/100ms',        5,          0.1 ],
    [ one => '5/1500ms',       5,          1.5 ],
    [ one => '5/10',           5,          10 ],
    [ one => '5/1m30s',        5,          90 ],
    [ one => '1000000000/30d', 1000000000, 30 * 86400 ],
    [ one => '5%2F1h',         5,          3600 ],
    [ one => '5/1d',           5,          86400 ],
    [ one => '10r/s',          864_000,    86400 ],
    [ one => '7',              7,          86400 ],
    [ fixed => '5/day',        5,          'day' ],
    [ fixed => '5/week',       5,          'week' ],
    [ fixed => '5/month',      5,          'month' ],
    [ fixed => '5/year',       5,          'year' ],
    [ fixed => '5/1h',         5,          3600 ],
) {
    my ($zone, $rate, $limit, $window) = @$case;
    my $json = put($zone, 'right', $rate);
    is "$json->{limit} $json->{window}", "$limit $window", '... in force';
}
is api_key($nginx, 'one', 'usual')->{window}, 86400, 'a key without: the window of the zone';
api_key($nginx, $_, 'right', 'PUT', '&rate=default') for qw(one fixed);
is api_key($nginx, 'one', 'x', 'PUT', "&rate=5&ttl=$_")->{http}, 200, "ttl=$_"
    for qw(1 1s 90 1m 1h30m 10y);
api_key($nginx, 'one', 'x', 'PUT', '&rate=default');


# ---- the list ----

sub encode($text) { return $text =~ s/([^A-Za-z0-9])/sprintf '%%%02X', ord $1/ger }

# Returns what all pages tell, { key_uri => 'rate ttl' }, and asserts that no key comes twice.
sub listed($zone, $n) {
    my ($limits, $pages) = all_limits($nginx, $zone, $n);
    my @keys = map { ref ? $_->{key_uri} : $_ } @$limits;
    is scalar uniq(@keys), scalar @keys, "$zone: " . @keys . " limits by $n, each once";
    return ({ map { $_->{key_uri} => join ' ', $_->{rate}, $_->{ttl} // '-' } @$limits }, $pages);
}

is_deeply limits_page($nginx, 'none'),
    { zone => 'none', limits => [], next => undef, http => 200 }, 'no limits';

my %limits = ('plain' => '1000/1h', 'off' => 'off', 'zero' => '0', 'rate' => '5r/s',
    "a\0b c%d#&+" => '7', "\xff\xfe\n\"" => '8', 'x' x 3000 => '9/10s', "caf\xc3\xa9" => '10');
for my $key (sort keys %limits) {
    api_key($nginx, 'one', encode($key), 'PUT', "&rate=$limits{$key}");
}
api_key($nginx, 'one', 'short', 'PUT', '&rate=3/1m&ttl=100');
api_key($nginx, 'one', 'gone', 'PUT', '&rate=3/1m&ttl=1s');
api_key($nginx, 'one', 'taken', 'PUT', "&rate=$_") for qw(4 default);
sleep 1.2;

my %expected = map { s/([^-.~\w])/sprintf '%%%02X', ord $1/gear => "$limits{$_} -" } keys %limits;
for my $n (1, 2, 3, 9, 1000) {
    my ($listed, $pages) = listed('one', $n);
    like delete $listed->{short}, qr{^3/1m (?:9[0-9]|100)$}, '... one that ends';
    is_deeply $listed, \%expected, '... all that there are';
    is $pages, int((9 + $n - 1) / $n), '... in as many pages as it takes';
}

my $page = limits_page($nginx, 'one', 'n=1');
is_deeply [ sort keys %{ $page->{limits}[0] } ], [qw(key key_uri rate ttl)], 'fields';
like $page->{next}, qr/^\*\d+$/, 'next is a place';
my ($cafe) = grep { $_->{key_uri} eq 'caf%C3%A9' } @{ limits_page($nginx, 'one')->{limits} };
is $cafe->{key}, "caf\x{e9}", 'a key as text';

# A page goes on where one ended, also if its last key has no limit any more.
my @all = map { $_->{key_uri} } @{ limits_page($nginx, 'one')->{limits} };
my $first = limits_page($nginx, 'one', 'n=4');
is_deeply [ map { $_->{key_uri} } @{ limits_page($nginx, 'one', "after=$all[3]")->{limits} } ],
    [ @all[4 .. $#all] ], 'after a key';
api_key($nginx, 'one', $all[3], 'PUT', '&rate=default');
is_deeply [ map { $_->{key_uri} } @{ limits_page($nginx, 'one', "after=$first->{next}")->{limits} } ],
    [ @all[4 .. $#all] ], 'after a page whose last limit was taken away meanwhile';

# A table with much room is looked at in parts: a page may have less than it could.
my ($sparse_limits, $sparse_pages) = listed('sparse', 1000);
is_deeply [ sort keys %$sparse_limits ], [ sort map { "s$_" } 1 .. 4000 ], '... all of them';
cmp_ok $sparse_pages, '>', 6, '... in pages that look at a part of the table';
$page = limits_page($nginx, 'sparse', 'n=1000');
like $page->{next}, qr/^\*\d+$/, '... and say where they ended';
is limits_page($nginx, 'sparse', "n=1&after=$_")->{http}, 200, "after=$_ is a place"
    for '*0', '*1', '*9223372036854775807';
is limits_page($nginx, 'sparse', "n=1&after=$_")->{http}, 200, "after=$_ is a key"
    for '%2A1', '*', '*x', '*9223372036854775808';

# Addresses are text, and networks are what is limited.
api_key($nginx, 'address', $_, 'PUT', '&rate=5/1h') for qw(192.0.2.7 2001:db8::7);
api_key($nginx, 'client', '2001:db8:1:2:3::7', 'PUT', '&rate=0');
is_deeply [ sort map { $_->{key} } @{ limits_page($nginx, 'address')->{limits} } ],
    [qw(192.0.2.7 2001:db8::7)], 'addresses';
is_deeply [ sort keys %{ (listed('address', 1))[0] } ], [qw(192.0.2.7 2001%3Adb8%3A%3A7)],
    '... page by page';
is limits_page($nginx, 'client')->{limits}[0]{key}, '2001:db8:1:2::', 'networks';


# ---- many, while others come and go ----

my $socket = $nginx->connect;
for my $i (1 .. 3000) {
    $nginx->get(key_path('many', "k$i", '&rate=' . ($i + 1) . '/1h'), method => 'PUT',
        socket => $socket);
}
is api($nginx)->{zones}{many}{own_limits}, 3000, 'own limits, as the report counts them';

my ($after, %seen) = ('');
for (my $i = 1; ; $i++) {
    my $page = limits_page($nginx, 'many', "n=20$after");
    $seen{ $_->{key} }++ for @{ $page->{limits} };
    $after = '&after=' . ($page->{next} // last);
    api_key($nginx, 'many', $page->{limits}[-1]{key_uri}, 'PUT', '&rate=default');
    api_key($nginx, 'many', "other$i", 'PUT', '&rate=5');
    api_key($nginx, 'many', 'other' . ($i - 1), 'PUT', '&rate=default') if $i % 2;
}
is_deeply [ grep { ($seen{"k$_"} // 0) != 1 } 1 .. 3000 ], [],
    'those that stay come once each, though the last one of each page was removed';
is scalar(grep { $_ > 1 } values %seen), 0, '... and no other twice';

# The time of the worker's processor: that of the clock stands still. A busy machine only
# adds to the shortest.
my ($worker) = $nginx->workers;
my @times_ms;
for (1 .. 50) {
    my $before_us = cpu_us($worker);
    $nginx->get('/limits/zones/many/limits?n=100', socket => $socket);
    push @times_ms, (cpu_us($worker) - $before_us) / 1000;
}
note sprintf 'a page of 100: %.2f ms', min(@times_ms);
cmp_ok min(@times_ms), '>', 0, 'a page takes time';
SKIP: {
    skip 'code that is measured otherwise', 1 if $ENV{LIMIT_SLIDING_SLOW};
    cmp_ok min(@times_ms), '<', 1, '... but less than a millisecond';
}
close $socket;


# ---- a reload keeps them ----

my ($before) = listed('one', 5);
$nginx->reload;
my ($later) = listed('one', 5);
delete $_->{short} for $before, $later;
is_deeply $later, $before, 'after a reload';

is_deeply [ $nginx->new_errors ], [], 'nothing to complain of';
$nginx->finish;
