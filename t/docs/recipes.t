# The recipes of docs/recipes.md do what they say, run as they stand.

use v5.36;

use IO::Select;
use IO::Socket::INET;
use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Redis ();
use LimitSliding::Test;

my $PAGE = 'docs/recipes.md';
my @recipes = grep { $_->{tag} eq 'nginx' } blocks($PAGE);

my $nginx = LimitSliding::Test->new;
my $backend = LimitSliding::Test->new(worker_processes => 1);
my $connection;

# Starts the recipe that matches, with our backend as its application and as its service that
# authenticates, its Redis at this address, and these texts replaced.  Nothing else is changed
# but what LimitSliding::Docs says.
sub recipe($regexp, $redis = '', %other) {
    my @found = grep { $_->{text} =~ $regexp } @recipes;
    is @found, 1, "recipe: $regexp";
    $found[0]{run} = 1;

    my $port = $backend->port;
    my $text = configuration($nginx, $found[0]{text});
    $text =~ s{http://127\.0\.0\.1:\K808[01]}{$port}g;
    $text =~ s/server \K10\.0\.0\.1:6379/$redis/;
    $text =~ s/\Q$_\E/$other{$_}/g or die "no $_ in the recipe" for keys %other;
    undef $connection;
    $nginx->stop;
    $nginx->start($text);
}

# Sends a request on one connection, where it finds those before it settled.
sub ask($path, @headers) {
    $connection //= $nginx->connect;
    my $r = $nginx->get($path, headers => \@headers, socket => $connection);
    undef $connection if header($r, 'Connection') eq 'close';
    return $r;
}

sub statuses($n, @request) {
    return join ' ', map { ask(@request)->{status} } 1 .. $n;
}

$backend->write_file('html/v1/stream', <<'STREAM') if mkdir $backend->dir . '/html/v1';
data: {"choices":[{"delta":{"content":"\"total_tokens\": 9"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":400,"completion_tokens":9600,"total_tokens":10000}}

data: [DONE]

STREAM
$backend->write_file('html/v1/cut', qq(data: {"choices":[{"delta":{}}],"usage":null}\n\n));
# What the sockets hold of it is charged too. Two of these fit a budget.
$backend->write_file('html/v1/long', 'data: {"usage":null}' . "\n" x 1_500_000);
# No sockets hold all of it, so the request lasts until its client hangs up.
$backend->write_file('html/reports/long', 'x' x (16 << 20))
    if mkdir $backend->dir . '/html/reports';
$backend->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    map $http_x_password $login { right ok; default failed; }
    map $http_authorization $user { "Bearer a" a; "Bearer b" b; "Bearer c" c; "Bearer d" a; }
    map $http_authorization $team { "Bearer c" other; default one; }
    map $http_authorization $organization { "Bearer d" acme; default lee; }
    server {
        listen 127.0.0.1:%%PORT%%;
        default_type text/event-stream;

        location /v1/ { gzip on; gzip_types *; }
        location /v1/chat {
            return 200 '{"usage": {"total_tokens": 12000, "prompt_tokens": 5}}';
        }
        location /v1/few { return 200 '{"usage": {"total_tokens":20}}'; }
        location /v1/error { return 400 '{"error": {}}'; }
        location /v1/told { add_header X-Tokens-Used $arg_tokens; return 200; }
        location /login {
            add_header X-Login $login;
            if ($http_x_user = guess) { return 401; }
            return 200 form;
        }
        location /account/login { if ($login = failed) { return 401; } return 200 form; }
        location /page { return 200 page; }
        location /reports/ { limit_rate 1k; alias html/v1/; }
        location = /auth {
            if ($user = "") { return 401; }
            add_header X-User $organization-$user;
            add_header X-Team $team;
            add_header X-Organization $organization;
            return 204;
        }
        location /soft { return 200 $http_x_over_soft_limit; }
        location /checkout/ { return 200 checkout; }
        location /once { add_header X-Host $http_host; return 200 once; }
        location /fails { return 502; }
        location /calls/ { return 200 called; }
    }
}
CONF


recipe(qr/total_tokens/);
my %key = (a => 'Bearer sk-acme-7f3a', b => 'Bearer sk-lee-19c0');

# Returns what a request says is left of a zone, before it is settled: 500 less.
sub left($key, $zone = 'minute') {
    my $r = ask('/v1/few', "Authorization: $key{$key}");
    my ($left) = header($r, 'RateLimit') =~ /"$zone";r=(\d+)/;
    return $left + 500;
}

is left('a'), 50_000, 'tokens: none used';
is left('a'), 49_980, 'tokens: few';
ask('/v1/chat', "Authorization: $key{a}");
is left('a'), 37_960, 'tokens: at once';
ask('/v1/stream', "Authorization: $key{a}", 'Accept-Encoding: gzip');
is left('a'), 27_940, 'tokens: streamed';
ask('/v1/error', "Authorization: $key{a}");
is left('a'), 27_920, 'tokens: an error is free';
ask('/v1/cut', "Authorization: $key{a}");
is left('a'), 27_400, 'tokens: a stream without usage';
is left('a', 'month'), 10_000_000 - 22_620, 'tokens: by the month';
is statuses(5, '/v1/chat', "Authorization: $key{a}"), '200 200 200 429 429', 'tokens: used up';
my $r = ask('/v1/chat', "Authorization: $key{a}");
cmp_ok header($r, 'Retry-After'), '>=', 1, 'tokens: when to come again';
like header($r, 'RateLimit'), qr/"minute";r=0;/, 'tokens: nothing is left';
is ask('/v1/chat', "Authorization: $key{b}")->{status}, 200, 'tokens: others are served';
is statuses(1, '/v1/chat', 'Authorization: Bearer sk-invented'), '401', 'tokens: invented keys are not';

# Reads so many bytes of an answer, and hangs up. Returns the units that this was charged.
sub hang_up($bytes) {
    my $before = left('b');
    my $socket = $nginx->send_request('/v1/long', headers => ["Authorization: $key{b}"]);
    my $read = 0;
    while ($read < $bytes) { $read += sysread($socket, my $buffer, 4096) || last }
    close $socket;

    # a request that looks costs 20, and 500 are reserved until the answer ends
    my $charged;
    wait_for(sub { ($charged = $before - left('b')) > 20; }, 5);
    sleep 0.2;
    return $before - left('b');
}

cmp_ok hang_up(4096), '>=', 500, 'tokens: a client hangs up early: the reservation';
cmp_ok hang_up(600_000), '>=', 6_000, '... or late: what it got';


recipe(qr/penalty/);
is statuses(3, '/account/login'), '401 401 401', 'bans: three may fail';
is statuses(5, '/account/login'), '429 429 429 429 429', 'bans: five are rejected';
cmp_ok header(ask('/account/login'), 'Retry-After'), '>', 590, 'bans: banned for 10 minutes';
is statuses(1, '/account/login', 'X-Password: right'), '429', 'bans: whatever is sent';


recipe(qr/upstream_http_x_tokens_used/);
my ($acme, $lee) = ('X-Api-Key: k-acme-7f3a', 'X-Api-Key: k-lee-19c0');
is statuses(3, '/v1/told?tokens=24000', $acme), '200 200 200', 'a header: three';
is statuses(1, '/v1/told?tokens=24000', $acme), '429', 'a header: used up';
is statuses(3, '/v1/told?tokens=100', $lee), '200 200 200', 'a header: others';
is statuses(2, '/v1/told?tokens=1', 'X-Api-Key: b'), '401 401', 'a header: an invented key';


my $DIR = $nginx->dir;
mkdir "$DIR/html/downloads" or die $!;
open my $file, '>', "$DIR/html/downloads/large" or die $!;
truncate $file, 20_000_000 or die $!;
close $file;
$nginx->write_file('html/downloads/small', 'x' x 500);
recipe(qr/kilobytes/, '', '=5000000' => '=50000');    # changed here: the limit

# Downloads a file, and throws it away.
sub download($path) {
    my $socket = $nginx->send_request($path);
    my ($bytes, $head) = (0, '');
    while (sysread $socket, my $buffer, 1 << 20) {
        $head ||= $buffer;
        $bytes += length $buffer;
    }
    return (substr($head, 9, 3), $bytes);
}

is statuses(10, '/downloads/small'), join(' ', (200) x 10), 'bytes: small files';
for my $n (1 .. 3) {
    my ($status, $bytes) = download('/downloads/large');
    is $status, 200, "bytes: large file $n";
    cmp_ok $bytes, '>', 20_000_000, '... all of it';
}
ok wait_for(sub { (ask('/downloads/small')->{status}) == 429 }, 5), 'bytes: used up';
cmp_ok header(ask('/downloads/small'), 'Retry-After'), '>', 0, 'bytes: when to come again';
unlink "$DIR/html/downloads/large";


recipe(qr/proxy_cache_path/);
is ask('/page')->{status}, 200, 'cache: asked for';
is statuses(200, '/page'), join(' ', (200) x 200), 'cache: what it has is free';
my %count;
$count{ ask("/page?n=$_")->{status} }++ for 1 .. 100;
cmp_ok $count{200} // 0, '>=', 15, 'cache: what it has not is limited';
cmp_ok $count{429} // 0, '>=', 20, '... and the rest rejected';


recipe(qr/x_login/);
is statuses(20, '/login', 'X-Password: right'), join(' ', (200) x 20), 'login: right';
is statuses(6, '/login', 'X-Password: wrong'), '200 200 200 200 200 429', 'login: wrong';
is ask('/login', 'X-Password: right')->{status}, 429, 'login: too late';


# Returns how often a client of this address had each status.
sub client($from, $n, $path, @headers) {
    my $socket = $nginx->connect(from => $from);
    my %count;
    $count{ $nginx->get($path, socket => $socket, headers => \@headers)->{status} }++ for 1 .. $n;
    return \%count;
}

# Changed here, as below: the addresses of others are those that we have.
recipe(qr/is_trusted/, '', '192.0.2.0/24' => '127.0.2.0/24');
is_deeply client('127.0.0.2', 102, '/page'), { 200 => 100, 429 => 2 }, 'geo: others';
is_deeply client('127.0.2.2', 102, '/page'), { 200 => 102 }, '... and who is trusted';


recipe(qr/real_ip_recursive/, '', '10.0.0.0/8' => '127.0.0.0/8');
is_deeply client('127.0.0.2', 61, '/page', 'X-Forwarded-For: 203.0.113.1'),
    { 200 => 60, 429 => 1 }, 'CDN: a client';
is_deeply client('127.0.0.3', 2, '/page', 'X-Forwarded-For: 203.0.113.9, 203.0.113.1'),
    { 429 => 2 }, '... by another server, with an address that it made up';
is_deeply client('127.0.0.2', 2, '/page', 'X-Forwarded-For: 203.0.113.2'), { 200 => 2 },
    '... and another client';


recipe(qr/zone=site/);
$nginx->write_file('html/index.html', 'a page');
is_deeply client('127.0.0.2', 102, '/'), { 200 => 100, 429 => 2 }, 'logins: all requests';
is_deeply client('127.0.0.3', 8, '/login', 'X-User: guess'), { 401 => 5, 429 => 3 },
    '... and five that fail';
is_deeply client('127.0.0.4', 20, '/login'), { 200 => 20 }, '... and as many others as one likes';

# Returns how many of six rounds of paths that may be the login were answered with 401.
sub guesses($from) {
    my $socket = $nginx->connect(from => $from);
    my @paths = qw(/login /login/ /login/1 /login/1/2 /login?1 /login;1 /login.php
        //login /./login /a/../login /%6cogin /login%2f1 /Login /LOGIN/1);
    return scalar grep { $_ == 401 } map {
        $nginx->get($_, socket => $socket, headers => ['X-User: guess'])->{status} } (@paths) x 6;
}
is guesses('127.0.0.5'), 5, '... by whatever path';

# as the text below the recipe has it, where the application takes those, too
like content($PAGE), qr{write `location /login` instead}, 'logins: another way to write it';
recipe(qr/zone=site/, '', 'location = /login' => 'location /login');
is guesses('127.0.0.6'), 5, '... five by whatever path';


recipe(qr/request_method/);
is statuses(30, '/page'), join(' ', (200) x 30), 'methods: reading is free';
my %posted;
$posted{ $nginx->get('/page', method => 'POST')->{status} }++ for 1 .. 22;
is_deeply \%posted, { 200 => 20, 429 => 2 }, '... and writing is not';
is statuses(1, '/page'), '200', '... which reading does not feel';


# Changed here: the limits.
sub user($name, $n = 1) { return statuses($n, '/page', "Authorization: Bearer $name") }
recipe(qr/organizations:/, '', '=600r/m' => '=7/1h', '=120r/m' => '=4/1h', '=60r/m' => '=2/1h');
is user('nobody'), '401', 'cascade: nobody';
is user('a', 3), '200 200 429', 'cascade: a user';
is user('b', 3), '200 200 429', '... and another, of the same team';
is user('d'), '200', '... and one of another organization, with the same name and team';
is user('c', 3), '200 200 429', '... and one of another team';
recipe(qr/organizations:/, '', '=600r/m' => '=3/1h', '=120r/m' => '=2/1h', '=60r/m' => '=9/1h');
is user('a', 3), '200 200 429', 'cascade: a team';
is user('c', 2), '200 429', '... and the organization, of which the team took two';
like header(ask('/page', 'Authorization: Bearer c'), 'RateLimit'),
    qr/"organizations";r=0.*"teams";r=1.*"users";r=8/, '... as the fields tell';


recipe(qr/zone=running/);
my @reports = map { $nginx->send_request('/reports/long') } 1 .. 3;
is ask('/reports/')->{status}, 429, 'at once: three';
close shift @reports;
is ask('/reports/')->{status}, 403, 'at once: one ended';
undef @reports;


# Changed here: where the provider is, that it speaks in plain text, and the limit. Requests
# begin with either of its servers in turn, and the first does not answer.
my $dead = LimitSliding::Test::reserve_port();
recipe(qr/upstream provider/, '', '192.0.2.10:443' => "127.0.0.1:$dead->{port}",
    '192.0.2.11:443' => '127.0.0.1:' . $backend->port . ' max_fails=0', 'https://' => 'http://',
    '=600r/m' => '=30/1h', 'settle=$attempts;' => 'settle=$attempts; limit_sliding_headers x;');
is header(ask('/once'), 'X-Host'), 'api.example.com', 'egress: to the provider';
sub calls_left() { return header(ask('/once'), 'X-RateLimit-Remaining') + 3 }
cmp_ok calls_left(), '<=', 30 - 1, 'egress: a call counts';
cmp_ok calls_left(), '<=', 30 - 3, '... and an attempt that failed, too';
ask('/once') for 1 .. 3;
my $left = calls_left();
cmp_ok $left, '<=', 30 - 7, '... as each of them';
cmp_ok $left, '>=', 30 - 12, '... once';
is ask('/fails')->{status}, 502, 'egress: both servers fail';


recipe(qr/over_soft_limit/);
is_deeply [ map { ask('/soft')->{body} } 1 .. 110 ], [ ('no') x 100, ('yes') x 10 ],
    'soft: marked, and not rejected';
is_deeply client('127.0.0.9', 302, '/soft'), { 200 => 300, 429 => 2 }, '... up to the hard limit';


recipe(qr/problem\+json/);
is statuses(3, '/calls/'), '200 200 200', 'JSON: three';
$r = ask('/calls/');
is "$r->{status} " . header($r, 'Content-Type'), '429 application/problem+json', 'JSON: rejected';
is_deeply decode_json($r->{body}), { title => 'Too many requests', status => 429, limit => 3,
    retry_after => 0 + header($r, 'Retry-After') }, '... with the time of Retry-After';
cmp_ok header($r, 'Retry-After'), '>', 0, '... which is one';


recipe(qr/ dry_run;\n.*trial/);
is_deeply client('127.0.0.2', 105, '/page'), { 200 => 105 }, 'trial: all pass';
ok wait_for(sub {
    open my $log, '<', $nginx->dir . '/logs/trial.log' or return 0;
    return 5 == grep { / REJECTED_DRY_RUN pages$/ } <$log>;
}), '... and five are logged';


# By the module for OpenTelemetry to a collector, or in the header, see LimitSliding::Docs.
my %span = ('limit_sliding.status' => 'REJECTED', 'limit_sliding.zone' => 'api',
    'limit_sliding.limit' => 100, 'limit_sliding.remaining' => 0,
    'limit_sliding.source' => 'local');
if ($ENV{LIMIT_SLIDING_OTEL}) {
    my $reserved = LimitSliding::Test::reserve_port();
    my $collector = open my $spans, '-|', '/usr/bin/python3', 't/data/otel_collector.py',
        $reserved->{port} or die "collector: $!";
    <$spans>;
    recipe(qr/otel_/, '', '127.0.0.1:4317' => "127.0.0.1:$reserved->{port}");
    is_deeply client('127.0.0.1', 101, '/page'), { 200 => 100, 429 => 1 }, 'traces';
    my @spans = map { decode_json($_) } map { scalar <$spans> } 1 .. 101;
    my ($rejected) = grep { $_->{'http.status_code'} == 429 } @spans;
    is_deeply { map { $_ => $rejected->{$_} } keys %span }, \%span, '... of a rejection';
    is scalar(grep { $_->{'limit_sliding.status'} eq 'PASSED' } @spans), 100, '... and all others';
    kill 'TERM', $collector;
    close $spans;
} else {
    recipe(qr/otel_/);
    is statuses(100, '/page') =~ s/ ?200//gr, '', 'traces';
    my $rejected = ask('/page');
    is_deeply { map { $_ => header($rejected, $_) } keys %span }, \%span, '... of a rejection';
}


recipe(qr/split_clients/);
my %group;
$group{ client("127.0.1.$_", 21, '/page')->{429} // 0 }++ for 1 .. 100;
is join(' ', sort keys %group), '0 1', 'some: two limits';
cmp_ok $group{1}, '>=', 2, '... the new one for a few';
cmp_ok $group{1}, '<=', 25, '... and not for many';


if (LimitSliding::Redis::supported()) {
    my $redis = LimitSliding::Redis->new->start;
    my @guess = ('X-User: guess');
    recipe(qr/on_error=deny/, $redis->server);
    ok wait_for(sub { ask('/page')->{status} == 200 }), 'both: a page';
    is statuses(3, '/login'), '200 200 200', 'both: logins';
    is statuses(1, '/login', @guess), '401', 'both: a guess';

    $redis->kill9;
    is statuses(4, '/page'), '200 200 200 200', 'both: Redis is away, pages';
    is statuses(4, '/login'), '429 429 429 429', '... logins';

    # Changed here: the limits.
    $redis = LimitSliding::Redis->new->start;
    recipe(qr/zone=fleet/, $redis->server, '=1000r/s' => '=10/1h', '=800r/s' => '=8/1h');
    is statuses(10, '/page'), join(' ', (200) x 8, 429, 429), 'fleet: most may use a part';
    is statuses(4, '/checkout/'), '200 200 429 429', '... and those that matter the rest';

    # two zones are lost, that of the master too: nothing answers at these addresses
    recipe(qr/redis=region/, '', map { ("10.0.$_.1:26379" => '127.0.0.1:9') } 1 .. 3);
    my $statuses = $nginx->load(connections => 8,
        requests => [ ('/page') x 1010 ]);
    is scalar(grep { $_ == 200 } @$statuses), 1000, 'zones: each node goes on by itself';
} else {
    $_->{run} = 1 for grep { $_->{text} =~ /on_error=deny|redis=region|zone=fleet/ } @recipes;
}


# t/docs/grpc.t runs this one
$_->{run} = 1 for grep { $_->{text} =~ /grpc_pass/ } @recipes;

is join(' ', map { $_->{name} } grep { !$_->{run} } @recipes), '', 'all were run';
$backend->stop;
$nginx->finish;
