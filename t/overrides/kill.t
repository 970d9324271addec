# Workers and masters killed at any moment while the API gives orders: each order
# that was answered is there afterwards, and none takes the file down.

use v5.36;

use IO::Socket::INET;
use List::Util qw(shuffle);
use Test::More;

use LimitSliding::Clock real => 'processes are killed at any moment of an endless load';

use LimitSliding::Api;
use LimitSliding::Test;

my ($ROUNDS, $CONNECTIONS, $KEYS) = (80, 4, 12);

srand 1;

my $nginx = LimitSliding::Test->new->common(
    http   => "limit_sliding_zone \$arg_key zone=one:1m rate=5 window=30d limits=limits;\n",
    server => "location /limits { limit_sliding_api write=on; }\n");
my $config = $nginx->template;
$nginx->start($config);

# Keys are long, so that the file is compacted often.
my @keys = map { my $c = $_; [ map { "k$c-$_-" . 'x' x 400 } 1 .. $KEYS ] } 1 .. $CONNECTIONS;

# What a key may have: the limit that was answered last, and those of orders that
# were not answered since.
my %may = map { $_ => { '-' => 1 } } map { @$_ } @keys;

my ($n, $answered, $unanswered, @wrong) = (0, 0, 0);

# Sends the next order of a connection.
sub order($c) {
    my $key = $c->{keys}[ rand @{ $c->{keys} } ];
    my $limit = rand() < 0.1 ? 'default' : ++$n;
    my $path = key_path('one', $key, "&rate=$limit");

    $c->{order} = [ $key, $limit eq 'default' ? '-' : $limit ];
    $may{$key}{ $c->{order}[1] } = 1;
    syswrite $c->{socket}, "PUT $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

# Takes what a connection has read, and sends the next order after each answer, or ends
# the connection if $gives is false; false: the connection has ended.
sub take($c, $gives) {
    my $read = sysread $c->{socket}, $c->{in}, 65536, length $c->{in};
    while ($c->{in} =~ /^HTTP\S+ (\d+).*?\r\n\r\n/s) {
        my ($status, $head) = ($1, $&);
        my ($bytes) = $head =~ /^Content-Length: (\d+)/m;
        last if length $c->{in} < length($head) + $bytes;

        substr $c->{in}, 0, length($head) + $bytes, '';
        my ($key, $limit) = @{ delete $c->{order} };
        push @wrong, "status $status" if $status != 200;
        $may{$key} = { $limit => 1 };
        $answered++;
        return 0 if !$gives;
        order($c);
    }
    return $read;
}

# Gives orders on all connections, and calls $kill once so many were answered, a moment
# later. Then waits for the answer, or for the end, of each connection: no order may be
# under way afterwards.
sub give_orders($many, $moment, $kill) {
    local $SIG{PIPE} = 'IGNORE';
    my %open;
    for my $keys (@keys) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => $nginx->port) // die "connect: $@";
        my $c = $open{ fileno $socket } = { socket => $socket, keys => $keys, in => '' };
        order($c);
    }

    my $enough = $answered + $many;
    while (%open) {
        my $bits = '';
        vec($bits, $_, 1) = 1 for keys %open;
        select $bits, undef, undef, 30 or die 'an order was not answered';
        for (grep { vec $bits, $_, 1 } keys %open) {
            delete $open{$_} if !take($open{$_}, $kill);
        }

        if ($kill && $answered >= $enough) {
            sleep $moment;
            $kill->();
            undef $kill;
        }
    }
}

# Asserts that each key has what it may.
sub check($round) {
    for my $key (sort keys %may) {
        my $json = api_key($nginx, 'one', $key);
        my $has = !$json->{own_limit} ? '-' : $json->{limit} // 'null';
        next if $may{$key}{$has};

        push @wrong, sprintf 'round %s, key %s: %s, not %s', $round, substr($key, 0, 6),
            $has, join ' or ', sort keys %{ $may{$key} };
    }
}

for my $round (1 .. $ROUNDS) {
    last if @wrong;

    my $crash = $round % 2;
    wait_for(sub { $nginx->workers == 2 }) or die "round $round: a worker is missing";
    my ($victim) = shuffle $nginx->workers;

    give_orders(rand 60, rand 0.002,
        $crash ? sub { $nginx->crash } : sub { $nginx->kill_worker($victim) });
    $nginx->start($config) if $crash;
    check($round);
}

is join("\n", @wrong), '', "after $ROUNDS kills, answered orders are in force";
note "$answered orders answered";
cmp_ok $answered, '>', 5 * $ROUNDS, '... of which there were many';
cmp_ok scalar(my @compacted = $nginx->log_lines(qr/were compacted/)), '>', 5,
    'the file was compacted meanwhile';
cmp_ok -s $nginx->dir . '/limits', '<', 1_000_000, '... and is small';
is scalar(my @ignored = $nginx->log_lines(qr/ignored in/)), 0, 'no line is wrong';

# The end of a line that was not written is no line.
my $cut = () = $nginx->log_lines(qr/removed an unfinished/);
note "$cut unfinished lines or copies";


# The port of a process that was killed may be free a moment later: NGINX tries again.
$nginx->finish(allow => [ qr/bind\(\) to \S+ failed \(98: / ]);
