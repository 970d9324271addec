# Errors that Redis answers by: none of them is a verdict.

use v5.36;

use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new(config => {
    # What counts is who may do what, not that "default" may all.
    user => 'limiter on >first-word ~* +@all',
    'busy-reply-threshold' => 50,
})->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;
my $master = LimitSliding::Redis->new->start;

# The proxy tells how often Redis was asked.
my $nginx = LimitSliding::Faults->new(server => $fake->server);
my $named = LimitSliding::Faults->new(server => $fake->server,
    block => 'user limiter; password first-word;');

sub set($name, $value) {
    $redis->command('CONFIG', 'SET', $name, $value);
}

# A fault in which Redis answers by an error with these words. The breaker keeps
# most of the requests away, and the log is brief about it.
sub error($on, $name, $inject, $heal, %opt) {
    my $words = $opt{words} // qr{\b$name\b};
    my $before = () = $on->log =~ /\n/g;
    my $start = now;
    $on->fault($name, sub { $inject->(); $fake->forget }, $heal, %opt,
        during => sub ($answers) {
            my $asked = $fake->stats->{commands};
            my $decisions = ($asked->{EVALSHA} // 0) + ($asked->{EVAL} // 0);
            # of 3 blocks: five until each is open, then a probe in 0.75 to 1 s
            cmp_ok $decisions, '<=', 3 * (5 + int(+(now() - $start) / 0.75)),
                'the breaker opens';

            # A line is told a second, and the first one may be of what led
            # to this: a connection that broke.
            my @lines;
            ok wait_for(sub {
                $on->rounds(1, 'log');
                @lines = split /\n/, $on->log;
                @lines = grep { /$words/ } @lines[$before .. $#lines];
            }, 4), 'the log tells why';
            # of each worker and block
            cmp_ok scalar(@lines), '<=', 2 * 3 * (2 + now() - $start),
                'in few words';
            $opt{also}->() if $opt{also};
        });
}

error($nginx, 'OOM', sub { set(maxmemory => 1) }, sub { set(maxmemory => 0) });

error($nginx, 'NOREPLICAS', sub { set('min-replicas-to-write', 1) },
    sub { set('min-replicas-to-write', 0) });

error($nginx, 'READONLY', sub {
    $redis->command('REPLICAOF', '127.0.0.1', $master->port);
    wait_for(sub { $redis->info('replication')->{master_link_status} eq 'up' });
}, sub { $redis->command(qw(REPLICAOF NO ONE)) });

set('replica-serve-stale-data', 'no');
error($nginx, 'MASTERDOWN', sub { $redis->command(qw(REPLICAOF 127.0.0.1 1)) },
    sub { $redis->command(qw(REPLICAOF NO ONE)) });

error($nginx, 'BUSY', sub { $redis->busy; sleep 0.1 },
    sub { $redis->end_busy });

# Passwords: one is wanted, another is wanted, another key is wanted.

error($nginx, 'NOAUTH', sub {
    set(requirepass => 'word');
    $redis->kill_clients;
}, sub { set(requirepass => '') }, words => qr{NOAUTH|unauthenticated});

sub acl(@rules) {
    $redis->command(qw(ACL SETUSER limiter), @rules);
}

error($named, 'WRONGPASS', sub {
    acl(qw(resetpass >other-word));
    $redis->kill_clients;
}, sub { acl(qw(resetpass >first-word)) });

error($named, 'NOPERM: keys', sub { acl('resetkeys', '~rl:*') },
    sub { acl('~*') }, words => qr{NOPERM});

error($named, 'NOPERM: scripts', sub { acl('-evalsha', '-eval') },
    sub { acl('+@all') }, words => qr{NOPERM});

# A command that Redis does not know is repeated by it.
my $renamed = LimitSliding::Redis->new(
    config => { 'rename-command' => 'AUTH ""' })->start;
my $unknown = LimitSliding::Faults->new(server => $renamed->server,
    block => 'user limiter; password first-word;');
$unknown->rounds(1, 'unknown');
ok wait_for(sub { $unknown->log_lines(qr/unknown command .?AUTH/) }),
    'a Redis without AUTH: the log tells why';

unlike $_->log, qr/-word/, 'no password in the log'
    for $nginx, $named, $unknown;
$unknown->finish_one;

# A user without a password is one all the same.
acl(qw(nopass));
my $nopass = LimitSliding::Faults->new(server => $redis->server,
    block => "user limiter; password '';");
ok defined $nopass->wait_healthy, 'a user without a password';
is_deeply { map { $_->{user} => 1 } grep { $_->{laddr} =~ /^127/ }
    $redis->clients }, { limiter => 1 }, '... is who is connected';
$nopass->finish_one;
acl(qw(resetpass >first-word));


# Loading: connections are kept, as it will be over.

$redis->command('EVAL',
    'for i = 1, 20000 do redis.call("SET", "fill:" .. i, i) end', 0);
$redis->command('SAVE');

my $connections;
error($nginx, 'LOADING', sub {
    $redis->restart('key-load-delay' => 150,
        'loading-process-events-interval-bytes' => 1024);
    is $redis->info('persistence')->{loading}, 1, 'Redis is loading';
}, sub {
    wait_for(sub { !$redis->info('persistence')->{loading} });
    set('key-load-delay', 0);
}, recovery => 4, also => sub {
    $connections = $fake->stats->{accepted};
    $nginx->ask(map { "/$_?key=loading" } @LimitSliding::Faults::POLICIES)
        for 1 .. 20;
    is $fake->stats->{accepted}, $connections, 'connections are kept';
    is $redis->info('persistence')->{loading}, 1, 'Redis is loading still';
});
$redis->command('FLUSHALL');


# Too many clients: it says so unasked, and closes.

error($nginx, 'max number of clients', sub {
    set(maxclients => 1);
    $redis->kill_clients;
}, sub { set(maxclients => 1000) }, also => sub {
    $fake->forget;
    my $end = now + 1.5;
    while (now() < $end) {
        $nginx->ask(map { "/$_?key=crowd" } @LimitSliding::Faults::POLICIES);
        sleep 0.05;
    }
    cmp_ok $fake->stats->{accepted}, '<=', 3 * 2, 'connections are spaced';
});


# No such script: asked for again, once, and that is no failure.

$nginx->exact('before-flush');
for my $n (1 .. 5) {
    $redis->command(qw(SCRIPT FLUSH));
    $fake->forget;
    my ($answer) = $nginx->ask("/big?key=flush-$n");
    is $answer->{source}, 'redis', "NOSCRIPT: Redis decides, $n";
    my $asked = $fake->stats->{commands};
    is_deeply [ @$asked{qw(EVALSHA EVAL)} ], [ 1, 1 ],
        '... by EVALSHA, then EVAL';
}

# The same under load: policies have no part in it, and limits are exact.
my ($flushes, $fallbacks, %passed) = (0, 0);
my @paths = map { my $key = $_; ("/allow?key=flushed-$key") x 8 } 1 .. 300;
$nginx->load(connections => 16, requests => \@paths,
    at => { map { (100 * $_ => sub { $redis->command(qw(SCRIPT FLUSH)); $flushes++ }) } 1 .. 20 },
    each => sub ($i, $status, $head) {
        $passed{ $paths[$i] } += $status == 200;
        $fallbacks++ if $head =~ /^X-Source: fallback/m;
    });
is $fallbacks, 0, "NOSCRIPT under load, $flushes times: Redis decides";
is scalar grep({ $_ != $LimitSliding::Faults::LIMIT } values %passed), 0, '... and exactly';

$named->finish_one;
$nginx->finish;
