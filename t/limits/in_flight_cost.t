# What a limit of requests in flight costs a request, in instructions of user space,
# beside limit_conn.

use v5.36;

use LimitSliding::Clock real => 'callgrind counts instructions';

use IO::Socket::INET;
use Test::More;

use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Test;

my $reason = uncountable(LimitSliding::Test->new);
plan skip_all => $reason if $reason;

my $MOST = 700;           # of a request that passes
my $MANY = 100_000;       # keys
my $FEW  = 200;           # keys, which are as good as many without a limit

# It accepts connections, and never answers: to a request that holds the only unit of the
# first key, in both zones.
my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
    LocalAddr => '127.0.0.1') // die "listen: $!";
my $holder = LimitSliding::Test::reserve_port();
my $KEY = '/0000000';

my ($NONE, $PASS, $PASS_CONN, $RETURN, $REJECT, $REJECT_CONN) = 0 .. 5;
my $server = LimitSliding::Callgrind->nginx(http => <<"HTTP", locations => [
    limit_sliding_zone \$uri zone=pass:6m inflight=1000;
    limit_sliding_zone \$uri zone=reject:1m inflight=1;
    limit_sliding_log_level off;
    limit_conn_zone \$uri zone=pass_conn:1m;
    limit_conn_zone \$uri zone=reject_conn:1m;
    limit_conn_status 429;
    limit_conn_log_level info;
    server {
        listen 127.0.0.1:$holder->{port};
        limit_conn reject_conn 1;
        limit_sliding zone=reject;
        location / { proxy_pass http://127.0.0.1:${\ $silent->sockport }; }
    }
HTTP
    '', 'limit_sliding zone=pass;', 'limit_conn pass_conn 1000;',
    'return 429;', 'limit_sliding zone=reject;', 'limit_conn reject_conn 1;' ]);

# Returns the instructions that a place adds, for so many keys.
sub added($place, $without, $status, $keys) {
    my ($none, $all) = map {
        $server->measure(port => $_->[0], keys => $_->[1], requests => 1000,
            status => $status, uses => $status == 200 ? 1 : 0)
    } [ $without, $keys > $FEW ? $FEW : $keys ], [ $place, $keys ];
    return $all - $none;
}

for my $keys (1, $MANY) {
    my $cost = added($PASS, $NONE, 200, $keys);
    note sprintf 'a request that passes, %d keys: %.0f', $keys, $cost;
    cmp_ok $cost, '<=', $MOST, "a request that passes, $keys keys: at most $MOST";
    cmp_ok $cost, '>', 300, '... it is counted';
}
my $conn = added($PASS_CONN, $NONE, 200, 1);
note sprintf 'limit_conn: %.0f', $conn;
cmp_ok $MOST, '<', $conn, '... which is less than limit_conn';

my $client;
wait_for(sub { $client = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$holder->{port}") });
syswrite $client, "GET $KEY HTTP/1.1\r\nHost: bench\r\n\r\n";
my $upstream = $silent->accept;

my ($reject, $reject_conn) = map { added($_, $RETURN, 429, 1) } $REJECT, $REJECT_CONN;
note sprintf 'a rejection: %.0f, by limit_conn: %.0f', $reject, $reject_conn;
cmp_ok $reject, '<=', $reject_conn, 'a rejection: at most that of limit_conn';
cmp_ok $reject, '>', 300, '... it is counted';

$server->stop;
done_testing;
