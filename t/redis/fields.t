# Header fields of requests with several limits in Redis: a rejection lists the
# same limits with the same numbers, whoever has decided it.

use v5.36;

use Test::More;

use LimitSliding::Api qw(api);
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $cluster = LimitSliding::Cluster->new->start;

my @ALGORITHMS = ('counter', 'counter precision=10', 'log', 'fixed',
    'token_bucket');

# Returns an NGINX, which does not run yet, with limits of this algorithm in the
# Redis of these directives, and with limits of its own.
sub node($algorithm, $servers) {
    my $window = $algorithm =~ /token/ ? '1d' : '30d';

    return LimitSliding::Test->new(worker_processes => 1)
        ->common(http => <<"HTTP");
    limit_sliding_redis shared {
        $servers
        timeout 5s;
        connect_timeout 5s;
    }
    limit_sliding_zone \$arg_key zone=two:1m rate=2 window=$window
        algorithm=$algorithm redis=shared;
    limit_sliding_zone \$arg_key zone=ten:1m rate=10 window=$window
        algorithm=$algorithm redis=shared;
    limit_sliding_zone \$arg_key zone=week:1m rate=9 window=7d redis=shared;
    limit_sliding_zone \$arg_user zone=user:1m rate=2 window=30d redis=shared;
    limit_sliding_zone \$arg_key zone=here:1m rate=8 window=30d;
    limit_sliding_zone \$arg_key zone=here2:1m rate=2 window=30d;

    limit_sliding_log_level off;
    limit_sliding_headers retry_after draft x;
    add_header X-Source \$limit_sliding_source always;
HTTP
}

# Returns the directives of a section: places with limits of these zones, {
# place => [zones] }, and the API.
sub sets(%sets) {
    return (server => join "\n",
        'location /limits { limit_sliding_api write=on; }',
        map {
            my @limits = map { "limit_sliding zone=$_;" } @{ $sets{$_} };
            "location /$_ { @limits empty_gif; }";
        } sort keys %sets);
}

my ($nginx, $other);

# Returns what remains of which limits, 'two=0/2 ten=8/10', and their times.
sub fields($r) {
    my %limit = header($r, 'RateLimit-Policy') =~ /"([^"]+)";q=(\d+)/g;
    my (@told, @times);
    for (split /, /, header($r, 'RateLimit')) {
        my ($name, $remaining, $time) = /^"(.*)";r=(\d+);t=(\d+)$/ or die $_;
        push @told, "$name=$remaining/$limit{$name}";
        push @times, $time;
    }
    return join(' ', @told), \@times;
}

# Asserts that a request for each of these sources is rejected, is decided
# there, and lists the same limits.
sub same($place, $expected, $name, @sources) {
    my $first;
    for my $source (@sources) {
        my $r = $nginx->get("/$place");
        my ($told, $times) = fields($r);
        is "$r->{status} $told", "429 $expected",
            "$name: listed, by $source";
        is header($r, 'X-Source'), $source, '... indeed';
        $first //= $times;
        my @differ = grep { abs($times->[$_] - $first->[$_]) > 2 } 0 .. $#$first;
        is "@differ", '', '... until the same times'
            or diag "@$times, not @$first";
    }
}

sub stats($zone) {
    my $zone_stats = api($nginx)->{zones}{$zone};
    return join ' ', map { $_ // '-' } @$zone_stats{qw(passed rejected)},
        $zone_stats->{sources} ? $zone_stats->{sources}{cache} : ();
}

sub ask($n, $path) {
    return $nginx->statuses($n, "/$path");
}

for my $case ((map { [ $_, 'server ' . $redis->server . ';' ] } @ALGORITHMS),
    [ 'counter', 'topology cluster; server ' . $cluster->servers . ';' ])
{
    my ($algorithm, $servers) = @$case;
    my $is_cluster = $servers =~ /cluster/;
    my $name = $is_cluster ? 'a cluster' : $algorithm;
    $redis->command('FLUSHALL');

    ($nginx, $other) = map { node($algorithm, $servers)->serve(sets(
        'two-ten'    => [qw(two ten)],
        'ten-two'    => [qw(ten two)],
        'two-here'   => [qw(two here)],
        'here2-ten'  => [qw(here2 ten)],
        'all'        => [qw(here two ten week)],
        'two-only'   => [qw(two)],
        'ten-only'   => [qw(ten)],
        'user-ten'   => [qw(user ten)],
    )) } 1 .. 2;

    # Another node has used some of it, which this one does not know.
    $other->get('/ten-only?key=a') for 1 .. 3;

    is ask(2, 'two-ten?key=a'), '200 200', "$name: two of two";
    my $was = stats('ten');
    same('two-ten?key=a', 'two=0/2 ten=5/10', $name, qw(redis cache cache));
    is((split ' ', stats('ten'))[2], (split ' ', $was)[2],
        '... no limit is counted that was not asked');
    same('ten-two?key=a', 'ten=5/10 two=0/2', "$name, in another order",
        qw(cache));

    is ask(2, 'two-here?key=b'), '200 200', "$name: a limit of this node";
    same('two-here?key=b', 'here=6/8 two=0/2', $name, qw(redis cache));

    is ask(2, 'all?key=c'), '200 200', "$name: four limits";
    same('all?key=c', 'here=6/8 two=0/2 ten=8/10 week=7/9', $name,
        qw(redis cache));

    is ask(2, 'here2-ten?key=d'), '200 200', "$name: of this node, used up";
    same('here2-ten?key=d', 'here2=0/2 ten=8/10', $name, 'local', 'local');

    # It is known by a request that did not ask for the other limit.
    is ask(4, 'two-only?key=e'), '200 200 429 429', "$name: known elsewhere";
    same('two-ten?key=e', 'two=0/2 ten=10/10', $name, qw(cache cache));

    # keys in several slots
    is ask(2, 'user-ten?key=f&user=f'), '200 200', "$name: of two keys";
    $other->get('/ten-only?key=f') for 1 .. 2;
    same('user-ten?key=f&user=f', 'user=0/2 ten=6/10', $name,
        qw(redis cache cache));

    next if $algorithm ne 'counter' || $is_cluster;

    # with other parameters

    $nginx->serve(http => <<'HTTP', sets(
    limit_sliding_zone $arg_key zone=leased:1m rate=100 window=30d
        redis=shared lease=10;
HTTP
        'costly' => ['ten cost=4', 'week'],
        'leased' => [qw(here2 leased)],
    ));

    is ask(2, 'costly?key=g'), '200 200', 'a cost: more remains than it takes';
    same('costly?key=g', 'ten=2/10 week=7/9', 'a cost', qw(redis cache));

    is ask(2, 'leased?key=h'), '200 200', 'a limit with leases';
    same('leased?key=h', 'here2=0/2 leased=98/100', 'leases', 'local', 'local');

    # limits of their own

    $nginx->serve(sets(
        'all'      => [qw(here two ten week)],
        'two-only' => [qw(two)],
        'two-ten'  => [qw(two ten)],
    ));

    $nginx->get('/limits/zones/ten/key?key=i&rate=50', method => 'PUT');
    $nginx->get('/limits/zones/week/key?key=i&rate=off', method => 'PUT');
    is ask(2, 'all?key=i'), '200 200', 'limits of a key';
    same('all?key=i', 'here=6/8 two=0/2 ten=48/50 week=9/9', 'limits of a key',
        qw(redis cache));
    is ask(3, 'two-only?key=j'), '200 200 429', 'limits of a key';
    $nginx->get('/limits/zones/ten/key?key=j&rate=50', method => 'PUT');
    same('two-ten?key=j', 'two=0/2 ten=50/50', 'limits of a key', 'cache');

    # where there is no list

    $nginx->serve(server => <<'CONF');
    location /x-only {
        limit_sliding_headers x;
        limit_sliding zone=two;
        limit_sliding zone=ten;
        empty_gif;
    }
    location /watched {
        limit_sliding zone=two;
        limit_sliding zone=ten dry_run;
        limit_sliding zone=week dry_run;
        empty_gif;
    }
CONF

    is ask(3, 'x-only?key=k'), '200 200 429', 'without lists';
    my $r = $nginx->get('/x-only?key=k');
    is join(' ', map { header($r, "X-RateLimit-$_") } qw(Limit Remaining)),
        '2 0', '... what is rejected by';
    is header($r, 'RateLimit'), '', '... no list';
    is ask(3, 'watched?key=l'), '200 200 429', 'limits in dry run';
    same('watched?key=l', 'two=0/2', 'limits in dry run', qw(cache cache));

    $other->finish_one;
    $nginx->finish_one;
}

$redis->stop;
$nginx->finish;
