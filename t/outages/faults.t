# Redis that is not there, or does not answer: the policy applies, nothing else
# breaks, and afterwards limits are exact again.

use v5.36;

use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;


# the real one

my $nginx = LimitSliding::Faults->new(server => $redis->server);

$nginx->fault('refused', sub { $redis->stop }, sub { $redis->start });
$nginx->fault('killed', sub { $redis->kill9 }, sub { $redis->start });

# What was asked while it was frozen may have been decided since, but nobody was
# told: late replies are nobody's.
$nginx->fault('frozen', sub { $redis->freeze }, sub { $redis->thaw },
    during => sub ($answers) {
        my $left = (sort { $a <=> $b } map { $_->{remaining} }
            grep { $_->{status} == 200 } @{ $answers->{local} })[0];
        is $left, 0, 'local: what remains is counted here';
    });
for my $policy (@LimitSliding::Faults::POLICIES) {
    my $passed = grep { $nginx->get("/$policy?key=frozen-broken")->{status}
        == 200 } 1 .. 10;
    cmp_ok $passed, '<=', $LimitSliding::Faults::LIMIT,
        "frozen: who was asked for meanwhile gets no more: $policy";
}

# It reads, and holds back what writes.
$nginx->fault('paused',
    sub { $redis->command(qw(CLIENT PAUSE 60000 WRITE)) },
    sub { $redis->command(qw(CLIENT UNPAUSE)) });

# `local` is warm: it knows what passed before.
is join(' ', map { $_->{status} } $nginx->ask(('/local?key=warm') x 3)),
    '200 200 200', 'warm: three pass';
$redis->stop;
my $answers = $nginx->rounds(12, 'warm');
is scalar grep({ $_->{status} == 200 } @{ $answers->{local} }), 2,
    'warm: two more do when Redis is gone';
$redis->start;
ok defined $nginx->wait_healthy, 'warm: Redis is back';

$nginx->finish_one;


# Killed again and again under load: each decision is asked for once at most,
# whatever was under way.

$nginx = LimitSliding::Faults->new(server => $fake->server);
ok defined $nginx->wait_healthy, 'through a proxy';
$fake->forget;
$redis->command('CONFIG', 'RESETSTAT');
my ($kills, $tries) = (0, 0);
my $statuses = $nginx->load(connections => 32,
    requests => [ map { "/big?key=killed-$_" } 1 .. 2000 ],
    at => { map { 90 * $_ => sub {
        $kills++ % 2 ? do { $redis->kill9; $redis->start } : $fake->reset;
        wait_for(sub { header($nginx->get('/big?key=probe-' . ++$tries),
            'X-Source') eq 'redis' });
    } } 1 .. 20 });
is scalar grep({ ($_ // '') ne '200' } @$statuses), 0,
    'killed in a loop: no request fails';
is $kills, 20, '... killed';
my $decided = $fake->stats->{decided};
my @keys = grep { !/:limit$/ } keys %$decided;
cmp_ok scalar(@keys), '>', 1000, '... while many were decided';
is scalar grep({ $decided->{$_} > 1 } grep { /:big:/ } @keys), 0,
    '... each once at most';
ok defined $nginx->wait_healthy, '... and Redis decides again';


# slow

sub recover() {
    $fake->mode('pass');
}

$nginx->fault('slow', sub { $fake->mode('delay', 2) }, \&recover);
$nginx->fault('mute', sub { $fake->mode('mute') }, \&recover,
    during => sub ($answers) {
        # Every timeout costs a connection, since it is out of step then.
        cmp_ok $fake->stats->{open}, '<=', 6, 'connections are closed';
    });

# Connections that were there are given up by NGINX, new ones are never made: no
# more of them wait than workers have blocks.
$nginx->fault('lost', sub { $fake->mode('lost') }, \&recover);

$fake->mode('delay', 0.03);
ok defined $nginx->wait_healthy, 'a little slow: Redis decides';
$nginx->exact('slowish');

$fake->mode('bytes', 0.001);
ok defined $nginx->wait_healthy, 'byte by byte: Redis decides';
$fake->forget;
$nginx->exact('bytes');
is $fake->stats->{accepted}, 0, '... over the same connections';
recover();


# Connections that do not last: they are tried again, not all the time.

for (['accepted and closed', 'refuse'],
    ['too many clients', 'greet', '-ERR max number of clients reached\r\n'],
    ['a greeting', 'greet', '+HELLO\r\n']) {
    my ($name, @mode) = @$_;
    $nginx->fault($name, sub { $fake->mode(@mode); $fake->reset }, \&recover,
        during => sub ($answers) {
            $fake->forget;
            my $end = now + 2;
            while (now() < $end) {
                $nginx->ask(map { "/$_?key=storm" }
                    @LimitSliding::Faults::POLICIES);
                sleep 0.05;
            }
            # each of 3 blocks tries after 0.75 to 1 s
            my $tries = $fake->stats->{accepted};
            cmp_ok $tries, '<=', 3 * 3, 'connections are spaced';
            cmp_ok $tries, '>=', 3 * 2, 'and tried';
        });
}

$nginx->finish;
