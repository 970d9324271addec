# A worker killed at any moment leaves the zone in order: nothing hangs, the
# limit stays exact for every key of which no request was under way, and for
# the others it is off by no more than what was under way. FAULT_ROUNDS is how
# many workers are killed under load (30).

use v5.36;

use List::Util qw(min shuffle sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

# The tight zone is full all the time, so that kills hit evictions as well.
my $nginx = LimitSliding::Test->new->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key zone=roomy:1m rate=50r/h;
    limit_sliding_zone $arg_key zone=tight:32k rate=5r/h;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location /roomy { limit_sliding zone=roomy; empty_gif; }
        location /tight { limit_sliding zone=tight; empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF

my ($LIMIT, $TIGHT_LIMIT) = (50, 5);
my ($CONNECTIONS, $PIPELINE) = (32, 4);
my $ROUNDS = $ENV{FAULT_ROUNDS} // 30;
my $LISTED = 20;          # killed with nothing under way

srand 1;

# Sends requests, and counts for each path [passed, rejected, lost].
sub run($paths, %options) {
    my $statuses = $nginx->load(%options, requests => $paths,
        connections => $CONNECTIONS, pipeline => $PIPELINE);

    my %counts;
    for my $i (0 .. $#$paths) {
        my $kind = { 200 => 0, 429 => 1, lost => 2 }
            ->{ $statuses->[$i] // 'lost' } // die "status $statuses->[$i]";
        ($counts{ $paths->[$i] } //= [ 0, 0, 0 ])->[$kind]++;
    }
    return %counts;
}

my @quiet = map { "/roomy?key=quiet-$_" } 1 .. 20;
my @spent = map { "/roomy?key=spent-$_" } 1 .. 20;

my %counts = run([ (@quiet) x 20, (@spent) x $LIMIT ]);
is scalar grep({ $_->[1] || $_->[2] } values %counts), 0, 'prepared';

run([ map { "/tight?key=fill-$_" } 1 .. 5000 ]);

# Who lives is listed while another worker dies: all that follows relies on it.
# Who was killed serves no more, be it that the kernel has yet to end it.
my (@missed, @serving);
for my $round (1 .. $LISTED) {
    wait_for(sub { $nginx->workers == 2 })
        or die "round $round: the killed worker has no successor";

    my ($victim, $other) = shuffle $nginx->workers;
    my ($dying, $listed) = (1, 1);
    $nginx->kill_worker($victim);
    push @serving, $round if grep { $_ == $victim } $nginx->workers;
    while ($dying) {
        my %lives = map { $_ => 1 } $nginx->children;
        $dying = $lives{$victim};
        $listed &&= $lives{$other};
    }
    push @missed, $round if !$listed;
}
is "@missed", '', 'a worker that lives is listed while another one dies';
is "@serving", '', '... which is no more a worker that serves';


# At least so many rounds must have caught requests under way. How many a round
# catches depends on which process the kernel lets run first.
my $CAUGHT = $ROUNDS / 10 + 1;

# An audit of the table: what is used of a key is what was admitted, but for what
# was under way.
sub audit($name, %counts) {
    my @wrong;
    for my $path (sort keys %counts) {
        my ($passed, undef, $lost) = @{ $counts{$path} };
        my ($zone, $key) = $path =~ m{^/(\w+)\?key=(.+)};
        my $used = api_key($nginx, $zone, $key)->{used};
        push @wrong, "$name, $path: $used used, $passed passed, $lost lost"
            if $used < $passed || $used > $passed + $lost;
    }
    return @wrong;
}

my (@wrong, %lost, %busy);
my $fresh = 0;

for my $round (1 .. 10 * $ROUNDS) {
    last if $round > $ROUNDS && grep({ $_ } values %lost) >= $CAUGHT;

    wait_for(sub { $nginx->workers == 2 })
        or die "round $round: the killed worker has no successor";

    my ($victim, $other) = shuffle $nginx->workers;
    my $busy = "/roomy?key=busy-$round";
    my @few = map { "/roomy?key=few-$round-$_" } 1 .. 10;

    my @paths = shuffle(($busy) x 150, (@few) x 10, (@spent) x 2,
        map { "/tight?key=fresh-" . $fresh++ } 1 .. 150);

    my %counts = run(\@paths,
        at => { 50 + int rand 250 => sub { $nginx->kill_worker($victim) } });

    $busy{$busy} = $counts{$busy};
    $lost{$round} = sum0(map { $_->[2] } values %counts);

    for my $path ($busy, @few, @spent) {
        my ($passed, $rejected, $lost) = @{ $counts{$path} };
        my $right = $path =~ /spent/ ? $passed == 0
            : $lost == 0 ? $passed == min($passed + $rejected, $LIMIT)
            : $passed <= $LIMIT + $lost
                && ($rejected == 0 || $passed >= $LIMIT - $lost);
        push @wrong, "round $round, $path: @{ $counts{$path} }" if !$right;
    }

    push @wrong, audit("round $round", map { $_ => $counts{$_} } $busy, @few);
    push @wrong, "round $round: the other worker is gone"
        if !grep { $_ == $other } $nginx->workers;
    push @wrong, "round $round: $lost{$round} lost"
        if $lost{$round} > $CONNECTIONS * $PIPELINE;
}

is join("\n", @wrong), '', "$ROUNDS workers killed under load";
cmp_ok scalar grep({ $_ } values %lost), '>=', $CAUGHT,
    'with requests under way';
note sprintf '%d rounds, %d of them with requests under way, of which %d were lost',
    scalar keys %lost, scalar grep({ $_ } values %lost), sum0(values %lost);


# afterwards

is join("\n", audit('at last', map { ($_ => [ 20, 0, 0 ]) } @quiet),
    audit('at last', map { ($_ => [ $LIMIT, 0, 0 ]) } @spent)), '',
    'keys that were not under fire are as they were';

wait_for(sub { $nginx->workers == 2 });

%counts = run([ shuffle((@quiet) x 60, (@spent) x 5) ]);
is join(' ', map { $counts{$_}[0] } @quiet), join(' ', ($LIMIT - 20) x @quiet),
    'keys with some requests still have exactly what was left';
is join(' ', map { $counts{$_}[0] } @spent), join(' ', (0) x @spent),
    'keys without quota still have none';

# What was lost may have been counted or not, but no more than that.
%counts = run([ shuffle((keys %busy) x ($LIMIT + 10)) ]);
@wrong = ();
for my $path (sort keys %busy) {
    my $lost = $busy{$path}[2];
    my $passed = $busy{$path}[0] + $counts{$path}[0];
    push @wrong, "$path: $passed passed, $lost lost"
        if $passed > $LIMIT + $lost || $passed < $LIMIT - $lost;
}
is join("\n", @wrong), '', 'keys under fire are off by what was lost at most';

@wrong = ();
for my $i (1 .. 50) {
    my $path = "/tight?key=new-$i";
    my %counts = run([ ($path) x 20 ]);
    push @wrong, "$path: @{ $counts{$path} }"
        if $counts{$path}[0] != $TIGHT_LIMIT;
}
is join("\n", @wrong), '', 'new keys in the full zone get their limit';

$nginx->finish;
