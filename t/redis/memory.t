# What the API tells of Redis's memory and evictions, by INFO.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

my $MB = 1 << 20;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

# Starts an NGINX with a zone in a Redis of these servers, whose block has more
# directives.
sub serve($addresses, $more = '') {
    my $servers = join ' ', map { "server $_;" } split / /, $addresses;
    my $nginx = LimitSliding::Test->new;
    $nginx->common(http => <<"HTTP", server => <<'SERVER');
        limit_sliding_redis shared { $servers timeout 2s; connect_timeout 2s; $more }
        limit_sliding_zone \$arg_key zone=one:1m rate=100r/d redis=shared;
HTTP
        location /limits { limit_sliding_api; }
        location /one    { limit_sliding zone=one; empty_gif; }
SERVER
    return $nginx->serve;
}

sub memory($nginx) {
    return api($nginx)->{redis}{shared}{memory};
}

# Looks until it is known, and returns it.
sub known($nginx) {
    my $memory;
    wait_for(sub { $memory = memory($nginx) }) or diag $nginx->log;
    return $memory;
}


# ---- a server ----

my $nginx = serve($redis->server);
is memory($nginx), undef, 'whoever looks first does not wait';
my $memory = known($nginx);
cmp_ok abs($memory->{bytes} - $redis->info('memory')->{used_memory}), '<', $MB,
    'the memory in use';
is $memory->{max_bytes}, undef, '... without a maximum';
is $memory->{evicted}, 0, '... and nothing given up';
api($nginx) for 1 .. 20;
is $redis->count('info') - 1, 1, 'one question a minute, beside ours';
my $metrics = $nginx->get('/limits/metrics')->{body};
like $metrics, qr/^limit_sliding_redis_memory_bytes\{redis="shared"\} $memory->{bytes}$/m,
    'the same for Prometheus';
like $metrics, qr/^limit_sliding_redis_evicted_keys_total\{redis="shared"\} 0$/m, '... evictions';
unlike $metrics, qr/^limit_sliding_redis_memory_max_bytes\{/m, '... no maximum';

my $calls = $redis->count('info');
$nginx->reload;
is_deeply known($nginx), $memory, 'a reload forgets nothing';
is $redis->count('info') - 1, $calls, '... and asks for nothing';
$nginx->finish_one;

# A Redis that is too small gives up what it can.
$redis->command(qw(CONFIG SET maxmemory-policy allkeys-random));
$redis->command('SET', "filler$_", 'x' x 10_000) for 1 .. 200;
my $max = $redis->info('memory')->{used_memory} - $MB;
$redis->command(qw(CONFIG SET maxmemory), $max);
$redis->ask('SET', 'one', 'more');
my $evicted = $redis->info('stats')->{evicted_keys};
cmp_ok $evicted, '>', 0, 'a full Redis gives up keys';
$nginx = serve($redis->server);
$memory = known($nginx);
is $memory->{max_bytes}, $max, '... its maximum';
cmp_ok $memory->{evicted}, '>=', $evicted, '... and what it gave up';
like $nginx->get('/limits/metrics')->{body},
    qr/^limit_sliding_redis_memory_max_bytes\{redis="shared"\} $max$/m, '... for Prometheus';
$nginx->finish_one;
$redis->command(qw(CONFIG SET maxmemory 0));
$redis->command('FLUSHALL');


# ---- servers that do not tell ----

$redis->command(qw(ACL SETUSER limiter on >password ~* +@all -info));
$nginx = serve($redis->server, 'user limiter; password password;');
wait_for(sub { memory($nginx); $nginx->log_lines(qr/memory and evictions are not known: NOPERM/) });
api($nginx) for 1 .. 50;
is memory($nginx), undef, 'without the right to ask';
cmp_ok scalar($nginx->log_lines(qr/memory and evictions/)), '<=', 2, '... it is said once a worker';
is $nginx->get('/one?key=a')->{status}, 200, '... and nothing else is wrong';
$nginx->finish_one;

for my $case (
    [ 'a number',        ':5\r\n',                          undef ],
    [ 'another text',    '$5\r\nhello\r\n',                 0 ],
    [ 'too large',       '$34\r\n\r\nused_memory:99999999999999999999\r\n', 0 ],
    [ 'nothing after it', '$13\r\n\nused_memory:\r\n',      0 ],
    [ 'no end of line',  '$16\r\n\nused_memory:123\r\n',    123 ],
) {
    my ($name, $text, $expected) = @$case;
    $fake->mode(answer => 'INFO', $text);
    my $other = serve($fake->server);
    my $told;
    if (defined $expected) {
        $told = known($other);
    } else {
        wait_for(sub { memory($other); $other->log_lines(qr/unexpected/) });
        $told = memory($other);
    }
    is $told && $told->{bytes}, $expected, "INFO: $name";
    is $other->get('/one?key=a')->{status}, 200, '... and decisions go on';
    $other->finish_one;
}

$fake->mode(answer => 'INFO', '');
my $mute = serve($fake->server);
is memory($mute), undef, 'INFO without an answer';
is $mute->get('/one?key=a')->{status}, 200, '... delays nobody';
$fake->mode('pass');
$mute->finish_one;

my $gone = serve('127.0.0.1:1');
is memory($gone), undef, 'a server that is not there';
api($gone) for 1 .. 5;
$gone->finish_one;


# ---- a cluster ----

my $cluster = LimitSliding::Cluster->new(replicas => 0)->start;
my ($some) = $cluster->alive;
$nginx = serve(join(' ', map { $_->server } $cluster->alive), 'topology cluster;');
$memory = known($nginx);
my $sum = 0;
$sum += $_->info('memory')->{used_memory} for $cluster->alive;
cmp_ok abs($memory->{bytes} - $sum), '<', 3 * $MB, 'a cluster: the sum of all masters';
cmp_ok $memory->{bytes}, '>', 2.5 * $some->info('memory')->{used_memory}, '... of each';
$nginx->finish_one;

$fake->stop;
done_testing;
