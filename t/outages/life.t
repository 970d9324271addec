# NGINX's own ways while Redis is as it may be: start, test, reload, connections
# that run out, clients that give up.

use v5.36;

use List::Util qw(sum0);
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new;      # not yet started


# Redis down

my $nginx = LimitSliding::Faults->new(server => $redis->server, start => 0);

my ($exit, $output) = $nginx->test_config($nginx->config);
is $exit, 0, 'no Redis: the configuration is right' or diag $output;
unlike $output, qr/\[(?!notice)\w+\]/, '... without a warning';

my $start = now;
$nginx->start($nginx->config);
cmp_ok now() - $start, '<', 0.02, 'no Redis: NGINX starts';
is scalar($nginx->log_lines(qr/\[(?:warn|error|crit)\]/)), 0,
    '... and has nothing to say before there is need';

my $answers = $nginx->rounds(8, 'down');
is join(' ', map { $_->{status} } @{ $answers->{local} }),
    '200 200 200 200 200 429 429 429', 'no Redis: local';
is join(' ', map { $_->{status} } @{ $answers->{deny} }),
    join(' ', (429) x 8), 'no Redis: deny';

$nginx->reload;
$answers = $nginx->rounds(3, 'down');
is join(' ', map { $_->{status} } @{ $answers->{local} }), '429 429 429',
    'no Redis: a reload keeps what was counted here';
is join(' ', map { $_->{status} } @{ $answers->{allow} }), '200 200 200',
    '... allow';

$redis->start;
ok defined $nginx->wait_healthy, 'Redis comes: it decides';
$nginx->exact('came');


# reloads while Redis decides, and while it hangs

for my $n (1 .. 3) {
    is(($nginx->ask("/local?key=reload"))[0]{source}, 'redis', "reload $n");
    $nginx->reload;
}
is(($nginx->ask("/local?key=reload"))[0]{remaining}, 1,
    'reloads lose nothing');
ok defined $nginx->wait_healthy, '... and Redis decides';
cmp_ok scalar($redis->clients), '<=', 6, '... connections are as before';

$redis->freeze;
my @asked = map { $nginx->send_request("/$_?key=hang") }
    @LimitSliding::Faults::POLICIES;
my @old = $nginx->workers;
$start = now;
$nginx->reload;
cmp_ok now() - $start, '<', 0.25 + 0.02, 'Redis hangs: old workers leave';
is join(' ', map { $nginx->read_response($_)->{status} } @asked),
    '200 200 429', '... after they have answered';
$redis->thaw;
ok defined $nginx->wait_healthy, '... and Redis decides again';


# `nginx -t` beside a running one changes nothing

is(($nginx->ask('/local?key=t'))[0]{remaining}, 4, 'one request');
my $connections = $redis->connections;
($exit) = $nginx->test_config;
is $exit, 0, 'a test of the configuration';
is $redis->connections, $connections, '... does not connect';
is(($nginx->ask('/local?key=t'))[0]{remaining}, 3, '... and changes nothing');


# Another configuration that is wrong: all goes on

($exit) = $nginx->test_config($nginx->config(block => 'nonsense;'));
isnt $exit, 0, 'a wrong configuration';
$nginx->hup($nginx->config(block => 'nonsense;'));
wait_for(sub { $nginx->log_lines(qr/\[emerg\].*nonsense/) });
is(($nginx->ask('/local?key=t'))[0]{remaining}, 2, '... is not taken');
$nginx->reload($nginx->config);
is(($nginx->ask('/local?key=t'))[0]{remaining}, 1, 'the right one again');


# Another Redis by a reload

my $other = LimitSliding::Redis->new->start;
$nginx->reload($nginx->config(server => $other->server));
ok defined $nginx->wait_healthy, 'another server by a reload';
is(($nginx->ask('/local?key=t'))[0]{remaining}, 4, '... which is asked');
is scalar($redis->clients), 0, '... and the old one is left';
$nginx->finish_one(allow => [ qr/\[emerg\].*nonsense/ ]);


# Clients that give up while Redis hangs: nobody waits for them, and what they
# asked for stays charged.

$nginx = LimitSliding::Faults->new(server => $redis->server, timeout => 60);
ok defined $nginx->wait_healthy, 'a patient NGINX';

# How many of these ports of clients the workers are connected to.
sub held(@ports) {
    my %is = map { $_ => 1 } $nginx->accepted;
    return scalar grep { $is{$_} } @ports;
}

sub ports(@sockets) {
    return map { $_->sockport } @sockets;
}

# How many bytes Redis was sent and has not read.
sub unread() {
    my $hex = sprintf '%04X', $redis->port;
    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    readline $file;           # the head of the table
    return sum0(map {
        my ($local, $queues) = (split)[1, 4];
        $local =~ /:$hex$/ ? hex $queues =~ s/.*://r : ();
    } <$file>);
}

# All of them are read, and Redis is asked.
sub are_read(@sockets) {
    sleep 0.001;
    return held(ports(@sockets)) == @sockets;
}

$redis->freeze;

my @clients = map { $nginx->send_request("/local?key=gone-$_") } 1 .. 20;
my @flood = map { $nginx->send_request("/big?key=flood-$_") } 1 .. 300;
ok are_read(@clients, @flood), 'clients wait';

my @ports = ports(@clients, @flood);
for (@clients, @flood) {          # by RST
    setsockopt $_, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
    close $_;
}
sleep 0.001;
is held(@ports), 0, 'they are gone, and nobody waits for them';

my $free = $nginx->get('/free');
is $free->{status}, 200, 'others are served';
$redis->thaw;
ok defined $nginx->wait_healthy, 'Redis goes on';
my @left = map { $_->{remaining} }
    map { $nginx->ask("/local?key=gone-$_") } 1 .. 20;
is "@left", join(' ', (3) x 20), 'what they asked for is charged';

# Every other one of many for one key
$redis->freeze;
@clients = map { $nginx->send_request('/big?key=same') } 1 .. 50;
are_read(@clients) or die 'they do not come';
my @leave = @clients[grep { $_ % 2 } 0 .. $#clients];
@ports = ports(@leave);
close $_ for @leave;
sleep 0.001;
held(@ports) and die 'they are not gone';
$redis->thaw;
is join(' ', map { $nginx->read_response($clients[$_])->{status} }
    grep { $_ % 2 == 0 } 0 .. $#clients), join(' ', (200) x 25),
    'every other one gives up: the rest is answered';
my ($answer) = $nginx->ask('/big?key=same');
is $answer->{remaining}, 1_000_000 - 51, '... and all are charged, once each';

# A worker that is killed while it waits
$redis->freeze;
@clients = map { $nginx->send_request("/local?key=killed-$_") } 1 .. 16;
are_read(@clients) or die 'they do not come';
my ($victim) = $nginx->workers;
$nginx->kill_worker($victim);
ok wait_for(sub {
    my @workers = $nginx->workers;
    @workers == 2 && !grep { $_ == $victim } @workers;
}), 'a worker that is killed while it waits';
$redis->thaw;
my %got;
for my $socket (@clients) {
    local $SIG{PIPE} = 'IGNORE';
    $got{ eval { $nginx->read_response($socket)->{status} } // 'lost' }++;
}
is join(' ', sort keys %got), '200 lost', '... the other one answers';
ok defined $nginx->wait_healthy, '... and Redis decides';
$nginx->exact('successor');
like join('', map { ($nginx->ask("/local?key=killed-$_"))[0]{remaining} }
    1 .. 16), qr/^[34]{16}$/, '... what was asked is charged once at most';

SKIP: {
    skip 'no nghttp', 2 if !$nginx->has_http2;
    $redis->freeze;
    my $url = 'http://127.0.0.1:' . $nginx->port(1) . '/big?key=streams';
    my $pid = open my $pipe, '-|', 'nghttp', '-n', '-m', 50, $url
        or die "nghttp: $!";
    wait_for(sub { unread() }) or die 'Redis is not asked';
    kill 'KILL', $pid;
    close $pipe;
    wait_for(sub { !$nginx->accepted(1) }) or die 'it does not leave';
    $redis->thaw;
    ok defined $nginx->wait_healthy, '50 streams of HTTP/2 that are cut off';
    my ($answer) = $nginx->ask('/big?key=streams');
    cmp_ok $answer->{remaining}, '<', 1_000_000 - 1, '... are charged';
}

$nginx->finish_one;


# No connection is left for Redis: the policy applies, and nobody waits.

$nginx = LimitSliding::Faults->new(server => $redis->server, timeout => 20,
    worker_connections => 24);

# True if NGINX has closed this one.
sub closed($socket) {
    $socket->blocking(0);
    my $n = sysread $socket, my $byte, 1;
    $socket->blocking(1);
    return defined $n || !$!{EAGAIN};
}

# Half a request holds a connection, which NGINX cannot take back then. A worker
# that has none left closes what it accepts; connections go to both at random.
my (@held, @wrong);
my $refused = 0;
for (1 .. 1000) {
    last if $refused > 30;
    my $socket = $nginx->connect;
    local $SIG{PIPE} = 'IGNORE';
    print {$socket} "GET /allow?key=full-$_ HTTP/1.1\r\n";
    $socket->flush;
    sleep 0.005;
    if (closed($socket)) {
        $refused++;
    } else {
        $refused = 0;
        push @held, $socket;
    }
}
@held = grep { !closed($_) } @held;
cmp_ok scalar(@held), '>=', 20, 'connections are used up';

# The first request of a worker that is complete. Others could have a connection
# that the first one does not need any more.
my %first;
for my $socket (@held[0 .. 19]) {
    my $start = now;
    print {$socket} "Host: localhost\r\n\r\n";
    $socket->flush;
    my $r = $nginx->read_response($socket);
    $first{ header($r, 'X-Worker') } //= header($r, 'X-Source');
    push @wrong, $r->{status} // 'none' if ($r->{status} // 0) != 200;
    push @wrong, 'slow' if now() != $start;
}
is "@wrong", '', '... requests are served, and at once';
is_deeply [ values %first ], [ qw(fallback fallback) ],
    '... by policies, in both workers';

close $_ for @held;
ok defined $nginx->wait_healthy, '... then Redis decides';
$nginx->finish_one(allow => [ qr/worker_connections are not enough/ ]);


# Redis closes connections that rest, as its `timeout` says: that is no failure,
# however many workers have one.

{
    local $LimitSliding::Faults::WORKERS = 8;
    $nginx = LimitSliding::Faults->new(server => $redis->server,
        worker_processes => 8);
    ok defined $nginx->wait_healthy, 'eight workers';
    $redis->kill_clients;
    ok !$redis->clients && !$nginx->connections_to($redis->port),
        'Redis closes their connections';
    is join(' ', map { $_->{source} }
        map { $nginx->ask("/allow?key=rest-$_") } 1 .. 4),
        'redis redis redis redis', '... and decides as ever';
    is scalar(() = $nginx->log_lines(qr/failed repeatedly/)), 0,
        '... it has not failed';
    $nginx->finish_one;
}

done_testing;
