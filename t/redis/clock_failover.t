# A failover to a Redis with the same data and another clock, and a step of the clock of one Redis,
# with three nodes. No key is rejected for longer than its window and the step, and a step admits
# no more than twice the limit over all nodes, whether Redis decides each request, nodes lease
# units, or nodes count for themselves.

use v5.36;

use Test::More;

use LimitSliding::Clock;
use LimitSliding::FakeRedis;
use LimitSliding::InFlight qw(silent_server);
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT  = 8;
my $WINDOW = 100;
my $SPREAD = 0.5;         # seconds in which nodes with sync= hear of each other
my @STEPS  = (1, 60, 3600, 86_400);
my %ALGORITHMS = (
    counter   => '',
    precision => 'precision=10',
    fixed     => 'algorithm=fixed',
    token     => 'algorithm=token_bucket',
    leaky     => 'algorithm=leaky_bucket nodelay burst=' . ($LIMIT - 1),
    log       => 'algorithm=log',
);
my %WAYS = (
    ask   => '',
    auto  => 'lease=auto',
    lease => 'lease=4',
    sync  => 'sync=100ms on_error=local',
);
my %ZONES = map { ("${_}_ask" => $ALGORITHMS{$_}) } keys %ALGORITHMS;
for my $way (qw(auto lease sync)) {
    $ZONES{"${_}_$way"} = "$ALGORITHMS{$_} $WAYS{$way}" for qw(counter precision fixed token);
}
$ZONES{leaky_sync} = "$ALGORITHMS{leaky} $WAYS{sync}";
my @ALL = sort keys %ZONES;
my $SETTLED = qr/_(?:ask|sync)$/;

my $clock = LimitSliding::Clock->new;
my ($first, $second) = map { LimitSliding::Redis->new } 1, 2;
$first->start;
$clock->run(sub { $second->start });
my $fake = LimitSliding::FakeRedis->new($first)->start;

my $silent = silent_server();
my %places = places(each => "rate=$LIMIT window=${WINDOW}s redis=shared", zones => \%ZONES);
$places{http} = <<"HTTP" . $places{http};
    limit_sliding_log_level off;
    limit_sliding_redis shared {
        server ${\ $fake->server};
        timeout 1s;
        connect_timeout 1s;
        on_error deny;
    }
HTTP
$places{server} .= <<"SERVER" for grep { /$SETTLED/ } @ALL;
    location /charged_$_ {
        limit_sliding zone=$_ cost=1 settle=\$arg_cost;
        empty_gif;
    }
    location /refunded_$_ {
        limit_sliding zone=$_ cost=$LIMIT settle=\$arg_cost;
        proxy_pass http://127.0.0.1:$silent;
    }
SERVER
my @nodes = map { LimitSliding::Test->new(worker_processes => 1)->serve(%places) } 1 .. 3;

# Sends so many requests of a key to each of these nodes, for each zone. Returns how many pass,
# (zone => number).
sub passed($n, $key, $zones, @to) {
    my %passed;
    for my $node (@to) {
        my $statuses = $node->load(requests => [ map { ("/$_?key=$key") x $n } @$zones ],
            connections => 1);
        $passed{ $zones->[$_ / $n] } += ($statuses->[$_] // 0) == 200 for 0 .. $#$statuses;
        sleep $SPREAD;
    }
    return %passed;
}

# Returns the most that all nodes may admit, as often as the limit. With sync=, each further node
# admits a request before it hears of the others.
sub most($times, $zone) { return $times * $LIMIT + ($zone =~ /_sync$/ ? @nodes - 1 : 0) }

# Checks these zones while the time of Redis changes by so many seconds.
sub survives($name, $step, $change, @zones) {
    my @settled = grep { /$SETTLED/ } @zones;
    my $key = "$name$step" =~ s/\W+/_/gr;
    stay_in($WINDOW, 20);
    my %full = passed($LIMIT + 1, "full$key", \@zones, @nodes);
    for (@zones) {
        cmp_ok $full{$_}, '>=', $LIMIT, "$name, $step s, $_: the limit";
        cmp_ok $full{$_}, '<=', most(1, $_), '... and no more';
    }
    my %part = passed($LIMIT / 2, "part$key", \@zones, $nodes[0]);
    my $debt = 2 * $LIMIT;
    $nodes[0]->get("/charged_$_?key=charged$key&cost=$debt") for @settled;
    my @open = map { $nodes[0]->send_request("/refunded_$_?key=refunded$key&cost=0") } @settled;
    sleep $SPREAD;

    $change->();
    @open = ();
    my $start = now;
    sleep 0.1;

    passed(1, "charged$key", \@settled, @nodes);    # a debt of the future is paid from now on
    my %more = passed($LIMIT + 1, "full$key", \@zones, @nodes);
    my %rest = passed($LIMIT + 1, "part$key", \@zones, @nodes);
    my %back = passed($LIMIT + 1, "refunded$key", \@settled, @nodes);
    cmp_ok $full{$_} + $more{$_}, '<=', most(2, $_), "... $_: at most twice the limit" for @zones;
    cmp_ok $part{$_} + $rest{$_}, '<=', most(2, $_), "... $_: in part before" for @zones;
    cmp_ok $back{$_}, '<=', most(2, $_), "... $_: after a refund" for @settled;
    note join ', ', map { "$_ $full{$_}+$more{$_} $part{$_}+$rest{$_}" } @zones;

    # a window; a step back that is shorter than one, during which time seems to stand still; and,
    # of a counter, the rest of a part
    my $stands = $step < 0 && -$step < $WINDOW ? -$step : 0;
    sleep $start + $WINDOW + $stands + $WINDOW / 10 - now;
    for my $kind ([ full => @zones ], [ part => @zones ], [ refunded => @settled ]) {
        my ($what, @of) = @$kind;
        my %after = passed(1, "$what$key", \@of, @nodes);
        cmp_ok $after{$_}, '>=', 1, "... $_, $what: not rejected for longer" for @of;
    }
    sleep $start + 3 * $WINDOW + $stands + $WINDOW / 10 - now;
    my %after = passed(1, "charged$key", \@settled, @nodes);
    cmp_ok $after{$_}, '>=', 1, "... $_: a debt is paid" for @settled;
}

# Makes the second Redis a copy of the first one, which takes over.
sub fail_over() {
    $second->command('REPLICAOF', '127.0.0.1', $first->port);
    wait_for(sub {
        my ($from, $to) = map { $_->info('replication') } $first, $second;
        return $to->{master_link_status} eq 'up'
            && $to->{slave_repl_offset} >= $from->{master_repl_offset};
    }) or die "no replica\n";
    $second->command(qw(REPLICAOF NO ONE));
    $fake->lead($second);
}

for my $step (map { ($_, -$_) } @STEPS) {
    $clock->set(utc => $step);
    survives('a failover', $step, \&fail_over, @ALL);

    # where Redis decides each request, clock_steps.t does this
    $clock->set(utc => 0);
    sleep 2;
    survives('a step', $step, sub { $clock->set(utc => $step) }, grep { !/_ask$/ } @ALL);
    $fake->lead($first);
    sleep 2;
}

$_->finish_one for @nodes;
$fake->stop;
done_testing;
