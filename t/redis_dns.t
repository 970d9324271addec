# A Redis by its name: found when there is need, found again when it moves, and
# not lost when the name server is.

use v5.36;

use Test::More;

use LimitSliding::Dns;
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
cmp_ok now() - $start, '<', 3, '... at once';
$start = now;
$nginx->start($nginx->config);
cmp_ok now() - $start, '<', 5, '... and NGINX starts';

# Enough of them for a median: those that find a name server just tried fail at
# once, and count for nothing.
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


# a name of /etc/hosts, without a resolver

$first->start;
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
