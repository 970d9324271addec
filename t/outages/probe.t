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

# Asks until the breakers of all three blocks have opened once more.
sub open_breakers($nginx) {
    my $opened = sub { scalar(() = $nginx->log_lines(qr/failed repeatedly/)) };
    my $before = $opened->();
    return wait_for(sub {
        $nginx->rounds(1, 'opens-' . ++$nginx->{unique});
        $opened->() >= $before + @LimitSliding::Faults::POLICIES;
    });
}

# The first requests, of 16 connections at once: exactly the limit passes.
sub burst($nginx, $name) {
    my $key = $name =~ s/\W+/-/gr;
    my %passed;
    for my $policy (@LimitSliding::Faults::POLICIES) {
        my $statuses = $nginx->load(connections => 16,
            requests => [ ("/$policy?key=$key") x 60 ]);
        $passed{$policy} = grep { ($_ // 0) == 200 } @$statuses;
    }
    is_deeply \%passed, { map { $_ => $LimitSliding::Faults::LIMIT }
        @LimitSliding::Faults::POLICIES }, "$name: exactly the limit passes";
}

# Breaks it, lets it be seen, and heals it; `while_open` is called in between.
sub outage($nginx, $name, $break, $heal, $while_open = sub { }) {
    ok defined $nginx->wait_healthy, "$name: Redis decides";
    $break->();
    ok open_breakers($nginx), '... until it is broken';
    $while_open->();
    $heal->();
    sleep $REST;
    burst($nginx, $name);
}


# one server

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Faults->new(server => $redis->server);
my @frozen = (sub { $redis->freeze }, sub { $redis->thaw });

sleep 1.5;
is $redis->connections, 0, 'nothing connects while nobody asks';

outage($nginx, "frozen $_", @frozen) for 1 .. 3;
outage($nginx, 'refused', sub { $redis->stop }, sub { $redis->start });

# Both as errors, which Debian's error_log shows, and once, whatever the number of
# workers.
sub is_logged($least) {
    for my $policy (@LimitSliding::Faults::POLICIES) {
        my ($opened, $closed) = map { scalar(() = $nginx->log_lines($_)) }
            qr/\[error\].*redis "$policy" has failed repeatedly/,
            qr/\[error\].*redis "$policy" answers again/;
        cmp_ok $opened, '>=', $least, "$policy: the log tells of each outage";
        is $closed, $opened, '... and of its end';
    }
}
is_logged(4);

my $connections = $redis->connections;
sleep 1.5;
is $redis->connections, $connections, 'nothing connects once it is closed';

# By workers that have not seen it open
sub replace_workers(@victims) {
    $nginx->kill_worker($_) for @victims;
    ok wait_for(sub {
        my %is = map { $_ => 1 } $nginx->workers;
        keys %is == $LimitSliding::Faults::WORKERS
            && !grep { $is{$_} } @victims;
    }), '... workers are killed';
}

for my $n (1, 2) {
    outage($nginx, "frozen, $n killed", @frozen, sub {
        replace_workers(($nginx->workers)[0 .. $n - 1]);
    });
}

outage($nginx, 'frozen, reloaded', @frozen, sub {
    sleep 1.2;            # a probe is under way, or has been
    my $start = now;
    $nginx->reload;
    cmp_ok now() - $start, '<', 3, '... old workers leave';
});
is_logged(7);
$nginx->finish_one;


# Probes without traffic: about one a second of each block, of all workers
# together, spread over the last quarter of it.

my $fake = LimitSliding::FakeRedis->new($redis)->start;
$nginx = LimitSliding::Faults->new(server => $fake->server,
    worker_processes => 4);
{
    local $LimitSliding::Faults::WORKERS = 4;
    ok defined $nginx->wait_healthy, 'four workers';
    $fake->mode('refuse');
    $fake->reset;
    ok open_breakers($nginx), '... Redis is broken';
    $fake->forget;
    sleep 5;
    my $tries = $fake->stats->{accepted};
    cmp_ok $tries, '>=', 3 * 4, '... it is probed';
    cmp_ok $tries, '<=', 3 * 8, '... not more often than it should';
    note "$tries probes of 3 blocks in 5 s";
    $fake->mode('pass');
    sleep $REST;
    burst($nginx, 'four workers');
}
$nginx->finish_one;


# TLS

SKIP: {
    skip 'NGINX has no TLS', 3 if !LimitSliding::Test->has_ssl;

    my $tls = LimitSliding::Redis::certificates(tempdir(CLEANUP => 1));
    my $secure = LimitSliding::Redis->new(tls => $tls)->start;
    $nginx = LimitSliding::Faults->new(timeout => 0.5,
        server => '127.0.0.1:' . $secure->tls_port,
        block => "ssl on; ssl_trusted_certificate $tls->{ca};"
            . ' ssl_name redis.test;');
    outage($nginx, 'TLS', sub { $secure->freeze }, sub { $secure->thaw });
    $nginx->finish_one;
}


# a master and its sentinel

my $sentinel = LimitSliding::Redis->new(sentinel => 1)->start(sentinel => [
    'monitor mymaster 127.0.0.1 ' . $redis->port . ' 1',
    'down-after-milliseconds mymaster 60000' ]);
$nginx = LimitSliding::Faults->new(server => $sentinel->server,
    block => 'topology sentinel; sentinel_master mymaster;');
outage($nginx, 'sentinel, a frozen master', @frozen);
outage($nginx, 'sentinel, both frozen',
    sub { $_->freeze for $sentinel, $redis },
    sub { $_->thaw for $sentinel, $redis });
$nginx->finish_one;
$sentinel->stop;


# a cluster: all of it, and one node

my $cluster = LimitSliding::Cluster->new(masters => 3, replicas => 0,
    timeout => 60)->start;
my @nodes = @{ $cluster->{nodes} };
$nginx = LimitSliding::Faults->new(server => $cluster->servers,
    block => 'topology cluster; key_format plain;');
outage($nginx, "cluster, frozen $_", sub { $_->freeze for @nodes },
    sub { $_->thaw for @nodes }) for 1, 2;

# Of a node alone each worker learns by itself, and so it does once that is
# back: the first requests for its keys are the test.
my @of_node = grep {
    $cluster->master_of($cluster->slot($_)) == $nodes[1]
} map { "node-$_" } 1 .. 200;

sub node_failed($name, $break, $heal) {
    ok defined $nginx->wait_healthy, "$name: Redis decides";
    $break->();
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
    $heal->();
    sleep $REST;
    burst($nginx, shift @of_node);
}

node_failed("a node, frozen $_", sub { $nodes[1]->freeze },
    sub { $nodes[1]->thaw }) for 1 .. 3;
node_failed("a node, refused $_", sub { $nodes[1]->stop },
    sub { $nodes[1]->start; wait_for(sub {
        $nodes[1]->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/ }) })
    for 1, 2;
$nginx->finish;
