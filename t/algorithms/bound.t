# What a counter admits at most in any window, as docs/algorithms.md and the demo
# have it, by bursts at the worst moments: as many requests as are admitted, and
# as many again shortly before the window that began with them ends. When parts
# of a window begin is not known, so keys begin at all phases of it.

use v5.36;

use FindBin;
use List::Util qw(max sum uniq);
use Test::More;

use LimitSliding::Docs qw(content);
use LimitSliding::Test qw(:DEFAULT places);

my ($PHASES, $AGAIN) = (20, 0.9);
my $DEMO = "$FindBin::Bin/../demo";

my ($demo) = content("$DEMO/nginx.conf") =~ /zone=demo:1m ([^;]*);/;

my %zones = (             # name => [settings, what is admitted at most]
    default => [ 'rate=100 window=4s', 120 ],
    strict  => [ 'rate=100 window=4s strict', 100 ],
    few     => [ 'rate=10 window=4s', 10 ],
    demo    => [ $demo, 5 ],
    plain   => [ 'rate=100 window=4s precision=1', 199 ],
);
my %limits = map { $_ => $zones{$_}[0] =~ /rate=(\d+) / } keys %zones;
my %windows = map { $_ => $zones{$_}[0] =~ /window=(\d+)s/ } keys %zones;

my $nginx = LimitSliding::Test->new;
$nginx->common(http => 'limit_sliding_log_level off;');
$nginx->serve(places(
    zones => { map { ($_ => $zones{$_}[0]) } keys %zones }));

# Sends as many requests at once as a key may have, and more. Returns how many
# were admitted.
sub burst($zone, $key) {
    my $n = $limits{$zone} + 20;
    my $request = "GET /$zone?key=$key HTTP/1.1\r\nHost: a\r\n";
    my $socket = $nginx->connect;
    my $text = '';

    print $socket "$request\r\n" x ($n - 1),
        "${request}Connection: close\r\n\r\n";
    1 while sysread $socket, $text, 65536, length $text;

    my %count;
    $count{$_}++ for $text =~ m{HTTP/1\.1 (\d+) }g;
    my $admitted = $count{200} // 0;
    die "$zone: not all are answered\n"
        if $admitted + ($count{429} // 0) != $n;
    return $admitted;
}

open my $shown, '-|', $^X, "$DEMO/demo.pl", $nginx->binaries
    or die "demo: $!";

my %bursts;               # zone => phase => how many each burst admitted
my @orders = map {
    my $zone = $_;
    map {
        my $at = $windows{$zone} * $_ / $PHASES;
        ([ $at, $zone, $_ ], [ $at + $AGAIN * $windows{$zone}, $zone, $_ ]);
    } 0 .. $PHASES - 1;
} sort keys %zones;

my $start = now;
for my $order (sort { $a->[0] <=> $b->[0] } @orders) {
    my ($at, $zone, $phase) = @$order;
    sleep max(0, $start + $at - now);
    push @{ $bursts{$zone}[$phase] }, burst($zone, $phase);
}

for my $zone (sort keys %zones) {
    my ($settings, $bound) = @{ $zones{$zone} };
    my @most = map { sum @$_ } @{ $bursts{$zone} };
    note "$zone: @most";
    cmp_ok max(@most), '<=', $bound, "$settings: at most $bound in any window";
    next if $zone eq 'plain';
    is join(' ', uniq map { $_->[0] } @{ $bursts{$zone} }),
        $limits{$zone}, '... and no less at first';
}

# If these bursts were harmless, they would be so here, too.
cmp_ok max(map { sum @$_ } @{ $bursts{plain} }), '>', 120,
    'precision=1 exceeds the bounds of others';


# make demo

my $text = do { local $/; <$shown> };
ok close $shown, 'the demo shows what it says' or diag $text;
like $text, qr/^At most 5 requests in a sliding window of 2 s:$/m,
    '... in its headline';
like $text, qr/ \Q$demo\E;$/m, '... with the settings of its zone';

$nginx->finish;
