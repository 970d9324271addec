# A Redis by its name: found when there is need, found again when it moves, and
# not lost when the name server is.

use v5.36;

use Test::More;

use LimitSliding::Cluster;
use LimitSliding::Dns;
use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

# Two of them on the same port, of two addresses of this machine
my $first = LimitSliding::Redis->new;
my $second = LimitSliding::Redis->new(address => '127.0.0.2',
    port => $first->port);
my $port = $first->port;
$_->start for $first, $second;

my $dns = LimitSliding::Dns->new(ttl => 1)->start;
$dns->set('redis.test', '127.0.0.1');

my $nginx = LimitSliding::Faults->new(server => "redis.test:$port",
    timeout => 0.5, http => 'resolver 127.0.0.1:' . $dns->port . ' valid=1s;'
        . ' resolver_timeout 1s;', start => 0);


# a name server that does not answer, at the start

$dns->mute(1);
my $start = now;
my ($exit, $output) = $nginx->test_config($nginx->config);
is $exit, 0, 'a dead name server: the configuration is right'
    or diag $output;
is now, $start, '... at once';
$nginx->start($nginx->config);
cmp_ok now() - $start, '<', 0.02, '... and NGINX starts';

# Those that find a name server just tried fail at once, and count for nothing.
my $answers = $nginx->rounds(16, 'dead');
is join(' ', map { $_->{status} } @{ $answers->{local} }),
    join(' ', (200) x 5, (429) x 11), '... and policies apply: local';
is join(' ', map { $_->{status} } @{ $answers->{allow} }),
    join(' ', (200) x 16), '... allow';
is join(' ', map { $_->{status} } @{ $answers->{deny} }),
    join(' ', (429) x 16), '... deny';
$nginx->in_time($answers, 1);
$dns->mute(0);
ok defined $nginx->wait_healthy, 'it answers: Redis decides';
$nginx->exact('answers');
cmp_ok $first->calls, '>', 0, '... the first one';
is $second->calls, 0, '... not the second';


# dead later: the last addresses are kept

$dns->mute(1);
sleep 1.5;
$nginx->exact('mute');
$first->kill_clients;
ok defined $nginx->wait_healthy,
    'connections broken, the name server dead: Redis decides';
$nginx->exact('kept');


# so are they over a reload, and for workers that take the place of dead ones

$nginx->reload;
ok defined $nginx->wait_healthy, 'a reload, the name server dead: Redis decides';
$nginx->exact('reloaded');
my %old = map { $_ => 1 } $nginx->workers;
$nginx->kill_worker($_) for keys %old;
ok wait_for(sub {
    my @new = grep { !$old{$_} } $nginx->workers;
    @new == $LimitSliding::Faults::WORKERS;
}), 'all workers are killed, the name server dead';
ok defined $nginx->wait_healthy, '... Redis decides';
$nginx->exact('killed');
$dns->mute(0);

$dns->set('redis.test');
sleep 1.5;
$first->kill_clients;
ok defined $nginx->wait_healthy,
    'connections broken, the name without an address: Redis decides';
$dns->set('redis.test', '127.0.0.1');


# moved

my $before = $second->calls;
$nginx->fault('moved', sub { $first->stop; sleep 1.2; },
    sub { $dns->set('redis.test', '127.0.0.2') }, recovery => 5);
cmp_ok $second->calls, '>', $before, 'the second Redis decides';
is scalar(grep { /:local:/ } $second->keys) > 0, 1, '... and keeps the keys';


# several addresses, of which one is dead

$dns->set('redis.test', '127.0.0.1', '127.0.0.2');
sleep 1.5;
$second->kill_clients;
ok defined $nginx->wait_healthy, 'two addresses, one is dead';
$nginx->exact('two');


# many addresses, of which one listens: all are tried in one attempt, and the
# one that answered is the first of the next attempt; the same with an address
# of IPv6 that refuses, beside one of IPv4

my $last = LimitSliding::Redis->new(address => '127.0.0.20', port => $port)
    ->start;
$second->stop;
$dns->set('redis.test', map { "127.0.0.$_" } 1 .. 24);
sleep 1.2;
my $many = LimitSliding::Faults->new(server => "redis.test:$port", timeout => 1,
    http => 'resolver 127.0.0.1:' . $dns->port . ' valid=1s;');

for my $when ('24 addresses, one listens: started', '... connections broken', '... again',
    'IPv6 and IPv4: started', '... connections broken again')
{
    if ($when =~ /IPv6/) {
        $dns->set('redis.test', '::1', '127.0.0.20');
        sleep 1.2;
    }

    my %fallback;
    for my $try (1 .. 3) {
        my $answers = $many->rounds(4, "$when-$try" =~ s/\W/-/gr);
        $fallback{$_->{source}}++ for map { @$_ } values %$answers;
        $last->kill_clients;
    }
    is_deeply \%fallback, { redis => 36 }, $when;
}
$dns->set('redis.test', '127.0.0.1');
$many->finish_one;
$last->stop;
$second->start;


# capitals, which no resolver keeps

my $resolver = 'resolver 127.0.0.1:' . $dns->port . ' valid=1s;';
my $sentinel = LimitSliding::FakeRedis->new($first->start)->start;
my $line = '1999/01/01 00:00:00 [error] 1#1: *1 limiting requests, excess: 1.000'
    . ' by zone "allow", client: 10.0.0.1';

sub names_master($name) {
    $sentinel->mode('answer', 'SENTINEL', '*2\r\n$' . length($name =~ s/\\n/n/r)
        . "\\r\\n$name\\r\\n\$" . length($port) . "\\r\\n$port\\r\\n");
}

names_master('Redis.TEST');
my $found = LimitSliding::Faults->new(server => $sentinel->server, timeout => 1,
    http => $resolver, block => 'topology sentinel; sentinel_master m;');
ok defined $found->wait_healthy, 'a master in capitals: Redis decides';
my $looks = $sentinel->stats->{commands}{SENTINEL};
ok wait_for(sub {
    $found->get('/big?key=x') for 1 .. 10;
    $sentinel->stats->{commands}{SENTINEL} > $looks + 4;
}), '... and looked at again';
unlike $found->log, qr/another master/, '... it is the same one';

names_master("x\\n$line");
$first->kill_clients;
ok wait_for(sub {
    $found->get('/big?key=x');
    $found->log =~ /unexpected reply|^1999/m;
}), 'a master whose name has a line feed';
names_master('Redis.TEST');
ok defined $found->wait_healthy, '... is none, and Redis decides again';
unlike $found->log, qr/^1999.* limiting requests/m, '... and no line is forged';
$found->finish_one;

my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0, config => {
    'cluster-announce-hostname' => 'Redis.TEST',
    'cluster-preferred-endpoint-type' => 'hostname' })->start;
my $node = $cluster->{nodes}[0];
$dns->set('redis.test', '127.0.0.1');
my $named = LimitSliding::Faults->new(server => 'REDIS.test:' . $node->port,
    timeout => 1, http => $resolver, block => 'topology cluster;');
ok defined $named->wait_healthy, 'a node in capitals: Redis decides';
cmp_ok $named->connections_to($node->port), '<=',
    $LimitSliding::Faults::WORKERS * @LimitSliding::Faults::POLICIES,
    '... over one connection of each worker and block';
$named->finish_one;
$node->stop;


# a name of /etc/hosts, without a resolver

my $hosts = LimitSliding::Faults->new(server => "localhost:$port",
    timeout => 1);
ok defined $hosts->wait_healthy, 'no resolver: found at the start';
$hosts->exact('hosts');
$hosts->finish_one;


# localhost, which this name server does not know

my $local = LimitSliding::Faults->new(server => "localhost:$port",
    timeout => 1, http => 'resolver 127.0.0.1:' . $dns->port . ';');
ok defined $local->wait_healthy, 'localhost is not asked of a resolver';
$local->exact('localhost');
$local->finish_one;

$nginx->finish;
