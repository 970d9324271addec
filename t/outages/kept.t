# What docs/redis.md says of limits that are kept in Redis: when they last, and
# when they are lost.

use v5.36;

use Test::More;

use LimitSliding::Redis;
use LimitSliding::Resp qw(encode);
use LimitSliding::Test;

my $LIMIT = 'limit_sliding:one:{a}:limit';

# Returns a Redis with these directives that has a limit of a key.
sub with_limit(%config) {
    my $redis = LimitSliding::Redis->new->start(%config);
    $redis->command('SET', $LIMIT, '1000/1h');
    return $redis;
}

# Starts it again. Returns the limit, or 'lost'.
sub again($redis) {
    $redis->start;
    $redis->reconnect;
    wait_for(sub { ($redis->ask('GET', $LIMIT) // '') !~ /^-LOADING/ });
    return $redis->command('GET', $LIMIT) // 'lost';
}

sub after_kill($redis) {
    $redis->kill9;
    return again($redis);
}

sub after_stop($redis) {
    $redis->stop;
    return again($redis);
}


# restarts

my @SNAPSHOTS = (save => '3600 1 300 100 60 10000');
is after_stop(with_limit()), 'lost', 'nothing is saved: a restart';
is after_stop(with_limit(@SNAPSHOTS)), '1000/1h', 'snapshots: a restart';
is after_kill(with_limit(@SNAPSHOTS)), 'lost', '... killed before the next one';
for my $fsync (qw(everysec always no)) {
    is after_kill(with_limit(appendonly => 'yes', appendfsync => $fsync)),
        '1000/1h', "append-only file, appendfsync $fsync: killed";
}

# With "everysec" Redis may answer before it has written, while the disk is busy.
my $redis = with_limit(appendonly => 'yes', appendfsync => 'always');
$redis->command('SET', $LIMIT, '1000/1h', 'PX', 300);
$redis->kill9;
sleep 0.4;
is again($redis), 'lost', 'a ttl ends while Redis is away';


# memory

# Returns how many of 500 limits are left once Redis had to evict, after states
# of requests have come, which have to expire.
sub left($policy) {
    my $redis = LimitSliding::Redis->new->start('maxmemory-policy' => $policy);
    $redis->command('MSET',
        map { ("limit_sliding:one:{$_}:limit" => '1r/s') } 1 .. 500);

    my $nginx = LimitSliding::Test->new;
    $nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 2s; }
    limit_sliding_zone \$arg_key zone=one:1m rate=5r/d redis=shared;
HTTP
    location / { limit_sliding zone=one; empty_gif; }
SERVER
    $nginx->get("/?key=$_") for 1 .. 20;
    like $redis->info('keyspace')->{db0}, qr/^keys=520,expires=20,/,
        "$policy: states expire, limits do not";
    $nginx->finish_one;

    $redis->command(qw(CONFIG SET maxmemory),
        $redis->info('memory')->{used_memory} + (1 << 20));
    my ($socket, $errors) = ($redis->connect, 0);
    for my $batch (1 .. 40) {
        syswrite $socket, join '', map { encode('SET', "limit_sliding:one:{state$batch-$_}",
            'x' x 100, 'PX', 1_000_000 + $batch) } 1 .. 500;
        $errors += grep { /^-OOM/ } map { scalar readline $socket } 1 .. 500;
    }
    my $evicted = $redis->info('stats')->{evicted_keys};
    return join ', ', $evicted ? 'evicts' : 'does not evict',
        $errors ? 'refuses' : (), scalar grep { /:limit$/ } $redis->keys;
}

like left('volatile-ttl'), qr/^evicts, 500$/, '... no limit is evicted';
like left('volatile-lru'), qr/^evicts, 500$/, '... no limit is evicted';
unlike left('allkeys-lru'), qr/, 500$/, '... limits are evicted';
like left('noeviction'), qr/^does not evict, refuses, 500$/,
    '... writes are refused';


# replicas

my $master = with_limit();
my $replica = LimitSliding::Redis->new->start(
    replicaof => '127.0.0.1 ' . $master->port);
ok wait_for(sub { ($replica->command('GET', $LIMIT) // '') eq '1000/1h' }),
    'a replica has the limit';
is after_kill($master), 'lost', 'a master that saves nothing starts again';
ok wait_for(sub { !defined $replica->command('GET', $LIMIT) }, 30),
    '... and its replica has lost the limit as well';

$replica->stop;
$master->command(qw(CONFIG SET min-replicas-to-write 1));
ok wait_for(sub { $master->ask('SET', $LIMIT, '1r/s') =~ /^-NOREPLICAS/ }),
    'min-replicas-to-write: nothing is set without a replica';
done_testing;
