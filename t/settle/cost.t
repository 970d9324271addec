# What settling costs a request, in instructions of user space.

use v5.36;

use LimitSliding::Clock real => 'callgrind counts instructions';

use Test::More;

use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Test;

my $reason = uncountable(LimitSliding::Test->new);
plan skip_all => $reason if $reason;

# Instructions of a request at places of one server with these parameters.  The
# values are known before, so that only what is ours counts.
sub measured(@limits) {
    my $zone = 0;
    my $server = LimitSliding::Callgrind->nginx(
        http => join('', map { "limit_sliding_zone \$uri zone=$_:10m rate=1000000r/s;" }
            map { 'z' . $_ } 0 .. $#limits),
        locations => [ map { "set \$three 3; set \$one 1; limit_sliding zone=z" . $zone++ . " $_;" }
            @limits ]);
    my @counts = map { $server->measure(port => $_, keys => 100, requests => 1000,
        status => 200) } 0 .. $#limits;
    $server->stop;
    return @counts;
}

my ($alone) = measured('');
my ($without, $same, $more, $less, $none) = measured('', 'settle=$one', 'settle=$three',
    'cost=3 settle=$one', 'cost=0 settle=$three');

my %added = (same => $same, more => $more, less => $less, none => $none);
for my $case (sort keys %added) {
    my $added = $added{$case} - $without;
    note sprintf '%s: %.0f more', $case, $added;
    cmp_ok $added, '<=', 250, "$case: at most 250 instructions more";
    cmp_ok $added, '>', 0, "$case: it is settled";
}

# The handler of the log phase is there for all once some place has settled costs.
note sprintf 'without: %.0f more', $without - $alone;
cmp_ok $without - $alone, '<=', 40, 'a place without, beside others: hardly any';

done_testing;
