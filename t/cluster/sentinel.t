# topology sentinel: the master is found through real sentinels, and followed
# where they move it to.

use v5.36;

use Test::More;

use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $DOWN_AFTER = 1;       # seconds until sentinels take a master for dead

my ($first, $second, @sentinels, $servers, $nginx);

sub begin() {
    $first = LimitSliding::Redis->new->start;
    ($second, @sentinels) = $first->sentinels($DOWN_AFTER);
    $servers = join '; server ', map { '127.0.0.1:' . $_->port } @sentinels;
    $nginx = LimitSliding::Faults->new(server => $servers, timeout => 0.5,
        block => 'topology sentinel; sentinel_master mymaster;');
    ok defined $nginx->wait_healthy, 'Redis decides';
}

# The master's port, as they say
sub master($sentinel = $sentinels[-1]) {
    my $address = $sentinel->ask(qw(SENTINEL get-master-addr-by-name mymaster));
    return ref $address ? $address->[1] : 0;
}

# The one that decides, whatever they say
sub master_redis() {
    $_->reconnect for $first, $second;
    my $decides;
    wait_for(sub {
        my %calls = map { $_->port => $_->calls } $first, $second;
        $nginx->get('/big?key=who');
        ($decides) = grep { $_->calls > $calls{ $_->port } } $first, $second;
    });
    return $decides;
}

# They have to know each other and the replica before they can fail over.
sub wait_agreed() {
    return LimitSliding::Redis::wait_watched(grep { $_->pid } @sentinels);
}

# Requests are decided by Redis again, this long after it had a master.
sub recovered($name, $old, $within) {
    ok wait_for(sub { my $port = master(); $port && $port != $old }, 30),
        "$name: failed over";
    my $seconds = $nginx->wait_healthy;
    ok defined $seconds, '... and Redis decides';
    cmp_ok $seconds // 999, '<', $within, '... soon';
    note "after $seconds s";
    $nginx->exact("$name-exact");
}

sub moved() {
    begin();
    $nginx->exact('found');
    cmp_ok $first->calls, '>', 0, '... the master';
    is $second->calls, 0, '... not the replica';

    # without one of the sentinels, whichever is asked

    for my $sentinel (@sentinels) {
        $sentinel->freeze;
        $first->kill_clients;
        ok defined $nginx->wait_healthy, 'a frozen sentinel: Redis decides';
        $sentinel->thaw;
    }

    $sentinels[0]->stop;
    $first->kill_clients;
    ok defined $nginx->wait_healthy, 'a dead sentinel: Redis decides';
    $sentinels[0]->start;
    ok wait_agreed(), '... which is back';

    # moved by an administrator

    is $sentinels[1]->command(qw(SENTINEL FAILOVER mymaster)), 'OK', 'moved';
    recovered('moved', $first->port, 5);

    # The old one takes writes until sentinels have made it a replica.
    my $until = now() + 3;
    while (now() < $until) {
        $nginx->get('/big?key=moved');
        sleep 0.05;
    }
    $_->reconnect for $first, $second;     # which a failover closes
    my @calls = map { $_->calls } $first, $second;
    $nginx->get('/big?key=moved') for 1 .. 20;
    is $first->calls, $calls[0], '... which the old one has no part in';
    is $second->calls, $calls[1] + 20, '... but the new one has';
    ok wait_agreed(), '... and all is well again';
    $nginx->finish_one;
}

# The master dies; policies apply until there is another one.
sub dead() {
    begin();
    my $dead = master_redis();
    $dead->kill9;
    my $answers = $nginx->rounds(1, 'dead');
    is join(' ', map { $answers->{$_}[0]{status} } qw(local allow deny)),
        '200 200 429', 'dead: policies apply';
    is join(' ', map { $answers->{$_}[0]{source} } qw(local allow deny)),
        'fallback fallback fallback', '... as they say';
    recovered('dead', $dead->port, 4);
    $dead->start;
    ok wait_agreed(), '... and the dead one is its replica';
    $nginx->finish_one;
}

# The old master wakes up, and nobody listens to it any more.
sub frozen() {
    begin();
    my $frozen = master_redis();
    $frozen->freeze;
    recovered('frozen', $frozen->port, 4);
    $frozen->thaw;
    ok wait_agreed(), '... and awake again it is a replica';
    $nginx->exact('awake');

    # no master of that name

    my $unknown = LimitSliding::Faults->new(server => $servers, timeout => 0.3,
        block => 'topology sentinel; sentinel_master nobody;');
    is join(' ', map { $_->{status} } @{ $unknown->rounds(2, 'x')->{allow} }),
        '200 200', 'an unknown master: policies apply';
    like $unknown->log, qr/redis "allow": sentinel knows no such master/,
        '... and it is said why';
    $unknown->finish_one;
    $nginx->finish_one;
}

subtests(
    moved  => \&moved,
    dead   => \&dead,
    frozen => \&frozen,
);
done_testing;
