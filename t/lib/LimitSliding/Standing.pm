package LimitSliding::Standing;

# Who is ahead: a peer beside limit_sliding, by figures of the same rounds.

use v5.36;

use Exporter qw(import);

use LimitSliding::Bench qw(median);

our @EXPORT = qw(better standing);

my $LEAD   = 0.01;        # what a peer has to be ahead or behind by
my $ROUNDS = 0.75;        # in more rounds than that, or it may be chance

# What a figure is called, and whether more of it is better, or less.
my %FIGURES = (
    rate => [ 'requests/s', 1 ],
    cpu  => [ 'CPU', -1 ],
    p50  => [ 'p50', -1 ],
    p99  => [ 'p99', -1 ],
);

# Of results { figure => [of each round] }: { ratio => median of the peer's
# figure through ours, lead => by how much that is better, rounds => in how many
# it was so, of => how many there are, is => 'ahead', 'behind' or 'level' }.
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

# In words, in what a peer is better, by chance or not: '1.05 x its requests/s
# (in 2 of 3 rounds)', of each figure in which it is.
sub better($peer, $own, @figures) {
    return map {
        my $standing = standing($peer, $own, $_);
        $standing->{lead} < $LEAD ? () : sprintf
            '%.2f x its %s (in %d of %d rounds)', $standing->{ratio},
            $FIGURES{$_}[0], @$standing{qw(rounds of)};
    } @figures;
}

1;
