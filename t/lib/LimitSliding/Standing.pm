package LimitSliding::Standing;

# Tells who is ahead, a peer or limit_sliding, by figures of the same rounds.

use v5.36;

use Exporter qw(import);

use LimitSliding::Bench qw(median);

our @EXPORT = qw(better standing);

my $LEAD   = 0.01;        # what a peer has to be ahead or behind by
my $ROUNDS = 0.75;        # in more rounds than that, or it may be chance

# Names of the figures, and 1 if more of one is better, -1 if less is.
my %FIGURES = (
    rate => [ 'requests/s', 1 ],
    cpu  => [ 'CPU', -1 ],
    p50  => [ 'p50', -1 ],
    p99  => [ 'p99', -1 ],
);

# Compares results, { figure => [of each round] }. Returns { ratio => median of
# the peer's figure through ours, lead => by how much that is better, rounds =>
# in how many it was so, of => how many there are, is => 'ahead', 'behind' or
# 'level' }.
sub standing($peer, $own, $figure) {
    my $sign = $FIGURES{$figure}[1];
    my @ratios = map { $peer->{$figure}[$_] / $own->{$figure}[$_] }
        0 .. $#{ $own->{$figure} };
    my $ratio = median(@ratios);
    my $lead = ($ratio - 1) * $sign;
    my $rounds = grep { ($_ - 1) * $sign * $lead > 0 } @ratios;

    my $is = abs $lead < $LEAD || $rounds <= $ROUNDS * @ratios ? 'level'
        : $lead > 0 ? 'ahead' : 'behind';
    return { ratio => $ratio, lead => $lead, rounds => $rounds,
        of => scalar @ratios, is => $is };
}

# Returns, for each figure in which the peer is better, by chance or not, '1.05
# x its requests/s (in 2 of 3 rounds)'.
sub better($peer, $own, @figures) {
    return map {
        my $standing = standing($peer, $own, $_);
        $standing->{lead} < $LEAD ? () : sprintf
            '%.2f x its %s (in %d of %d rounds)', $standing->{ratio},
            $FIGURES{$_}[0], @$standing{qw(rounds of)};
    } @figures;
}

1;
