# Workers killed while limits in Redis are under load: what was admitted is counted
# there, but for what was under way, no limit admits more, and workers that follow
# are exact. FAULT_ROUNDS is how many are killed (20).

use v5.36;

use List::Util qw(min shuffle sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Exact qw(hardly_less);
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $ROUNDS = $ENV{FAULT_ROUNDS} // 20;
my ($CONNECTIONS, $PIPELINE) = (32, 4);
my ($LIMIT, $WORKERS) = (50, 2);

srand 1;

my $redis = LimitSliding::Redis->new->start;

# Redis has as much time as a busy machine takes: what fails is the module.
my $nginx = LimitSliding::Test->new(worker_processes => $WORKERS)->common(
    listen => 'reuseport', http => <<"HTTP", server => <<'SERVER');
    ${\ $redis->block('20s')}
    limit_sliding_log_level off;
HTTP
    location /limits { limit_sliding_api; }
SERVER
$nginx->serve(places(each => "rate=$LIMIT window=30d redis=shared",
    zones => { one => '', lease => 'lease=auto', sync => 'sync=100ms' }));

# Sends so many requests for each path, and returns { path => [passed, rejected,
# lost] }.
sub run($times, $paths, %options) {
    my @requests = shuffle(@$paths, map { @$paths } 2 .. $times);
    my $statuses = $nginx->load(%options, requests => \@requests,
        connections => $CONNECTIONS, pipeline => $PIPELINE);

    my %counts = map { $_ => [ 0, 0, 0 ] } @$paths;
    for my $i (0 .. $#requests) {
        my $kind = { 200 => 0, 429 => 1, lost => 2 }
            ->{ $statuses->[$i] // 'lost' } // die "status $statuses->[$i]";
        $counts{ $requests[$i] }[$kind]++;
    }
    return \%counts;
}

# Says what is wrong with what a key of a zone admitted.
sub complaints($zone, $key, $passed, $rejected, $lost) {
    # what a lease had, and nobody spends, is lost until the window ends
    my $least = $zone eq 'lease' || !$rejected ? 0 : $LIMIT - $lost;
    my $used = $zone eq 'one' ? api_key($nginx, $zone, $key)->{used} : $passed;

    return $passed < $least || $passed > $LIMIT || $used < $passed || $used > $passed + $lost
        ? "$zone, $key: $passed passed, $rejected rejected, $lost lost, $used used" : ();
}

my @zones = qw(one lease sync);
my (@wrong, %lost);

for my $round (1 .. $ROUNDS) {
    wait_for(sub { $nginx->workers == $WORKERS })
        or die "round $round: the killed worker has no successor";
    my ($victim) = shuffle $nginx->workers;

    my %keys = map { my $zone = $_;
        map { ("/$zone?key=$round-$_" => [ $zone, "$round-$_" ]) } 1 .. 4 } @zones;
    my $counts = run($LIMIT + 10, [ sort keys %keys ],
        at => { 20 + int rand 500 => sub { $nginx->kill_worker($victim) } });

    push @wrong, map { complaints(@{ $keys{$_} }, @{ $counts->{$_} }) } sort keys %keys;
    $lost{$round} = sum0(map { $_->[2] } values %$counts);
    push @wrong, "round $round: $lost{$round} lost"
        if $lost{$round} > $CONNECTIONS * $PIPELINE;
}

note sprintf '%d workers, %d of them with requests under way, of which %d were lost',
    $ROUNDS, scalar grep({ $_ } values %lost), sum0(values %lost);
is join("\n", @wrong), '', "$ROUNDS workers killed under load";
cmp_ok scalar grep({ $_ } values %lost), '>', $ROUNDS / 4, '... with requests under way';

wait_for(sub { $nginx->workers == $WORKERS });
my $counts = run(2 * $LIMIT, [ map { "/$_?key=after" } @zones ]);
is "@{ $counts->{'/one?key=after'} }", "$LIMIT $LIMIT 0", 'their successors are exact';
is "@{ $counts->{'/sync?key=after'} }", "$LIMIT $LIMIT 0", '... with sync=';
hardly_less($counts->{'/lease?key=after'}[0], $LIMIT, $LIMIT * 0.9, '... with leases');
ok wait_for(sub { $redis->clients <= $WORKERS }), 'Redis has no connection of the dead';

$nginx->finish;
