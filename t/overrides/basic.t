# Keys, and requests, with limits and windows of their own, in shared memory.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 2);

# Each admits its limit at once in an empty window.
my %ZONES = (
    counter => '', parts => 'precision=10', strict => 'strict',
    fixed   => 'algorithm=fixed', log => 'algorithm=log',
    tokens  => 'algorithm=token_bucket',
);
my @names = sort keys %ZONES;

my $places = join '', map { <<"PLACE" } @names, 'leaky';
    location /$_ { limit_sliding zone=$_; empty_gif; }
    location /rated/$_ { limit_sliding zone=$_ rate=\$arg_rate; empty_gif; }
PLACE

$nginx->common(http => join('', map { <<"ZONE" } @names) . <<'HTTP', server => <<"SERVER");
    limit_sliding_zone \$arg_key zone=$_:1m rate=4 window=1d $ZONES{$_};
ZONE
    limit_sliding_zone $arg_key zone=leaky:1m rate=4 window=1d algorithm=leaky_bucket;
    limit_sliding_zone $arg_key zone=beside:1m rate=1000 window=1d;
    limit_sliding_headers retry_after draft x;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
HTTP
    location /limits { limit_sliding_api write=on; }
    $places
SERVER

sub key($zone, $key, @more) { return api_key($nginx, $zone, $key, @more) }

# Asserts a state that a request leaves when it ends, which is after its response.
sub settles($zone, $key, $state, $name) {
    wait_for(sub { state_of(key($zone, $key)) eq $state }, 2);
    is state_of(key($zone, $key)), $state, $name;
}

sub put($zone, $key, $rate, $more = '') {
    my $json = key($zone, $key, 'PUT', "&rate=$rate$more");
    is $json->{http}, 200, "$zone: $key has $rate" or diag $json->{error};
    return $json;
}

# Returns how many of n requests pass.
sub passing($n, $path) {
    return scalar grep { $nginx->get($path)->{status} == 200 } 1 .. $n;
}

# Returns "limit w=window left" by a response's fields, and asserts that they agree.
sub told($r) {
    my ($q, $w) = header($r, 'RateLimit-Policy') =~ /;q=(\d+)(?:;w=(\d+))?$/;
    my ($left, $t) = header($r, 'RateLimit') =~ /;r=(\d+);t=(\d+)$/;
    my @x = map { header($r, "X-RateLimit-$_") } qw(Limit Remaining Reset);
    is_deeply \@x, [ $q, $left, $t ], '... in X-RateLimit fields, too';
    is_deeply [ map { header($r, "X-$_") } qw(Limit Remaining Reset) ], \@x,
        '... and in variables';
    return "$q w=" . ($w // '') . " $left";
}

$nginx->serve;


# ---- a window of its own, by a variable ----

for my $zone (@names) {
    my $own = "/rated/$zone?key=v&rate=3/1h";

    is passing(5, $own), 3, "$zone: a limit and a window by a variable";
    is state_of(key($zone, 'v')), '3 3 0', '... which the API shows, by the last request';
    is key($zone, 'v')->{window}, 3600, '... with its window';
    cmp_ok key($zone, 'v')->{reset}, '<=', 2 * 3600, '... which ends before that of the zone';
    is passing(1, "/rated/$zone?key=v&rate=7/2h"), 1, '... another window: another history';
    is state_of(key($zone, 'v')), '1 7 6', '... which is the one shown now';
    is passing(5, "/$zone?key=v"), 4, '... and so has that of the zone';
    is passing(1, "/rated/$zone?key=v&rate=5/1d"), 1,
        '... which is the same as one of that name';
    is passing(2, "/rated/$zone?key=v&rate=5/24h"), 0, '... whatever its name';
    is passing(2, "/rated/$zone?key=v&rate=5/1h"), 2, '... and the first one is kept';
    is passing(2, "/rated/$zone?key=v&rate=5/60m"), 0, '... by any name';

    my $r = $nginx->get("/rated/$zone?key=w&rate=3/10m");
    is told($r), '3 w=600 2', '... told';
    is told($nginx->get("/rated/$zone?key=w&rate=3/500ms")), '3 w= 2',
        '... a window below a second is not';
    $r = $nginx->get("/rated/$zone?key=w&rate=4/2d");
    is told($r), '4 w=172800 3', '... nor is the limit of the zone, of another window';
    $nginx->get("/rated/$zone?key=w&rate=3/10m") for 1 .. 2;
    $r = $nginx->get("/rated/$zone?key=w&rate=3/10m");
    is told($r), '3 w=600 0', '... rejected';
    cmp_ok header($r, 'Retry-After'), '<=', 2 * 600, '... until more fits into that window';
}

# A queue has room for one request here, which leaves at the rate.
is passing(1, '/rated/leaky?key=v&rate=4/1h'), 1, 'leaky: a window of its own';
is passing(1, '/leaky?key=v'), 1, '... and that of the zone';
my ($hour, $day) = map { header($nginx->get($_), 'Retry-After') }
    '/rated/leaky?key=v&rate=4/1h', '/leaky?key=v';
is join(' ', map { $_ > 0.9 } $hour / 900, $day / 21_600), '1 1', '... each is paced by its own';
cmp_ok $hour, '<=', 900, '... and not by the other';


# ---- by the API ----

for my $zone (@names) {
    my $path = "/$zone?key=a";

    is passing(1, $path), 1, "$zone: before it has a limit of its own";
    my $put = put($zone, 'a', '3/1h');
    is state_of($put), '0 3 3', '... a new history';
    ok $put->{own_limit}, '... its own';
    is $put->{window}, 3600, '... window, too';
    is $put->{ttl}, undef, '... for ever';
    is passing(5, $path), 3, '... in force';
    put($zone, 'p', '3/1h');
    is passing(9, "/rated/$zone?key=p&rate=100/5m"), 3, '... before that of a request';
    is state_of(key($zone, 'a')), '3 3 0', '... shown';

    is state_of(put($zone, 'a', '2/30m')), '0 2 2', '... another window';
    is passing(3, $path), 2, '... in force';
    is state_of(put($zone, 'a', '5/1h')), '3 5 2', '... back in the first one';
    is passing(3, $path), 2, '... no more than that allows';
    is state_of(key($zone, 'a', 'DELETE')), '0 5 5', '... forgotten';
    is passing(1, $path), 1, '... and anew';
    is state_of(key($zone, 'a', 'POST', '&cost=3')), '4 5 1', '... charged there';
    is passing(2, $path), 1, '... indeed';
    is state_of(key($zone, 'a', 'POST', '&cost=-2')), '3 5 2', '... given back there';
    is state_of(put($zone, 'a', 'default')), '0 4 4', '... which all windows were';

    put($zone, 'a', '0.5s' =~ s/0\.5s/6\/500ms/r);
    is key($zone, 'a')->{window}, 0.5, '... a window below a second';
    put($zone, 'a', 'default');
    is key($zone, 'a')->{window}, 86400, '... none of its own';
}


# ---- "0" ----

my %blocked = (server => <<'CONF');
    location /cost    { limit_sliding zone=counter cost=$arg_cost; empty_gif; }
    location /settle  { limit_sliding zone=counter settle=$arg_settle; empty_gif; }
    location /free    { limit_sliding zone=counter cost=0 settle=$arg_settle; empty_gif; }
    location /status  { limit_sliding zone=counter count_status=200; empty_gif; }
    location /dry     { limit_sliding zone=counter dry_run; empty_gif; }
    location /two     { limit_sliding zone=counter; limit_sliding zone=beside; empty_gif; }
    location /two-dry { limit_sliding zone=counter dry_run; limit_sliding zone=beside; empty_gif; }
    location /off     { limit_sliding zone=counter; limit_sliding_headers off; empty_gif; }
    location /code    { limit_sliding zone=counter; limit_sliding_status 503; empty_gif; }
    location /variable-two {
        limit_sliding zone=counter rate=$arg_rate;
        limit_sliding zone=beside;
        empty_gif;
    }
    location /variable-cost {
        limit_sliding zone=counter rate=$arg_rate cost=$arg_cost;
        empty_gif;
    }
CONF
$nginx->serve(%blocked);

# Returns the excess and the zone of the lines about limiting since the last call.
sub lines() {
    return join ', ', map {
        /limiting requests(, dry run)?, excess: (\d+\.\d{3}) by zone "(\w+)", client: /
            ? "$2 $3" . ($1 // '') : $_
    } $nginx->new_log_lines(qr/limiting requests/);
}

sub counts($zone) {
    return join ' ', map { api($nginx)->{zones}{$zone}{$_} }
        qw(passed rejected rejected_dry_run errors);
}

for my $zone (@names, 'leaky') {
    for my $case (
        [ "/$zone?key=b",              'of the key' ],
        [ "/rated/$zone?key=c&rate=0", 'of a request' ],
    ) {
        my ($path, $name) = @$case;
        put($zone, 'b', 0) if $name eq 'of the key';
        lines();
        my $r = $nginx->get($path);
        is $r->{status}, 429, "$zone: 0 $name";
        is header($r, 'X-Status'), 'REJECTED', '... rejected';
        is header($r, 'X-Zone'), $zone, '... by the zone';
        is lines(), "1.000 $zone", '... with the words of limit_req';
        is header($r, 'Retry-After'), '', '... for ever';
        is told($r), '0 w=86400 0', '... as is told';
    }

    my $json = key($zone, 'b');
    is_deeply [ @$json{qw(own_limit limit remaining used reset)} ],
        [ JSON::PP::true(), 0, 0, undef, undef ], "$zone: 0, by the API";
    is_deeply [ @{ key($zone, 'c') }{qw(own_limit limit remaining used reset)} ],
        [ JSON::PP::false(), 0, 0, undef, undef ], '... of the last request';
    my $posted = key($zone, 'b', 'POST', '&cost=1');
    is "$posted->{http} $posted->{error}", '409 the key is blocked', '... cannot be charged';
    is put($zone, 'b', 'default')->{used}, 0, '... nothing was used';
}

put('counter', 'd', 0);
my @before = (counts('counter'), counts('beside'));
lines();
is $nginx->get("/cost?key=d&cost=3")->{status}, 429, 'cost=3';
is lines(), '3.000 counter', '... in the log';
is $nginx->get("/cost?key=d&cost=0")->{status}, 429, 'cost=0';
is lines(), '0.000 counter', '... in the log';
is $nginx->get('/settle?key=d&settle=3')->{status}, 429, 'settle';
is $nginx->get('/free?key=d&settle=3')->{status}, 429, 'cost=0 settle';
is $nginx->get('/status?key=d')->{status}, 429, 'count_status';
is $nginx->get('/code?key=d')->{status}, 503, 'limit_sliding_status';
is $nginx->get('/off?key=d')->{status}, 429, 'limit_sliding_headers off';
lines();
my $r = $nginx->get('/dry?key=d');
is "$r->{status} " . header($r, 'X-Status'), '200 REJECTED_DRY_RUN', 'dry_run';
is lines(), '1.000 counter, dry run', '... in the log';
is header($r, 'X-RateLimit-Limit'), '', '... not told';

$r = $nginx->get('/two?key=d');
is "$r->{status} " . header($r, 'X-Zone'), '429 counter', 'two limits: the one that blocks';
is header($r, 'RateLimit'), '"counter";r=0;t=0, "beside";r=1000;t=0', '... both are told';
is header($r, 'RateLimit-Policy'), '"counter";q=0;w=86400, "beside";q=1000;w=86400', '... as well';
is header($r, 'Retry-After'), '', '... without a time';
is state_of(key('beside', 'd')), '0 1000 1000', '... all or nothing';
$r = $nginx->get('/variable-two?key=e&rate=0');
is "$r->{status} " . header($r, 'X-Zone'), '429 counter', '... by a variable';
is state_of(key('beside', 'e')), '0 1000 1000', '... all or nothing';
is $nginx->get('/two-dry?key=d')->{status}, 200, '... in dry run beside another';
is state_of(key('beside', 'd')), '1 1000 999', '... which consumes';
lines();
is $nginx->get('/variable-cost?key=e&rate=0&cost=5')->{status}, 429, 'by a variable, with a cost';
is lines(), '5.000 counter', '... in the log';
is $nginx->get('/variable-two?key=d&rate=9')->{status}, 429, 'of a key, before a rate of a request';

my $counter = api($nginx)->{zones}{counter};
my ($passed, $rejected) = split / /, $before[0];
is $counter->{passed}, $passed, 'nothing has passed';
is $counter->{rejected}, $rejected + 11, '... all were counted';
is_deeply [ grep { $_->{key} eq 'd' } @{ $counter->{top} } ],
    [ { key => 'd', key_uri => 'd', truncated => JSON::PP::false(), rejected => 11 } ],
    '... among the offenders, once';
is put('counter', 'd', 'default')->{used}, 0, '... and consumed nothing';
is $nginx->statuses(5, '/counter?key=d'), '200 200 200 200 429', '... of that of the zone';
is_deeply [ $nginx->new_errors ], [], 'nothing to complain of';


# ---- windows of their own with what else a limit has ----

my %more = (server => <<'CONF');
    location /settle { limit_sliding zone=counter settle=$arg_settle; empty_gif; }
    location /settle-log { limit_sliding zone=log settle=$arg_settle; empty_gif; }
    location /three { limit_sliding zone=counter cost=3 settle=$arg_settle; empty_gif; }
    location /status { limit_sliding zone=counter count_status=200; empty_gif; }
    location /two   { limit_sliding zone=counter; limit_sliding zone=beside; empty_gif; }
    location /dry   { limit_sliding zone=counter dry_run; empty_gif; }
CONF
$nginx->serve(%more);

# A rate of the zone's number, in another window, is not taken for the zone's.
put('counter', 's', '4/1h');
$nginx->get('/settle?key=s&settle=3');
settles('counter', 's', '3 4 1', 'settle: charged in the own window');
$nginx->get('/three?key=s&settle=1');
is state_of(key('counter', 's')), '3 4 1', '... after it was rejected: not';
put('counter', 's', '9/1h');
$nginx->get('/three?key=s&settle=1');
settles('counter', 's', '4 9 5', '... and given back there');
$nginx->get('/settle?key=s&settle=20');
settles('counter', 's', '24 9 0', '... owes there');
is $nginx->get('/settle?key=s&settle=0')->{status}, 429, '... which is in force';
is state_of(put('counter', 's', 'default')), '0 4 4', '... nothing is in that of the zone';
put('log', 's', '4/1h');
$nginx->get('/settle-log?key=s&settle=3');
settles('log', 's', '3 4 1', 'settle: a log');
is state_of(put('log', 's', 'default')), '0 4 4', '... and that of the zone';

put('counter', 't', '2/1h');
for my $used (1 .. 2) {
    is $nginx->get('/status?key=t')->{status}, 200, 'count_status';
    settles('counter', 't', "$used 2 " . (2 - $used), '... counted in the own window');
}
is $nginx->get('/status?key=t')->{status}, 429, '... which is used up';
is state_of(put('counter', 't', 'default')), '0 4 4', '... alone';
put('counter', 't', '1/1h');
is $nginx->statuses(2, '/two?key=t'), '429 429', 'two limits: one is used up';
is state_of(key('beside', 't')), '0 1000 1000', '... all or nothing';
put('beside', 't', '7/1h');
put('counter', 't', '9/2h');
$r = $nginx->get('/two?key=t');
is header($r, 'RateLimit-Policy'), '"counter";q=9;w=7200, "beside";q=7;w=3600',
    '... each with its window';
put('counter', 'u', '1/1h');
$nginx->get('/dry?key=u');
is header($nginx->get('/dry?key=u'), 'X-Status'), 'REJECTED_DRY_RUN', 'dry_run';

# A key that is rejected in several windows is one offender.
put('counter', 'w', '1/1h');
$nginx->get('/counter?key=w') for 1 .. 3;
put('counter', 'w', '1/2h');
$nginx->get('/counter?key=w') for 1 .. 3;
is_deeply [ map { $_->{rejected} } grep { $_->{key} eq 'w' }
    @{ api($nginx)->{zones}{counter}{top} } ], [4], 'an offender of two windows';


# ---- "off", ends, and what is reported ----

my $off = put('counter', 'o', 'off');
is $off->{own_limit}, 'off', 'off';
is passing(9, '/counter?key=o'), 9, '... is not limited';
is header($nginx->get('/counter?key=o'), 'X-Status'), '', '... nor accounted';
is state_of(put('counter', 'o', 'default')), '0 4 4', '... nor counted';

is api($nginx)->{zones}{fixed}{own_limits}, 0, 'no own limits';
put('fixed', "n$_", 7) for 1 .. 3;
put('fixed', 'n3', 'default');
is api($nginx)->{zones}{fixed}{own_limits}, 2, 'own limits are counted';
like $nginx->get('/limits/metrics')->{body},
    qr/^limit_sliding_own_limits\{zone="fixed"\} 2$/m, '... in metrics, too';

my $short = put('counter', 'x', '9/1h', '&ttl=2s');
like $short->{ttl}, qr/^[12]$/, 'a limit that ends by itself';
is $short->{limit}, 9, '... in force';
is key('counter', 'x')->{limit}, 9, '... still';
sub is_listed($key) {
    my ($limits) = all_limits($nginx, 'counter');
    return scalar grep { $_->{key} eq $key } @$limits;
}
is is_listed('x'), 1, '... and listed';
ok wait_for(sub { key('counter', 'x')->{limit} == 4 }), '... no longer';
is is_listed('x'), 0, '... nor listed from then on';
is key('counter', 'x')->{own_limit}, JSON::PP::false(), '... none';
is header($nginx->get('/counter?key=x'), 'X-Limit'), 4, '... nor for requests';
is put('counter', 'x', 0, '&ttl=1d')->{ttl}, 86400, 'one that ends tomorrow';
is put('counter', 'x', 6)->{ttl}, undef, '... replaced by one for ever';
is put('counter', 'x', 6, '&ttl=90')->{ttl}, 90, '... and that by one for seconds';
put('counter', 'x', 'default');


# ---- changed under load ----

# Every response says of which window it is. Those of a window are as many as it
# allows, however often it was left and came back.
my %load = (server => <<'CONF');
    location /load/counter { limit_sliding zone=counter; empty_gif; }
    location /load/log     { limit_sliding zone=log; empty_gif; }
    location /load/tokens  { limit_sliding zone=tokens; empty_gif; }
    location /load/parts   { limit_sliding zone=parts; empty_gif; }
CONF
$nginx->serve(%load);

for my $zone (qw(counter log parts tokens)) {
    my %limits = (3600 => 500, 7200 => 300);
    my $changes = 0;
    my $change = sub {
        my $window = $changes++ % 2 ? 7200 : 3600;
        api_key($nginx, $zone, 'load', 'PUT', "&rate=$limits{$window}/${window}s");
    };
    my %passed;

    $change->();
    $nginx->load(requests => [ ("/load/$zone?key=load") x 20_000 ], connections => 32,
        at => { map { $_ * 100 => $change } 1 .. 190 },
        each => sub ($i, $status, $head) {
            my ($window) = $head =~ /^RateLimit-Policy: .*;w=(\d+)\r?$/m;
            $passed{ $window // 'none' }++ if $status == 200;
        });
    is_deeply \%passed, \%limits, "$zone: each window admits what it allows";
}

is_deeply [ $nginx->new_errors ], [], 'nothing to complain of';
$nginx->finish;
