#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Requests per second, latency and CPU with limits of NGINX, of Lua in NGINX
# and of HAProxy, each beside its own server without a limit.  All ways of a
# case are measured in turn, for some rounds, with 64 connections of wrk.
#
#     load.pl --nginx PATH --module PATH [--rounds N] [--seconds N] [--keys N]
#         [--data FILE]
#
# Ratios and what is added are of the same round; figures are medians over the
# rounds.  CPU is what the kernel has charged to the workers or threads.  Fails
# if requests pass that should not, or the reverse, or if a worker has next to
# nothing to do.

use v5.36;

use FindBin;

use lib "$FindBin::Bin/../lib";

my $CONNECTIONS = 64;

# Of its time, what a server that does not wait for requests is busy.
my $BUSY = 0.9;

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ rounds => 12, seconds => 0.4, keys => 100_000 },
        'rounds=i', 'seconds=f', 'keys=i', 'data=s');
}

use IO::Socket::INET;
use List::Util qw(max min sum);
use Text::Wrap qw(wrap);

use LimitSliding::Generator;
use LimitSliding::Peers;
use LimitSliding::Standing;
use LimitSliding::Test;

$| = 1;

my $KEYS = $option{keys};
my @PEERS = peers(qw(none counter limit_req limit_conn lua));

# In the text, where a ratio follows.
my %NAMES = (counter => 'limit_sliding', lua => 'Lua',
    haproxy => "HAProxy's stick table");

my @CASES = (
    { name => thousands($KEYS) . ' keys, 1 worker',  kind => 'pass', workers => 1,
      keys => $KEYS },
    { name => thousands($KEYS) . ' keys, 2 workers', kind => 'pass', workers => 2,
      keys => $KEYS },
    { name => 'one hot key, 2 workers',  kind => 'pass', workers => 2 },
    { name => 'one key, all rejected, 1 worker', kind => 'reject',
      workers => 1 },
    { name => 'one key, all rejected, 2 workers', kind => 'reject',
      workers => 2 },
);

my @nginxes = map { start_nginx($_) } 1, 2;
my %ways = map {
    my $kind = $_;
    map { ("$kind-$_" => [ ways($kind, $_) ]) } 1, 2;
} qw(pass reject);

for my $kind (qw(pass reject)) {
    warm_up($kind, $_) for map { @{ $ways{"$kind-$_"} } } 1, 2;
}

print_head();

my @blocks;

for my $case (@CASES) {
    my @ways = @{ $ways{"$case->{kind}-$case->{workers}"} };
    my $results = measure($case, @ways);

    print "### \u$case->{name}\n\n";
    print_table($results, @ways);
    print_ratios($case, $results, @ways);
    say_in_short($results, @ways)
        if $case->{keys} && $case->{workers} == 1;
    push @blocks, [ map { data_row($_, $results->{ $_->{key} }) }
        grep { $_->{own} ne $_->{key} } @ways ];
}

blocks($option{data}, @blocks);

my @lines = map { $_->log_lines(qr/\[(?:error|alert|crit|emerg)\]/) } @nginxes;
die "logged:\n", map { "$_\n" } @lines[0 .. min(4, $#lines)] if @lines;

# ---- servers ----

# A port for each limiter, so that requests are the same for all of them.
sub start_nginx($workers) {
    my $port = 0;
    my ($http, $servers) = ('') x 2;

    for my $peer (@PEERS) {
        $http .= $peer->{http};
        for my $kind (grep { defined $peer->{$_} } qw(pass reject)) {
            $servers .= "server { listen 127.0.0.1:%%PORT$port%% reuseport;"
                . " location / { empty_gif; $peer->{$kind} } }\n";
            $peer->{ports}{$kind} = $port++;
        }
    }
    my $load = join '', map { "load_module $_;\n" } lua_modules();

    return LimitSliding::Test->new(worker_processes => $workers)
        ->start(<<"CONF");
$load
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    error_log %%DIR%%/error.log error;
    $http
    $servers
}
CONF
}

# Those of a kind: { key, name, own => key of its server without a limit, port,
# lanes => ids of the workers or threads }.
sub ways($kind, $workers) {
    my $nginx = $nginxes[ $workers - 1 ];
    my @lanes = $nginx->workers;

    my $bare = $kind eq 'reject' ? ', 429' : '';
    my @ways = map { {
        key   => $_->{key},
        name  => { counter => 'limit_sliding, counter',
            none => "no limiter$bare" }->{ $_->{key} } // $_->{name},
        own   => 'none',
        port  => $nginx->port($_->{ports}{$kind}),
        lanes => \@lanes,
    } } grep { defined $_->{$kind} } @PEERS;

    return @ways if !haproxy_version();

    my $deny = $kind eq 'reject' ? 'http-request deny deny_status 429' : '';
    my $none = start_haproxy(threads => $workers, rules => $deny);
    my $table = start_haproxy(threads => $workers, limit => $kind);

    # it listens before its threads are there
    for my $haproxy ($none, $table) {
        wait_for(sub { threads($haproxy->{pid}) == $workers })
            or die "HAProxy has not $workers threads\n";
        $haproxy->{lanes} = [ threads($haproxy->{pid}) ];
    }

    return @ways,
        { %$none, key => 'haproxy-none', name => "HAProxy, no limit$bare",
          own => 'haproxy-none' },
        { %$table, key => 'haproxy', name => 'HAProxy, stick table',
          own => 'haproxy-none' };
}

# What a limiter keeps of keys is there before its time is taken, as it is later
# on, and it has shown that it limits.
sub warm_up($kind, $way) {
    my $limited = $way->{key} ne $way->{own};
    my @keys = $kind eq 'pass' && $limited ? 1 .. $KEYS : ('rejected') x 2;
    my $got = statuses($way, @keys);
    my $expected = $kind eq 'pass' ? '200' : $limited ? '200 429' : '429';

    die "$way->{name}, $kind: answered $got instead of $expected\n"
        if $got ne $expected;
}

# Requests one key after the other; returns the statuses, in the order in which
# they first came, as '200 429'.
sub statuses($way, @keys) {
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$way->{port}")
        or die "connect: $!\n";
    my (@statuses, %seen);

    while (my @some = splice @keys, 0, 100) {
        my ($answer, @got) = '';
        print $socket map { "GET /$_ HTTP/1.1\r\nHost: bench\r\n\r\n" } @some;
        $socket->flush;

        until ((@got = $answer =~ m{HTTP/1\.1 (\d{3}) }g) >= @some) {
            sysread $socket, $answer, 65536, length $answer
                or die "$way->{name}: connection closed\n";
        }
        push @statuses, grep { !$seen{$_}++ } @got;
    }

    return "@statuses";
}

# ---- measuring ----

# { key of a way => { figure => [of each round] } }
sub measure($case, @ways) {
    my %results;

    for my $round (1 .. $option{rounds}) {
        # forth and back, as what else the machine does may come and go
        my %figures = map { $_->{key} => run($case, $_, $round) }
            $round % 2 ? @ways : reverse @ways;

        for my $way (@ways) {
            my ($own, $bare) = @figures{ @$way{qw(key own)} };
            $own->{kept}  = $own->{rate} / $bare->{rate};
            $own->{times} = $own->{cpu} / $bare->{cpu};
            $own->{added} = $own->{cpu} - $bare->{cpu};
            push @{ $results{ $way->{key} }{$_} }, $own->{$_} for keys %$own;
        }
    }

    for my $way (@ways) {
        my $most = median(@{ $results{ $way->{key} }{most} });
        die sprintf "%s, %s: %.0f%% of the work is one worker's\n",
            $case->{name}, $way->{name}, 100 * $most
            if $case->{workers} > 1 && $most > 0.9;
    }

    return \%results;
}

# A round of one way.
sub run($case, $way, $round) {
    my $url = "http://127.0.0.1:$way->{port}";
    # another hot key in each round, as its limit is of the hour
    my $key = $case->{kind} eq 'reject' ? 'rejected' : "hot-$round";
    my @arguments = $case->{keys}
        ? ('-s', "$FindBin::Bin/keys.lua", $url, '--', '/%s', $case->{keys})
        : "$url/$key";

    my @before = map { cpu_us($_) } @{ $way->{lanes} };
    my $figures = wrk(connections => $CONNECTIONS,
        seconds => $option{seconds}, arguments => \@arguments);
    my @cpu = map { cpu_us($_) - shift @before } @{ $way->{lanes} };
    my $cpu = sum(@cpu);
    my $rejected = delete $figures->{rejected};

    die sprintf "%s, %s: %.1f%% rejected\n", $case->{name}, $way->{name},
        100 * $rejected
        if abs($rejected - ($case->{kind} eq 'reject')) > 0.01;

    return {
        %$figures,
        cpu  => $cpu / $figures->{requests},
        most => max(@cpu) / $cpu,
        busy => $cpu * $figures->{rate} / $figures->{requests} / 1e6 / @cpu,
    };
}

# ---- printing ----

sub print_head() {
    my ($version) = `'$option{nginx}' -v 2>&1` =~ m{nginx/([\d.]+)};
    chomp(my $cores = `nproc`);

    print "NGINX $version", (map { " and HAProxy $_" } haproxy_version()),
        " answer requests on $CONNECTIONS connections. Figures are medians of",
        " $option{rounds} rounds of $option{seconds} s, [min max]. Ratios, and",
        " the CPU that is added to a request, compare with the same server",
        " without a limit in the same round. If all requests are rejected, the",
        " server without a limit answers every request with 429. Neither",
        " limit_sliding (`limit_sliding_log_level off`) nor limit_req",
        " (`limit_req_log_level info`, with `error_log ... error`) logs",
        " rejections. Only limit_sliding sends a `Retry-After`.\n\n",
        "Ratios in the same round tell which limiter is behind limit_sliding",
        " or ahead of it. A lead of less than 1%, or in 3 of 4 rounds or",
        " fewer, may be chance.\n\n",
        "wrk makes the requests. It has one thread and shares ",
        $cores == 1 ? 'one core' : "$cores cores", ' with the servers. ',
        $cores == 1 ? 'It takes some of their time.'
            : $cores == 2 ? 'With two workers or threads, it takes some of'
            . ' their time, so they cannot answer twice as many requests as'
            . ' one.'
            : 'With two workers or threads, this thread is the limit, so they'
            . ' may not answer twice as many requests as one.',
        ' If servers wait for wrk, requests/s do not show the cost of a limit,',
        " but CPU does.\n\n";

    print "HAProxy is not installed and was not measured.\n\n"
        if !haproxy_version();
    print "This NGINX has no Lua, so Lua was not measured.\n\n"
        if !lua_modules();
}

sub print_table($results, @ways) {
    table([ '', 'requests/s', 'ratio', 'p50 ms', 'p99 ms',
            'CPU us a request', 'added' ],
        map {
            my $own = $results->{ $_->{key} };
            my $limited = $_->{key} ne $_->{own};
            [ $_->{name}, spread($own->{rate}),
                $limited ? spread($own->{kept}, '%.2f') : '',
                map({ spread($own->{$_}, '%.2f') } qw(p50 p99 cpu)),
                $limited ? spread($own->{added}, '%.2f') : '' ];
        } @ways);
}

# In words, by ratios alone: what each limiter leaves of its own server, and
# where each peer is beside us.
sub print_ratios($case, $results, @ways) {
    my @limited = grep { $_->{key} ne $_->{own} } @ways;
    my %none = (none => 'no limiter', 'haproxy-none' => 'HAProxy without');
    my $list = sub ($figure) {
        my $last = '';
        return join ', ', map {
            my $own = $_->{own} eq $last ? '' : " $none{ $_->{own} }";
            $last = $_->{own};
            sprintf '%s %.2f x%s', name($_),
                median(@{ $results->{ $_->{key} }{$figure} }), $own;
        } @limited;
    };

    say '- Requests/s: ', $list->('kept'), '.';
    say '- CPU a request: ', $list->('times'), '.';

    my %busy = map { $_->{key} => median(@{ $results->{ $_->{key} }{busy} }) }
        @ways;
    my $waits = $busy{counter} < $BUSY;
    printf "- Workers and threads are busy for %.0f to %.0f%% of the time%s.\n",
        100 * min(values %busy), 100 * max(values %busy), $waits
            ? '. Otherwise they wait for wrk or for a core, so requests/s do'
            . ' not show the differences' : '';

    my @peers = grep { $_->{key} ne 'counter' } @limited;
    print_standing($results, 'requests/s', 'rate', @peers) if !$waits;
    print_standing($results, 'CPU a request', 'cpu', @peers);
    print "\n";
}

# Each peer is behind us, ahead of us or level with us.
sub print_standing($results, $name, $figure, @peers) {
    my %peers;

    for my $peer (@peers) {
        my $standing = standing(@$results{ $peer->{key}, 'counter' }, $figure);
        push @{ $peers{ $standing->{is} } }, sprintf
            '%s at %.2f x ours (%s in %d of %d rounds)', name($peer),
            $standing->{ratio}, $standing->{lead} > 0 ? 'better' : 'worse',
            @$standing{qw(rounds of)};
    }

    my $those = sub ($is) { join('; ', @{ $peers{$is} // ['none'] }) . '.' };
    say "- By $name, behind limit_sliding: ", $those->('behind'),
        '  Ahead of it: ', $those->('ahead'),
        '  Level with it, as far as can be seen here: ', $those->('level');
}

sub say_in_short($results, @ways) {
    print wrap('', '', 'In short: with', thousands($KEYS), 'keys, a limit',
        'multiplies the CPU of a request by these factors (the median, and the',
        "middle half of $option{rounds} rounds):",
        join(', ', map {
            sprintf '%s %.2f (%.2f to %.2f)', name($_),
                middle_half($results->{ $_->{key} }{times})
        } grep { $_->{key} ne $_->{own} } @ways)), ".\n\n";
}

sub name($way) {
    return $NAMES{ $way->{key} } // $way->{key};
}

# The median, and between what the middle half of the rounds is.
sub middle_half($values) {
    my @sorted = sort { $a <=> $b } @$values;
    my $quarter = int(@sorted / 4);
    return (median(@sorted), @sorted[ $quarter, -1 - $quarter ]);
}

# For load.gp: a limiter, what it adds to the CPU of a request, us, and between
# what in the middle half of the rounds; the same of the requests/s it leaves.
sub data_row($way, $figures) {
    my $name = $way->{key} eq 'counter' ? 'limit_sliding' : $way->{name};
    return [ $name, map { middle_half($_) } @$figures{qw(added kept)} ];
}
