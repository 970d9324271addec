# topology cluster against nodes that mislead, refuse, hide or hang: hops and
# time are bounded, and requests are answered.

use v5.36;

use IO::Select;
use IO::Socket::INET;
use Test::More;

use LimitSliding::Cluster;
use LimitSliding::Docs qw(content);
use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $HOPS = 5;

# A cluster of one node.
sub single(%config) {
    my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0,
        config => \%config);
    $cluster->start;
    return ($cluster, $cluster->{nodes}[0]);
}

sub wait_ok($node) {
    return wait_for(sub {
        $node->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/;
    });
}

sub nginx($server, %opt) {
    my $block = delete $opt{block} // '';
    return LimitSliding::Faults->new(server => $server, %opt,
        block => "topology cluster; $block");
}

sub sources($nginx, $key, $n = 4) {
    my $answers = $nginx->rounds($n, $key);
    return { map { $_->{source} => 1 } map { @$_ } values %$answers };
}

# Directions that lead nowhere, and those without a host
sub directions() {
    my ($real, $fake) = LimitSliding::FakeRedis->cluster;

    # Time enough for all hops, on a machine that is busy, too.
    my $nginx = nginx($fake->server, timeout => 5);
    ok defined $nginx->wait_healthy, 'a node that calls itself otherwise';

    for ([ 'a loop', 'MOVED 1 127.0.0.1:' . $fake->port ],
        [ 'a loop without a host', 'MOVED 1 :' . $fake->port ],
        [ 'a loop of ASK', 'ASK 1 127.0.0.1:' . $fake->port ])
    {
        my ($name, $error) = @$_;
        $fake->mode('say', "-$error\\r\\n");
        $fake->forget;
        my $answers = $nginx->rounds(1, 'loop', 'deny');
        $nginx->in_time($answers, 0);
        my ($answer) = @{ $answers->{deny} };
        is "$answer->{status} $answer->{source}", '429 fallback',
            "$name: answered by policy";
        cmp_ok $answer->{seconds}, '<', $nginx->{timeout} / 2,
            '... without waiting';
        my $commands = $fake->stats->{commands};
        is $commands->{EVALSHA}, 1 + $HOPS, '... after so many hops';
        is $commands->{ASKING} // 0, $error =~ /ASK/ ? $HOPS : 0, '... asking';
        cmp_ok $commands->{CLUSTER} // 0, '<=', 6, '... without a storm';
        $fake->mode('pass');
        ok defined $nginx->wait_healthy, '... and Redis decides again';
    }

    # Without a host. What was asked runs here behind the fake's back, too.
    $fake->mode('say', '-MOVED 1 :' . $real->port . '\r\n');
    is_deeply sources($nginx, 'same-host', 2), { redis => 1 },
        'MOVED without a host: the same one';
    $fake->mode('say', '-ASK 1 :' . $real->port . '\r\n');
    is_deeply sources($nginx, 'same-host-ask', 2), { redis => 1 },
        'ASK without a host: the same one';
    cmp_ok $real->count('asking'), '>', 0, '... and it is told so';
    $fake->mode('pass');

    # A name with a line of the log in it is no name.
    my $line = '1999/01/01 00:00:00 [error] 1#1: *1 limiting requests, excess: 1.000'
        . ' by zone "allow", client: 10.0.0.1';
    $fake->mode('say', "-MOVED 1 x\\n$line:1\\r\\n");
    $nginx->ask('/allow?key=forged');
    my $map = "x\\n$line";
    $fake->mode('answer', 'CLUSTER', '*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$'
        . (length($map) - 1) . "\\r\\n$map\\r\\n:1\\r\\n");
    $fake->reset;
    $fake->forget;
    wait_for(sub {
        $nginx->ask('/allow?key=forged');
        ($fake->stats->{commands}{CLUSTER} // 0) > 3;
    });
    $fake->mode('pass');
    ok defined $nginx->wait_healthy, 'names with a line feed: Redis decides again';
    unlike $nginx->log, qr/^1999.* limiting requests/m, '... and no line is forged';
    $nginx->exact('after');
    $nginx->finish_one;
}

# Words that are no directions, and errors. Each is about a slot of its own, because a worker
# keeps the node that a direction has named, and asks no other one about that slot.
sub errors() {
    my ($real, $fake) = LimitSliding::FakeRedis->cluster;
    my $nobody = IO::Socket::INET->new(Proto => 'tcp', Listen => 1, LocalAddr => '127.0.0.1')
        // die "listen: $!";
    my $nginx = nginx($fake->server, timeout => 5);
    my $slots = 0;
    ok defined $nginx->wait_healthy, 'at first Redis decides';
    for my $error ('MOVED', 'MOVED ', 'MOVED 1', 'MOVED 1 ',
        'MOVED 1 127.0.0.1', 'MOVED 1 127.0.0.1:', 'MOVED 1 127.0.0.1:0',
        'MOVED 1 127.0.0.1:65536', 'MOVED 1 127.0.0.1:' . (65536 + $nobody->sockport),
        'MOVED 1 ' . 'x' x 300 . ':1', 'ASK', 'ASK 1', 'ASK 1 :', "ASK 1 \x01:1",
        'TRYAGAIN Multiple keys request during rehashing of slot',
        'CLUSTERDOWN The cluster is down', 'CLUSTERDOWN Hash slot not served',
        'MOVED 1 127.0.0.1:1', 'MOVED 1 nowhere.test:1', 'MOVED 1 ::1:1')
    {
        $fake->mode('say', "-$error\\r\\n");
        $fake->forget;
        my ($answer) = $nginx->ask('/allow?key=wrong-' . ++$slots);
        is "$answer->{status} $answer->{source}", '200 fallback',
            'policy: ' . substr $error, 0, 30;
        my $commands = $fake->stats->{commands};
        cmp_ok $commands->{EVALSHA} // 0, '>', 0, '... which was the reply';
        cmp_ok $commands->{CLUSTER} // 0, '<=', 6, '... no storm';
        $fake->mode('pass');
        ok defined $nginx->wait_healthy, '... and Redis decides again';
    }
    ok !IO::Select->new($nobody)->can_read(0), 'no number above 65535 is taken for a port';
    $nginx->finish_one;
}

# What is fast, stays so, and what hangs, hangs one request at a time
sub faults() {
    my ($real, $fake) = LimitSliding::FakeRedis->cluster;
    my $nginx = nginx($fake->server, timeout => 0.5);
    $nginx->fault('a frozen node', sub { $real->freeze }, sub { $real->thaw });
    $nginx->fault('a dead node', sub { $fake->mode('refuse'); $fake->reset },
        sub { $fake->mode('pass') });
    $nginx->fault('no cluster any more',
        sub { $real->command(qw(CLUSTER DELSLOTSRANGE 0 16383)) },
        sub {
            $real->command(qw(CLUSTER ADDSLOTSRANGE 0 16383));
            wait_ok($real);
        }, opens => 0);
    $nginx->finish_one;
}

# Seeds: the first are dead, hang, and know of no cluster
sub seeds() {
    my $lone = LimitSliding::Redis->new->start;
    my $empty = LimitSliding::Redis->new(config => { 'cluster-enabled' => 'yes' })->start;
    my ($cluster, $node) = single();
    my $dead = '127.0.0.1:' . LimitSliding::Test::reserve_port()->{port};
    my $servers = join '; server ', $dead, $lone->server, $empty->server,
        $node->server;

    my $nginx = nginx($servers, timeout => 1);
    my ($first) = $nginx->ask('/deny?key=first');
    is $first->{source}, 'redis', 'bad seeds: the first request finds a good one';
    ok defined $nginx->wait_healthy, '... and so do others';
    $nginx->exact('seeds');
    is $lone->calls, 0, '... no other is asked for decisions';
    $nginx->finish_one;
}

# A password, and a user that may do what docs/redis.md says and no more
sub users() {
    my ($cluster, $node) = single();
    my @acls = content('docs/redis.md') =~ /^ACL SETUSER limiter (.*)$/mg;
    my ($bans, $in_flight, $memory, $key, $list) = splice @acls, -5;
    is @acls, 2, 'docs/redis.md has an ACL, and what a cluster adds to it';
    like $bans, qr/^\+zrange .*\+zrem /, '... then what bans need';
    like $in_flight, qr/\+psetex /, '... requests in flight';
    is $memory, '+info', '... memory';
    is $key, '+pttl', '... what the API tells of a key';
    like $list, qr/^\+scan /, '... and the list of limits';
    my @rules = map { s/^>password$/>secret/r } split ' ', "@acls";
    $node->command(qw(ACL SETUSER limiter), @rules);
    $node->command(qw(CONFIG SET requirepass none));
    $node->reconnect;
    $node->{password} = 'none';

    my $nginx = nginx($node->server, timeout => 1,
        block => 'user limiter; password secret;');
    ok defined $nginx->wait_healthy, 'a user: Redis decides';
    $nginx->exact('user');
    $node->command(qw(ACL SETUSER limiter -get));
    is_deeply sources($nginx, 'blind', 2), { fallback => 1 },
        '... not if it may not read';
    like $nginx->log, qr/NOPERM|can't run this command|no permission/,
        '... and it is said why';
    $nginx->finish_one;

    $nginx = nginx($node->server, timeout => 1);
    is_deeply sources($nginx, 'x', 1), { fallback => 1 },
        'without a password: policies';
    like $nginx->log, qr/NOAUTH/, '... and it is said why';
    $nginx->finish_one;
}

# Plain keys with braces: the state and a limit of its own stay together.
sub plain_keys() {
    my ($cluster, $node) = single();
    my $nginx = nginx($node->server, timeout => 1, block => 'key_format plain;');
    ok defined $nginx->wait_healthy, 'plain keys: Redis decides';
    for my $key ('}', '}a{', '{', '{}', 'a}', '{b}') {
        my ($answer) = $nginx->ask("/deny?key=$key");
        is $answer->{source}, 'redis', "... a key of $key";
    }
    $nginx->finish_one;
}

# IPv6, as a node says it of itself
sub ipv6() {
    SKIP: {
        skip 'no IPv6', 2 if !eval { require IO::Socket::IP;
            IO::Socket::IP->new(LocalHost => '::1', Listen => 1) };

        my ($six, $node) = single(bind => '127.0.0.1 ::1',
            'cluster-announce-ip' => '::1');
        my $nginx = nginx($node->server, timeout => 1);
        ok defined $nginx->wait_healthy, 'IPv6: Redis decides';
        $nginx->exact('six');
        ok scalar(grep { $_->{addr} =~ /^\[::1\]/ } $node->clients),
            '... over IPv6';
        $nginx->finish_one;
    }
}

# TLS, by a name that the certificate has or, as nodes say it, has not
sub tls() {
    SKIP: {
        skip 'no TLS', 5 if !LimitSliding::Test->new->has_ssl;

        my $tls = LimitSliding::Redis::certificates(
            File::Temp::tempdir(CLEANUP => 1));
        my $secure = LimitSliding::Redis->new(tls => $tls, config => {
            'cluster-enabled' => 'yes', 'tls-cluster' => 'yes',
            'cluster-announce-ip' => '127.0.0.1' })->start;
        $secure->command(qw(CLUSTER ADDSLOTSRANGE 0 16383));
        wait_ok($secure);

        my $server = '127.0.0.1:' . $secure->tls_port;
        my $block = "ssl on; ssl_trusted_certificate $tls->{ca};";
        my $nginx = nginx($server, timeout => 1,
            block => "$block ssl_name redis.test;");
        ok defined $nginx->wait_healthy, 'TLS: Redis decides';
        $nginx->exact('tls');
        $nginx->finish_one;

        $nginx = nginx($server, timeout => 1, block => $block);
        is_deeply sources($nginx, 'x', 1), { fallback => 1 },
            "TLS: a host that is not the certificate's";
        $nginx->finish_one;
    }
}

# Names of nodes need a resolver, even where seeds are addresses. They differ in case.
sub names() {
    my ($cluster, $node) = single('cluster-announce-hostname' => 'Redis.TEST',
        'cluster-preferred-endpoint-type' => 'hostname');
    my $nginx = nginx($node->server, timeout => 0.5);
    is_deeply sources($nginx, 'x', 1), { fallback => 1 },
        'a name without a resolver: policies';
    like $nginx->log, $nginx->always_resolves
        ? qr/redis\.test could not be resolved/ : qr/redis\.test:\d+: no resolver/,
        '... and it is said why';
    $nginx->finish_one;
}

subtests(
    directions => \&directions,
    errors     => \&errors,
    faults     => \&faults,
    seeds      => \&seeds,
    users      => \&users,
    plain_keys => \&plain_keys,
    IPv6       => \&ipv6,
    TLS        => \&tls,
    names      => \&names,
);
done_testing;
