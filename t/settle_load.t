# Many requests at once whose costs are known at their end: what is charged is
# the sum of what the upstream said, to the unit.

use v5.36;

use POSIX ();

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $LIMIT = 100_000;
my $CONNECTIONS = 64;
my $COST = 1000;          # the largest

my $nginx = LimitSliding::Test->new(worker_processes => 4);

# The upstream takes a moment, so that many requests are under way.
$nginx->common(http => <<'HTTP', server => <<'SERVER');
    log_format costs "$arg_key $limit_sliding_status $upstream_http_x_cost";

    server {
        listen 127.0.0.1:%%PORT1%%;
        location / {
            add_header X-Cost $arg_cost;
            add_header Content-Type text/plain;
            limit_rate 20k;
            try_files /body =404;
        }
    }
HTTP
    access_log %%DIR%%/access.log costs;
    location /limits { access_log off; limit_sliding_api; }
SERVER

$nginx->write_file('html/body', 'x' x 400);

# Returns what the requests of a key were to be charged, by the log.
sub said($key) {
    open my $log, '<', $nginx->dir . '/access.log' or die "access.log: $!";
    my $sum = 0;
    while (<$log>) {
        my ($of, $status, $cost) = /^(\S*) (\S*) ?(\d*)/ or next;
        next if $of ne $key || $status ne 'PASSED';
        $sum += $cost ne '' ? $cost : 1;
    }
    return $sum;
}

sub used($zone, $key) { return api_key($nginx, $zone, $key)->{used} }

# Sends so many requests of random costs; returns how many passed.
sub burst($zone, $key, $n, %opt) {
    my $codes = $nginx->load(connections => $CONNECTIONS, %opt, requests =>
        [ map { "/$zone?key=$key&cost=" . (1 + int rand $COST) } 1 .. $n ]);
    return scalar grep { ($_ // 0) == 200 } @$codes;
}

my %ZONES = (counter => '', fixed => 'algorithm=fixed', tokens => 'algorithm=token_bucket',
    parts => 'precision=6', log => 'algorithm=log', strict => 'strict');
my @names = sort keys %ZONES;

sub places($limit) {
    return (http => join('', map { <<"ZONE" } @names), server => join('', map { <<"PLACE" } @names));
    limit_sliding_zone \$arg_key zone=$_:1m rate=$limit window=30d $ZONES{$_};
ZONE
    location /$_ {
        limit_sliding zone=$_ settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%;
    }
    location /true-$_ {
        limit_sliding zone=$_ cost=\$arg_cost settle=\$upstream_http_x_cost;
        proxy_pass http://127.0.0.1:%%PORT1%%;
    }
PLACE
}

$nginx->serve(places($LIMIT));

for my $name (@names) {
    my $passed = burst($name, "late-$name", 500);
    cmp_ok $passed, '<', 500, "$name: some are rejected";
    ok wait_for(sub { used($name, "late-$name") >= said("late-$name") }, 5), "$name: all are charged";
    my $sum = said("late-$name");
    cmp_ok abs(used($name, "late-$name") - $sum), '<=', $name eq 'tokens' ? 1 : 0,
        "$name: what is charged is what the upstream said";
    cmp_ok $sum, '>=', $LIMIT, "$name: the limit is used up";
    cmp_ok $sum, '<', $LIMIT + $CONNECTIONS * $COST,
        "$name: over the limit only by what was in flight";

    burst("true-$name", "true-$name", 500);
    my $true = said("true-$name");
    is used($name, "true-$name"), $true, "$name: reserved in full: charged as it was said";
    cmp_ok $true, '<=', $LIMIT, "$name: reserved in full: never over";
    cmp_ok $true, '>', $LIMIT - $COST, "$name: reserved in full: nearly all of it";
}


# the same while NGINX reloads each second, and a tenth of the clients go away

# Runs a function in a process of its own, and returns its pid.
sub beside($function) {
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    $function->();
    POSIX::_exit(0);
}

# Sends requests, and closes each connection as soon as the response has begun,
# or after a random while.
sub go_away($zone, $key, $n) {
    for (1 .. $n) {
        my $socket = $nginx->send_request("/$zone?key=$key&cost=" . (1 + int rand $COST));
        rand() < 0.5 ? sysread($socket, my $begun, 100) : sleep 0.02 * rand;
        close $socket;
    }
}

@names = qw(counter fixed);
$nginx->serve(places(1_000_000_000));

for my $name (@names) {
    my $key = "hard-$name";
    my $master = $nginx->master;
    my $began = now();
    my $reloads = beside(sub { for (1 .. 5) { sleep 1; kill HUP => $master } });
    my $aborts = beside(sub { srand; go_away($name, $key, 100) });
    my $passed = 0;
    $passed += burst($name, $key, 100) while now() - $began < 5.5;
    waitpid $_, 0 for $reloads, $aborts;
    ok wait_for(sub { 4 == $nginx->workers && 4 == grep { 1 } $nginx->children }),
        "$name: reloads are over";

    ok wait_for(sub { used($name, $key) >= said($key) }, 5), "$name: reloads and aborts: all are charged";
    my $sum = said($key);
    is used($name, $key), $sum, "$name: reloads and aborts: what is charged is what was said";
    cmp_ok $sum, '>', 500 * $COST / 2, "$name: reloads and aborts: many were";
}

$nginx->finish;
