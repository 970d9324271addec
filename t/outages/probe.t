# An outage ends without any traffic: a timer probes Redis while the breaker is
# open, so that the first requests after a rest are decided by Redis.

use v5.36;

use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $REST = 2;             # seconds without a request
$LimitSliding::Faults::LIMIT = 20;

# The first requests, of 16 connections at once: exactly the limit passes.
sub burst($nginx, $name) {
    my $key = $name =~ s/\W+/-/gr;
    my %passed;
    for my $policy (@LimitSliding::Faults::POLICIES) {
        my $statuses = $nginx->load(connections => 16,
            requests => [ ("/$policy?key=$key") x 32 ]);
        $passed{$policy} = grep { ($_ // 0) == 200 } @$statuses;
    }
    is_deeply \%passed, { map { $_ => $LimitSliding::Faults::LIMIT }
        @LimitSliding::Faults::POLICIES }, "$name: exactly the limit passes";
}

# Breaks it, lets it be seen, and heals it; `while_open` is called in between.
sub outage($nginx, $name, $break, $heal, $while_open = sub { }) {
    ok defined $nginx->wait_healthy, "$name: Redis decides";
    $break->();
    ok $nginx->open_breakers, '... until it is broken';
    $while_open->();
    $heal->();
    sleep $REST;
    burst($nginx, $name);
}


# Both as errors, which Debian's error_log shows, and once, whatever the number of
# workers.
sub is_logged($nginx, $least) {
    for my $policy (@LimitSliding::Faults::POLICIES) {
        my ($opened, $closed) = map { scalar(() = $nginx->log_lines($_)) }
            qr/\[error\].*redis "$policy" has failed repeatedly/,
            qr/\[error\].*redis "$policy" answers again/;
        cmp_ok $opened, '>=', $least, "$policy: the log tells of each outage";
        is $closed, $opened, '... and of its end';
    }
}

# Returns a Redis, and how it freezes and thaws.
sub redis() {
    my $redis = LimitSliding::Redis->new->start;
    return ($redis, sub { $redis->freeze }, sub { $redis->thaw });
}

sub one_server() {
    my ($redis, @frozen) = redis();
    my $nginx = LimitSliding::Faults->new(server => $redis->server);

    sleep 1.5;
    is $redis->connections, 0, 'nothing connects while nobody asks';

    outage($nginx, "frozen $_", @frozen) for 1 .. 3;
    outage($nginx, 'refused', sub { $redis->stop }, sub { $redis->start });
    is_logged($nginx, 4);

    my $connections = $redis->connections;
    sleep 1.5;
    is $redis->connections, $connections, 'nothing connects once it is closed';
    $nginx->finish_one;
}

# By workers that have not seen it open
sub replace_workers($nginx, @victims) {
    $nginx->kill_worker($_) for @victims;
    ok wait_for(sub {
        my %is = map { $_ => 1 } $nginx->workers;
        keys %is == $LimitSliding::Faults::WORKERS
            && !grep { $is{$_} } @victims;
    }), '... workers are killed';
}

sub new_workers() {
    my ($redis, @frozen) = redis();
    my $nginx = LimitSliding::Faults->new(server => $redis->server);

    for my $n (1, 2) {
        outage($nginx, "frozen, $n killed", @frozen, sub {
            replace_workers($nginx, ($nginx->workers)[0 .. $n - 1]);
        });
    }

    outage($nginx, 'frozen, reloaded', @frozen, sub {
        sleep 1.2;            # a probe is under way, or has been
        my $start = now;
        $nginx->reload;
        cmp_ok now() - $start, '<', 0.25 + 0.02, '... old workers leave';
    });
    is_logged($nginx, 3);
    $nginx->finish_one;
}

# Probes without traffic: about one a second of each block, of all workers
# together, spread over the last quarter of it.
sub four_workers() {
    my ($redis) = redis();
    my $fake = LimitSliding::FakeRedis->new($redis)->start;
    my $nginx = LimitSliding::Faults->new(server => $fake->server,
        worker_processes => 4);
    local $LimitSliding::Faults::WORKERS = 4;
    ok defined $nginx->wait_healthy, 'four workers';
    $fake->mode('refuse');
    $fake->reset;
    ok $nginx->open_breakers, '... Redis is broken';
    $fake->forget;
    sleep 5;
    my $tries = $fake->stats->{accepted};
    cmp_ok $tries, '>=', 3 * 5, '... it is probed';
    cmp_ok $tries, '<=', 3 * 6, '... not more often than it should';
    note "$tries probes of 3 blocks in 5 s";
    $fake->mode('pass');
    sleep $REST;
    burst($nginx, 'four workers');
    $nginx->finish_one;
}

sub tls() {
    SKIP: {
        skip 'NGINX has no TLS', 3 if !LimitSliding::Test->has_ssl;

        my $tls = LimitSliding::Redis::certificates(tempdir(CLEANUP => 1));
        my $secure = LimitSliding::Redis->new(tls => $tls)->start;
        my $nginx = LimitSliding::Faults->new(timeout => 0.5,
            server => '127.0.0.1:' . $secure->tls_port,
            block => "ssl on; ssl_trusted_certificate $tls->{ca};"
                . ' ssl_name redis.test;');
        outage($nginx, 'TLS', sub { $secure->freeze }, sub { $secure->thaw });
        $nginx->finish_one;
    }
}

sub sentinel() {
    my ($redis, @frozen) = redis();
    my $sentinel = $redis->sentinel;
    my $nginx = LimitSliding::Faults->new(server => $sentinel->server,
        block => 'topology sentinel; sentinel_master mymaster;');
    outage($nginx, 'sentinel, a frozen master', @frozen);
    outage($nginx, 'sentinel, both frozen',
        sub { $_->freeze for $sentinel, $redis },
        sub { $_->thaw for $sentinel, $redis });
    $nginx->finish_one;
}

# Returns a cluster and an NGINX.
sub cluster() {
    my $cluster = LimitSliding::Cluster->new(masters => 3, replicas => 0,
        timeout => 60)->start;
    return ($cluster, LimitSliding::Faults->new(server => $cluster->servers,
        block => 'topology cluster; key_format plain;'));
}

sub all_nodes() {
    my ($cluster, $nginx) = cluster();
    my @nodes = @{ $cluster->{nodes} };
    outage($nginx, "cluster, frozen $_", sub { $_->freeze for @nodes },
        sub { $_->thaw for @nodes }) for 1, 2;
    $nginx->finish_one;
}

# Of a node alone each worker learns by itself, and so it does once that is
# back: the first requests for its keys are the test.
sub node_failed($name, $times, $break, $heal) {
    my ($cluster, $nginx) = cluster();
    my $node = $cluster->{nodes}[1];
    my @of_node = grep { $cluster->master_of($cluster->slot($_)) == $node }
        map { "node-$_" } 1 .. 200;

    for my $time (1 .. $times) {
        ok defined $nginx->wait_healthy, "$name $time: Redis decides";
        $break->($node);
        my %failed;
        ok wait_for(sub {
            for my $policy (@LimitSliding::Faults::POLICIES) {
                my $r = $nginx->get("/$policy?key=$of_node[0]");
                $failed{ $policy . header($r, 'X-Worker') }++
                    if header($r, 'X-Source') eq 'fallback';
            }
            return keys %failed == 2 * @LimitSliding::Faults::POLICIES
                && !grep { $_ < 12 } values %failed;
        }), '... then policies do, of keys of one node';
        shift @of_node;
        $heal->($node);
        sleep $REST;
        burst($nginx, shift @of_node);
    }
    $nginx->finish_one;
}

sub frozen_node() {
    node_failed('a node, frozen', 3, sub ($node) { $node->freeze },
        sub ($node) { $node->thaw });
}

sub refused_node() {
    node_failed('a node, refused', 2, sub ($node) { $node->stop },
        sub ($node) {
            $node->start;
            wait_for(sub { $node->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/ });
        });
}

subtests(
    'one server'             => \&one_server,
    'new workers'            => \&new_workers,
    'four workers'           => \&four_workers,
    TLS                      => \&tls,
    'a master, its sentinel' => \&sentinel,
    'a cluster'              => \&all_nodes,
    'a frozen node of it'    => \&frozen_node,
    'a refused node of it'   => \&refused_node,
);
done_testing;
