# Limits on requests in flight in Redis that change while requests run, and
# different limits of one key.

use v5.36;

use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::Api qw(all_limits api_key);
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $fleet = LimitSliding::InFlight->new($redis, server_conf => <<'SERVER');
    keepalive_requests 100000;
    location /low { limit_sliding zone=held inflight=5; empty_gif; }
SERVER
my $node = $fleet->node(0);
my ($here, $there) = $node->workers;

# Returns a connection that this worker has accepted.
sub connection($worker) {
    my $socket;
    wait_for(sub {
        $socket = $node->connect;
        my $r = $node->get('/costly?cost=0&key=none', socket => $socket);
        header($r, 'X-Worker') == $worker;
    }) or die "no connection to worker $worker\n";
    return $socket;
}

# Sends requests that do not end by themselves. Returns their connections.
sub hold($worker, $key, $n) {
    my @sockets = map { connection($worker) } 1 .. $n;
    $node->send_request("/silent?key=$key", socket => $_) for @sockets;
    return @sockets;
}

my $socket = connection($here);

sub told($path) {
    my $r = $node->get($path, socket => $socket);
    return "$r->{status} " . header($r, 'X-Told');
}

sub set_own($key, $limit) {
    $redis->command('SET', $fleet->name_of($key) . ':limit', $limit);
}


# one worker has all units, and decides by what Redis has granted to it

{
    my @held = hold($here, 'all', 10);
    is $fleet->counted('all'), 10, 'a worker runs as many requests as may, and Redis counts all';
    is told('/quick?key=all'), '429 REJECTED held 10 0', '... which admits no further one';
}


# a limit of a key that is set while units are kept for its requests

is told('/quick?key=a'), '200 PASSED held 10 9', 'a key without a limit of its own';
for ([ 0, '429 REJECTED held 0 0' ], [ 7, '200 PASSED held 7 6' ],
    [ 'off', '200 PASSED held 10 10' ], [ 1, '200 PASSED held 1 0' ])
{
    my ($own, $expected) = @$_;
    my $last;
    set_own('a', $own);
    ok wait_for(sub { ($last = told('/quick?key=a')) eq $expected }, 5),
        "... then of $own, without a pause between requests" or diag $last;
}

is api_key($node, 'held', 'a', 'PUT', '&inflight=000000001')->{limit}, 1, '... also in nine digits';
my ($limits) = all_limits($node, 'held');
is_deeply [ map { $_->{inflight} } @$limits ], ['000000001'], '... and listed';

set_own('none', 0);
is told('/costly?cost=0&key=none'), '429 REJECTED held 0 0', '0 rejects a cost of 0 as well';
$redis->command('DEL', $fleet->name_of('none') . ':limit');


# a limit that is lowered below what runs, most of it on another node

for my $own (3, 0) {
    my @held = hold($here, $own, 3);
    is $fleet->hold($own, 4, 1), 0, 'seven requests run';
    ok wait_for(sub { $fleet->counted($own) == 7 }), '... which Redis counts';
    set_own($own, $own);
    ok wait_for(sub { told("/quick?key=$own") =~ /^429 / }), "... of $own that may";

    my @admitted;
    while (@held) {
        close shift @held;
        for (1 .. 20) {
            my $told = told("/quick?key=$own");
            push @admitted, @held . " run: $told" if $told !~ /^429 /;
            sleep 0.005;
        }
    }
    is "@admitted", '', '... and no other request gets a unit that is free again';
    $fleet->release($own, 4);
    is $fleet->settled($own), 0, '... until all end';
}


# requests of one key with different limits, in two workers of a node

is told('/low?key=c'), '200 PASSED held 5 4', 'a unit is kept under a low limit';
my @held = hold($there, 'c', 6);
ok wait_for(sub { $fleet->counted('c') >= 6 }), '... more run under a high one';
is told('/low?key=c') =~ s/ \d+$//r, '429 REJECTED held 5', '... too many for the low one';
@held = ();
ok wait_for(sub { $fleet->counted('c') == 0 }), '... until all end';

for my $round (1 .. 5) {
    my @sockets = map { connection($there) } 1 .. 6;
    is told("/low?key=d$round"), '200 PASSED held 5 4', 'a unit is kept under a low limit';
    $node->send_request("/silent?key=d$round", socket => $_) for @sockets;
    sleep 0.001;
    like told("/quick?key=d$round"), qr{^200 PASSED held 10 }, '... and free under a high one';
}

$fleet->finish;
done_testing;
