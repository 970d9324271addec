# Bans of several nodes and the life of workers: reloads, deaths, exits; and a
# Redis that says what it should not.

use v5.36;

use List::Util qw(uniq);
use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

# Seconds between polls of a node, until another worker of it polls, and a look
my $POLL = 0.4 + 0.05 + 0.01;
my $GROUPS = 5;           # of wrong answers, which take turns in a group

my ($redis, @nginx);

sub begin() {
    $redis = LimitSliding::Redis->new->start;
    @nginx = map { LimitSliding::Test->new } 0, 1;
}

# The limit of a key is never used up: a cost of 100 is rejected, whatever it has
# left, and a cost of 0 passes, unless the key is banned.
sub template($node, $server, $penalty = 'penalty=100s', $more = '') {
    return $nginx[$node]->template(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server $server; timeout 200ms; $more }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=one:1m rate=10r/h redis=shared $penalty;
    limit_sliding_zone \$arg_key zone=two:1m rate=10r/h redis=shared $penalty;
HTTP
    location /one { limit_sliding zone=one cost=$arg_cost; empty_gif; }
    location /two { limit_sliding zone=two cost=$arg_cost; empty_gif; }
    location /free { empty_gif; }
SERVER
}

sub ban($node, $key, $zone = 'one') {
    return $nginx[$node]->get("/$zone?key=$key&cost=100")->{status};
}

sub is_banned($node, $key, $zone = 'one') {
    return $nginx[$node]->get("/$zone?key=$key&cost=0")->{status} == 429;
}

sub spreads($from, $to, $key, $name) {
    ban($from, $key);
    my $start = now;
    wait_for(sub { is_banned($to, $key) }, 10);
    cmp_ok now() - $start, '<', $POLL, "$name: spreads";
}

# Commands that a node sends in so many seconds without traffic.
sub polls($seconds) {
    my $before = $redis->calls;
    sleep $seconds;
    return $redis->calls - $before;
}


sub life() {
    begin();

    # a configuration that is tested asks for nothing

    my ($exit, $output) = $nginx[0]->test_config(template(0, $redis->server));
    is $exit, 0, 'nginx -t' or diag $output;
    is $redis->connections, 0, '... connects to nothing';

    # reloads

    $nginx[$_]->start(template($_, $redis->server)) for 0, 1;
    spreads(0, 1, 'started', 'start');

    for my $n (1 .. 3) {
        $nginx[$_]->reload for 0, 1;
        ok is_banned($_, 'started'), "reload $n: node $_ keeps bans" for 0, 1;
        spreads(0, 1, "reload$n", "reload $n");
        spreads(1, 0, "back$n", "... and back");
    }

    # two zones of two nodes, each once in 0.4 s
    my $polls = polls(2);
    cmp_ok $polls, '>=', 16, 'polls go on';
    cmp_ok $polls, '<=', 26, '... by one worker of a node';

    # an old worker that still has a request to answer asks for nothing
    my $slow = $nginx[0]->connect;
    print {$slow} "GET /free HTTP/1.1\r\n";
    $slow->flush;
    sleep 0.001;
    my %old = map { $_ => 1 } $nginx[0]->workers;
    $nginx[0]->hup;
    ok wait_for(sub { 2 == grep { !$old{$_} } $nginx[0]->workers }), 'a reload';
    cmp_ok polls(2), '<=', 26, '... one worker of all asks';
    print {$slow} "Host: a\r\nConnection: close\r\n\r\n";
    $slow->flush;
    is $nginx[0]->read_response($slow)->{status}, 200, '... the old one answers';
    my $start = now;
    ok wait_for(sub { !grep { $old{$_} } $nginx[0]->children }, 5),
        '... and ends';
    cmp_ok now() - $start, '<', 0.02, '... at once';

    # Redis hangs: that keeps no worker either
    $redis->freeze;
    ban(0, 'frozen');
    sleep 1;
    $start = now;
    $nginx[0]->reload;
    cmp_ok now() - $start, '<', 0.2 + 0.02, 'a reload while Redis hangs';
    ok is_banned(0, 'frozen'), '... keeps what began meanwhile';
    $redis->thaw;
    ok wait_for(sub { is_banned(1, 'frozen') }, 2),
        '... and the new workers tell what the old ones could not';

    # deaths of workers: whichever asks, the other one goes on

    for my $n (0, 1) {
        my ($killed) = ($nginx[1]->workers)[$n];
        $nginx[1]->kill_worker($killed);
        spreads(0, 1, "killed$n", "worker $n killed");
        wait_for(sub { $nginx[1]->workers == 2 });
    }

    # one that has a ban to tell dies before it can
    $redis->freeze;
    ban(1, "dead$_") for 1 .. 8;
    $nginx[1]->kill_worker($_) for $nginx[1]->workers;
    wait_for(sub { $nginx[1]->workers == 2 });
    $redis->thaw;
    ok wait_for(sub { 8 == grep { is_banned(0, "dead$_") } 1 .. 8 }, 2),
        'bans of dead workers are told';

    # penalty= comes and goes

    $nginx[0]->reload(template(0, $redis->server, ''));
    ok !is_banned(0, 'started'), 'without penalty= nobody is banned';
    $nginx[1]->reload(template(1, $redis->server, ''));
    sleep 1.2;                # for a probe of the breaker, which Redis's rest has opened
    my $before = $redis->calls;
    sleep 1.5;
    is $redis->calls, $before, '... and nothing is asked for';
    $nginx[$_]->reload(template($_, $redis->server)) for 0, 1;
    spreads(0, 1, 'again', 'penalty= again');

    $start = now;
    $nginx[1]->finish_one;
    $nginx[0]->finish_one;
    cmp_ok now() - $start, '<', 2 * 0.2 + 0.03, 'NGINX stops in time';
}


sub numbers(@numbers) {
    return join '', '*' . @numbers . '\r\n', map { ":$_\\r\\n" } @numbers;
}

my $now = 1_790_000_000_000;
my $year = 366 * 86_400_000 * 32;
my %said = (
    'garbage'             => [ 'say', "\x{1}\x{2}nonsense\\r\\n\x{7f}" ],
    'a huge array'        => [ 'flood', '*1000000000\r\n', ':1\r\n' x 100 ],
    'arrays in arrays'    => [ 'flood', '', '*1\r\n' x 100 ],
    'a huge bulk'         => [ 'flood', '$536870912\r\n', 'x' x 1000 ],
    'a reply cut short'   => ['cut'],
    'no reply'            => ['drop'],
    'two replies'         => ['extra'],
    'slow replies'        => [ 'bytes', 0.01 ],
    'a status'            => [ 'say', '+OK\r\n' ],
    'an error'            => [ 'say', '-ERR no\r\n' ],
    'NOSCRIPT'            => [ 'say', '-NOSCRIPT no\r\n' ],
    'MOVED'               => [ 'say', '-MOVED 1 127.0.0.1:1\r\n' ],
    'READONLY'            => [ 'say', '-READONLY no\r\n' ],
    'an empty array'      => [ 'say', '*0\r\n' ],
    'nulls'               => [ 'say', '*5\r\n' . '$-1\r\n' x 5 ],
    'strings'             => [ 'say', '*5\r\n' . '$1\r\n1\r\n' x 5 ],
    'too few numbers'     => [ 'say', numbers($now, 0, 1, 1) ],
    'half a ban'          => [ 'say', numbers($now, 0, 1, 1, 1, 5) ],
    'always lost'         => [ 'say', numbers($now, 1, 1, 0, 0) ],
    'always late'         => [ 'say', numbers($now, 2, 1, 0, 0) ],
    'always more'         => [ 'say', numbers($now, 0, 1, 1, 2) ],
    'more and more'       => [ 'say', numbers($now, 0, 1, 1 << 50, 1 << 51) ],
    'a ban below zero'    => [ 'say', numbers($now, 0, 1, 1, 1, 0, 5, -64) ],
    'a ban beyond years'  =>
        [ 'say', numbers($now, 0, 1, 1, 1, 0, 5, 9 * $year) ],
    'a hash beyond words' =>
        [ 'say', numbers($now, 0, 1, 1, 1, 0, 1 << 32, 3200) ],
    'a time beyond time'  =>
        [ 'say', numbers('9223372036854775807', 0, 1, 1, 1) ],
    'a thousand bans'     => [ 'say', numbers($now, 0, 1, 1, 1,
        map { ($_, $_, $year - 1) } 1 .. 1000) ],
);

# A Redis that says what it should not: nothing crashes, waits or grows, and it
# is not asked more often.
sub wrong_answers(@names) {
    begin();
    my $fake = LimitSliding::FakeRedis->new($redis)->start;
    $nginx[$_]->start(template($_, $fake->server)) for 0, 1;
    spreads(0, 1, 'honest', 'through a proxy');

    for my $name (@names) {
        my @workers = $nginx[1]->workers;
        $fake->forget;
        $fake->mode(@{ $said{$name} });
        ban(1, "meanwhile-$name" =~ tr/ /-/r);
        my @seconds;
        for (1 .. 5) {
            my $asked = now;
            $nginx[1]->get('/free');
            push @seconds, now() - $asked;
            sleep 0.3;
        }
        my $commands = $fake->stats->{commands};
        my $asked = ($commands->{EVAL} // 0) + ($commands->{EVALSHA} // 0);
        is join(' ', uniq @seconds), 0, "$name: nobody waits";
        # two zones of two nodes with two workers: 20 calls of each in 0.4 s
        cmp_ok $asked, '<=', 8 * 20 * 5, '... asked no more often than it may be';
        $fake->mode('pass');
        is "@{[ $nginx[1]->workers ]}", "@workers", '... workers live';
        ok wait_for(sub { is_banned(0, "meanwhile-$name" =~ tr/ /-/r) }, 3),
            '... and what began meanwhile is told when it is over';
    }
    spreads(0, 1, 'honest-again', 'afterwards');
    ok !is_banned(1, 'never'), '... others are not banned';

    $nginx[1]->finish_one;
    $nginx[0]->finish_one;
}

my @names = sort keys %said;
subtests(life => \&life, map {
    my $group = $_;
    my @of_it = @names[grep { $_ % $GROUPS == $group } 0 .. $#names];
    ("wrong answers $group" => sub { wrong_answers(@of_it) });
} 0 .. $GROUPS - 1);
done_testing;
