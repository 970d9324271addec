#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# User-space instructions that a limit adds to a request: those of a whole
# server in one process under callgrind, for the same requests with and without
# the limit.  Without one, it is the configuration that has all rejected.
#
#     instructions.pl --nginx PATH --module PATH [--requests N] [--keys N]
#         [--only REGEXP] [--data FILE] [--guard FILE [--renew]]
#
# With --guard only ours are counted, and it fails if one is worse than the
# file has it by more than 1%; --renew writes the file.

use v5.36;

use FindBin;
use List::Util qw(all any max min);

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ requests => 4000, keys => 100_000, only => '.' },
        'requests=i', 'keys=i', 'only=s', 'data=s', 'guard=s', 'renew');
}

use LimitSliding::Callgrind;
use LimitSliding::Peers;

my $FEW  = 200;           # keys, which are as good as many without a limit
my $MANY = $option{keys};
my $JOBS = 2;
my @DECISIONS = qw(pass reject);
my %STATUS = (pass => 200, reject => 429);
my @COLUMNS = ([ 0, '1 key' ], [ 1, thousands($MANY) . ' keys' ]);

# With `paced`, requests come some milliseconds apart, which a log tells apart
# and a queue needs to be empty again; else NGINX's clock stands still.  `uses`:
# of a key, before one is rejected.  `why` it costs more than limit_req to pass.
my @OWN = (
    { key => 'counter' },
    { key => 'fixed' },
    { key => 'token_bucket' },
    { key => 'leaky_bucket', paced => ['pass'] },
    { key => 'counter-10' },
    { key => 'log', name => 'log of 1',
      why => 'a ring of events takes more steps than a word' },
    { key => 'log-busy', name => 'log of 100', paced => \@DECISIONS,
      uses => 100, one => 1, why => 'all requests of a window are in it' },
    { key => 'inflight', uses => 0,
      why => 'it ends with the request, for which it cleans up' },
    { key => 'counter', name => 'counter, `draft x`',
      more => 'limit_sliding_headers draft x;',
      why => 'it writes five header fields' },
    { key => 'counter', name => 'counter, `headers off`',
      more => 'limit_sliding_headers off;', only => 'reject' },
);
my @PEERS = map { { key => $_ } } qw(limit_req limit_conn lua);
my $HAPROXY = 'HAProxy, stick table';

# of what can be had here
for my $rows (\@OWN, \@PEERS) {
    @$rows = grep { $_->{peer} } map { { %$_, peer => peers($_->{key}) } }
        grep { peers($_->{key}) } @$rows;
    $_->{name} //= $_->{peer}{name} for @$rows;
    @$rows = grep { $_->{name} =~ /$option{only}/ } @$rows;
}

if ($option{guard}) {
    $option{requests} /= 2;
    guard_own();
} else {
    compare_all();
}

# ---- counting ----

# [what is added for one key, for many] to be counted for a decision; the server
# without the limit is the same process, at another port.
sub count_nginx($row, $decision) {
    my $paced = any { $_ eq $decision } @{ $row->{paced} // [] };
    my ($none) = peers('none');
    my $limit = "$row->{peer}{$decision} " . ($row->{more} // '');
    my $server = LimitSliding::Callgrind->nginx(http => $row->{peer}{http},
        locations => [ $none->{$decision}, $limit ], paced => $paced);
    my %opt = (
        requests => $option{requests} / ($paced ? 2 : 1),
        status   => $STATUS{$decision},
        uses     => $decision eq 'reject' ? $row->{uses} : 1,
    );

    my @added = map {
        my ($keys, $as_many) = @$_;
        my $none = $server->measure(%opt, port => 0, keys => $as_many);
        $server->measure(%opt, port => 1, keys => $keys) - $none;
    } [ 1, 1 ], $row->{one} ? () : [ $MANY, $FEW ];

    $server->stop;
    return @added;
}

sub count_haproxy($decision) {
    my $rule = $decision eq 'reject'
        ? 'http-request deny deny_status 429' : '';
    my @counts = map {
        my $server = LimitSliding::Callgrind->haproxy(@$_);
        my @counts = map {
            $server->measure(keys => $_, requests => $option{requests},
                status => $STATUS{$decision})
        } 1, $MANY;
        $server->stop;
        \@counts;
    } [ rules => $rule ], [ limit => $decision ];

    return map { $counts[1][$_] - $counts[0][$_] } 0, 1;
}

# What our loaded module costs a request in a place without limits: if another
# place has one, and if none has.
sub count_idle() {
    my ($counter) = peers('counter');
    my ($without, @with) = map {
        my $server = LimitSliding::Callgrind->nginx(http => '', %$_);
        my $count = $server->measure(keys => 1,
            requests => $option{requests}, status => 200);
        $server->stop;
        $count;
    } { locations => [''], without_own => 1 },
        { locations => [ '', $counter->{pass} ], http => $counter->{http} },
        { locations => [''] };

    return map { $_ - $without } @with;
}

# { name => { decision => [added for one key, for many] } }
sub added(@rows) {
    my @jobs;

    for my $row (@rows) {
        push @jobs, map { my $decision = $_;
            [ $row->{name}, $_, sub { count_nginx($row, $decision) } ]
        } grep { ($row->{only} // $_) eq $_ && $row->{peer}{$_} } @DECISIONS;
    }
    return run_jobs(@jobs);
}

sub run_jobs(@jobs) {
    my %added;
    my @results = in_parallel($JOBS, map { $_->[2] } @jobs);
    $added{ $jobs[$_][0] }{ $jobs[$_][1] } = $results[$_] for 0 .. $#jobs;
    return \%added;
}

# ---- what is printed ----

sub guard_own() {
    my $added = added(@OWN);
    my ($idle) = map { @$_ } in_parallel(1, \&count_idle);
    my %figures = ('no limit here' => $idle);

    for my $name (keys %$added) {
        for my $decision (keys %{ $added->{$name} }) {
            my $counts = $added->{$name}{$decision};
            $figures{"$name, $decision, $_->[1]"} = $counts->[ $_->[0] ]
                for grep { defined $counts->[ $_->[0] ] } @COLUMNS;
        }
    }

    # counts are the same in each run, so each rise is somebody's decision
    my @problems = guard($option{guard}, 'instructions', \%figures,
        percent => 1, renew => $option{renew});
    printf "instructions: %d figures, %d worse\n", scalar keys %figures,
        scalar @problems;
    die @problems if @problems;
}

sub compare_all() {
    my $added = added(@OWN, @PEERS);
    my ($idle, $unused) = map { @$_ } in_parallel(1, \&count_idle);
    my @names = map { $_->{name} } @OWN, @PEERS;

    if (haproxy_version()) {
        my $haproxy = run_jobs(map { my $decision = $_;
            [ $HAPROXY, $_, sub { count_haproxy($decision) } ] } @DECISIONS);
        %$added = (%$added, %$haproxy);
        push @names, $HAPROXY;
    }

    table([ 'added to a request, x limit_req',
            map { my $decision = $_; map { "$decision, $_->[1]" } @COLUMNS }
            'passed', 'rejected' ],
        map { my $name = $_; [ $name, map { cell($added, $name, @$_) }
            figures_of_all() ] } @names);

    blocks($option{data}, map { my $decision = $_; [ map { my $name = $_;
        my $counts = $added->{$name}{$decision} // [];
        [ $name =~ s/`//gr, map { $counts->[$_] // 'NaN' } 0, 1 ]
    } @names ] } @DECISIONS);

    say_of_passed($added);
    say_of_rejected($added);
    say_of_others($added, grep { $_ ne 'limit_req' }
        map({ $_->{name} } @PEERS), $HAPROXY);
    printf "The loaded module adds %.0f instructions to a request in a place"
        . " without limits if other places\nhave some, and %.0f if none has."
        . " NGINX spends some of them on its timers,\nof which a worker with zones has"
        . " one more.\nlimit_req is always part of NGINX, so what it adds without a\nlimit"
        . " is part of all of these figures.\n\n", $idle, abs $unused;
    say "In short: a limit of `counter` adds "
        . range($added, 'counter', 'pass') . " the instructions of limit_req to"
        . " a request\nthat passes. It is behind limit_req with "
        . range($added, 'counter', 'reject') . " for a request that it"
        . " rejects,\nwith `Retry-After`.\n";
}

# [decision, column], in the order of the table
sub figures_of_all() {
    return map { my $decision = $_; map { [ $decision, $_->[0] ] } @COLUMNS }
        @DECISIONS;
}

sub cell($added, $name, $decision, $column) {
    my $counts = $added->{$name}{$decision} // [];
    my $own = $counts->[$column] // return '';
    return sprintf '%s (%.2f)', thousands($own),
        $own / $added->{limit_req}{$decision}[$column];
}

# Of limit_req's, from the least to the most; none if it was not counted.
sub ratios($added, $name, $decision) {
    my ($own, $standard) = map { $added->{$_}{$decision} } $name, 'limit_req';
    return sort { $a <=> $b } map { $own->[$_] / $standard->[$_] }
        0 .. $#{ $own // [] };
}

sub range($added, $name, $decision) {
    my @ratios = map { sprintf '%.2f', $_ }
        (ratios($added, $name, $decision))[0, -1];
    return ($ratios[0] eq $ratios[1] ? $ratios[0] : "$ratios[0] to $ratios[1]")
        . ' x';
}

sub say_of_passed($added) {
    my (@ahead, @behind);

    for my $row (grep { $added->{ $_->{name} }{pass} } @OWN) {
        my $range = "$row->{name} " . range($added, $row->{name}, 'pass');
        if (all { $_ < 1 } ratios($added, $row->{name}, 'pass')) {
            push @ahead, $range;
        } else {
            push @behind, "$range, because "
                . ($row->{why} // 'it does more');
        }
    }

    say 'For requests that pass, these are ahead of limit_req: ',
        join('; ', @ahead), '.'
        if @ahead;
    say 'These are behind it: ', join('; ', @behind), '.' if @behind;
    print "\n";
}

# What a client is told costs more than the decision.
sub say_of_rejected($added) {
    my @others = map { ratios($added, $_->{name}, 'reject') }
        grep { $_->{key} ne 'counter' } @OWN;

    printf "For requests that are rejected, all are behind limit_req: `counter`"
        . " takes %s,\nthe other algorithms %.2f to %.2f x, because they"
        . " calculate and send a `Retry-After`. With\n`limit_sliding_headers"
        . " off`, which does as much as limit_req, `counter` takes %s.\n\n",
        range($added, 'counter', 'reject'), min(@others), max(@others),
        range($added, 'counter, `headers off`', 'reject');
}

# Where any but limit_req adds less than one of ours.
sub say_of_others($added, @peers) {
    my %verb = (pass => 'pass', reject => 'are rejected');
    my @lines;

    for my $peer (grep { $added->{$_} } @peers) {
        for my $decision (grep { $added->{$peer}{$_} } @DECISIONS) {
            my $theirs = $added->{$peer}{$decision};
            my @more = map { $_->{name} } grep {
                my $own = $added->{ $_->{name} }{$decision} // [];
                any { $own->[$_] > $theirs->[$_] } 0 .. $#$own;
            } @OWN;
            push @lines, "For requests that $verb{$decision}, $peer adds less"
                . ' than '
                . join(', ', @more) . '.' if @more;
        }
    }

    say join "\n", @lines, '' if @lines;
}
