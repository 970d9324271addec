package LimitSliding::Exact;

# For tests that a limit is exact over several NGINXs.
#
#   my %zones = zones(1000);
#   my ($outcomes, $workers) = outcomes(\@nginx, 'X-Worker', \@requests);
#
# In a configuration, each response has an `X-Status`, of
# $limit_sliding_status.

use v5.36;

use Exporter qw(import);

our @EXPORT = qw(outcomes zones);

# name => settings, by which so many requests pass at once
sub zones($limit) {
    return (
        counter   => '',
        precision => 'precision=10',
        log       => 'algorithm=log',
        fixed     => 'algorithm=fixed',
        tokens    => 'algorithm=token_bucket',
        leaky     => 'algorithm=leaky_bucket burst=' . ($limit - 1),
    );
}

# Sends the requests to all of these instances. Returns, for each path, how
# often it had which outcome, { path => { PASSED => 3, ... } }, 'lost' where
# there was no response; and how many responses had which word in that header.
sub outcomes($nginx, $header, $requests, %options) {
    my ($first, @beside) = @$nginx;
    my @paths = map { ref ? $_->[0] : $_ } @$requests;
    my (%outcomes, %words);
    my $statuses = $first->load(%options, requests => $requests,
        beside => \@beside,
        each => sub ($i, $status, $head) {
            my ($outcome) = $head =~ /^X-Status: (\w+)/m;
            die "status $status: $paths[$i]" if !defined $outcome
                || ($status == 429) != ($outcome eq 'REJECTED')
                || $status != 429 && $status != 200;
            $outcomes{ $paths[$i] }{$outcome}++;
            $words{$1}++ if $head =~ /^\Q$header\E: (\w+)/m;
        });
    $outcomes{ $paths[$_] }{lost}++
        for grep { !defined $statuses->[$_] } 0 .. $#$statuses;
    return (\%outcomes, \%words);
}

1;
