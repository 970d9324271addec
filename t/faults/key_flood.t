# A flood of keys, ten times as many as the table holds: a key that is used much
# gets no more than its limit, and a request costs hardly more than without the flood.
#
# FLOOD_TIMES is how often the table is filled (10).

use v5.36;

use List::Util qw(sum);
use Test::More;

use LimitSliding::Generator qw(cpu_us);
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $TIMES = $ENV{FLOOD_TIMES} // 10;
my $KEYS = 2048;          # more than 32k hold
my ($LIMIT, $HEAVY) = (50, 4);

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new->common(listen => 'reuseport', http => <<"HTTP");
    limit_sliding_redis shared { server ${\ $redis->server }; timeout 10s; connect_timeout 10s; }
    limit_sliding_log_level off;
HTTP
my %zones = (
    counter => '', bucket => 'algorithm=token_bucket', log => 'algorithm=log',
    denies  => 'full=deny', banned => 'penalty=1h penalty_after=5', remote => 'redis=shared',
);
my @names = sort keys %zones;
my %directives = places(each => "rate=$LIMIT window=30d", zones => \%zones);
$directives{http} =~ s/:1m /:32k /g;
$nginx->serve(%directives);

# Returns how many of the heavy keys' requests pass among those of a flood, and before
# it. A zone protects keys by how much of their limits is used, so they begin earlier: a
# log of 32k has 200 slots, and is full before it knows whom it sees again.
sub passed($place, $keys) {
    my $unique = 0;
    my @first = map { my $key = "/$place?key=heavy$_"; ($key) x ($LIMIT / 5) } 0 .. $HEAVY - 1;
    my $before = $nginx->load(requests => \@first, connections => 1);
    my @paths = map { $_ % 20 ? "/$place?key=" . $unique++ % $keys
        : "/$place?key=heavy" . $_ / 20 % $HEAVY } 1 .. $TIMES * $KEYS * 20 / 19;
    my %passed;
    $passed{ $first[$_] } += ($before->[$_] // '') eq '200' for keys @first;
    my $statuses = $nginx->load(requests => \@paths, connections => 32, pipeline => 8);
    for my $i (grep { $paths[$_] =~ /heavy/ } 0 .. $#paths) {
        $passed{ $paths[$i] } += ($statuses->[$i] // '') eq '200';
    }
    my %others = map { ($_ // 'none') => 1 } @$statuses;
    delete @others{200, 429};
    return (join(' ', keys %others), map { $passed{$_} } sort keys %passed);
}

for my $place (@names) {
    my ($others, @passed) = passed($place, 1e9);
    is $others, '', "$place: statuses";
    is scalar grep({ $_ > $LIMIT } @passed), 0, "$place: heavy keys get no more than the limit"
        or diag "@passed";
}


# The same requests of few keys say what the machine takes for them.

# Returns the seconds of the processor that the workers have for requests of so many keys.
sub processor($keys) {
    my $used = sub { sum(map { cpu_us($_) } $nginx->workers) / 1e6 };
    my $before = $used->();
    passed('counter', $keys);
    return $used->() - $before;
}

my ($few, $many) = map { processor($_) } 16, 1e9;
note sprintf 'processor %.2f s, in the flood %.2f s', $few, $many;
SKIP: {
    skip 'code that is measured otherwise', 1 if $ENV{LIMIT_SLIDING_SLOW};
    cmp_ok $many, '<', 2 * $few, 'the processor has hardly more to do';
}

$nginx->finish;
