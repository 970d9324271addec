# Forks of Redis, and a proxy before it: docs/redis.md says what works. Each is
# skipped where it is not installed; .ci/packages gets what Debian has.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my @ALGORITHMS = qw(counter log fixed token_bucket leaky_bucket);

# Returns the path of a program; nothing: there is none.
sub program($name) {
    my ($path) = grep { -f && -x _ } "build/$name",
        map { "$_/$name" } split(/:/, $ENV{PATH}), '/usr/sbin';
    return $path;
}

# Returns an NGINX with limits at this server.
sub nginx_of($server, $more = '') {
    my %places = places(each => 'rate=5 window=1h redis=shared',
        zones => { map { ($_ => "algorithm=$_") } @ALGORITHMS });
    my $nginx = LimitSliding::Test->new;
    $nginx->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server $server;
        timeout 1s;
        connect_timeout 1s;
        $more
    }
    limit_sliding_zone \$arg_key zone=leased:1m rate=900 window=1h redis=shared
        lease=20;
    limit_sliding_zone \$arg_key zone=settled:1m rate=9 window=1h redis=shared;
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /leased  { limit_sliding zone=leased; empty_gif; }
    location /settled { limit_sliding zone=settled settle=$arg_to; empty_gif; }
    location /limits  { limit_sliding_api write=on; }
SERVER
    $nginx->serve(%places);
    return $nginx;
}

# Returns the statuses of some requests, and what decided them.
sub asked($nginx, $n, $path) {
    my (@statuses, %sources);
    for (1 .. $n) {
        my $r = $nginx->get($path);
        push @statuses, $r->{status};
        $sources{ header($r, 'X-Source') } = 1;
    }
    return join(' ', @statuses), join(' ', sort keys %sources);
}

# Checks limits of all kinds. `$redis` has the data, whoever is before it.
sub check($what, $nginx, $redis) {
    for my $algorithm (@ALGORITHMS) {
        my ($statuses, $sources) = asked($nginx, 7, "/$algorithm?key=a");
        my $passed = $algorithm eq 'leaky_bucket' ? 1 : 5;
        is $statuses, '200 ' x $passed . '429 ' x (6 - $passed) . '429',
            "$what: $algorithm";
        like $sources, qr/^(?:cache )?redis$/, '... which Redis decides';
    }

    $redis->command('SCRIPT', 'FLUSH');
    is +(asked($nginx, 3, '/counter?key=b'))[1], 'redis',
        "$what: a script that was forgotten";

    my %load;
    $load{ $_ // 'none' }++ for @{ $nginx->load(connections => 16,
        requests => [ map { "/counter?key=k" . $_ % 40 } 1 .. 400 ]) };
    is_deeply \%load, { 200 => 200, 429 => 200 }, "$what: many keys in a call";

    for (1 .. 2) {
        sleep 1.1 if $_ > 1;
        is +(asked($nginx, 7, '/leased?key=c'))[1], 'lease redis',
            "$what: leases";
    }

    is +(asked($nginx, 1, '/settled?key=s&to=3'))[0], '200', "$what: settled";
    ok wait_for(sub { (api_key($nginx, 'settled', 's')->{used} // 0) == 3 }),
        '... at its cost';

    is api_key($nginx, 'counter', 'o', 'PUT', '&rate=7/2d')->{http}, 200,
        "$what: the API sets a limit";
    is +(asked($nginx, 8, '/counter?key=o'))[0], '200 ' x 7 . '429',
        '... with a window of its own';
    is api_key($nginx, 'counter', 'o', 'POST', '&cost=-2')->{used}, 5,
        '... gives back';
    is api_key($nginx, 'counter', 'o', 'DELETE')->{used}, 0, '... and forgets';
    is api_key($nginx, 'counter', 'o', 'PUT', '&rate=default')->{own_limit},
        JSON::PP::false, '... also the limit';
    $redis->command('SET', 'limit_sliding:counter:{' . digest('p') . '}:limit', 2);
    is +(asked($nginx, 3, '/counter?key=p'))[0], '200 200 429',
        "$what: a limit in Redis";
}

sub list($nginx) {
    return $nginx->get('/limits/zones/counter/limits')->{status};
}

for my $fork (qw(valkey keydb)) {
    SKIP: {
        my $program = program("$fork-server") or skip "no $fork-server", 1;
        my $redis = LimitSliding::Redis->new(program => $program)->start;
        my $nginx = nginx_of($redis->server);
        check($fork, $nginx, $redis);
        is list($nginx), 200, "$fork: the list of limits";
        $nginx->finish_one;
    }
}


# Twemproxy before one Redis

SKIP: {
    my $program = program('nutcracker') or skip 'no nutcracker', 1;
    my $redis = LimitSliding::Redis->new->start;
    my ($listen, $stats) = map { LimitSliding::Test::reserve_port() } 1, 2;

    open my $file, '>', $redis->{dir} . '/nutcracker.yml' or die "nutcracker: $!";
    print $file <<"YAML";
pool:
  listen: 127.0.0.1:$listen->{port}
  hash: fnv1a_64
  hash_tag: "{}"
  distribution: ketama
  redis: true
  timeout: 2000
  servers:
   - 127.0.0.1:${\ $redis->port}:1
YAML
    close $file or die "nutcracker: $!";

    my $pid = LimitSliding::Process::program("$redis->{dir}/nutcracker.out", $program,
        '-c', "$redis->{dir}/nutcracker.yml", '-o', "$redis->{dir}/nutcracker.log",
        '-a', '127.0.0.1', '-s', $stats->{port});

    my $server = "127.0.0.1:$listen->{port}";
    ok wait_for(sub { IO::Socket::INET->new($server) }), 'Twemproxy listens';
    my $nginx = nginx_of($server);
    check('Twemproxy', $nginx, $redis);
    is list($nginx), 503, 'Twemproxy: no list of limits, as it knows no SCAN';
    $nginx->finish_one;

    $nginx = nginx_of($server, 'database 1;');
    is +(asked($nginx, 2, '/counter?key=d'))[1], 'fallback',
        'Twemproxy: no databases, as it knows no SELECT';
    $nginx->finish_one;

    kill TERM => $pid;
    waitpid $pid, 0;
}

done_testing;
