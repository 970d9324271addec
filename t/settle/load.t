# Many requests at once whose costs are known at their end: what is charged is
# the sum of what the upstream said, to the unit.

use v5.36;

use POSIX ();

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LIMIT = 50_000;
my $REQUESTS = 250;       # of a key
my $CONNECTIONS = 64;
my $COST = 1000;          # the largest

my $nginx = LimitSliding::Test->new(worker_processes => 4);
my $other = LimitSliding::Test->new(worker_processes => 4);

# The upstream takes a moment, so that many requests are under way.
$_->common(http => <<'HTTP', server => <<'SERVER') for $nginx, $other;
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

$_->write_file('html/body', 'x' x 400) for $nginx, $other;

# Returns what the requests of a key were to be charged, by the log; and how many passed.
sub said($key) {
    my ($sum, $passed) = (0, 0);
    for my $file (grep { -f } map { $_->dir . '/access.log' } $nginx, $other) {
        open my $log, '<', $file or die "$file: $!";
        while (my $line = <$log>) {
            my ($of, $status, $cost) = $line =~ /^(\S*) (\S*) ?(\d*)/ or next;
            next if $of ne $key || $status ne 'PASSED';
            $sum += $cost ne '' ? $cost : 1;
            $passed++;
        }
    }
    return wantarray ? ($sum, $passed) : $sum;
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

sub places($limit, $more = '') {
    return (http => join('', map { <<"ZONE" } @names), server => join('', map { <<"PLACE" } @names));
    limit_sliding_zone \$arg_key zone=$_:1m rate=$limit window=30d $ZONES{$_} $more;
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

# Asserts what is charged for many requests of a key of its own.
sub charges($name, $where, %opt) {
    my $what = "$name, $where";
    my $key = "$name-$where" =~ tr/ /-/r;
    my $passed = burst($name, "late-$key", $REQUESTS, %opt);
    cmp_ok $passed, '<', $REQUESTS, "$what: some are rejected";
    my ($sum, $ended) = said("late-$key");
    is $ended, $passed, "$what: all have ended";
    cmp_ok abs(used($name, "late-$key") - $sum), '<=', $name eq 'tokens' ? 1 : 0,
        "$what: what is charged is what the upstream said";
    cmp_ok $sum, '>=', $LIMIT, "$what: the limit is used up";
    cmp_ok $sum, '<', $LIMIT + $CONNECTIONS * $COST,
        "$what: over the limit only by what was in flight";

    burst("true-$name", "true-$key", $REQUESTS, %opt);
    my $true = said("true-$key");
    is used($name, "true-$key"), $true, "$what: reserved in full: charged as it was said";
    cmp_ok $true, '<=', $LIMIT, "$what: reserved in full: never over";
    cmp_ok $true, '>', $LIMIT - $COST, "$what: reserved in full: nearly all of it";
}

$nginx->serve(places($LIMIT));
charges($_, 'one node') for @names;


# the same over two nodes with one Redis

my $redis = LimitSliding::Redis->new->start;
my %shared = places($LIMIT, 'redis=shared');
$shared{http} .= "limit_sliding_redis shared { server ${\ $redis->server};"
    . ' timeout 5s; connect_timeout 5s; }';

$_->serve(%shared) for $nginx, $other;
charges($_, 'two nodes', beside => [$other]) for @names;
$other->finish_one;
$redis->stop;


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
    my $reloads = beside(sub { for (1 .. 5) { sleep 1; kill HUP => $master } });
    my $aborts = beside(sub { srand; go_away($name, $key, 100) });
    my $passed = 0;
    for (1 .. 25) {
        $passed += burst($name, $key, 100);
        sleep 0.2;
    }
    waitpid $_, 0 for $reloads, $aborts;
    ok wait_for(sub { 4 == $nginx->workers && 4 == grep { 1 } $nginx->children }),
        "$name: reloads are over";

    my ($sum, $ended) = said($key);
    cmp_ok $ended, '>=', $passed, "$name: reloads and aborts: all have ended";
    is used($name, $key), $sum, "$name: reloads and aborts: what is charged is what was said";
    cmp_ok $sum, '>', 500 * $COST / 2, "$name: reloads and aborts: many were";
}

$nginx->finish;
