# Requests in flight, when sentinels make another server the master: what runs is
# counted there, and nobody is admitted beyond the limit meanwhile.

use v5.36;

use List::Util qw(max);
use Test::More;

use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LIMIT = 10;

my $first = LimitSliding::Redis->new->start;
my ($second, @sentinels) = $first->sentinels(2);
my $fleet = LimitSliding::InFlight->new($first, zone => "inflight=$LIMIT on_error=deny",
    server => join('; server ', map { $_->server } @sentinels),
    settings => 'topology sentinel; sentinel_master mymaster;'
        . ' timeout 100ms; connect_timeout 100ms;');
is $fleet->hold('a', $LIMIT + 4), 4, 'the limit';
is $fleet->settled('a'), $LIMIT, '... is counted by the master';
$fleet->release('a', 3);
is $fleet->settled('a'), $LIMIT - 3, '... and what is left';

$first->kill9;
my $most = 0;
ok wait_for(sub {
    $fleet->hold('a', 4);
    $most = max($most, $fleet->alive('a'));
    $second->reconnect;    # a server closes connections when it becomes the master
    return ($second->info('replication')->{role} // '') eq 'master';
}), 'the replica becomes the master';
$second->reconnect;
$fleet->{redis} = $second;
my $start = now;
while (now() < $start + 6) {
    $fleet->hold('a', 4);
    $most = max($most, $fleet->alive('a'));
}
is $most, $LIMIT, '... and never are there more than the limit';
$fleet->wait_ready;
$second->reconnect;
is $fleet->settled('a'), $LIMIT, '... which the new master counts';
is $fleet->hold('a', 2), 2, '... and which holds';
$fleet->release('a', $LIMIT);
is $fleet->settled('a'), 0, 'all end, and nothing is left';

$fleet->finish;
done_testing;
