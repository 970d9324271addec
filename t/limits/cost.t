# What a request costs: a number, a variable, nothing, too much.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=ten:1m rate=10 window=30d precision=1;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
HTTP
    location /one    { limit_sliding zone=ten;        empty_gif; }
    location /three  { limit_sliding zone=ten cost=3; empty_gif; }
    location /look   { limit_sliding zone=ten cost=0; empty_gif; }
    location /header { limit_sliding zone=ten cost=$http_x_cost; empty_gif; }
SERVER

# Returns the options of a request with the same key and other headers.
sub again($key, @headers) {
    return (headers => [ $key->[0], @headers ]);
}

# Returns "status, remaining" of a request.
sub ask($path, @options) {
    my $r = $nginx->get($path, @options);
    return "$r->{status}, " . header($r, 'X-Remaining');
}


# a number

my $ALL = 'location /ten { limit_sliding zone=ten cost=10; empty_gif; }';
$nginx->serve(server => $ALL);

my @key = key();
is ask('/three', @key), '200, 7', 'cost 3';
is ask('/three', @key), '200, 4', 'cost 3 again';
is ask('/three', @key), '200, 1', 'and again';
is ask('/three', @key), '429, 1', 'one left is not enough';
is ask('/one', @key), '200, 0', 'but is for a cost of 1';
is ask('/one', @key), '429, 0', 'nothing left';

@key = key();
is ask('/ten', @key), '200, 0', 'all at once';
is ask('/one', @key), '429, 0', 'nothing left after that';

@key = key();
is ask('/one', @key), '200, 9', 'one used';
my $r = $nginx->get('/ten', @key);
is $r->{status}, 429, 'all is too much then';
like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'for a time';
like join(' ', $nginx->log_lines(qr/excess/)),
    qr/excess: 1\.000 by zone "ten", client: .* "GET \/ten /,
    'the excess counts by cost';

# What costs more waits longer: n requests of one window count n x (1 - t) when
# t of the next has passed, so a cost of c fits in from t = 1 - (10 - c)/n on.
@key = key();
is ask('/header', again($key[1], 'X-Cost: 10')), '200, 0',
    'all used at once';
my @wait = map {
    header($nginx->get('/header', again($key[1], "X-Cost: $_")), 'Retry-After')
} 1, 5, 10;
my $month = 30 * 86400;
cmp_ok abs($wait[1] - $wait[0] - 0.4 * $month), '<=', 3,
    'a cost of 5 waits for four more than a cost of 1';
cmp_ok abs($wait[2] - $wait[0] - 0.9 * $month), '<=', 3,
    'and a cost of 10 for nine more';


# nothing: to look

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=other:1m rate=10 window=30d;
HTTP
    location /look-and-take {
        limit_sliding zone=ten cost=0;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

@key = key();
$r = $nginx->get('/look', @key);
is $r->{status}, 200, 'cost 0: passes';
is header($r, 'X-Status'), 'PASSED', 'cost 0: status';
is header($r, 'X-Remaining'), '10', 'cost 0: all remains';
is header($r, 'X-Reset'), '0', 'cost 0: nothing was used';
is $nginx->statuses(20, '/look', @key), join(' ', (200) x 20),
    'cost 0: many times';
is ask('/one', @key), '200, 9', 'cost 0: took nothing';
is ask('/look', @key), '200, 9', 'cost 0: sees what was taken';

$nginx->get('/three', @key) for 1 .. 3;
is ask('/look', @key), '200, 0', 'cost 0: passes when nothing remains';
cmp_ok header($nginx->get('/look', @key), 'X-Reset'), '>=', 86400,
    'cost 0: tells until when';

@key = key();
is ask('/look-and-take', @key), '200, 9', 'cost 0 beside another limit';
is $nginx->statuses(10, '/look-and-take', @key), '200 ' x 9 . '429',
    'which rejects';
is ask('/one', @key), '200, 9', 'cost 0: nothing was taken beside it';


# a variable

my %rates = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=largest:1m rate=1000000000 window=30d;

    map $http_x_plan $rate {
        small 3;
        none  off;
    }
HTTP
    location /largest { limit_sliding zone=largest cost=$http_x_cost;
                        empty_gif; }

    location /rate {
        limit_sliding zone=ten rate=$rate cost=$http_x_cost;
        empty_gif;
    }
SERVER

$nginx->serve(%rates);

@key = key();
for my $case ([ 4, '200, 6' ], [ 0, '200, 6' ], [ 7, '429, 6' ],
    [ 6, '200, 0' ], [ 1, '429, 0' ], [ 0, '200, 0' ], [ '007', '429, 0' ])
{
    my ($cost, $expected) = @$case;
    is ask('/header', again($key[1], "X-Cost: $cost")), $expected,
        "variable: $cost";
}

is ask('/header', key()), '200, 9', 'variable: empty costs 1';
is ask('/rate', key('X-Plan: small', 'X-Cost: 2')), '200, 1',
    'beside a variable rate';
is ask('/rate', key('X-Plan: none', 'X-Cost: 2')), '200, ',
    'beside a rate that is off';
is ask('/largest', key('X-Cost: 1000000000')), '200, 0', 'the largest cost';
is ask('/header', headers => [ 'X-Cost: 5' ]), '200, ', 'no key, no cost';


# more than the limit: never, so there is no use in trying again

my %both = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=other:1m rate=10 window=30d;
HTTP
    location /other { limit_sliding zone=other cost=0; empty_gif; }

    location /both {
        limit_sliding zone=ten cost=4;
        limit_sliding zone=other cost=$http_x_cost;
        empty_gif;
    }
SERVER

$nginx->serve(http => $rates{http} . $both{http}, server => <<"CONF");
    location /eleven { limit_sliding zone=ten cost=11; empty_gif; }
    location /vast { limit_sliding zone=largest cost=7116799412; empty_gif; }
    $ALL
    $rates{server}
    $both{server}
CONF

for my $case (
    [ '/eleven' ],
    [ '/header', 'X-Cost: 11' ],
    [ '/header', 'X-Cost: 4194303' ],
    [ '/header', 'X-Cost: 1000000000' ],
    [ '/header', 'X-Cost: 4294967296' ],
    [ '/largest', 'X-Cost: 4294967297' ],
    [ '/largest', 'X-Cost: 7116799412' ],           # x window is 2^64 and some
    [ '/largest', 'X-Cost: 9223372036854775807' ],
    [ '/vast' ],
    [ '/largest', 'X-Cost: 1000000001' ],
    [ '/rate', 'X-Cost: 4', 'X-Plan: small' ],
) {
    my ($path, @headers) = @$case;
    my $name = "above the limit: @headers";

    @key = key(@headers);
    $r = $nginx->get($path, @key);
    is $r->{status}, 429, "$path, $name";
    is header($r, 'X-Status'), 'REJECTED', "$path, $name: status";
    ok !exists $r->{headers}{'retry-after'}, "$path, $name: no Retry-After";
    is ask('/look', again($key[1])), '200, 10', "$path, $name: nothing taken";
}

@key = key('X-Cost: 11');
$r = $nginx->get('/both', @key);
is $r->{status}, 429, 'above the limit of one of two';
is header($r, 'X-Zone'), 'other', 'which describes';
ok !exists $r->{headers}{'retry-after'}, '... without Retry-After';
is ask('/look', again($key[1])), '200, 10', '... and takes nothing';

$nginx->get('/ten', again($key[1]));
$r = $nginx->get('/both', @key);
is $r->{status}, 429, 'above one limit, over the other';
ok !exists $r->{headers}{'retry-after'}, '... without Retry-After';

is_deeply [$nginx->new_errors], [], 'nothing to complain of';


# two limits, two costs: all or nothing

$nginx->serve(%both);

@key = key('X-Cost: 6');
is ask('/both', @key), '200, 4', 'two costs: the tighter describes';
is ask('/both', @key), '429, 4', 'two costs: one rejects';
is ask('/look', again($key[1])), '200, 6', 'two costs: the first took once';
is ask('/other', again($key[1])), '200, 4', 'two costs: so did the second';
is ask('/both', again($key[1], 'X-Cost: 4')), '200, 0', 'two costs: both fit';
is ask('/look', again($key[1])), '200, 2', 'two costs: took from the first';


# bad values count as 1

$nginx->serve(server => <<'CONF');
    location /uri { limit_sliding zone=ten cost=$uri; empty_gif; }
CONF

my @bad = (
    '-1', '-0', '+1', 'abc', '1x', 'x1', '1.5', '1e3', '0x1', '10^30', '1 2',
    "1\t2", '1' . '0' x 30, '99999999999999999999', '18446744073709551617',
    '1' . '0' x 500, '9' x 1500, '$http_x_key', '"', '\\', "\xff", '%s%n',
    '-' . '9' x 40, '2, 3', '5", client: 192.0.2.1',
);

for my $value (@bad) {
    my $name = length $value > 40 ? substr($value, 0, 40) . '...'
        : $value =~ s/([^ -~])/sprintf '<%02x>', ord $1/ger;

    is ask('/header', key("X-Cost: $value")), '200, 9', "bad: $name: counts 1";
    my @errors = $nginx->new_errors;
    is @errors, 1, "bad: $name: one line";

    my ($plain) = $value =~ /^([\w.+^,-]{1,20})/a;
    like $errors[0] // '', qr/\Q$plain\E.*, client: 127/,
        "bad: $name: it says so" if defined $plain;
    unlike $errors[0] // '', qr/[^ -~]/, "bad: $name: in plain ASCII";
}

ask('/header', key('X-Cost: ba"nana'));
my ($error) = $nginx->new_errors;
like $error // '', qr/ba\\(?:x22|")nana/, 'bad: quotes are escaped';

my $forged = '2026/01/01 00:00:00 [alert] 1#1: *1 forged';
my $path = "/uri%0a$forged" =~ s/([ #])/sprintf '%%%02x', ord $1/ger;

is ask($path, key()), '200, 9', 'newlines: counts 1';
my @errors = $nginx->new_errors;
is @errors, 1, 'newlines: one line';
like $errors[0] // '', qr{"?/uri\\(?:x0[aA]|n)2026/01/01 00:00:00 \[alert\]},
    'newlines: escaped';

@key = key('X-Cost: banana');
is $nginx->statuses(11, '/header', @key), '200 ' x 10 . '429',
    'bad: limited as with a cost of 1';


# What only a response has is not known when the cost is taken.

sub warnings($cost, $more = '') {
    my ($exit, $output) = $nginx->test_config(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$uri zone=ten:1m rate=10 window=30d;
    map \$http_x_cost \$status_of_plan { default 2; }
    map \$http_x_cost \$my_bytes_sent { default 2; }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=ten "cost=$cost" $more; }
    }
}
CONF
    is $exit, 0, "cost=$cost: is no error" or diag $output;
    return grep { /\[warn\]/ } split /\n/, $output;
}

for my $case (
    (map { [ "\$$_", $_ ] } qw(bytes_sent body_bytes_sent status request_time
        upstream_response_length upstream_http_x_cost upstream_status
        sent_http_x_cost sent_http_content_length sent_trailer_cost
        request_completion limit_sliding_usage Bytes_Sent)),
    [ '${bytes_sent}', 'bytes_sent' ],
    [ '1${status}', 'status' ],
    [ '$http_x_cost$status', 'status' ],
    [ '${http_x_cost}0${upstream_http_x}', 'upstream_http_x' ],
) {
    my ($cost, $name) = @$case;
    my @warnings = warnings($cost);

    is @warnings, 1, "$cost: one warning";
    like $warnings[0] // '', qr/"\$$name" in "cost=\Q$cost\E" .* "settle=" /,
        '... which names the variable and what it is for';
    like $warnings[0] // '', qr/in \S+test\.conf:\d+$/, '... and the line';
}

is scalar warnings('$bytes_sent', 'count_status=4xx'), 1,
    'with count_status: the cost is that of the way in, too';
is scalar warnings('$status$bytes_sent'), 2, 'two of them';

is_deeply [ warnings($_) ], [], "$_: no warning"
    for '$http_x_cost', '$request_length', '$status_of_plan', '$my_bytes_sent',
        '$http_status', '$arg_bytes_sent', '${http_x_cost}00', '1';

$nginx->finish;
