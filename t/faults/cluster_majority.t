# A cluster that loses most of its masters: the one that lives says that the
# cluster is down. Policies apply, it is not asked for the topology all the time,
# and limits are exact when the others are back.

use v5.36;

use Test::More;

use LimitSliding::Cluster;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $cluster = LimitSliding::Cluster->new(masters => 3, replicas => 0)->start;
my ($lives, @die) = $cluster->masters;
my $nginx = LimitSliding::Faults->new(server => $cluster->servers, timeout => 0.5,
    block => 'topology cluster;');

# Until it knows, it decides for its own slots.
$nginx->fault('majority killed', sub {
    $_->kill9 for @die;
    wait_for(sub { $lives->command(qw(CLUSTER INFO)) =~ /cluster_state:fail/ })
        or die "the cluster is not down\n";
}, sub {
    $_->start for @die;
    $cluster->wait_agreed;
}, opens => 0, port => $lives->port, recovery => 10, during => sub ($answers) {
    my ($asked, $n) = ($lives->count('cluster'), 0);
    my $end = now() + 3;
    while (now() < $end) {
        $nginx->ask(map { "/$_?key=storm-" . ++$n } @LimitSliding::Faults::POLICIES);
        sleep 0.02;
    }
    my $more = $lives->count('cluster') - $asked;

    # two workers of three blocks, which ask once a second each
    cmp_ok $more, '<=', 2 * 3 * 5,
        "no topology storm: $more for $n requests";
});

$nginx->finish;
