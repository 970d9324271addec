# Keys that are banned, as they were rejected often.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 2);

# Each has a limit of 2, and never has room again in this test.
my %ZONES = (
    counter => '', parts => 'precision=10', log => 'algorithm=log',
    fixed   => 'algorithm=fixed', tokens => 'algorithm=token_bucket',
    leaky   => 'algorithm=leaky_bucket burst=1',
);
my @names = sort keys %ZONES;
my $PENALTY = 'penalty=2s penalty_after=20 penalty_max=4s';

$nginx->common(http => join('', map { <<"ZONE" } @names) . <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=$_:1m rate=2 window=1d $ZONES{$_} $PENALTY;
ZONE
    limit_sliding_zone \$arg_key zone=free:1m rate=1000 window=1d;
    limit_sliding_headers retry_after draft x;

    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Zone      \$limit_sliding_zone      always;
    add_header X-Remaining \$limit_sliding_remaining always;
HTTP
    location /limits { limit_sliding_api write=on; }
SERVER

sub ban($zone, $key) { return api_key($nginx, $zone, $key)->{ban} }

sub lift($zone, $key) { return api_key($nginx, $zone, $key, 'DELETE', '&what=ban') }

# Returns "status verdict zone" of a request.
sub ask($path, @options) {
    my $r = $nginx->get($path, @options);
    return join ' ', $r->{status}, map { header($r, "X-$_") } qw(Status Zone);
}

# Sends n requests that are to be rejected.
sub rejected($n, $path, @options) {
    is $nginx->statuses($n, $path, @options), join(' ', (429) x $n), "$path: rejected $n times";
}


# one limit: banned after 20 rejections, and doubled

$nginx->serve(server => join '', map { <<"PLACE" } @names);
    location /$_ { limit_sliding zone=$_; empty_gif; }
    location /$_/look { limit_sliding zone=$_ cost=0; empty_gif; }
PLACE

for my $zone (@names) {
    my $path = "/$zone?key=a";
    api_key($nginx, $zone, 'a', 'POST', '&cost=2');

    rejected(19, $path);
    is ban($zone, 'a'), undef, "$zone: no ban yet";
    is ask("/$zone/look?key=a"), "200 PASSED $zone", "$zone: nothing but its limit holds";

    my $r = $nginx->get($path);
    is $r->{status}, 429, "$zone: rejected 20 times";
    is header($r, 'Retry-After'), 2, "$zone: banned by that request";
    is header($r, 'X-RateLimit-Remaining'), 0, "$zone: nothing remains";
    like header($r, 'RateLimit'), qr/^"$zone";r=0;t=2$/, "$zone: the draft's fields";

    my $ban = ban($zone, 'a');
    is $ban->{left_ms}, 2000, "$zone: the API tells what is left";
    is $ban->{left}, 2, "$zone: ... also in seconds";
    is $ban->{doublings}, 0, "$zone: ... and that it is the first one";
    is ask("/$zone/look?key=a"), "429 REJECTED $zone", "$zone: a look is rejected, too";
    is ask("/$zone?key=b"), "200 PASSED $zone",
        "$zone: another key";
}


# What is left of the limit does not matter, and nothing is counted.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=costly:1m rate=10 window=1d penalty=2s penalty_after=20
        penalty_max=4s;
HTTP
    location /costly { limit_sliding zone=costly cost=$arg_cost; empty_gif; }
SERVER

sub used($zone, $key) { return api_key($nginx, $zone, $key)->{used} }

my $path = '/costly?key=a';
rejected(20, "$path&cost=11");
rejected(30, $path);
is used('costly', 'a'), 0, 'a banned request counts nothing';
sleep 1.999;
is $nginx->get($path)->{status}, 429, 'it does not end before 2 s';
sleep 0.001;
is $nginx->get($path)->{status}, 200, '... but then';

rejected(19, "$path&cost=11");
is ask($path), '200 PASSED costly', 'counted anew';
rejected(1, "$path&cost=11");
is ban('costly', 'a')->{doublings}, 1, 'banned again: doubled';
is header($nginx->get($path), 'Retry-After'), 4, '... to 4 s';
sleep 3.999;
is $nginx->get($path)->{status}, 429, 'it does not end before 4 s';
sleep 0.001;
is $nginx->get($path)->{status}, 200, '... but then';

rejected(20, "$path&cost=11");
is header($nginx->get($path), 'Retry-After'), 4, 'no longer than penalty_max';
is ban('costly', 'a')->{doublings}, 1, '... and not doubled again';

sleep 8;                  # penalty_max after that
is $nginx->get($path)->{status}, 200, 'it is over';
rejected(20, "$path&cost=11");
is header($nginx->get($path), 'Retry-After'), 2, 'it is forgotten';
is ban('costly', 'a')->{doublings}, 0, '... and is the first one again';


# lifted, and forgotten

is lift('costly', 'a')->{ban}, undef, 'the ban is lifted';
is ask($path), '200 PASSED costly', '... at once';
rejected(19, "$path&cost=11");
is ban('costly', 'a'), undef, '... with what was counted';
rejected(1, "$path&cost=11");
api_key($nginx, 'costly', 'a', 'DELETE');
is used('costly', 'a'), 0, 'a key that is forgotten';
is ban('costly', 'a')->{doublings}, 0, '... stays banned';

my $json = api_key($nginx, 'costly', 'a', 'DELETE', '&what=bun');
is $json->{http}, 400, 'nothing else can be lifted';
is $json->{error}, '"what" must be "ban", not "bun"', '... it says';
is api_key($nginx, 'free', 'a', 'DELETE', '&what=ban')->{error},
    '"what" must not be "ban", as the zone has no "penalty="', 'nor where there are none';
is api_key($nginx, 'free', 'a')->{ban}, undef, '... where no key has one';

# Whom the operator blocks or lets pass.
api_key($nginx, 'costly', 'a', 'PUT', '&rate=off');
is ask($path), '200  ', 'off: not limited, nor banned';
api_key($nginx, 'costly', 'a', 'PUT', '&rate=100/1h');
is ask($path), '429 REJECTED costly', 'an own limit does not end a ban';
is header($nginx->get($path), 'X-RateLimit-Limit'), 100, '... and is told';
api_key($nginx, 'costly', 'blocked', 'PUT', '&rate=0');
rejected(30, '/costly?key=blocked');
is ban('costly', 'blocked'), undef, 'a blocked key is not banned';


# the report

my $zone = api($nginx)->{zones}{costly};
is_deeply $zone->{penalty}, { time_ms => 2000, after => 20, max_ms => 4000 }, 'the settings';
is $zone->{bans}, 5, 'bans begun';
is $zone->{banned}, 1, 'banned now';
cmp_ok $zone->{banned_requests}, '>', 30, 'requests rejected by a ban';
is api($nginx)->{zones}{free}{penalty}, undef, 'no settings where there are none';
my $metrics = $nginx->get('/limits/metrics')->{body};
like $metrics, qr/^limit_sliding_bans_total\{zone="costly"\} 5$/m, 'metrics: bans';
like $metrics, qr/^limit_sliding_banned\{zone="costly"\} 1$/m, 'metrics: banned';
like $metrics, qr/^limit_sliding_banned_requests_total\{zone="costly"\} \d\d+$/m,
    'metrics: requests';
unlike $metrics, qr/banned\{zone="free"\}/, 'metrics: none of zones without';


# the log

my $LINE = qr/limiting requests(?:, dry run)?, (?:banned|excess)/;
$nginx->new_log_lines($LINE);
sub lines() {
    return map { s/.*?(limiting requests.*?"\w+").*/$1/r } $nginx->new_log_lines($LINE);
}

lift('costly', 'a');
$nginx->get("$path&cost=101") for 1 .. 19;
is_deeply [ lines() ], [ ('limiting requests, excess: 1.000 by zone "costly"') x 19 ],
    'the log: rejections';
$nginx->get("$path&cost=101");
is_deeply [ lines() ], [ 'limiting requests, excess: 1.000 by zone "costly"',
    'limiting requests, banned for 2s by zone "costly"' ], 'the log: a ban begins';
$nginx->get($path);
is_deeply [ lines() ], [ 'limiting requests, excess: 1.000 by zone "costly"',
    'limiting requests, banned for 2s by zone "costly"' ], 'the log: a banned request';


# dry run, several limits, after_auth, count_status, settle

my $ONCE = 'penalty=1h';
$nginx->write_file('htpasswd', "joe:{PLAIN}joe\n");
$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=one:1m rate=1 window=1d $ONCE;
    limit_sliding_zone \$arg_key zone=two:1m rate=100 window=1d penalty=2h;
    limit_sliding_zone \$arg_key zone=settled:1m rate=5 window=1d $ONCE;
    limit_sliding_zone \$arg_key zone=counted:1m rate=1 window=1d $ONCE;
    limit_sliding_zone \$arg_key zone=rated:1m rate=\$arg_rate window=1d $ONCE;
HTTP
    location /one   { limit_sliding zone=one; empty_gif; }
    location /dry   { limit_sliding zone=one dry_run; empty_gif; }
    location /dry/all { limit_sliding_dry_run on; limit_sliding zone=two cost=$arg_cost;
        empty_gif; }
    location /both  { limit_sliding zone=free; limit_sliding zone=one; empty_gif; }
    location /bans  { limit_sliding zone=one; limit_sliding zone=two cost=$arg_cost; empty_gif; }
    location /beside { limit_sliding zone=one dry_run; limit_sliding zone=free; empty_gif; }
    location /two   { limit_sliding zone=two cost=$arg_cost; empty_gif; }
    location /auth  {
        auth_basic off;
        limit_sliding zone=one after_auth;
        empty_gif;
    }
    location /counted { limit_sliding zone=counted count_status=404; }
    location /settled { limit_sliding zone=settled cost=0 settle=$arg_settle; empty_gif; }
    location /rated { limit_sliding zone=rated; empty_gif; }
SERVER

is ask('/dry?key=d'), '200 PASSED one', 'dry run: passed';
is ask('/dry?key=d'), '200 REJECTED_DRY_RUN one', 'dry run: would be rejected';
$nginx->new_log_lines($LINE);
is ask('/dry?key=d'), '200 REJECTED_DRY_RUN one', 'dry run: would be banned';
is_deeply [ lines() ], [ 'limiting requests, dry run, excess: 1.000 by zone "one"',
    'limiting requests, dry run, banned for 3600s by zone "one"' ], '... says the log';
is ban('one', 'd')->{left}, 3600, '... and the API';
is ask('/one?key=d'), '429 REJECTED one', '... which is in force elsewhere';
is ask('/beside?key=d'), '200 REJECTED_DRY_RUN one', 'dry run beside a limit in force';
is used('free', 'd'), 1, '... which counts';
is ask('/dry/all?key=d&cost=101'), '200 REJECTED_DRY_RUN two', 'dry run of the place';
is ask('/dry/all?key=d'), '200 REJECTED_DRY_RUN two', '... begins a ban, too';
is ask('/two?key=d'), '429 REJECTED two', '... which is in force elsewhere';

is ask('/one?key=a'), '200 PASSED one', 'several limits';
rejected(1, '/one?key=a');
is ask('/both?key=a'), '429 REJECTED one', 'one of them bans';
is used('free', 'a'), 0, '... and the other one counts nothing';
is ask('/two?key=a'), '200 PASSED two', 'two of them: one bans';
is header($nginx->get('/bans?key=a'), 'Retry-After'), 3600, '... and that is told';
is header($nginx->get('/bans?key=a&cost=101'), 'Retry-After'), 7200,
    'both reject: the longer ban is told as it begins';
is header($nginx->get('/bans?key=a'), 'Retry-After'), 7200, '... and later';
is ask('/auth?key=a'), '429 REJECTED one', 'after_auth';
is ask('/auth?key=x'), '200 PASSED one', 'after_auth: passes';
rejected(1, '/auth?key=x');
ok ban('one', 'x'), 'after_auth: banned';

# A client that is both banned and blocked may not return when the ban ends.
api_key($nginx, 'one', 'x', 'PUT', '&rate=0');
for my $place ('/one?key=x', '/both?key=x') {
    $nginx->new_log_lines($LINE);
    my $r = $nginx->get($place);
    is "$r->{status} " . header($r, 'Retry-After'), '429 ', "$place: banned and blocked";
    is_deeply [ lines() ], [ 'limiting requests, excess: 1.000 by zone "one"' ],
        '... is logged as blocked';
}
is ban('one', 'x')->{left}, 3600, '... and the ban goes on';
api_key($nginx, 'one', 'x', 'PUT', '&rate=default');
is header($nginx->get('/one?key=x'), 'Retry-After'), 3600, '... without the block, too';

is $nginx->statuses(2, '/counted/none?key=a'), '404 429', 'count_status: rejected';
ok ban('counted', 'a'), '... and banned';
api_key($nginx, 'counted', 'a', 'DELETE');
rejected(1, '/counted/none?key=a');
is used('counted', 'a'), 0, '... which counts nothing';

is ask('/settled?key=a&settle=9'), '200 PASSED settled', 'settle';
rejected(1, '/settled?key=a&settle=9');
ok ban('settled', 'a'), 'settle: banned';
rejected(1, '/settled?key=a&settle=9');
is used('settled', 'a'), 9, '... which counts nothing';

is $nginx->statuses(3, '/rated?key=a&rate=1'), '200 429 429', 'a variable rate';
is ask('/rated?key=a&rate=5/1h'), '429 REJECTED rated', '... a ban is for all windows';
is ask('/rated?key=a&rate=off'), '200  ', '... but not for "off"';
rejected(3, '/rated?key=b&rate=0');
is header($nginx->get('/rated?key=a&rate=0'), 'Retry-After'), '', '... and "0" has no end';
is ban('rated', 'b'), undef, '... "0" leads to none';


# many: over reloads, kills, and a flood

my %many = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=many:1m rate=1 window=1d penalty=1h penalty_max=1d;
    limit_sliding_log_level off;
HTTP
    location /many { limit_sliding zone=many cost=$arg_cost; empty_gif; }
SERVER
$nginx->serve(%many);

my @keys = map { "/many?key=k$_" } 1 .. 1000;
$nginx->load(pipeline => 16, connections => 4, requests => [ map { "$_&cost=2" } @keys ]);
sub all_banned($name) {
    my $statuses = $nginx->load(pipeline => 16, connections => 4, requests => \@keys);
    is scalar grep({ $_ == 429 } @$statuses), 1000, "1,000 bans: $name";
    is api($nginx)->{zones}{many}{banned}, 1000, '... says the API';
}

all_banned('begun');
$nginx->reload;
all_banned('over a reload');
for my $pid ($nginx->workers) {
    $nginx->kill_worker($pid);
    wait_for(sub { $nginx->workers == 2 });
}
all_banned('over kills');

my $text = $nginx->template(%many);
$nginx->reload($text =~ s/penalty=1h/penalty=2h penalty_after=5/r);
all_banned('over another rule');
rejected(4, '/many?key=new&cost=2');
is ban('many', 'new'), undef, '... which applies';
rejected(1, '/many?key=new&cost=2');
is ban('many', 'new')->{left}, 7200, '... at once';
lift('many', 'new');

$nginx->load(pipeline => 64, connections => 4,
    requests => [ map { "/many?key=f$_&cost=2" } 1 .. 50000 ]);
all_banned('in a flood of others');

$nginx->reload($text =~ s/ penalty=1h penalty_max=1d//r);
is $nginx->get($keys[0])->{status}, 200, 'no penalty any more';
$nginx->reload($text);
is $nginx->get($keys[0])->{status}, 429, '... and again: bans were kept';

$nginx->serve(server => 'location /free { limit_sliding zone=free; empty_gif; }');
$text = $nginx->template(server => 'location /free { limit_sliding zone=free; empty_gif; }');
$nginx->reload($text =~ s/(zone=free:1m rate=1000 window=1d)/$1 penalty=1h/r);
is scalar $nginx->log_lines(qr/zone "free" starts empty: it has penalties now/), 1,
    'a zone that has penalties now starts empty';

$nginx->finish;
