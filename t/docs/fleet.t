# Keys of a zone in Redis over many nodes, by the core's own decisions and
# leases (docs/scale.md): nothing is admitted that should not be, and calls and
# units are not wasted.

use v5.36;

use Test::More;

my $fleet = $ENV{LIMIT_SLIDING_FLEET} // 'build/bench/fleet_figures';

plan skip_all => "no $fleet: make fleet builds it" unless -x $fleet;

my %of;

for my $line (`'$fleet'`) {
    chomp $line;
    my ($key, $mode, $calls, $over, $under, $lapsed) = split /\t/, $line;
    $of{$key}{$mode} = { calls => $calls, over => $over, under => $under,
        lapsed => $lapsed };
}

is $?, 0, 'it has run';
is keys %of, 15, 'keys';

# Leased, with refusals that end as soon as a unit is free.
my $EAGER = 'leased, refused until a unit is free';

for my $key (sort keys %of) {
    my $mode = $of{$key};

    is_deeply [ sort keys %$mode ], [ qw(coalesced leased), $EAGER, 'strict' ],
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


# Refusals that hold for a while spare Redis, and cost nothing that is admitted.

for my $key (grep { /^far over/ } sort keys %of) {
    cmp_ok $of{$key}{$_}{under}, '<', 0.01,
        "$key, $_: no more than 0.01% is not admitted" for qw(coalesced leased);
}
for (['far over the limit', 7], ['far over the limit, bucket', 2.5],
    ['far over the limit, 1 s', 4], ['far over the limit, 100 ms', 2]) {
    my ($key, $times) = @$_;
    cmp_ok $of{$key}{coalesced}{calls}, '<', $of{$key}{$EAGER}{calls} / $times,
        "$key: $times times fewer calls";
}
cmp_ok 470_000 * $of{'far over the limit'}{coalesced}{calls}, '<', 55_000,
    'far over the limit: fewer than 55 calls a second and node';
cmp_ok $of{'at the limit, a small bucket'}{coalesced}{under}, '<', 0.01,
    'at the limit, a small bucket: hardly anything is not admitted';


# Nodes that decide for themselves, with sync=: no more is admitted than may be, and
# no less than can be told in time.

my %synced;

for my $line (`'$fleet' sync`) {
    chomp $line;
    my ($key, %r);
    ($key, @r{qw(calls a_second over bound admitted)}) = split /\t/, $line;
    $synced{$key} = \%r;
}

is $?, 0, 'it has run';
is keys %synced, 8, 'keys';

for my $key (sort keys %synced) {
    my $r = $synced{$key};
    my $seconds = $key =~ /1 s$/ ? 1 : 0.1;

    cmp_ok $r->{over}, '<=', $r->{bound}, "$key: over the limit by what may be";
    cmp_ok $r->{a_second}, '<=', 1 / $seconds,
        "$key: one call an interval and node";
    next if $key eq 'below the limit';

    # of a window of 10 s an interval is free before it is known to be
    cmp_ok $r->{admitted}, '>', 100 - 2 * 10 * $seconds - 1,
        "$key: hardly less than the limit";
}
cmp_ok $synced{'below the limit'}{admitted}, '>', 89,
    'below the limit: all is admitted';
cmp_ok $synced{'far over the limit, no history'}{over}, '>', 5,
    'far over the limit, no history: an interval is admitted';

done_testing;
