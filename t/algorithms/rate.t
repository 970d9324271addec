# Rates of a place, and rates that a variable yields: plans of API keys.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP');
    limit_sliding_zone $http_x_key zone=static:1m rate=4r/h;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
HTTP

# Returns "status, remaining of limit" of a request.
sub ask($path, @options) {
    my $r = $nginx->get($path, @options);
    return "$r->{status}, " . header($r, 'X-Remaining') . ' of '
        . header($r, 'X-Limit');
}

my $UNLIMITED = '200,  of ';


# a place has a rate of its own

$nginx->serve(server => <<'CONF');
    location /static { limit_sliding zone=static;             empty_gif; }
    location /place  { limit_sliding zone=static rate=2r/h;   empty_gif; }
    location /ten    { limit_sliding zone=static rate=10r/h;  empty_gif; }
    location /unit   { limit_sliding zone=static rate=130r/d; empty_gif; }
    location /bare   { limit_sliding zone=static rate=6;      empty_gif; }
    location /same   { limit_sliding zone=static rate=5/1h;   empty_gif; }
    location /other  { limit_sliding zone=static rate=3/30m;  empty_gif; }
CONF

is $nginx->statuses(5, '/static', key()), '200 200 200 200 429',
    'rate of the zone';
is $nginx->statuses(4, '/place', key()), '200 200 429 429', 'rate of a place';
is ask('/place', key()), '200, 1 of 2', 'which the variables show';
is ask('/unit', key()), '200, 4 of 5', 'its unit is not that of the zone';
is ask('/bare', key()), '200, 5 of 6', 'a bare number, in the window';

my @key = key();
is ask('/same', @key), '200, 4 of 5', "the zone's window: a rate of a place";
is ask('/static', @key), '200, 2 of 4', '... shares the state';
is ask('/other', @key), '200, 2 of 3', 'another window: a rate of a place';
is ask('/static', @key), '200, 1 of 4', '... has a state of its own';
is $nginx->statuses(3, '/other', @key), '200 200 429', '... and limits';
is $nginx->get('/other', @key)->{headers}{'retry-after'} > 1740, 1, '... in its window';
is_deeply [grep { !/limiting requests/ } $nginx->new_errors], [], 'nothing to complain of';

@key = key();
is ask('/static', @key), '200, 3 of 4', 'one state: at one place';
is ask('/ten', @key), '200, 8 of 10', 'one state: counted at another';
is ask('/ten', @key), '200, 7 of 10', 'one state: counted';
is ask('/place', @key), '429, 0 of 2', 'one state: over the limit here';
is ask('/static', @key), '200, 0 of 4', 'one state: one left there';
is ask('/static', @key), '429, 0 of 4', 'one state: none left there';
is ask('/ten', @key), '200, 5 of 10',
    'one state: what was rejected was counted nowhere';


# a variable, by a map

# Returns the directives of a section with places whose rates variables yield,
# where the plan `gold` has this rate.
sub plans($gold) {
    return (http => <<"HTTP", server => <<'SERVER');
    map \$http_x_api_key \$plan {
        default '';
        free    1r/h;
        silver  72r/d;
        bare    3;
        gold    $gold;
        staff   off;
        typo    banana;
    }

    limit_sliding_zone \$http_x_key zone=planned:1m rate=\$plan window=1h;
HTTP
    location /static  { limit_sliding zone=static;            empty_gif; }
    location /plan    { limit_sliding zone=static rate=$plan; empty_gif; }
    location /header  { limit_sliding zone=static rate=$http_x_rate;
                        empty_gif; }
    location /planned { limit_sliding zone=planned;           empty_gif; }

    location /planned-header {
        limit_sliding zone=planned rate=$http_x_rate;
        empty_gif;
    }

    location /planned-place {
        limit_sliding zone=planned rate=7r/h;
        empty_gif;
    }
SERVER
}

$nginx->serve(plans('5r/h'));

for my $case (
    [ free   => 1, 'a rate' ],
    [ silver => 3, 'a rate of another unit' ],
    [ gold   => 5, 'another rate' ],
    [ bare   => 3, 'a bare number' ],
) {
    my ($plan, $limit, $name) = @$case;
    for my $place (qw(plan planned)) {
        @key = key("X-API-Key: $plan");
        is ask("/$place", @key), '200, ' . ($limit - 1) . " of $limit",
            "$place: $name";
        is $nginx->statuses($limit, "/$place", @key),
            '200 ' x ($limit - 1) . '429', "$place: $name, it limits";
    }
}

is ask('/plan', key()), '200, 3 of 4', 'plan: empty, the rate of the zone';
is ask('/planned', key()), $UNLIMITED,
    'planned: empty where the zone has none, let through';
is ask('/planned-place', key()), '200, 6 of 7',
    'planned: a place has its own';
is ask('/planned-header', key('X-API-Key: gold')), '200, 4 of 5',
    'planned: empty at a place, the rate of the zone';
is ask('/planned-header', key('X-API-Key: gold', 'X-Rate: 9r/h')),
    '200, 8 of 9', 'planned: not empty at a place';
is_deeply [$nginx->new_errors], [], 'nothing to complain of';


# off

my %plans = plans('5r/h');
$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_zone \$http_x_other zone=other:1m rate=3r/h;
    $plans{http}
HTTP
    location /two {
        limit_sliding zone=static rate=\$http_x_rate;
        limit_sliding zone=other;
        empty_gif;
    }
    $plans{server}
SERVER

@key = key('X-API-Key: staff');
my @same_key = (headers => [ $key[1][0] ]);

is ask('/static', @key), '200, 3 of 4', 'off: counted elsewhere';
is join(' ', map { ask('/plan', @key) } 1 .. 3), join(' ', ($UNLIMITED) x 3),
    'off: not limited';
is header($nginx->get('/plan', @key), 'X-Status'), '', 'off: no status';
is ask('/planned', @key), $UNLIMITED, 'off: of the zone';
is ask('/static', @same_key), '200, 2 of 4', 'off: not counted';
is ask('/planned', headers => [ $key[1][0], 'X-API-Key: free' ]),
    '200, 0 of 1', 'off: not counted there either';

@key = key('X-Other: off', 'X-Rate: off');
is header($nginx->get('/two', @key), 'X-Zone'), 'other',
    'off: the other limit describes';
is $nginx->statuses(3, '/two', @key), '200 200 429', 'off: and it rejects';

$nginx->get('/static', @key) for 1 .. 4;
is $nginx->statuses(1, '/static', @key), '429', 'off: a key that is full';
is ask('/header', @key), $UNLIMITED, 'off: is let through';

is_deeply [$nginx->new_errors], [], 'nothing to complain of';


# what a client may send, and others than those forms

$nginx->serve(%plans);

is ask('/header', key('X-Rate: 3r/h')), '200, 2 of 3', 'header: r/h';
is ask('/header', key('X-Rate: 1r/m')), '200, 59 of 60', 'header: r/m';
is ask('/header', key('X-Rate: 1r/s')), '200, 3599 of 3600', 'header: r/s';
is ask('/header', key('X-Rate: 48r/d')), '200, 1 of 2', 'header: r/d';
is ask('/header', key('X-Rate: 47r/d')), '200, 0 of 1', 'header: floor';
is ask('/header', key('X-Rate: 8')), '200, 7 of 8', 'header: bare';
is ask('/header', key('X-Rate: 1000000000')),
    '200, 999999999 of 1000000000',
    'header: the largest';

# with a window, which is that of a history of its own
@key = key();
my @rated = map { [ headers => [ $key[1][0], "X-Rate: $_" ] ] } '3/1h', '3/10s',
    '1000000000/30d', '5/100ms', '4/1h30m', '6/90', '0';
is ask('/header', @{ $rated[0] }), '200, 2 of 3', 'window: that of the zone';
is ask('/static', @key), '200, 2 of 4', 'window: in its history';
is ask('/header', @{ $rated[1] }), '200, 2 of 3', 'window: another one';
is ask('/header', @{ $rated[2] }), '200, 999999999 of 1000000000', 'window: the longest';
is ask('/header', @{ $rated[3] }), '200, 4 of 5', 'window: the shortest';
is ask('/header', @{ $rated[4] }), '200, 3 of 4', 'window: of two units';
is ask('/header', @{ $rated[5] }), '200, 5 of 6', 'window: of none, seconds';
is ask('/static', @key), '200, 1 of 4', 'window: that of the zone is another one';
is ask('/header', @{ $rated[6] }), '429, 0 of 0', 'zero: rejected';
is ask('/static', @key), '200, 0 of 4', 'zero: nothing was used';
is ask('/planned-header', key('X-Rate: 3/1m')), '200, 2 of 3',
    'window: where the zone has no rate';
is ask('/planned-header', key('X-Rate: 0')), '429, 0 of 0', 'zero: there as well';
is_deeply [$nginx->new_errors], [], 'nothing to complain of';

my @malformed = (
    'banana', '0r/s', '-1r/m', '+1r/m', '10r/x', '10r/', '10r', 'r/s', '10/s',
    '10r/ss', '10R/H', '1.5r/s', '1e3r/s', '0x10r/s', '00', '-1', '10 r/s',
    'OFF', 'off;', 'offer', 'of', '10r/h 20r/h', '10r/h,20r/h', "10\tr/s",
    '1000000001', '300000r/s', '23r/d', '99999999999999999999999999r/s',
    '18446744073709551617r/s', '4294967297', '1' . '0' x 500, 'x' x 1500,
    '"', "'", '\\', '%n%s%d', "\xff\xfe", '$plan', '${plan}',
    '5r/h", client: 192.0.2.1',
    '0/1h', '-1/1h', '/1h', '5/', '5//1h', '5/1h/1h', '5/h', '5/0', '5/99ms',
    '5/31d', '5/1x', '5/1m1h', '5/1h 1m', '5/-1h', '5r/h/1h', '5r/1h', '1.5/1h',
    '1000000001/1h', '9999999999999999999/1h', '5/day', '5/month', '0/month',
    '5/' . '1' x 300, 'off/1h', '5/off', '5/Month',
);

for my $value (@malformed) {
    my $name = length $value > 40 ? substr($value, 0, 40) . '...'
        : $value =~ s/([^ -~])/sprintf '<%02x>', ord $1/ger;

    is ask('/header', key("X-Rate: $value")), '200, 3 of 4',
        "malformed: $name: the rate of the zone";
    my @errors = $nginx->new_errors;
    is @errors, 1, "malformed: $name: one line";

    # A tab, quote or byte may be escaped in one way or another, and long values
    # may be cut, but plain text can be read.
    my ($plain) = $value =~ /^([\w.+\/;,-]{1,40})/a;
    like $errors[0] // '', qr/\Q$plain\E.*, client: 127/,
        "malformed: $name: it says so" if defined $plain;
    unlike $errors[0] // '', qr/[^ -~]/, "malformed: $name: in plain ASCII";
}

ask('/header', key('X-Rate: ba"nana'));
my ($error) = $nginx->new_errors;
like $error // '', qr/ba\\(?:x22|")nana/, 'malformed: quotes are escaped';

ask('/header', key('X-Rate: ba\\x22nana'));
($error) = $nginx->new_errors;
like $error // '', qr/ba\\(?:x5[cC]|\\)x22nana/,
    'malformed: and so are backslashes';

@key = key('X-API-Key: typo');
is ask('/plan', @key), '200, 3 of 4', 'malformed in a map: as if empty';
is $nginx->statuses(4, '/plan', @key), '200 200 200 429',
    'malformed in a map: it limits';
is scalar $nginx->new_errors, 5, 'malformed in a map: a line each time';

is ask('/planned', key('X-API-Key: typo')), $UNLIMITED,
    'malformed where the zone has none: let through';
is scalar $nginx->new_errors, 1, 'malformed where the zone has none: logged';

is ask('/planned-header', key('X-API-Key: gold', 'X-Rate: banana')),
    '200, 4 of 5', 'malformed at a place: the rate of the zone';
is scalar $nginx->new_errors, 1, 'malformed at a place: logged';


# A URI with newlines forges no line of the log. finish() looks for such lines,
# as well.

$nginx->serve(server => <<'CONF');
    location /uri { limit_sliding zone=static rate=$uri; empty_gif; }
CONF

my $forged = '2026/01/01 00:00:00 [alert] 1#1: *1 forged';
my $path = "/uri%0a$forged%0d%0a$forged"
    =~ s/([ #])/sprintf '%%%02x', ord $1/ger;

is ask($path, key()), '200, 3 of 4', 'newlines: the rate of the zone';
my @errors = $nginx->new_errors;
is @errors, 1, 'newlines: one line';
like $errors[0] // '', qr{"?/uri\\(?:x0[aA]|n)2026/01/01 00:00:00 \[alert\]},
    'newlines: escaped';


# a reload

# Returns the directives of a section with the plans, and a place of this rate.
sub rates($place, $gold) {
    my %plans = plans($gold);
    return (%plans, server => <<"CONF");
    location /place { limit_sliding zone=static rate=$place; empty_gif; }
    $plans{server}
CONF
}
$nginx->serve(rates('2r/h', '5r/h'));

my @placed = key();
my @gold = key('X-API-Key: gold');
is ask('/place', @placed), '200, 1 of 2', 'before a reload: place';
is ask('/plan', @gold), '200, 4 of 5', 'before a reload: plan';
is ask('/planned', @gold), '200, 4 of 5', 'before a reload: plan of the zone';

$nginx->reload($nginx->template(rates('9r/h', '3r/h')));
is ask('/place', @placed), '200, 7 of 9', 'after a reload: place';
is ask('/plan', @gold), '200, 1 of 3', 'after a reload: plan';
is ask('/planned', @gold), '200, 1 of 3', 'after a reload: plan of the zone';

$nginx->reload($nginx->template(rates('2r/h', '5r/h'))
    =~ s/rate=\$plan window=1h/rate=8r\/h/r);
is ask('/planned', @gold), '200, 5 of 8',
    'after a reload: a static rate in place of a variable';

is scalar $nginx->log_lines(qr/\[notice\].*"planned"/), 0,
    'no zone started empty';

$nginx->finish;
