#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# User-space instructions that a limit adds to a request: those of a whole
# server in one process under callgrind, for the same requests with and without
# the limit.  Without one, it is the configuration that has all rejected.
#
#     instructions.pl --nginx PATH --module PATH [--requests N]
#         [--data FILE] [--guard FILE [--renew]]
#
# With --guard only ours are counted, and it fails if one is worse than the
# file has it by more than LimitSliding::Bench allows; --renew writes the file.

use v5.36;

use FindBin;
use List::Util qw(max min);

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ requests => 4000 }, 'requests=i', 'data=s', 'guard=s',
        'renew');
}

use LimitSliding::Callgrind;
use LimitSliding::Peers;

my $MANY = 100_000;
my $JOBS = 2;
my @DECISIONS = qw(pass reject);
my %STATUS = (pass => 200, reject => 429);

# With `paced`, requests that pass come milliseconds apart, which a log tells
# apart and a queue needs to be empty again; else NGINX's clock stands still.
# `one` is the peer for a single key, `why` what makes a request that passes cost
# more than limit_req's; `only` is the decision of which there is something to
# be told.
my @ROWS = grep { $_->{peer} } map { { %$_, peer => (peers($_->{key}))[0] } } (
    { key => 'counter', own => 1 },
    { key => 'fixed', own => 1 },
    { key => 'token_bucket', own => 1 },
    { key => 'leaky_bucket', own => 1, paced => 1 },
    { key => 'counter-10', own => 1,
      why => 'it adds up ten parts of a window' },
    { key => 'log', own => 1, one => 'log-busy', name => 'log of 100',
      paced => 1, why => 'its state is all requests of the window' },
    { key => 'counter', own => 1, name => 'counter, `draft x`',
      more => 'limit_sliding_headers draft x;',
      why => 'it writes five header fields' },
    { key => 'counter', own => 1, name => 'counter, `headers off`',
      more => 'limit_sliding_headers off;', only => 'reject' },
    { key => 'limit_req' },
    { key => 'limit_conn' },
    { key => 'lua' },
);

for my $row (@ROWS) {
    $row->{name} //= $row->{peer}{name};
}

if ($option{guard}) {
    guard_own();
} else {
    compare_all();
}

# ---- measuring ----

# Of a request, for one key and for many.
sub count_nginx($http, $limits, $decision, $paced) {
    my $server = LimitSliding::Callgrind->nginx(http => $http,
        locations => $limits, paced => $paced);
    my @counts = map {
        $server->measure(
            port     => $_ == 1 ? 0 : $#$limits,
            keys     => $_,
            requests => $option{requests} / ($paced ? 2 : 1),
            status   => $STATUS{$decision})
    } 1, $MANY;
    $server->stop;
    return @counts;
}

sub count_haproxy($decision, %opt) {
    my $server = LimitSliding::Callgrind->haproxy(%opt);
    my @counts = map {
        $server->measure(keys => $_, requests => $option{requests},
            status => $STATUS{$decision})
    } 1, $MANY;
    $server->stop;
    return @counts;
}

# What is to be counted for a row and a decision: its name, and a sub.  Rows
# that are paced alike, of the same modules, share the server without a limit.
sub nginx_jobs($row, $decision) {
    my $paced = $decision eq 'pass' && $row->{paced} || 0;
    my @peers = map { (peers($_))[0] } $row->{one} // (), $row->{key};
    return if ($row->{only} // $decision) ne $decision
        || grep { !defined $_->{$decision} } @peers;

    my $http = join '', map { $_->{http} } @peers;
    my $modules = $http =~ /lua_/ ? 'lua' : 'plain';
    my @none = map { $_->{$decision} } peers('none');

    return (
        "$modules $paced $decision" => sub {
            count_nginx($modules eq 'lua' ? $http : '', \@none, $decision,
                $paced);
        },
        "$row->{name} $decision" => sub {
            count_nginx($http,
                [ map { "$_->{$decision} " . ($row->{more} // '') } @peers ],
                $decision, $paced);
        },
    );
}

sub haproxy_jobs($decision) {
    my $rule = $decision eq 'reject'
        ? 'http-request deny deny_status 429' : '';
    return (
        "haproxy $decision" =>
            sub { count_haproxy($decision, rules => $rule) },
        "HAProxy, stick table $decision" =>
            sub { count_haproxy($decision, limit => $decision) },
    );
}

# { row => { decision => [added for one key, for many] } }, of which the names
# of those to be subtracted are even in @jobs
sub added(@jobs) {
    my %job = @jobs;
    my @names = sort keys %job;
    my %counts;
    @counts{@names} = in_parallel($JOBS, @job{@names});

    my %added;
    for my $i (grep { $_ % 4 == 0 } 0 .. $#jobs) {
        my ($none, $own) = @counts{ @jobs[ $i, $i + 2 ] };
        my ($name, $decision) = $jobs[ $i + 2 ] =~ /^(.*) (\w+)$/;
        $added{$name}{$decision} = [ map { $own->[$_] - $none->[$_] } 0, 1 ];
    }
    return \%added;
}

# ---- what is printed ----

sub guard_own() {
    my $added = added(map { my $row = $_;
        map { nginx_jobs($row, $_) } @DECISIONS } grep { $_->{own} } @ROWS);
    my %figures;

    for my $name (keys %$added) {
        for my $decision (@DECISIONS) {
            my $counts = $added->{$name}{$decision} // next;
            $figures{"$name, $decision, $_->[0]"} = $counts->[ $_->[1] ]
                for [ '1 key', 0 ], [ '100,000 keys', 1 ];
        }
    }

    my @problems = guard($option{guard}, 'instructions', \%figures,
        renew => $option{renew});
    printf "instructions: %d figures, %d worse\n", scalar keys %figures,
        scalar @problems;
    die @problems if @problems;
}

sub compare_all() {
    my $added = added(
        map({ my $row = $_; map { nginx_jobs($row, $_) } @DECISIONS } @ROWS),
        map { haproxy_jobs($_) } @DECISIONS);
    my @names = ((map { $_->{name} } @ROWS), 'HAProxy, stick table');
    my $standard = $added->{limit_req};

    table([ 'added to a request, x limit_req',
            map { ("$_, 1 key", '100,000 keys') } 'passed', 'rejected' ],
        map { my $own = $added->{$_}; [ $_, map { my $decision = $_;
            map { cell($own->{$decision}, $standard->{$decision}, $_) } 0, 1
        } @DECISIONS ] } @names);

    blocks($option{data}, map { my $decision = $_; [ map {
        [ $_ =~ s/`//gr, @{ $added->{$_}{$decision} // [ 'NaN', 'NaN' ] } ]
    } @names ] } @DECISIONS);

    say_of_passed($added);
    say_of_rejected($added);
}

sub cell($own, $standard, $i) {
    return '' if !$own;
    return sprintf '%s (%.2f)', thousands($own->[$i]),
        $own->[$i] / $standard->[$i];
}

# "0.60 to 0.70 x", of limit_req's, or nothing
sub range($added, $name, $decision) {
    my ($own, $standard) = map { $added->{$_}{$decision} } $name, 'limit_req';
    return if !$own;
    return sprintf '%.2f to %.2f x', sort { $a <=> $b }
        map { $own->[$_] / $standard->[$_] } 0, 1;
}

sub say_of_passed($added) {
    my (@ahead, @behind);

    for my $row (grep { $_->{own} } @ROWS) {
        my $range = range($added, $row->{name}, 'pass') // next;
        if ($range =~ /to 0/) {
            push @ahead, "$row->{name} $range";
        } else {
            push @behind, "$row->{name} $range, as "
                . ($row->{why} // 'it does more');
        }
    }

    say 'Of requests that pass, ahead of limit_req: ', join('; ', @ahead), '.'
        if @ahead;
    say 'Behind it: ', join('; ', @behind), '.' if @behind;
    print "\n";
}

# What a client is told costs more than the decision.
sub say_of_rejected($added) {
    my $all = range($added, 'counter', 'reject');
    my $bare = range($added, 'counter, `headers off`', 'reject');
    my @others = map { range($added, $_->{name}, 'reject') =~ /[\d.]+/g }
        grep { $_->{own} && $_->{key} ne 'counter' } @ROWS;

    printf "A rejection by `counter` adds %s what one by limit_req does, one by"
        . " other algorithms\n%.2f to %.2f x, as it comes with a `Retry-After`"
        . " that has to be worked out; %s with\n`limit_sliding_headers off`, as"
        . " our limits run in the access phase, limit_req's in the\none"
        . " before.\n\n", $all, min(@others), max(@others), $bare;
    say "In short: a limit of `counter` adds "
        . range($added, 'counter', 'pass')
        . " the instructions that limit_req adds\nto a request that passes,"
        . " $all to one that it rejects.\n";
}
