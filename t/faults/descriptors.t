# A worker without a descriptor for a connection to Redis: the policy applies at
# once, and Redis decides again when there are some.

use v5.36;

use Test::More;

use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $DESCRIPTORS = 60;
my $ROUNDS = 12;

my $redis = LimitSliding::Redis->new->start;

# One worker, so that it is known who has none. Its timeouts are so long that who
# waits for one is told from who does not.
$LimitSliding::Faults::WORKERS = 1;
my $nginx = LimitSliding::Faults->new(server => $redis->server, timeout => 20,
    worker_processes => 1, start => 0);
$nginx->start("worker_rlimit_nofile $DESCRIPTORS;\n" . $nginx->config);

# Those below the limit: others were inherited.
sub descriptors() {
    my ($worker) = $nginx->workers;
    return scalar grep { m{/(\d+)$} && $1 < $DESCRIPTORS && defined readlink }
        glob "/proc/$worker/fd/*";
}

ok defined $nginx->wait_healthy, 'at first Redis decides';
my $base = descriptors();
my ($worker) = $nginx->workers;

# A connection for each policy, which the worker has accepted
my %own = map { $_ => $nginx->connect } @LimitSliding::Faults::POLICIES;
$nginx->get('/free', socket => $_) for values %own;

my @idle = map { $nginx->connect } 1 .. $DESCRIPTORS;
ok wait_for(sub { descriptors() == $DESCRIPTORS }), 'descriptors are used up';
$redis->kill_clients;
ok wait_for(sub {
    !$nginx->connections_to($redis->port) && descriptors() == $DESCRIPTORS
}), '... even by those who wait, when Redis closes its connections';

my %answers;
for my $round (1 .. $ROUNDS) {
    for my $policy (keys %own) {
        my $r = $nginx->get("/$policy?key=none", socket => $own{$policy});
        push @{ $answers{$policy} }, LimitSliding::Faults::answer($r);
    }
}

sub statuses($policy) { return join ' ', map { $_->{status} } @{ $answers{$policy} } }

is statuses('local'), join(' ', (200) x 5, (429) x ($ROUNDS - 5)), 'local: by this worker alone';
is statuses('allow'), join(' ', (200) x $ROUNDS), 'allow';
is statuses('deny'), join(' ', (429) x $ROUNDS), 'deny';
is join(' ', grep { $_ ne 'fallback' } map { $_->{source} } map { @$_ } values %answers), '',
    '$limit_sliding_source is fallback';
is join(' ', grep { $_ > 1 } map { $_->{seconds} } map { @$_ } values %answers), '',
    'nobody waits';

# One a try of each block, which are spaced, whoever comes
cmp_ok scalar $nginx->log_lines(qr/socket\(\) failed|while connecting to redis/i), '<=', 40,
    'few lines in the log';
is descriptors(), $DESCRIPTORS, 'nothing has changed';

close $_ for @idle, values %own;
ok defined $nginx->wait_healthy, 'Redis decides again';
$nginx->exact('after');
ok wait_for(sub { descriptors() <= $base }), 'descriptors are free again';
is join(' ', $nginx->workers), $worker, 'the same worker';

$nginx->finish(allow => [ qr/\(24: Too many open files\)/ ]);
