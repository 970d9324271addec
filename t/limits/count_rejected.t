# count_rejected: who goes on to ask at its limit stays out, and who waits as long
# as it is told is let in.

use v5.36;

use Test::More;
use Time::HiRes qw(sleep time);

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT = 4;
my $WINDOW = 3;

my $redis = LimitSliding::Redis->new->start;

sub node() {
    return LimitSliding::Test->new->common(http => <<"CONF", server => <<'SERVER');
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        server @{[ $redis->server ]};
        timeout 5s; connect_timeout 5s;
    }

    add_header X-Status \$limit_sliding_status always;
    add_header X-Source \$limit_sliding_source always;
CONF
    location /limits { limit_sliding_api write=on; }
SERVER
}

my @nginx = map { node() } 1 .. 2;
my $nginx = $nginx[0];

my %algorithms = (counter => '', one => 'precision=1', precise => 'precision=10',
    strict => 'strict', log => 'algorithm=log', fixed => 'algorithm=fixed',
    tokens => 'algorithm=token_bucket', leaky => 'algorithm=leaky_bucket');

# Returns the answer of a node to a request of the key.
sub ask($node, $zone, $key = 'k') { return $node->get("/$zone?key=$key") }


# Who asks at twice the limit's rate is let in no more than once

my %zones = map {
    my $common = "rate=$LIMIT window=${WINDOW}s $algorithms{$_}";
    ("$_-here" => "$common count_rejected", "$_-redis" => "$common redis=shared count_rejected");
} keys %algorithms;

# Those that forget what they have rejected show that this can fail.
$zones{"$_-forgets"} = "rate=$LIMIT window=${WINDOW}s $algorithms{$_}" for qw(log counter tokens);

$_->serve(places(zones => \%zones)) for @nginx;
stay_in($WINDOW, $WINDOW / 2);

my (%passed, %told, %sources);
my $begin = time;
my $gap = $WINDOW / $LIMIT / 2;
my $turns = int 3.5 * $WINDOW / $gap;
for my $turn (0 .. $turns) {
    my $wait = $begin + $turn * $gap - time;
    sleep $wait if $wait > 0;

    for my $zone (sort keys %zones) {
        my $node = $zone =~ /redis/ ? $nginx[ $turn % 2 ] : $nginx;
        for (1 .. ($turn == 0 ? $LIMIT + 1 : 1)) {
            my $r = ask($node, $zone);
            $sources{ header($r, 'X-Source') }++;
            $passed{$zone} += $r->{status} == 200;
            $told{$zone} = [ time, header($r, 'Retry-After') || 0 ];
        }
    }
}

for my $zone (sort keys %zones) {
    if ($zone =~ /forgets|fixed/) {
        # windows that are fixed begin anew
        cmp_ok $passed{$zone}, '>', $LIMIT + 2, "$zone: goes in now and then";
    } else {
        my $once = $zone =~ /leaky/ ? 1 : $LIMIT;
        is $passed{$zone}, $once, "$zone: in once, and out from then on";
    }
}
ok $sources{$_}, "some are decided by $_" for qw(local redis cache);


# ... until it waits as long as it was told

for my $zone (sort { $told{$a}[1] <=> $told{$b}[1] } grep { !/forgets/ } keys %zones) {
    my ($then, $seconds) = $told{$zone}->@*;
    my $wait = $then + $seconds - time;
    sleep $wait if $wait > 0;
    is ask($nginx, $zone)->{status}, 200, "$zone: in again after $seconds s";
}


# What a key uses is no more than the limit holds, for whatever cost

my %long = map {
    my $common = "rate=10 window=30d $algorithms{$_}";
    $common .= ' burst=9' if /leaky/;
    ("$_-here" => "$common count_rejected", "$_-redis" => "$common redis=shared count_rejected");
} keys %algorithms;
$_->serve(places(zones => \%long, limit => 'cost=$arg_cost')) for @nginx;

for my $zone (sort keys %long) {
    $nginx->get("/$zone?key=c&cost=4");
    is $nginx->get("/$zone?key=c&cost=7")->{status}, 429, "$zone: 7 of 10 after 4";
    my $used = sub { api_key($nginx, $zone, 'c')->{used} };
    my $expected = $zone =~ /leaky/ ? qr/^(?:10|9)$/ : qr/^1[01]$/;
    wait_for(sub { $used->() =~ $expected });
    like $used->(), $expected, '... is recorded, as far as there is room';

    is $nginx->get("/$zone?key=c&cost=0")->{status}, $used->() > 10 ? 429 : 200, '... a look';
    is $nginx->get("/$zone?key=big&cost=11")->{status}, 429, '... more than the limit';
    is header($nginx->get("/$zone?key=big&cost=11"), 'Retry-After'), '', '... never fits';
    like api_key($nginx, $zone, 'big')->{used}, qr/^(?:9|10)$/, '... and uses up the key';
}


# What is refused without asking Redis is recorded there as well

$nginx->get('/log-redis?key=flood&cost=10');
sleep 1;
my @cached = grep { header($_, 'X-Source') eq 'cache' }
    map { $nginx->get('/log-redis?key=flood&cost=1') } 1 .. 60;
cmp_ok scalar @cached, '>', 20, 'a flood is refused by what is known';
my $name = 'limit_sliding:log-redis:{' . digest('flood') . '}:l2592000s';
my @events;
my $span = sub {
    @events = $redis->command('ZRANGE', $name, 0, -1, 'WITHSCORES')->@*;
    return $events[-1] - $events[1];
};
cmp_ok $span->(), '<', 500, '... and all of it is recorded';
is scalar @events, 2 * 10, '... as far as it matters';


# Which rejections are recorded

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=two:1m  rate=2  window=30d algorithm=fixed count_rejected;
    limit_sliding_zone $arg_key zone=nine:1m rate=9  window=30d algorithm=fixed count_rejected;
    limit_sliding_zone $arg_key zone=long:1m rate=9  window=30d precision=1 count_rejected;
    limit_sliding_zone $arg_key zone=other:1m rate=2 window=30d redis=shared algorithm=fixed
                                 count_rejected;
HTTP
    location /both   { limit_sliding zone=two; limit_sliding zone=nine; empty_gif; }
    location /costly { limit_sliding zone=two; limit_sliding zone=nine cost=5; empty_gif; }
    location /watch  { limit_sliding zone=nine cost=5 dry_run; empty_gif; }
    location /status { limit_sliding zone=nine cost=5 count_status=404; return 404; }
    location /missing { log_not_found off; limit_sliding zone=nine cost=5 count_status=404; }
    location /settle { limit_sliding zone=nine cost=0 settle=$arg_cost; empty_gif; }
    location /long   { limit_sliding zone=long cost=$arg_cost; empty_gif; }
    location /mixed  { limit_sliding zone=nine cost=5; limit_sliding zone=other; empty_gif; }
SERVER

sub used($zone, $key) { return api_key($nginx, $zone, $key)->{used} }
sub statuses($path, $n) { return join ' ', map { $nginx->get($path)->{status} } 1 .. $n }

is statuses('/both?key=a', 4), '200 200 429 429', 'two limits';
is used('nine', 'a'), 2, '... the one that does not reject records nothing';

is statuses('/costly?key=b', 2), '200 429', 'the other one rejects';
is used('nine', 'b'), 9, '... and records';
is used('two', 'b'), 1, '... alone';

is header($nginx->get('/watch?key=d'), 'X-Status'), 'PASSED', 'a limit in dry run';
is header($nginx->get('/watch?key=d'), 'X-Status'), 'REJECTED_DRY_RUN', '... would reject';
is used('nine', 'd'), 9, '... and records';

is statuses('/missing?key=e', 3), '404 429 429', 'count_status: rejected on the way in';
is used('nine', 'e'), 9, '... and recorded';

is statuses('/settle?key=f&cost=12', 1), '200', 'settle: nothing is reserved';
is used('nine', 'f'), 12, '... the cost is charged at the end';
is statuses('/settle?key=f&cost=12', 1), '429', '... and rejects';
is used('nine', 'f'), 12, '... and nothing recorded of what is rejected';

is statuses('/mixed?key=g', 2), '200 429', 'beside a limit in redis';
is used('nine', 'g'), 9, '... this node records what it rejects';
is used('other', 'g'), 1, '... and redis nothing';
is statuses('/mixed?key=h', 1), '200', 'redis beside';


# Reload

is statuses('/long?key=r&cost=9', 1), '200', 'a key at its limit';
is statuses('/long?key=r&cost=1', 3), '429 429 429', '... is rejected';
my $before = used('long', 'r');
my $text = api($nginx)->{zones}{long}{count_rejected};
ok $text, 'the API tells';
$nginx->reload;
is used('long', 'r'), $before, 'a reload keeps what was recorded';


# A worker that has asked nothing of Redis yet meets a key that others know to be exhausted

$nginx->serve(listen => 'reuseport', http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=known:1m rate=1 window=30d redis=shared count_rejected;
    add_header X-Worker $pid always;
HTTP
    location = /who  { empty_gif; }
    location /known  { limit_sliding zone=known; empty_gif; }
SERVER

# Returns a connection to each worker.
sub connections() {
    my %sockets;
    wait_for(sub {
        my $socket = $nginx->connect;
        $sockets{ header($nginx->get('/who', socket => $socket), 'X-Worker') } //= $socket;
        return keys %sockets == $nginx->workers;
    });
    return values %sockets;
}

my ($asks, $fresh) = connections();
$nginx->get('/known?key=a', socket => $asks) for 1 .. 2;
my $r = $nginx->get('/known?key=a', socket => $fresh);
is header($r, 'X-Source'), 'cache', 'a fresh worker rejects without asking redis';
is $r->{status}, 429, '... and lives on';

is join("\n", map { $_->new_errors } @nginx), '', 'no errors';

done_testing;
