# A worker that is stopped by SIGSTOP for longer than its node's lease lasts: what
# it still admits when it goes on is within that lease.

use v5.36;

use IO::Select;
use POSIX ();
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my ($LIMIT, $LEASE, $WINDOW) = (300, 200, 3);
my $TOTAL = 8000;
my $QUEUED = 250;         # requests that wait for the stopped worker

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new->common(listen => 'reuseport', http => <<"HTTP") } 1 .. 2;
    limit_sliding_redis shared { server ${\ $redis->server }; timeout 10s; connect_timeout 10s; }
    limit_sliding_log_level off;
    add_header X-Worker \$pid                  always;
    add_header X-Source \$limit_sliding_source always;
HTTP

my %zones = map { $_ => "algorithm=$_ rate=$LIMIT window=${WINDOW}s redis=shared lease=$LEASE" }
    qw(counter fixed token_bucket);
$zones{total} = "algorithm=fixed rate=$TOTAL window=30d redis=shared lease=100";
$_->serve(places(zones => \%zones)) for @nginx;

# Sends n requests over a connection at once.
sub ask($socket, $path, $n) {
    print {$socket} "GET $path HTTP/1.1\r\nHost: localhost\r\n\r\n" x $n;
    $socket->flush;
}

my $text = '';            # what came, and has not been looked at

# Returns how many of the n requests pass that are answered next.
sub passed($socket, $n) {
    my $passed = 0;
    while ($n > 0) {
        if ($text =~ m{^HTTP/1\.1 (200|429) .*?^Content-Length: (\d+)\r\n.*?\r\n\r\n}ms
            && length $text >= $+[0] + $2) {
            $passed += $1 == 200;
            substr $text, 0, $+[0] + $2, '';
            $n--;
            next;
        }
        IO::Select->new($socket)->can_read(30) or die "no response\n";
        sysread $socket, $text, 1 << 16, length $text or die "closed\n";
    }
    return $passed;
}

# Asks one node until it rejects: all that there is.
sub drain($nginx, $path) {
    my $statuses = $nginx->load(requests => [ ($path) x (3 * $LIMIT) ], connections => 8);
    return scalar grep { $_ == 200 } @$statuses;
}

my @places = qw(counter fixed token_bucket);
stay_in($WINDOW, $WINDOW - 0.3);

my $socket = $nginx[0]->connect;
my $worker;
$worker = header($nginx[0]->get("/$_?key=a", socket => $socket), 'X-Worker') for @places;
for my $place (@places) {
    is header($nginx[0]->get("/$place?key=a", socket => $socket), 'X-Source'), 'lease',
        "$place: the node has a lease";
}

kill 'STOP', $worker or die "SIGSTOP: $!";
ask($socket, "/$_?key=a", $QUEUED) for @places;
for my $place (@places) {
    my $passed = drain($nginx[1], "/$place?key=a");
    cmp_ok $passed, '<=', $LIMIT, "$place: another node gets no more than the limit, $passed";
}

# past the lease, the window, and units of a bucket
sleep $WINDOW + 1;
for my $place (@places) {
    my $passed = drain($nginx[1], "/$place?key=a");
    cmp_ok $passed, '>', 0, "$place: then some are free again, $passed";
}

kill 'CONT', $worker or die "SIGCONT: $!";
for my $place (@places) {
    my $passed = passed($socket, $QUEUED);
    cmp_ok $passed, '<=', $LEASE,
        "$place: the stopped worker admits no more than its lease, $passed";
}


# Stopped at any moment, under load: a window that does not end has its limit.

my ($stops, @children) = (0);
my $stop = sub {
    my ($worker) = (map { $_->workers } @nginx)[ $stops++ % 4 ];
    kill 'STOP', $worker or die "SIGSTOP: $!";
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        sleep 1.3;
        kill 'CONT', $worker;
        POSIX::_exit(0);
    }
    push @children, $pid;
};
my $statuses = $nginx[0]->load(beside => [ $nginx[1] ], connections => 32, pipeline => 4,
    requests => [ ('/total?key=b') x 16_000 ],
    at => { map { (1500 * $_ => $stop) } 1 .. 8 });
waitpid $_, 0 for @children;

# A worker may get units when it is too late to spend them.
my $passed = grep { ($_ // '') eq '200' } @$statuses;
is scalar grep({ ($_ // '') !~ /^(?:200|429)$/ } @$statuses), 0,
    "$stops stops under load: statuses";
cmp_ok $passed, '<=', $TOTAL, "... never above the limit, $passed";
cmp_ok $passed, '>=', $TOTAL - 100 * $stops, '... nor below it by more than their leases';

$nginx[1]->finish_one;
$nginx[0]->finish;
