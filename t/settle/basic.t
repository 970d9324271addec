# Costs that are known once the response has ended.
#
# The next request of a connection sees what was settled, since NGINX ends a
# request before it begins with the next.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

# The other server answers with the fields that a request asks for.
$nginx->common(http => <<'HTTP', server => <<'SERVER');
    add_header X-Status    $limit_sliding_status    always;
    add_header X-Remaining $limit_sliding_remaining always;

    server {
        listen 127.0.0.1:%%PORT1%%;
        location / {
            add_header X-Cost $http_x_costs always;
            return 200 fine;
        }
        location /404 { add_header X-Cost $http_x_costs always; return 404; }
        location /accel {
            add_header X-Accel-Redirect /inner;
            add_header X-Cost $http_x_costs;
            return 200;
        }
    }
HTTP
    location /limits { limit_sliding_api; }
SERVER

my $connection;

# Sends a request whose response says that it has cost so much. All are of one
# connection, but after an answer that closes it.
sub ask($path, $key, $cost = undef, @headers) {
    my @cost = defined $cost ? "X-Costs: $cost" : ();
    $connection //= $nginx->connect;
    my $r = $nginx->get($path, headers => [ "X-Key: $key", @cost, @headers ],
        socket => $connection);
    undef $connection if (header($r, 'Connection') // '') eq 'close';
    return $r;
}

sub statuses($path, $key, @costs) {
    return join ' ', map { ask($path, $key, $_)->{status} } @costs;
}

sub serve(%directives) {
    undef $connection;
    $nginx->serve(%directives);
}

# Returns a key that no request had.
sub fresh { state $n = 0; return 'k' . ++$n }

# Returns what the API tells of a key, over the same connection.
sub api_key_of($zone, $key) {
    $connection //= $nginx->connect;
    return read_key($nginx->get(key_path($zone, $key), socket => $connection));
}

# Returns what is used of a key.
sub used($zone, $key) {
    return api_key_of($zone, $key)->{used};
}


# each algorithm

my %ZONES = (
    counter => '', part => 'precision=1', parts => 'precision=10',
    strict  => 'strict', log => 'algorithm=log', fixed => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket',
);
my @NAMES = sort keys %ZONES;

serve(http => join('', map { <<"ZONE" } @NAMES), server => join('', map { <<"PLACE" } @NAMES));
    limit_sliding_zone \$http_x_key zone=$_:1m rate=100 window=30d $ZONES{$_};
ZONE
    location /$_/ {
        limit_sliding zone=$_ settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /$_-ten/ {
        limit_sliding zone=$_ cost=10 settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /$_-none/ {
        limit_sliding zone=$_ cost=0 settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
PLACE

for my $name (@NAMES) {
    my $key = fresh();
    is header(ask("/$name/", $key, 7), 'X-Remaining'), 99, "$name: one is reserved";
    is used($name, $key), 7, "$name: seven are charged";
    ask("/$name/", $key);
    is used($name, $key), 8, "$name: nothing said, the reservation stands";
    ask("/$name/", $key, 0);
    is used($name, $key), 8, "$name: nothing used, it is given back";
    ask("/$name/", $key, 1);
    is used($name, $key), 9, "$name: as much as was reserved";
    ask("/$name-ten/", $key, 4);
    is used($name, $key), 13, "$name: less than was reserved";
    ask("/$name-ten/", $key, 0);
    is used($name, $key), 13, "$name: all of it given back";
    ask("/$name-none/", $key, 5);
    is used($name, $key), 18, "$name: nothing reserved";
    ask("/$name-none/", $key);
    is used($name, $key), 18, "$name: nothing reserved, nothing said";
    is statuses("/$name-none/", $key, 82, 1, 1), '200 429 429',
        "$name: nothing reserved, used up";

    $key = fresh();
    # More than a window's limit is owed, as a window of fixed may be about to end.
    is statuses("/$name/", $key, 1, 230, 1, 1), '200 200 429 429', "$name: owes";
    my $r = ask("/$name/", $key, 1);
    is header($r, 'X-Remaining'), 0, "$name: nothing is left";
    cmp_ok header($r, 'Retry-After'), '>', 0.25 * 30 * 86400,
        "$name: until that has run off";
    is used($name, $key), 231, "$name: all that was charged"
        unless $name eq 'tokens';
    cmp_ok abs(used($name, $key) - 231), '<=', 1, "$name: all that was charged, about";
}


# debts are paid at the limit's pace

$ZONES{leaky} = 'algorithm=leaky_bucket';
@NAMES = sort keys %ZONES;

serve(http => join('', map { <<"ZONE" } @NAMES), server => join('', map { <<"PLACE" } @NAMES));
    limit_sliding_zone \$http_x_key zone=$_:1m rate=10 window=1s $ZONES{$_};
ZONE
    location /$_/ {
        limit_sliding zone=$_ settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
PLACE

my %since;
for my $name (@NAMES) {
    $since{$name} = now();
    is statuses("/$name/", 'debtor', 35, 1), '200 429', "$name: owes 25";
}
for my $name (@NAMES) {
    my $passed = wait_for(sub { ask("/$name/", 'debtor', 1)->{status} == 200 }, 10);
    my $after = now() - $since{$name};
    ok $passed, "$name: admits again";
    my $least = $name =~ /leaky/ ? 0 : $name =~ /tokens/ ? 2.4 : $name =~ /fixed/ ? 2 : 2.4;
    cmp_ok $after, '>=', $least, "$name: not before it has paid";
    cmp_ok $after, '<=', 5.5, "$name: but then";
}


# the rate of a place does not change how the zone's debts are paid

my %WINDOWS = (equal => '1d', calendar => 'day', month => 'month');
@NAMES = sort keys %WINDOWS;

serve(http => join('', map { <<"ZONE" } @NAMES), server => join('', map { <<"PLACE" } @NAMES));
    limit_sliding_zone \$http_x_key zone=$_:1m rate=10 window=$WINDOWS{$_}
                       algorithm=fixed;
ZONE
    location /$_/ {
        limit_sliding zone=$_ settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /$_-one/ {
        limit_sliding zone=$_ rate=1;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
PLACE

for my $name (@NAMES) {
    is statuses("/$name/", 'debtor', 30), 200, "$name: owes";
    my @waits = map { header(ask("/$_/", 'debtor'), 'Retry-After') }
        $name, "$name-one";
    cmp_ok abs($waits[0] - $waits[1]), '<=', 1,
        "$name: the same wait at another rate";
}


# values

serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=one:1m rate=1000000 window=30d algorithm=fixed;
    limit_sliding_zone $http_x_key zone=two:1m rate=10 window=30d;
    limit_sliding_zone $http_x_key zone=late:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=watched:1m rate=2 window=30d;

    map $upstream_cache_status $missed { HIT 0; default ''; }
    map $status $failed { 404 1; default 0; }
HTTP
    location /one/ {
        limit_sliding zone=one settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /text/ {
        limit_sliding zone=one settle=1$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /bytes { limit_sliding zone=one settle=$bytes_sent; empty_gif; }
    location /failed/ {
        limit_sliding zone=two cost=0 settle=$failed;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /variable/ {
        limit_sliding zone=two cost=$http_x_reserve settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /status/ {
        limit_sliding zone=two count_status=404 settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /free/ {
        limit_sliding zone=two cost=0 count_status=404 settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /stages/ {
        limit_sliding zone=two count_status=404 dry_run;
        limit_sliding zone=watched after_auth dry_run;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /later/ {
        limit_sliding zone=two settle=$upstream_http_x_cost dry_run;
        limit_sliding zone=watched after_auth dry_run;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /page/ {
        limit_sliding zone=two settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
        proxy_intercept_errors on;
        error_page 404 /second/;
    }
    location /second/ {
        limit_sliding zone=two settle=$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /inner { limit_sliding zone=two settle=$http_x_costs; empty_gif; }
    location /two {
        limit_sliding zone=one settle=$http_x_costs;
        limit_sliding zone=two settle=$http_x_costs;
        empty_gif;
    }
    location /late {
        limit_sliding zone=two settle=$http_x_costs;
        limit_sliding zone=late after_auth;
        empty_gif;
    }
    location /watched {
        limit_sliding zone=two settle=$http_x_costs dry_run;
        limit_sliding zone=watched settle=$http_x_costs dry_run;
        empty_gif;
    }
    location /sub {
        limit_sliding zone=two settle=$http_x_costs;
        auth_request /one/;
        empty_gif;
    }
SERVER

my $key = fresh();
for my $bad (-1, '1.5', '1e3', 'null', 'many', '9007199254740993', '99999999999999999999',
    '1 2', '"5"') {
    ask('/one/', $key, $bad);
    used('one', $key);
    my @errors = $nginx->new_errors;
    is @errors, 1, "bad: $bad: one line";
    like $errors[0] // '', qr/invalid settle ".*" of a request in zone "one"/, "bad: $bad: what is bad";
    like $errors[0] // '', qr/\Q$bad\E/, "bad: $bad: its value" if $bad !~ /"/;
}
is used('one', $key), 9, 'bad: reservations stand';

$key = fresh();
ask('/one/', $key, '007');
is used('one', $key), 7, 'zeros in front';
ask('/text/', $key, '2');
is used('one', $key), 19, 'text and a variable';
is_deeply [ $nginx->new_errors ], [], 'nothing to complain of';

$key = fresh();
ask('/bytes', $key);
cmp_ok used('one', $key), '>', 200, 'bytes sent: all of them';

$key = fresh();
is statuses('/failed/', $key, (1) x 15), join(' ', (200) x 15), 'what does not fail is free';
is statuses('/failed/404', $key, (1) x 12), join(' ', (404) x 10, (429) x 2), 'what fails counts';

$key = fresh();
ask('/variable/', $key, 3, 'X-Reserve: 8');
is used('two', $key), 3, 'a variable reserved eight';
ask('/variable/', $key, 3, 'X-Reserve: 0');
is used('two', $key), 6, 'a variable reserved nothing';
is ask('/variable/', $key, 3, 'X-Reserve: 5')->{status}, 429, 'a variable reserves too much';
is used('two', $key), 6, 'of which nothing is charged';
ask('/variable/', $key, 4, 'X-Reserve: 0');
is ask('/variable/', $key, 0, 'X-Reserve: 0')->{status}, 429, 'a variable reserves nothing, used up';

$key = fresh();
ask('/status/', $key, 5);
is used('two', $key), 0, 'count_status: another status';
ask('/status/404', $key, 5);
is used('two', $key), 5, 'count_status: that status, settled';
ask('/status/404', $key);
is used('two', $key), 6, 'count_status: that status, nothing said';
ask('/free/404', $key);
is used('two', $key), 6, 'count_status: that status, nothing said, and free';
ask('/free/404', $key, 2);
is used('two', $key), 8, 'count_status: that status, free, settled';

$key = fresh();
is ask('/page/404', $key, 4)->{status}, 404, 'error_page';
is used('two', $key), 4, 'error_page: settled once';
is ask('/second/accel', $key, 3)->{status}, 200, 'X-Accel-Redirect';
is used('two', $key), 7, 'X-Accel-Redirect: settled once';

$key = fresh();
ask('/two', $key, 6);
is used('one', $key) . ' ' . used('two', $key), '6 6', 'two limits';
is ask('/two', $key, 6)->{status}, 200, 'two limits: the tighter one owes';
is ask('/two', $key, 6)->{status}, 429, 'two limits: one rejects';
is used('one', $key), 12, 'two limits: the other one is not charged for that';

$key = fresh();
is statuses('/late', $key, 2, 2, 2), '200 200 429', 'a later stage rejects';
is used('two', $key), 6, 'and the earlier one is settled all the same';

$key = fresh();
is statuses('/watched', $key, 1, 1, 1, 1), '200 200 200 200', 'watched';
is used('watched', $key) . ' ' . used('two', $key), '2 2',
    'watched: what would have been rejected is not charged';

$key = fresh();
is statuses('/stages/404', $key, 1, 1, 1, 1), '404 404 404 404', 'watched in two stages';
is used('watched', $key) . ' ' . used('two', $key), '2 2',
    'watched in two stages: what the later one would have rejected is not counted';

$key = fresh();
is statuses('/later/', $key, 2, 2, 2), '200 200 200', 'watched by a later stage';
is used('watched', $key) . ' ' . used('two', $key), '2 5',
    '... what it would have rejected has cost the reservation alone';

$key = fresh();
ask('/sub', $key, 3);
is used('two', $key) . ' ' . used('one', $key), '3 0', 'subrequests are not limited';


# without a key, or off

$key = fresh();
is $nginx->get('/one/')->{status}, 200, 'no key';
is_deeply [ $nginx->new_errors ], [], 'no key: nothing to settle';


# many at once

for my $name (qw(counter fixed tokens log parts)) {
    serve(http => <<"HTTP", server => <<'SERVER');
        limit_sliding_zone \$arg_key zone=many:1m rate=4000000 window=30d $ZONES{$name};
HTTP
        location /many { limit_sliding zone=many cost=$arg_r settle=$arg_c; empty_gif; }
SERVER
    my @costs = map { [ int rand 1000, int rand 1000 ] } 1 .. 2000;
    my $codes = $nginx->load(requests => [ map { "/many?key=a&r=$_->[0]&c=$_->[1]" } @costs ],
        connections => 64, pipeline => 4);
    is scalar(grep { $_ == 200 } @$codes), 2000, "$name: many at once";
    is used('many', 'a'), sum0(map { $_->[1] } @costs), "$name: the sum is exact";
}

$nginx->finish;
