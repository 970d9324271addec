package LimitSliding::Exact;

# For tests that a limit is exact over several NGINXs.
#
#   my %zones = zones(1000);
#   $_->serve(zone_places(\%zones, 'rate=1000 window=30d')) for @nginx;
#   my ($outcomes, $workers) = outcomes(\@nginx, 'X-Worker', \@requests);
#   is_deeply $outcomes->{'/log?key=a'}, limited('log', 1000, 20_000);
#
# In a configuration, each response has an `X-Status`, of
# $limit_sliding_status.

use v5.36;

use Exporter qw(import);
use List::Util qw(sum0);
use Test::More;

use LimitSliding::Test qw(places sleep);

our @EXPORT = qw(hardly_less limited one_call_for_ten outcomes zone_places
    zones);

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

# Directives of a section with these zones, whose names get the prefix, by
# $arg_key, and with a place for each. A bucket of leaky would hold requests
# back for days: it is in a dry run, which tells how many would pass.
sub zone_places($zones, $each, $prefix = '') {
    my %directives = places(each => $each,
        zones => { map { ("$prefix$_" => $zones->{$_}) } keys %$zones });
    $directives{server} =~ s/zone=${prefix}leaky/$& dry_run/;
    return %directives;
}

# The outcomes of so many requests for one key of a zone of zones().
sub limited($zone, $limit, $requests) {
    return { PASSED => $limit, REJECTED => $requests - $limit }
        if $zone ne 'leaky';
    return { PASSED => 1, DELAYED_DRY_RUN => $limit - 1,
        REJECTED_DRY_RUN => $requests - $limit };
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

# Asserts that requests which come while a worker waits for Redis share one
# call. These servers are frozen until each of these requests, one on each
# connection, has reached its worker: so the first of a worker makes a call, and
# all others make one, however fast the servers and the client are. `run` is
# called with the requests and options of outcomes().
sub one_call_for_ten($servers, $path, $run) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $requests = 128;
    $run->([ $path ]);      # the server has the script
    my $calls = -sum0(map { $_->calls } @$servers);
    $_->freeze for @$servers;
    $run->([ ($path) x $requests ], at => { 0 => sub {
        sleep 0.01;
        $_->thaw for @$servers;
    } });
    $calls += sum0(map { $_->calls } @$servers);
    cmp_ok $calls, '<=', $requests / 10, "$path: one call for 10 requests";
    note "calls: $calls";
}

# Asserts that no more passed than the limit, and hardly less.
sub hardly_less($passed, $limit, $least, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    cmp_ok $passed, '<=', $limit, $name;
    cmp_ok $passed, '>=', $least, '... and hardly less';
}

1;
