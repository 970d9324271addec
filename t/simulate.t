# Keys of a zone in Redis over many nodes, by the core's own decisions and
# leases (docs/scale.md): nothing is admitted that should not be, and calls and
# units are not wasted.

use v5.36;

use Test::More;

my $simulate = $ENV{LIMIT_SLIDING_SIMULATE} // 'build/bench/simulate';

plan skip_all => "no $simulate: make test builds it" unless -x $simulate;

my %of;

for my $line (`'$simulate'`) {
    chomp $line;
    my ($key, $mode, $calls, $over, $under, $lapsed) = split /\t/, $line;
    $of{$key}{$mode} = { calls => $calls, over => $over, under => $under,
        lapsed => $lapsed };
}

is $?, 0, 'it has run';
is keys %of, 8, 'keys';

for my $key (sort keys %of) {
    my $mode = $of{$key};

    is_deeply [ sort keys %$mode ], [qw(coalesced leased strict)],
        "$key: modes";
    is $mode->{$_}{over}, 0, "$key, $_: nothing over the limit"
        for sort keys %$mode;
    cmp_ok $mode->{$_}{under}, '<', 1, "$key, $_: less than 1% not admitted"
        for sort keys %$mode;
    cmp_ok $mode->{strict}{calls}, '==', 1,
        "$key, strict: a call for each request";
    cmp_ok $mode->{coalesced}{calls}, '<=', 1,
        "$key, coalesced: no more calls";
    cmp_ok $mode->{leased}{calls}, '<=', $mode->{coalesced}{calls},
        "$key, leased: no more than that";
    cmp_ok $mode->{leased}{lapsed}, '<', 1,
        "$key, leased: less than 1% lapses";
}

cmp_ok $of{hot}{leased}{calls}, '<', 1 / 200, 'hot: a call for 200 requests';
cmp_ok $of{'many nodes'}{leased}{calls}, '<', 1 / 4,
    'many nodes: 16 requests a second and node, a call for 4 of them';

cmp_ok $of{'a few a second'}{leased}{calls}, '<', 1 / 2,
    'a few a second: 5 requests a second and node, a call for 2 of them';

done_testing;
