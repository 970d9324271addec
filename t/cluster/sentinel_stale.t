# topology sentinel: a sentinel that is stale, or lies, has no say against two others, nor
# against what a server says of itself.

use v5.36;

use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

# Two masters, as after a failover that the old one has not heard of, and a replica
my ($old, $new) = map { LimitSliding::Redis->new->start } 1, 2;
my $replica = LimitSliding::Redis->new->start(replicaof => '127.0.0.1 ' . $new->port);
my @sentinels = map { LimitSliding::FakeRedis->new($old)->start } 1 .. 3;

sub name($sentinel, $master) {
    my $port = $master->port;
    $sentinel->mode('answer', 'SENTINEL', '*2\r\n$9\r\n127.0.0.1\r\n$'
        . length($port) . "\\r\\n$port\\r\\n");
}

sub nginx(%opt) {
    return LimitSliding::Faults->new(timeout => 2, %opt,
        server => join('; server ', map { $_->server } @sentinels),
        block => 'topology sentinel; sentinel_master m;');
}

# Waits until each of the sentinels was asked so often.
sub wait_asked($nginx, $times) {
    my @before = map { $_->stats->{commands}{SENTINEL} // 0 } @sentinels;
    return wait_for(sub {
        $nginx->get("/big?key=$_") for 1 .. 10;
        !grep { ($sentinels[$_]->stats->{commands}{SENTINEL} // 0) < $before[$_] + $times }
            0 .. $#sentinels;
    }, 60, 0.25);
}

for my $stale (@sentinels) {
    name($_, $_ == $stale ? $old : $new) for @sentinels;
    my $nginx = nginx();
    ok defined $nginx->wait_healthy, 'a stale sentinel of three: Redis decides';
    ok wait_asked($nginx, 4), '... each is asked again';
    unlike $nginx->log, qr/another master/, '... the master stays';
    $new->kill_clients;
    ok defined $nginx->wait_healthy, '... and over new connections';
    is $old->calls, 0, '... the old one decides nothing';
    $nginx->finish_one;
}

my $nginx = nginx();
ok defined $nginx->wait_healthy, 'before a failover: Redis decides';
name($_, $old) for @sentinels[0, 1];
name($sentinels[2], $new);
ok wait_for(sub { $nginx->get('/big?key=x'); $old->calls > 0 }),
    'two of three name another master: it is followed';
like $nginx->log, qr/names another master/, '... which is said';
$nginx->finish_one;

# A failover while a worker connects to the old master: the sentinel that its watch asks is
# slow, and the one that the connection asks is stale.
my $lost = LimitSliding::FakeRedis->new($old)->start;
name($_, $lost) for @sentinels;
$nginx = nginx(timeout => 8, worker_processes => 1);
ok wait_for(sub { LimitSliding::Faults::answer($nginx->get('/big?key=x'))->{source} eq 'redis' }),
    'an old master that cannot be reached: Redis decided before';
$sentinels[0]->mode('mute');
my $accepted = $sentinels[0]->stats->{accepted};    # a later connection finds it mute
ok wait_for(sub {
    $nginx->get('/big?key=x');
    $sentinels[0]->stats->{accepted} > $accepted;
}), '... a sentinel is asked for the master';
$lost->mode('lost');
$lost->reset;
my $waiting = $nginx->send_request('/big?key=x');
select undef, undef, undef, 0.5;
# The mute one last: it answers at once, and the watch asks another one.
name($_, $new) for reverse @sentinels;
my $answer = LimitSliding::Faults::answer($nginx->read_response($waiting));
is $answer->{source}, 'redis', '... a request that waits is decided by the new one';
cmp_ok $answer->{seconds}, '<', 4, '... as soon as two name that';
$nginx->finish_one;

name($_, $_ == $sentinels[0] ? $replica : $new) for @sentinels;
$sentinels[$_]->mode('refuse') for 1, 2;
$nginx = nginx();
is join(' ', map { $_->{source} } @{ $nginx->rounds(1, 'x', 'allow')->{allow} }),
    'fallback', 'a replica that the only sentinel names: the policy applies';
ok wait_for(sub {
    $nginx->get('/big?key=x');
    $nginx->log =~ /sentinel names a server that is no master/;
}), '... as it says that it is none';
name($sentinels[0], $new);
ok defined $nginx->wait_healthy, '... a master that it names is enough';
$nginx->finish;
