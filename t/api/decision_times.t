# How long decisions take, by a part of them: one of 127 of each worker.

use v5.36;

use Test::More;

use LimitSliding::Clock real => 'it has NGINX measure how long decisions take';

use LimitSliding::Api;
use LimitSliding::Test;

my $PART = 127;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=one:1m rate=1000r/d;
    limit_sliding_zone $arg_other zone=two:1m rate=2000r/d;
    limit_sliding_zone $arg_key zone=slow:1m rate=2000r/s algorithm=leaky_bucket burst=2000;
HTTP
    location /limits { limit_sliding_api; }
    location /one    { limit_sliding zone=one; empty_gif; }
    location /both   { limit_sliding zone=one; limit_sliding zone=two; empty_gif; }
    location /slow   { limit_sliding zone=slow; empty_gif; }
    location /none   { empty_gif; }
SERVER
$nginx->serve;

# Returns how many decisions of each zone were measured.
sub measured() {
    my $zones = api($nginx)->{zones};
    return join ' ', map { $zones->{$_}{measured} } qw(one two slow);
}

sub send_all($n, $path) {
    $nginx->statuses($n, $path);
}

is measured(), '0 0 0', 'at first';
send_all($PART - 1, '/one?key=a');
is measured(), '0 0 0', 'not yet';
send_all(1, '/one?key=a');
is measured(), '1 0 0', 'one of 127';
send_all($PART, '/none');
is measured(), '1 0 0', '... with a limit';
send_all(9 * $PART, '/one?key=a');
is measured(), '10 0 0', '... and of rejected ones';
send_all(2 * $PART, '/one');
is measured(), '10 0 0', 'no key: nothing is decided';
send_all(2 * $PART, '/both?key=b&other=b');
is measured(), '12 0 0', 'of several limits, the first';
send_all(2 * $PART, '/both?other=b');
is measured(), '12 2 0', '... that decides';

my $slow = api($nginx)->{zones}{slow};
send_all(3 * $PART, '/slow?key=a');
$slow = api($nginx)->{zones}{slow};
# Each delayed request runs its limits twice, and the second time is never measured. A request
# that is not delayed, on a busy machine, changes which of the times is the 127th.
cmp_ok $slow->{measured}, '<=', 3 + 3 * $PART - $slow->{delayed}, 'waiting is no part of a decision';
cmp_ok $slow->{decision_times}{sum_ns} / ($slow->{measured} || 1), '<', 400_000,
    '... nor of its time';


# ---- what is told of them ----

my $times = api($nginx)->{zones}{one}{decision_times};
my @n = map { $_->{decisions} } @{ $times->{buckets} };
is_deeply \@n, [ sort { $a <=> $b } @n ], 'each bucket has those below';
is $n[-1], 12, 'none took 10 ms';
my $mean = $times->{sum_ns} / 12;
cmp_ok $mean, '>', 50, 'they took some time';
cmp_ok $mean, '<', 1_000_000, '... but not much';

my $metrics = $nginx->get('/limits/metrics')->{body};
my @buckets = $metrics =~ /^limit_sliding_decision_duration_seconds_bucket\{zone="one",le="(.*?)"\} (\d+)$/mg;
is_deeply { @buckets }, { (map { sprintf('%.9f', $_->{le_ns} / 1e9) => $_->{decisions} }
    @{ $times->{buckets} }), '+Inf' => 12 }, 'the same for Prometheus';
my ($sum) = $metrics =~ /^limit_sliding_decision_duration_seconds_sum\{zone="one"\} (\S+)$/m;
is $sum, sprintf('%.9f', $times->{sum_ns} / 1e9), '... in seconds';
like $metrics, qr/^limit_sliding_decision_duration_seconds_count\{zone="one"\} 12$/m,
    '... and their number';

# A reload has new workers, which begin anew, but the zone stays.
$nginx->reload;
send_all($PART, '/one?key=a');
is measured() =~ s/ .*//r, 13, 'a reload forgets nothing';

$nginx->finish;
