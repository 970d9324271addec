# Requests that count by what they are answered with: guesses at passwords, and
# probes for pages that don't exist.
#
# The next request of a connection sees what was counted on the way out, since
# NGINX ends a request before it begins with the next.

use v5.36;

use IO::Select;
use Test::More;

use LimitSliding::Test qw(:DEFAULT key);
use LimitSliding::Upstream;

# With import() the whole file would need Redis.
require LimitSliding::Redis;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    auth_basic_user_file %%DIR%%/htpasswd;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Remaining $limit_sliding_remaining always;
CONF

$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");

# Returns the options of a request with the same key and a password.
sub login($key, $password) {
    my %base64 = (secret => 'dXNlcjpzZWNyZXQ=', wrong => 'dXNlcjp3cm9uZw==');
    return (headers => [ @$key, "Authorization: Basic $base64{$password}" ]);
}

my $connection;

# Sends a request on one connection. Replaces the connection when NGINX closes
# it, as it does after a 500.
sub get(@request) {
    $connection //= $nginx->connect;
    my $r = $nginx->get(@request, socket => $connection);
    if (header($r, 'Connection') eq 'close') {
        1 while sysread $connection, my $rest, 4096;
        undef $connection;
    }
    return $r;
}

sub statuses($n, @request) {
    return join ' ', map { get(@request)->{status} } 1 .. $n;
}

# Starts NGINX with the directives of a section, to which there is no
# connection.
sub serve(%directives) {
    undef $connection;
    $nginx->serve(%directives);
}


# login protection

serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=login:1m rate=3 window=30d;
HTTP
    location /login {
        limit_sliding zone=login count_status=401,403;
        auth_basic closed;
        empty_gif;
    }

    location /login-look { limit_sliding zone=login cost=0; empty_gif; }

    location /login-any {
        limit_sliding zone=login count_status=401;
        satisfy any;
        deny all;
        auth_basic closed;
        empty_gif;
    }
SERVER

my @key = key();
is statuses(5, '/login', login($key[1], 'secret')), '200 200 200 200 200',
    'right passwords are not counted';
is header(get('/login-look', @key), 'X-Remaining'), '3', 'none of them';

is statuses(3, '/login', login($key[1], 'wrong')), '401 401 401',
    'wrong passwords';
is statuses(2, '/login', login($key[1], 'wrong')), '429 429', 'are limited';
my $r = get('/login', login($key[1], 'secret'));
is $r->{status}, 429, 'a right one then comes too late';
is header($r, 'X-Status'), 'REJECTED', 'rejected: status';
like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'rejected: Retry-After';
is statuses(1, '/login', login([ key() ]->[1], 'secret')), '200',
    'other keys may log in';

@key = key();
is statuses(1, '/login', @key), '401', 'no password is a wrong one';
is statuses(2, '/login', login($key[1], 'wrong')), '401 401', 'two more';
is statuses(1, '/login', @key), '429', 'are three';

@key = key();
is statuses(2, '/login', login($key[1], 'wrong')), '401 401', 'two wrong';
is statuses(3, '/login', login($key[1], 'secret')), '200 200 200', 'then right';
is statuses(2, '/login', login($key[1], 'wrong')), '401 429', 'wrong again';

@key = key();
is statuses(2, '/login-any', login($key[1], 'secret')), '200 200',
    'satisfy any: right passwords';
is statuses(4, '/login-any', login($key[1], 'wrong')), '401 401 401 429',
    'satisfy any: wrong passwords';

$r = get('/login', login([ key() ]->[1], 'secret'));
is header($r, 'X-Status'), 'PASSED', 'passed: status';
$r = get('/login', key());
is header($r, 'X-Status'), 'PASSED', 'passed, and refused by others: status';


# which statuses count, wherever they come from: /404 of port 1 answers with
# 404, and so on

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=ten:1m rate=10 window=30d;

    server {
        listen 127.0.0.1:%%PORT1%%;

        location /200 { return 200 fine; }
        location /302 { return 302 /elsewhere; }
        location /400 { return 400; }
        location /401 { add_header WWW-Authenticate Basic always; return 401; }
        location /403 { return 403; }
        location /404 { return 404; }
        location /429 { return 429; }
        location /499 { return 499 left; }
        location /599 { return 599 odd; }
        location /500 { return 500; }
        location /503 { return 503; }

        location /accel/ {
            rewrite ^/accel(.*) $1 break;
            add_header X-Accel-Redirect /proxy$uri;
            try_files /none =204;
        }

        location /to-named { return 404; }
    }
HTTP
    limit_sliding zone=ten count_status=401,403,404;

    location /look   { limit_sliding zone=ten cost=0; empty_gif; }
    location /proxy/ { proxy_pass http://127.0.0.1:%%PORT1%%/; }
SERVER

# Returns what was counted of a key, in a zone with ten.
sub counted($key, $look = '/look') {
    my $r = get($look, headers => $key);
    return 10 - header($r, 'X-Remaining');
}

# Asserts of each case, [path, status, how many units a request counts, name,
# options of get], that two requests count so.
sub counts(@cases) {
    for (@cases) {
        my ($path, $status, $count, $name, @options) = @$_;
        my @key = key();

        is get($path, @key, @options)->{status}, $status,
            "$name, $path: status";
        is counted($key[1]), $count, "$name, $path: counted";
        get($path, @key, @options);
        is counted($key[1]), 2 * $count, "$name, $path: once for each request";
    }
}


# answers of NGINX

$nginx->write_file('html/page', 'a page');

serve(http => <<'HTTP', server => <<'SERVER');
    map $request_uri $verified { ~^/verified/(?<verdict>...) $verdict; }
HTTP
    location /ok        { empty_gif; }
    location /forbidden { deny all; }
    location /return    { return 404; }

    location /verified/ {
        auth_request /verify;
        empty_gif;
    }

    location = /verify {
        internal;
        proxy_pass http://127.0.0.1:%%PORT1%%/$verified;
    }
SERVER

counts(
    [ '/ok',           200, 0, 'inherited' ],
    [ '/ok?x',         200, 0, 'inherited, HEAD', method => 'HEAD' ],
    [ '/forbidden',    403, 1, 'access' ],
    [ '/forbidden',    403, 1, 'access, HEAD', method => 'HEAD' ],
    [ '/none',         404, 1, 'no such file' ],
    [ '/page',         200, 0, 'a file' ],
    [ '/return',       404, 0, 'return is answered before any limit' ],
    [ '/verified/200', 200, 0, 'auth_request grants' ],
    [ '/verified/401', 401, 1, 'auth_request refuses' ],
    [ '/verified/403', 403, 1, 'auth_request forbids' ],
    [ '/verified/404', 500, 0, 'auth_request fails' ],
);


# answers of others

serve(server => <<'CONF');
    location /4xx/ {
        limit_sliding zone=ten count_status=4xx;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /mixed/ {
        limit_sliding zone=ten count_status=5xx,404;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /200/ {
        limit_sliding zone=ten count_status=200;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /cost/ {
        limit_sliding zone=ten count_status=404 cost=4;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
CONF

counts(
    (map { [ "/proxy/$_", $_, /40[134]/ ? 1 : 0, "list, upstream" ] }
        200, 302, 400, 401, 403, 404, 429, 500, 503),
    (map { [ "/4xx/$_", $_, /^4/ ? 1 : 0, "4xx, upstream" ] }
        200, 302, 400, 401, 403, 404, 429, 499, 500, 503),
    (map { [ "/mixed/$_", $_, /^5|404/ ? 1 : 0, "5xx,404, upstream" ] }
        200, 403, 404, 499, 500, 503, 599),
    (map { [ "/200/$_", $_, /200/ ? 1 : 0, "200, upstream" ] } 200, 404),
    (map { [ "/cost/$_", $_, /404/ ? 4 : 0, "cost 4, upstream" ] } 200, 404),
);


# pages in place of others

serve(server => <<'CONF');
    location /hidden/ {
        proxy_pass http://127.0.0.1:%%PORT1%%/;
        proxy_intercept_errors on;
        error_page 404 =200 /page;
    }

    location /shown/ {
        proxy_pass http://127.0.0.1:%%PORT1%%/;
        proxy_intercept_errors on;
        error_page 404 /page;
    }

    location /to-404 {
        error_page 418 =404 /page;
        try_files /none =418;
    }

    location /to-named {
        error_page 404 = @named;
    }

    location @named { proxy_pass http://127.0.0.1:%%PORT1%%; }

    location /to-free { error_page 404 = @free; }
    location @free { limit_sliding off; return 404; }
    location /to-free-page { error_page 404 = @free-page; }
    location @free-page { limit_sliding off; empty_gif; }

    location /accel/ { proxy_pass http://127.0.0.1:%%PORT1%%/accel/; }

    location /into/ {
        limit_sliding off;
        rewrite ^/into/(.*) /proxy/$1;
    }

    location /try-files {
        try_files /none /proxy/404;
    }
CONF

counts(
    [ '/hidden/404',   200, 0, 'a page with another status' ],
    [ '/hidden/403',   403, 1, 'a status without a page' ],
    [ '/shown/404',    404, 1, 'a page with the same status' ],
    [ '/to-404',       404, 1, 'a page that makes it count' ],
    [ '/to-named',     404, 1, 'a named location' ],
    [ '/to-free',      404, 1, 'a place without limits' ],
    [ '/to-free-page', 200, 0, 'a place without limits, fine' ],
    [ '/accel/404',    404, 1, 'X-Accel-Redirect' ],
    [ '/accel/200',    200, 0, 'X-Accel-Redirect, fine' ],
    [ '/into/404',     404, 1, 'rewrite' ],
    [ '/try-files',    404, 1, 'try_files' ],
);


# rates, costs and keys

serve(server => <<'CONF');
    location /rate/ {
        limit_sliding zone=ten count_status=404 rate=2;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /cost/ {
        limit_sliding zone=ten count_status=404 cost=4;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
CONF

@key = key();
is statuses(3, '/rate/404', @key), '404 404 429', 'with a rate of the place';
is counted($key[1]), 2, 'one state';

@key = key();
is statuses(4, '/cost/404', @key), '404 404 429 429', 'cost 4: two of them fit';
is statuses(1, '/cost/200', @key), '429', 'cost 4: checked on the way in';
is statuses(1, '/proxy/200', @key), '200', 'cost 1: fits';
is counted($key[1]), 8, 'cost 4: counted twice';

is get('/proxy/404', headers => [])->{status}, 404, 'no key: passes';

@key = key();
is get('/proxy/404', @key, version => '1.0')->{status}, 404, 'HTTP/1.0: passes';
is counted($key[1]), 1, 'HTTP/1.0: counted';


# several limits

serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=other:1m rate=10 window=30d;
    limit_sliding_zone $http_x_full zone=full:1m rate=1 window=30d;
HTTP
    location /look-other { limit_sliding zone=other cost=0; empty_gif; }

    location /both/ {
        limit_sliding zone=ten count_status=404;
        limit_sliding zone=other;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /two/ {
        limit_sliding zone=ten count_status=404;
        limit_sliding zone=other count_status=403,404;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /beside-full/ {
        limit_sliding zone=ten count_status=4xx;
        limit_sliding zone=full;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /first-full/ {
        limit_sliding zone=full;
        limit_sliding zone=ten count_status=4xx;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }

    location /4xx/ {
        limit_sliding zone=ten count_status=4xx;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
SERVER

@key = key();
is statuses(1, '/both/200', @key), '200', 'beside a plain one: passed';
is counted($key[1]) . counted($key[1], '/look-other'), '01',
    'beside a plain one: which alone counts';
is statuses(1, '/both/404', @key), '404', 'beside a plain one: 404';
is counted($key[1]) . counted($key[1], '/look-other'), '12',
    'beside a plain one: both count';

@key = key();
is statuses(1, '/two/403', @key), '403', 'two: 403';
is statuses(1, '/two/404', @key), '404', 'two: 404';
is counted($key[1]) . counted($key[1], '/look-other'), '12',
    'two: each counts its own';
is statuses(9, '/two/403', @key), '403 ' x 8 . '429', 'two: either rejects';
is counted($key[1]) . ' ' . counted($key[1], '/look-other'), '1 10',
    'two: to the end';


# A request that a limit rejects consumes from none, though 429 is of 4xx.

for my $place (qw(beside-full first-full)) {
    @key = key("X-Full: $place");
    is statuses(2, "/$place/404", @key), '404 429', "$place: rejected";
    is statuses(3, "/$place/404", @key), '429 429 429', "$place: again";
    is counted($key[1]), 1, "$place: which does not count";
}

@key = key();
is statuses(12, '/4xx/404', @key), '404 ' x 10 . '429 429', 'limited: by 4xx';


# dry run

serve(server => <<'CONF');
    location /dry/ {
        limit_sliding zone=ten count_status=404 dry_run;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
CONF

@key = key();
is statuses(12, '/dry/404', @key), join(' ', (404) x 12), 'dry run: passes';
is header(get('/dry/404', @key), 'X-Status'), 'REJECTED_DRY_RUN',
    'dry run: status';
is counted($key[1]), 10, 'dry run: counts what it admits';


# Guesses at once: an application that answers none before all have come, or been
# rejected. /401 is answered with 401, and so on.

my ($reached, $gate, $log) = map { $nginx->dir . "/$_" } qw(reached gate ended);
my $application = LimitSliding::Upstream->new(sub ($request) {
    open my $file, '>>', $reached or die "$reached: $!";
    syswrite $file, 'x';
    close $file;
    wait_for(sub { -e $gate }, 30);
    return { status => $request->{path} =~ /(\d+)$/ };
});

sub close_gate() { unlink $reached, $gate }
sub open_gate() { $nginx->write_file('gate', '') }
sub in_application() { return (-s $reached) // 0 }

# Returns the sorted statuses of n requests at once, and how many have reached the
# application.
sub at_once($n, @request) {
    close_gate();
    my @sockets = map { $nginx->send_request(@request) } 1 .. $n;
    my $select = IO::Select->new(@sockets);
    wait_for(sub {
        my @rejected = $select->can_read(0);
        return in_application() + @rejected == $n;
    }, 30);
    open_gate();
    my @statuses = sort map { $nginx->read_response($_)->{status} // 'none' } @sockets;
    return join(' ', @statuses), in_application();
}

my %zones = (here => '', queue => 'algorithm=leaky_bucket burst=4 nodelay');
my ($redis, $blocks);
if (LimitSliding::Redis::supported()) {
    $redis = LimitSliding::Redis->new->start;
    $blocks = 'limit_sliding_redis shared { server ' . $redis->server
        . '; timeout 5s; connect_timeout 5s; }';
    %zones = (%zones, redis => 'redis=shared', lease => 'redis=shared lease=auto',
        sync => 'redis=shared sync=50ms');
}
my @zones = sort keys %zones;

$blocks .= 'log_format status $status;';
serve(http => join('', $blocks, map { <<"ZONE" } @zones), server => join('', map { <<"PLACE" } @zones));
    limit_sliding_zone \$http_x_key zone=$_:1m rate=5 window=30d $zones{$_};
ZONE
    location /$_/ {
        limit_sliding zone=$_ count_status=401;
        proxy_pass http://@{[ $application->server ]}/;
        access_log %%DIR%%/ended status;
    }
    location /$_-none/ {
        limit_sliding zone=$_ count_status=401 cost=0;
        proxy_pass http://@{[ $application->server ]}/;
        access_log %%DIR%%/ended status;
    }
    location /$_-beside/ {
        limit_sliding zone=$_ count_status=401;
        limit_sliding zone=ten cost=11;
        proxy_pass http://@{[ $application->server ]}/;
    }
    location /$_-dry/ {
        limit_sliding zone=$_ count_status=401 dry_run;
        proxy_pass http://@{[ $application->server ]}/;
    }
    location /$_-later/ {
        limit_sliding zone=$_ count_status=4xx;
        limit_sliding zone=ten cost=11 after_auth;
        proxy_pass http://@{[ $application->server ]}/;
    }
    location /look-$_ { limit_sliding zone=$_ cost=0; empty_gif; }
PLACE

# Asserts that so much of a key is used: soon, as Redis is told in the background.
sub uses($zone, $key, $used, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $left;
    wait_for(sub {
        $left = header(get("/look-$zone", headers => $key), 'X-Remaining');
        return $left == 5 - $used;
    });
    is 5 - $left, $used, "$zone: $name";
}

my $five = join ' ', (401) x 5, (429) x 45;
for my $zone (@zones) {
    @key = key();
    my ($statuses, $n) = at_once(50, "/$zone/401", @key);
    is $statuses, $five, "$zone: five of 50 guesses at once are answered";
    is $n, 5, "$zone: no more reach the application";
    uses($zone, $key[1], 5, 'all five count');

    @key = key();
    ($statuses) = at_once(8, "/$zone/200", @key);
    is $statuses, '200 200 200 200 200 429 429 429', "$zone: so do right ones";
    uses($zone, $key[1], 0, 'but these give back what they held');
    is get("/$zone-beside/401", @key)->{status}, 429, "$zone: another limit rejects";
    uses($zone, $key[1], 0, 'which takes nothing');
    is get("/$zone-later/401", @key)->{status}, 429, "$zone: one after_auth rejects";
    uses($zone, $key[1], 0, 'which takes nothing, though 429 is of 4xx');

    for my $guess (
        [ $zone,        'a guess' ],
        [ $zone,        'a guess after 100 Continue', 'Expect: 100-continue' ],
        [ "$zone-none", 'a guess with cost=0' ],
    ) {
        my ($place, $name, @expect) = @$guess;
        @key = key();
        close_gate();
        my $ended = (-s $log) // 0;
        my $socket = $nginx->send_request("/$place/200", method => 'POST',
            body => 'x', headers => [ @{ $key[1] }, @expect ]);
        ok wait_for(\&in_application), "$zone: $name";
        close $socket;
        ok wait_for(sub { ((-s $log) // 0) > $ended }),
            "$zone: $name, whose client leaves before the answer";
        open_gate();
        uses($zone, $key[1], 1, "$name counts");
    }

    @key = key();
    ($statuses, $n) = at_once(8, "/$zone-none/401", @key);
    is $n, 8, "$zone: cost=0 reserves nothing";
    uses($zone, $key[1], 5, 'cost=0 counts as far as there is room');
    is get("/$zone-none/200", @key)->{status}, 429, "$zone: cost=0 rejects then";

    @key = key();
    ($statuses, $n) = at_once(8, "/$zone-dry/401", @key);
    is $n, 8, "$zone: dry_run rejects none";
    uses($zone, $key[1], 5, 'dry_run counts what it admits');
    is get("/$zone-dry/200", @key)->{status}, 200, "$zone: dry_run still rejects none";
}

$nginx->finish;
