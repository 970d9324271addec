# A flood of streams of HTTP/2 that are reset, at once, while they wait for Redis,
# while their response is sent, or with their connection. Nobody waits for them,
# each is charged, and workers have as much memory and as many descriptors as
# before.
#
# RST_ROUNDS is how many rounds of three thousand streams there are (3).

use v5.36;

use List::Util qw(max sum0);
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Frames;
use LimitSliding::Redis;
use LimitSliding::Test;

my $ROUNDS = $ENV{RST_ROUNDS} // 3;
my ($CONNECTIONS, $STREAMS) = (16, 64);
# Bytes that a worker may have more: how many streams there are at once differs, and
# each stream has a pool of 4 kB.
my $GROWTH = 4 << 20;

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 2)->common(http => <<"HTTP",
    limit_sliding_redis shared { server ${\ $redis->server }; timeout 60s; connect_timeout 60s; }
    limit_sliding_zone \$arg_key zone=remote:1m rate=1000000 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=paid:1m rate=100000000 window=30d;
    log_format streams "\$arg_key \$status \$limit_sliding_status \$arg_cost";
HTTP
    server => <<'SERVER');
    http2_listen 127.0.0.1:%%PORT1%% reuseport;
    access_log %%DIR%%/access.log streams;
    location /remote { limit_sliding zone=remote; empty_gif; }
    location /both   { limit_sliding zone=remote; limit_sliding zone=paid settle=$arg_cost;
                       limit_rate 1k; try_files /body =404; }
    location /paid   { limit_sliding zone=paid settle=$arg_cost; limit_rate 1k;
                       try_files /body =404; }
    location /limits { access_log off; limit_sliding_api; }
SERVER
$nginx->write_file('html/body', 'x' x 10_000);
$nginx->serve;

# Returns the streams of a key that were logged: { 'status of the limit' => [cost] }
sub logged($key) {
    open my $log, '<', $nginx->dir . '/access.log' or die "access.log: $!";
    my %logged;
    while (my $line = <$log>) {
        my ($of, undef, $status, $cost) = split / /, $line;
        push @{ $logged{$status} }, $cost if $of eq $key;
    }
    return %logged;
}

sub used($zone, $key) { return api_key($nginx, $zone, $key)->{used} }

# Returns the most memory of its own that a worker has now, and the descriptors of
# all.
sub held() {
    my ($most, $descriptors) = (0, 0);
    for my $pid ($nginx->workers) {
        open my $file, '<', "/proc/$pid/status" or next;
        $most = max($most, 1024 * $1) if join('', <$file>) =~ /^RssAnon:\s*(\d+) kB/m;
        $descriptors += () = glob "/proc/$pid/fd/*";
    }
    return ($most, $descriptors);
}

# Sends the streams of one connection, and resets them in one of three ways.
sub flood($path, $way, $pause) {
    my $socket = $nginx->connect(port => 1);
    local $SIG{PIPE} = 'IGNORE';
    my $cost = 1;
    my @streams = map { 2 * $_ + 1 } 0 .. $STREAMS - 1;
    my @requests = map { request($_, "$path&cost=" . $cost++ % 7) } @streams;
    my @resets = map { reset_stream($_) } @streams;

    # small writes, so that a turn of NGINX's event loop has not too many
    my $write = sub (@frames) {
        while (my @some = splice @frames, 0, 16) { syswrite $socket, join '', @some }
    };
    syswrite $socket, greeting();
    if ($way eq 'at once') {
        $write->(map { $requests[$_] . $resets[$_] } 0 .. $#streams);
    } else {
        $write->(@requests);
        sleep $pause;
        $write->(@resets) if $way eq 'later';
    }
    return $socket;
}

# Floods a place over many connections, and ends them. The log is empty before.
sub round($path, $key, %opt) {
    truncate $nginx->dir . '/access.log', 0;
    my @sockets = map {
        flood("$path?key=$key", ('at once', 'later', 'with connection')[ $_ % 3 ],
            $opt{pause} // 0.005)
    } 1 .. $CONNECTIONS;
    for (@sockets) {
        setsockopt $_, SOL_SOCKET, SO_LINGER, pack 'ii', $opt{abort} ? 1 : 0, 0;
        close $_;
    }
}

# Waits until so many were logged, or no more come.
sub all_logged($key) {
    my ($n, $still) = (0, 0);
    wait_for(sub {
        my %logged = logged($key);
        my $now = sum0(map { scalar @$_ } values %logged);
        $still = $now == $n ? $still + 1 : 0;
        $n = $now;
        return $n == $CONNECTIONS * $STREAMS || $still > 50;
    });
    return $n;
}


my ($streams, @wrong, $base, $descriptors) = (0);

sub complain($round, $text) { push @wrong, "round $round: $text" }

for my $round (1 .. $ROUNDS) {
    # they wait for Redis
    my $key = "frozen-$round";
    $redis->freeze;
    round('/remote', $key, abort => $round % 2);
    my $n = all_logged($key);
    $redis->thaw;
    complain($round, "$n streams only") if $n < $CONNECTIONS * $STREAMS / 4;
    my $used = wait_for(sub { my $used = used('remote', $key); $used >= $n && $used }, 10)
        || used('remote', $key);
    complain($round, "frozen: $n streams, $used charged") if $used != $n;
    $streams += $n;

    # Their costs are settled; a reservation stands of those that wait for Redis.
    for my $path (qw(/paid /both)) {
        $key = "$path-$round";
        $redis->freeze if $path eq '/both' && $round % 2;
        round($path, $key, abort => $round % 2, pause => 0.02);
        $streams += all_logged($key);
        $redis->thaw;
        my %logged = logged($key);
        my $cost = sum0(map { @$_ } @logged{ grep { $_ eq 'PASSED' } keys %logged });
        my $undecided = @{ $logged{'-'} // [] };
        # a response is logged before its cost is settled
        my $paid;
        wait_for(sub { ($paid = used('paid', $key)) == $cost + $undecided }, 5);
        complain($round, "$path: cost $cost, $undecided undecided, $paid charged")
            if $paid != $cost + $undecided;
    }

    ($base, $descriptors) = held() if $round == int(($ROUNDS + 1) / 2);
    note join ' ', $round, held() if $round % 10 == 0;
}

is join("\n", @wrong), '', "$streams streams were reset: all are charged";
my ($most, $now) = held();
SKIP: {
    skip 'a sanitizer keeps what was freed', 1 if $ENV{ASAN_OPTIONS};
    cmp_ok $most, '<=', $base + $GROWTH, 'workers have no more memory';
}
cmp_ok $now, '<=', $descriptors + $nginx->workers,
    '... and no more descriptors, but for a connection to Redis each';
note "memory: $base, then $most";
is $nginx->statuses(3, '/remote?key=after'), '200 200 200', 'others are served';
is used('remote', 'after'), 3, '... and counted';

$nginx->finish(allow => [ qr/open socket .* left in connection/ ]);
