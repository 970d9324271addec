# What requests in flight hold, when workers are killed and configurations are
# reloaded: nothing leaks, and the limit holds. FAULT_ROUNDS is how many workers
# are killed under load (30), and how many reloads there are.

use v5.36;

use IO::Select;
use List::Util qw(max shuffle sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::InFlight qw(silent_server);
use LimitSliding::Test;

my $ROUNDS = $ENV{FAULT_ROUNDS} // 30;
my $LIMIT = 12;
my $SOON = 1;             # seconds in which a dead worker's units are free

srand 1;

my $silent = silent_server();
my $nginx = LimitSliding::Test->new(worker_connections => 4096);
$nginx->common(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $arg_key zone=held:1m inflight=12;
    limit_sliding_log_level off;
HTTP
    location /silent {
        limit_sliding zone=held;
        proxy_pass http://127.0.0.1:$silent;
        proxy_read_timeout 1h;
    }
    location /quick { limit_sliding zone=held; empty_gif; }
    location /costly { limit_sliding zone=held cost=\$arg_cost; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
$nginx->start($nginx->template(listen => 'reuseport'));

my %alive;                # key => { socket => socket }, requests that are held

# Forgets the requests whose connections were closed.
sub forget_closed() {
    for my $sockets (values %alive) {
        my $select = IO::Select->new(values %$sockets);
        while (my @ready = $select->can_read(0)) {
            for my $socket (@ready) {
                my $bytes = sysread $socket, my $text, 4096;
                $select->remove($socket);
                delete $sockets->{$socket};
            }
        }
    }
}

# Sends n requests for a key that do not end by themselves. Returns how many were
# rejected; the others are alive.
sub hold($key, $n) {
    my %sent = map { my $socket = $nginx->send_request("/silent?key=$key");
        ($socket => $socket) } 1 .. $n;
    my $rejected = 0;

    # who is neither rejected nor in flight yet will be
    my $decided = wait_for(sub {
        for my $socket (IO::Select->new(values %sent)->can_read(0)) {
            my $answer = '';
            sysread $socket, $answer, 4096;
            delete $sent{$socket};
            $rejected++ if $answer =~ /^HTTP\/1\.1 429/;
            die "an answer: $answer" if $answer !~ /^(HTTP\/1\.1 429|$)/;
        }
        held($key) == %sent + keys %{ $alive{$key} };
    }, 10);
    $alive{$key}{$_} = $sent{$_} for keys %sent;
    return $decided ? $rejected : "undecided, $rejected";
}

sub held($key) { return api_key($nginx, 'held', $key)->{held} }

# Returns what is wrong with what a key holds, once what was lost is free.
my @seconds;
sub wrong($name, $key) {
    my $start = now;
    my ($held, $used, $lives);
    my $ends = wait_for(sub {
        forget_closed();
        my $state = api_key($nginx, 'held', $key);
        ($held, $used, $lives) = (@$state{qw(held used)}, scalar keys %{ $alive{$key} });
        $held == $lives && $used == $lives;
    }, 5);
    push @seconds, now() - $start;
    return $ends ? () : "$name, $key: $held held, $used used, $lives alive";
}


# kills under load

my @KEYS = qw(a b c);
my (@wrong, %lost);

for my $round (1 .. $ROUNDS) {
    wait_for(sub { $nginx->workers == 2 })
        or die "round $round: the killed worker has no successor";

    for my $key (@KEYS) {
        my $free = $LIMIT - keys %{ $alive{$key} // {} };
        my $more = 1 + int rand 3;
        my $rejected = hold($key, $free + $more);
        push @wrong, "round $round, $key: $rejected rejected of $more too many"
            if $rejected ne $more;
    }
    my ($gone) = shuffle @KEYS;
    delete $alive{$gone}{$_} for (sort keys %{ $alive{$gone} })[0 .. 5];

    my $victim = (shuffle $nginx->workers)[0];
    my @paths = shuffle map({ ("/quick?key=$_") x 40 } @KEYS, 'd' .. 'h'),
        map { "/costly?key=f&cost=" . (1 + $_ % 12) } 1 .. 40;
    my $statuses = $nginx->load(requests => \@paths, connections => 16, pipeline => 4,
        at => { 50 + int rand 200 => sub { $nginx->kill_worker($victim) } });
    $lost{$round} = grep { ($_ // 'lost') eq 'lost' } @$statuses;

    push @wrong, map { wrong("round $round", $_) } @KEYS, 'd' .. 'h';
}

is join("\n", @wrong), '', "$ROUNDS workers killed under load: nothing leaks";
cmp_ok scalar(grep { $_ } values %lost), '>', $ROUNDS / 10, '... with requests under way';
cmp_ok max(@seconds), '<', $SOON + 4, '... and is free soon';
note sprintf 'free after %.2f s at most, %d requests lost', max(@seconds),
    sum0(values %lost);

%alive = ();
is join("\n", map { wrong('at last', $_) } @KEYS), '', 'all leave';


# reloads

# Reloads, and waits until other workers serve. Those of before may shut down.
sub renew() {
    my %known = map { $_ => 1 } $nginx->children;
    $nginx->hup;
    return wait_for(sub { my @new = $nginx->workers; @new == 2 && !grep { $known{$_} } @new });
}

(@wrong, @seconds) = ();
wait_for(sub { $nginx->workers == 2 });
hold('r', $LIMIT);

for my $round (1 .. $ROUNDS) {
    renew() or die "round $round: no new workers";

    my $rejected = hold('r', 2);
    push @wrong, "round $round: old and new count together, not $rejected"
        if $rejected ne '2';

    my @oldest = sort { $alive{r}{$a}->sockport <=> $alive{r}{$b}->sockport } keys %{ $alive{r} };
    delete $alive{r}{$_} for @oldest[0, 1];
    push @wrong, wrong("round $round", 'r');
    $rejected = hold('r', 3);
    push @wrong, "round $round: $rejected rejected" if $rejected ne '1';
}

is join("\n", @wrong), '', "$ROUNDS reloads: nothing leaks, and the limit holds";


# A worker that shuts down has no successor.

renew() or die 'no new workers';
my %serving = map { $_ => 1 } $nginx->workers;
my @leaving = grep { !$serving{$_} } $nginx->children;
cmp_ok scalar @leaving, '>', 0, 'workers that shut down';
my $before = keys %{ $alive{r} };
(@seconds) = ();
$nginx->kill_worker($_) for @leaving;
wait_for(sub { my %lives = map { $_ => 1 } $nginx->children; !grep { $lives{$_} } @leaving });
wait_for(sub { forget_closed(); keys %{ $alive{r} } < $before });
is join("\n", wrong('killed', 'r')), '', '... are killed: nothing leaks';
cmp_ok keys %{ $alive{r} }, '<', $before, '... of what they held';
cmp_ok $seconds[0], '<', $SOON + 1, '... and is free within a second';
%alive = ();
is join("\n", wrong('at last', 'r')), '', 'all leave';

$nginx->finish;
