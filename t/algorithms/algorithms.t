# Each algorithm admits exactly its bound, from any number of connections and
# workers; takes nothing from requests that another limit rejects; and keeps
# its states over a reload.

use v5.36;

use List::Util qw(min shuffle);
use Test::More;

use LimitSliding::Test;

srand 1;

my $nginx = LimitSliding::Test->new;

$nginx->common(listen => 'reuseport', http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone full zone=full:1m rate=1 window=30d;

    limit_sliding_log_level off;
    add_header X-Worker    $pid                     always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Status    $limit_sliding_status    always;
HTTP
    location = /full { limit_sliding zone=full; empty_gif; }
SERVER

# Each zone has a name, the number of requests that it admits at once, and
# settings.
my %zones = (
    counter   => [ 40, 'rate=40' ],
    precision => [ 40, 'rate=40 algorithm=counter precision=10' ],
    finest    => [ 40, 'rate=40 algorithm=counter precision=60' ],
    log       => [ 40, 'rate=40 algorithm=log' ],
    fixed     => [ 40, 'rate=40 algorithm=fixed' ],
    tokens    => [ 40, 'rate=40 algorithm=token_bucket' ],
    few       => [ 15, 'rate=40 algorithm=token_bucket burst=15' ],
    more      => [ 60, 'rate=40 algorithm=token_bucket burst=60' ],
    leaky     => [ 1,  'rate=40 algorithm=leaky_bucket' ],
    leaky0    => [ 1,  'rate=40 algorithm=leaky_bucket burst=0' ],
);

# Returns the directives of a section with these zones, some of which have other
# settings, { name => settings }. No quota comes back within the test, as
# windows are of 30 days.
sub algorithms(%change) {
    my @names = sort keys %zones;
    return (http => join("\n", map {
        my $settings = $change{$_} // $zones{$_}[1];
        "limit_sliding_zone \$arg_key zone=$_:1m window=30d $settings;"
    } @names), server => join("\n", map { <<"LOCATIONS" } @names));
    location = /$_ { limit_sliding zone=$_; empty_gif; }
    location = /look-$_ { limit_sliding zone=$_ cost=0; empty_gif; }
    location = /both-$_ {
        limit_sliding zone=$_;
        limit_sliding zone=full;
        empty_gif;
    }
LOCATIONS
}

sub reload(%change) {
    $nginx->reload($nginx->template(algorithms(%change)));
}

my %workers;              # what each worker answered

# Sends the requests, and counts for each what passed and what was rejected:
# { path => [passed, rejected] }
sub run(@paths) {
    my %counts;
    $nginx->load(requests => \@paths, each => sub ($i, $status, $head) {
        my $kind = { 200 => 0, 429 => 1 }->{$status} // die "status $status";
        ($counts{ $paths[$i] } //= [ 0, 0 ])->[$kind]++;
        $workers{$1}++ if $head =~ /^X-Worker: (\d+)/m;
    });
    return \%counts;
}

sub remaining($path) {
    return header($nginx->get($path), 'X-Remaining');
}

# Returns how many of n requests pass, which come one after the other.
sub passed($n, $path) {
    return scalar grep { $nginx->get($path)->{status} == 200 } 1 .. $n;
}

$nginx->serve(algorithms());

is $nginx->statuses(2, '/full'), '200 429', 'a zone that is full';


for my $zone (sort keys %zones) {
    my ($bound, $settings) = @{ $zones{$zone} };

    my $r = $nginx->get("/$zone?key=first");
    is header($r, 'X-Limit'), 40, "$settings: limit";
    is header($r, 'X-Remaining'), $bound - 1, "$settings: remaining";
    is remaining("/look-$zone?key=new"), $bound, "$settings: a new key";


    # one key, 50 keys

    is_deeply run(("/$zone?key=a") x 1000),
        { "/$zone?key=a" => [ $bound, 1000 - $bound ] }, "$settings: one key";
    is remaining("/look-$zone?key=a"), 0, "$settings: one key, nothing left";

    my $counts = run(shuffle map { ("/$zone?key=k$_") x (2 * $_) } 1 .. 50);
    my @wrong = grep {
        $counts->{"/$zone?key=k$_"}[0] != min(2 * $_, $bound)
    } 1 .. 50;
    is "@wrong", '', "$settings: 50 keys";
    @wrong = grep {
        remaining("/look-$zone?key=k$_") != $bound - min(2 * $_, $bound)
    } 1, 7, 8, 19, 20, 21, 29, 30, 31, 50;
    is "@wrong", '', "$settings: 50 keys, what is left";


    # the second limit is full: the first is not consumed

    is_deeply run(("/both-$zone?key=b") x 500),
        { "/both-$zone?key=b" => [ 0, 500 ] }, "$settings: all or nothing";
    is remaining("/look-$zone?key=b"), $bound, "$settings: nothing taken";

    # in the middle of that, others consume from the first
    my $half = int $bound / 2;
    $counts = run(shuffle +("/both-$zone?key=c") x 500,
        ("/$zone?key=c") x $half);
    is $counts->{"/both-$zone?key=c"}[0], 0, "$settings: none of those pass";
    my $passed = $counts->{"/$zone?key=c"}[0] // 0;
    is remaining("/look-$zone?key=c"), $bound - $passed,
        "$settings: what others took remains taken";
    is passed($bound + 5, "/$zone?key=c"), $bound - $passed,
        "$settings: and the rest is there";
}

is keys %workers, 2, 'both workers took part';


# leaky_bucket with a queue: one passes, burst wait, the rest is rejected. A dry
# run tells those who would wait for days so at once.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=queue:1m rate=40 window=30d
        algorithm=leaky_bucket burst=39;
HTTP
    location /queue      { limit_sliding zone=queue dry_run; empty_gif; }
    location /look-queue { limit_sliding zone=queue cost=0;  empty_gif; }
    location /both-queue {
        limit_sliding zone=queue;
        limit_sliding zone=full;
        limit_sliding_dry_run on;
        empty_gif;
    }
SERVER
$nginx->get('/full');

# Sends the requests, and returns how many had which status, { path => { status
# => requests } }.
sub run_queue(@paths) {
    my %counts;
    $nginx->load(requests => \@paths, each => sub ($i, $status, $head) {
        my ($said) = $head =~ /^X-Status: (\w+)/m;
        $counts{ $paths[$i] }{$said}++;
    });
    return \%counts;
}

# Returns what n requests are told that come at once.
sub queued($n) {
    my %told = (PASSED => 1, DELAYED_DRY_RUN => min($n, 40) - 1,
        REJECTED_DRY_RUN => $n - min($n, 40));
    return { map { $told{$_} ? ($_ => $told{$_}) : () } keys %told };
}

is_deeply run_queue(('/queue?key=a') x 1000), { '/queue?key=a' => queued(1000) },
    'queue: one key';
is_deeply run_queue(shuffle map { ("/queue?key=k$_") x (2 * $_) } 1 .. 50),
    { map { ("/queue?key=k$_" => queued(2 * $_)) } 1 .. 50 }, 'queue: 50 keys';

my $counts = run_queue(shuffle +('/both-queue?key=c') x 500,
    ('/queue?key=c') x 20);
is_deeply $counts, { '/both-queue?key=c' => { REJECTED_DRY_RUN => 500 },
    '/queue?key=c' => $counts->{'/queue?key=c'} }, 'queue: all or nothing';
my $taken = 20 - ($counts->{'/queue?key=c'}{REJECTED_DRY_RUN} // 0);
is remaining('/look-queue?key=c'), 40 - $taken,
    'queue: what others took, and no more';


# a reload

$nginx->serve(algorithms());

my @kept = grep { $zones{$_}[0] > 1 } sort keys %zones;

passed(10, "/$_?key=kept") for sort keys %zones;
reload();
is remaining("/look-$_?key=kept"), $zones{$_}[0] - 10,
    "$zones{$_}[1]: kept over a reload" for @kept;
is remaining('/look-leaky?key=kept'), 0, 'leaky: kept over a reload';

# A new rate applies at once. The capacity of a bucket stays if it is given;
# else it follows the rate.
my %faster = map { $_ => $zones{$_}[1] =~ s/40/50/r } keys %zones;
reload(%faster);
for my $zone (@kept) {
    my $r = $nginx->get("/look-$zone?key=kept");
    my $remaining = header($r, 'X-Remaining');
    is header($r, 'X-Limit'), 50, "$zone: new rate";

    if ($zone eq 'tokens') {
        cmp_ok $remaining, '>=', 30, "$zone: new rate, at least what was left";
        cmp_ok $remaining, '<=', 40, "$zone: new rate, at most so many more";
    } else {
        my $bound = $faster{$zone} =~ /burst=(\d+)/ ? $1 : 50;
        is $remaining, $bound - 10, "$zone: new rate, count kept";
    }
}
is remaining('/look-leaky?key=kept'), 0, 'leaky: new rate, count kept';

my $names = join '|', keys %zones;
is_deeply [ $nginx->log_lines(qr/\[notice\].*"(?:$names)"/) ], [],
    'no notice so far';

reload();


# anything else: the zone starts empty, and says why

for my $case (
    [ counter   => 'rate=40 algorithm=fixed',                    'algorithm' ],
    [ fixed     => 'rate=40 algorithm=log',                      'algorithm' ],
    [ log       => 'rate=40',                                    'algorithm' ],
    [ tokens    => 'rate=40 algorithm=leaky_bucket burst=39',    'algorithm' ],
    [ precision => 'rate=40 algorithm=counter precision=20',     'precision' ],
    [ finest    => 'rate=40 algorithm=counter',                  'precision' ],
    [ counter   => 'rate=40 precision=1',                        'precision' ],
    [ few       => 'rate=40 algorithm=token_bucket burst=16',    'burst' ],
    [ leaky0    => 'rate=40 algorithm=leaky_bucket burst=1',     'burst' ],
) {
    my ($zone, $settings, $what) = @$case;
    my $regexp = qr/\[notice\].*"$zone".*\b$what\b/;

    passed(10, "/$zone?key=changed");
    reload($zone => $settings);

    my $bound = $settings =~ /algorithm=leaky.*burst=(\d+)/ ? $1 + 1
        : $settings =~ /burst=(\d+)/ ? $1 : 40;
    is remaining("/look-$zone?key=changed"), $bound,
        "$zone, $what changed: starts empty";
    is scalar $nginx->log_lines($regexp), 1, "$zone, $what changed: a notice";
    is remaining('/look-more?key=kept'), 50, "$zone: others are kept";

    reload();
    is scalar $nginx->log_lines($regexp), 2,
        "$zone, $what changed back: a notice";
}

# the same, said in other words
for my $case (
    [ counter => 'rate=40 algorithm=counter' ],
    [ counter => 'rate=40 algorithm=counter precision=auto' ],
    [ counter => 'rate=40 strict' ],
    [ leaky   => 'rate=40 algorithm=leaky_bucket burst=0' ],
    [ leaky   => 'rate=40 algorithm=leaky_bucket delay=2' ],
    [ leaky   => 'rate=40 algorithm=leaky_bucket nodelay' ],
) {
    my ($zone, $settings) = @$case;
    $nginx->get("/$zone?key=same");
    my $remaining = remaining("/look-$zone?key=same");

    reload($zone => $settings);
    is remaining("/look-$zone?key=same"), $remaining,
        "$settings: the same in other words";
    reload();
}

$nginx->finish;
