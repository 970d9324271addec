# Limits on requests in flight that several nodes share in Redis. FAULT_ROUNDS is how often both
# nodes are reloaded (3).

use v5.36;

use List::Util qw(sum0);
use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::Api;
use LimitSliding::InFlight;
use LimitSliding::Redis;
use LimitSliding::Test;

my ($redis, $fleet, $one, $two);

sub begin() {
    $redis = LimitSliding::Redis->new->start;
    $fleet = LimitSliding::InFlight->new($redis, unready => 1, http => <<'HTTP',
    limit_sliding_zone $arg_rate zone=rate:1m rate=2 window=30d redis=shared;
    limit_sliding_zone $arg_key zone=local:1m inflight=1;
    limit_sliding_zone $arg_key zone=hot:1m inflight=1000 redis=shared;
    limit_sliding_zone $arg_key zone=plan:1m inflight=$arg_plan redis=shared;
HTTP
    server_conf => <<'SERVER');
    location /rate { limit_sliding zone=held; limit_sliding zone=rate; empty_gif; }
    location /both { limit_sliding zone=held; limit_sliding zone=local; empty_gif; }
    location /tight { limit_sliding zone=held inflight=3; empty_gif; }
    location /watched { limit_sliding zone=held dry_run; empty_gif; }
    location /late { limit_sliding zone=held after_auth; empty_gif; }
    location /hot { limit_sliding zone=hot; empty_gif; }
    location /plan { limit_sliding zone=plan; empty_gif; }
    location /fields {
        limit_sliding zone=held;
        limit_sliding_headers retry_after draft x;
        empty_gif;
    }
SERVER
    ($one, $two) = $fleet->nodes;
}

sub told($node, $path) {
    my $r = $node->get($path);
    return "$r->{status} " . header($r, 'X-Told') . ' ' . header($r, 'X-Source');
}

sub the_limit() {
    begin();

    # a Redis that may have lost its memory

    is told($one, '/quick?key=first'), '200 PASSED held 10 9 fallback',
        'a new Redis: other nodes may hold units';
    sleep 1.6;
    is told($one, '/quick?key=first2'), '200 PASSED held 10 9 redis',
        '... until they had time for a heartbeat';
    $fleet->wait_ready;

    # the limit

    for my $round (1 .. 5) {
        is $fleet->hold('a', 14), 4, "round $round: ten of fourteen";
        is $fleet->alive('a'), 10, '... are held';
        is $fleet->settled('a'), 10, '... and Redis counts them';
        $fleet->release('a', 10);
        is $fleet->settled('a'), 0, '... until they end';
    }
    is $redis->ask('EXISTS', $fleet->name_of('a')), 0, 'a key at rest takes no memory';

    $fleet->hold('a', 10);
    like told($_, '/quick?key=a'), qr/^429 REJECTED held 10 0 (redis|cache)$/, 'a full key'
        for $one, $two;
    like told($one, '/watched?key=a'), qr/^200 REJECTED_DRY_RUN held 10 0 /, 'in dry run';
    is $one->get('/late?key=a')->{status}, 429, 'after authentication';
    is $one->get('/quick?key=b')->{status}, 200, 'another key';
    my $r = $one->get('/fields?key=a');
    is join('|', map { header($r, $_) } qw(RateLimit-Policy RateLimit Retry-After
        X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset)),
        '"held";q=10|"held";r=0||10|0|', 'header fields have no window and no reset';

    my $key = api_key($two, 'held', 'a');
    is join(' ', map { $_ // 'null' } @$key{qw(used limit remaining held source reset)}),
        '10 10 0 5 redis null', 'API: all units, and those of the node';

    for my $round (1 .. 10) {
        my $start = now;
        $fleet->release('a', 1, 0);
        wait_for(sub { $two->get('/quick?key=a')->{status} == 200 }, 5);
        cmp_ok now() - $start, '<', 0.3, 'a unit of one node is free for the other';
        sleep 0.1;
        is $fleet->hold('a', 1, 0), 0, '... and for itself';
    }
    $fleet->release('a', 10);
    is $fleet->settled('a'), 0, 'all end';
    $fleet->finish;
}

sub kinds() {
    begin();
    $fleet->wait_ready;

    # costs and limits of requests

    is told($one, '/costly?key=c&cost=11'), '429 REJECTED held 10 10 redis',
        'a cost above the limit';
    is told($one, '/costly?key=c&cost=10'), '200 PASSED held 10 0 redis', '... the limit';
    sleep 0.4;
    $fleet->hold('c', 3, 1);
    is told($one, '/costly?key=c&cost=8'), '429 REJECTED held 10 7 redis', '... more than is free';
    is told($one, '/costly?key=c&cost=0'), '200 PASSED held 10 7 redis', '... nothing';
    is told($one, '/tight?key=c'), '429 REJECTED held 3 0 redis', 'a lower limit at a place';
    is $fleet->settled('c'), 3, '... holds nothing';
    $fleet->release('c', 3);

    is told($one, '/plan?key=p&plan=4'), '200 PASSED plan 4 3 redis', 'a limit by a variable';
    is told($one, '/plan?key=p&plan=0'), '429 REJECTED plan 0 0 local', '... 0';
    is told($one, '/plan?key=p&plan=off'), '200  ', '... off';

    # several limits, all or nothing

    is join(' ', map { $_->get('/rate?key=d&rate=1')->{status} } $one, $two, $one), '200 200 429',
        'rejected by a rate';
    is $fleet->settled('d', 1), 0, '... it holds no units';
    $fleet->hold('d', 10);
    is $one->get('/rate?key=d&rate=2')->{status}, 429, 'rejected in flight';
    $fleet->release('d', 10);
    is $fleet->settled('d'), 0, '... all end';
    is join(' ', map { $_->get('/rate?key=d&rate=2')->{status} } $one, $two, $one), '200 200 429',
        '... it has used nothing of the rate';
    is $one->get('/both?key=e')->{status}, 200, 'a limit of the node beside it';
    is $fleet->settled('e', 1), 0, '... ends as well';

    # limits of keys

    my $key = api_key($one, 'held', 'own', 'PUT', '&inflight=12');
    is "$key->{http} $key->{limit} $key->{remaining}", '200 12 12', 'PUT on one node';
    is $fleet->hold('own', 14, 1), 2, '... in force on the other';
    $redis->command('SET', $fleet->name_of('own') . ':limit', 0);
    is told($one, '/quick?key=own'), '429 REJECTED held 0 0 redis', 'an override of 0';
    $redis->command('SET', $fleet->name_of('own') . ':limit', 'off');
    is told($two, '/costly?key=own&cost=100'), '200 PASSED held 10 10 redis', '... off';
    is $fleet->settled('own'), 12, '... counts what is held';
    $redis->command('SET', $fleet->name_of('own') . ':limit', '5r/s');
    is told($two, '/quick?key=own'), '429 REJECTED held 10 0 redis', '... a rate is none';
    is scalar($two->log_lines(qr/invalid limit of a key of zone "held" in redis/)), 1,
        '... which is logged';
    $fleet->release('own', 12);
    is $fleet->settled('own'), 0, '... all end';
    $fleet->finish;
}

sub reloads() {
    begin();
    $fleet->wait_ready;
    $fleet->hold('r', 8);
    for my $round (1 .. $ENV{FAULT_ROUNDS} // 3) {
        for my $node ($one, $two) {
            my %known = map { $_ => 1 } $node->children;
            $node->hup;
            wait_for(sub { my @new = $node->workers; @new == 2 && !grep { $known{$_} } @new });
        }
        $fleet->wait_ready;
        is $fleet->hold('r', 4), 2, "reload $round: old and new workers count together";
        $fleet->release('r', 2);
        is $fleet->settled('r'), 8, '... and give back';
    }
    sleep 3.5;
    is $fleet->counted('r'), 8, 'workers that shut down are counted';
    is $fleet->hold('r', 4), 2, '... for as long as their requests run';
    $fleet->release('r', 10);
    is $fleet->settled('r'), 0, '... and then no more';
    ok wait_for(sub { $one->children == 2 && $two->children == 2 }, 10), '... and they exit';
    $fleet->finish;
}

sub hot_key() {
    begin();
    $fleet->wait_ready;
    my $before = $redis->calls;
    my $statuses = $one->load(requests => [ ('/hot?key=h') x 4000 ], connections => 8,
        pipeline => 2);
    is scalar(grep { ($_ // 0) != 200 } @$statuses), 0, 'a hot key';
    my $calls = ($redis->calls - $before) / 4000;
    cmp_ok $calls, '<=', 0.1, sprintf '... by %.3f calls a request', $calls;

    my $metrics = $one->get('/limits/metrics')->{body};
    like $metrics, qr/^limit_sliding_uncounted_total\{redis="shared"\} 0$/m,
        'nothing was uncounted';
    like $metrics, qr/^limit_sliding_decisions_total\{zone="hot",source="lease"\} [1-9]/m,
        'decisions by kept units';
    $fleet->finish;
}

# What the workers of two nodes cost Redis while nothing happens
sub at_rest() {
    begin();
    $fleet->wait_ready;
    sleep 5;
    $redis->command(qw(CONFIG RESETSTAT));
    sleep 20;
    my %calls = $redis->command(qw(INFO commandstats)) =~ /^cmdstat_(\w+):calls=(\d+)/mg;
    delete @calls{qw(config|resetstat info)};
    my $workers = map { $_->workers } $one, $two;
    cmp_ok abs($calls{evalsha} - 20 * $workers), '<=', $workers, 'a heartbeat a second';
    my $commands = sum0(values %calls) - $calls{evalsha};
    is $commands / $calls{evalsha}, 4, '... of four commands';
    $fleet->finish;
}

subtests(
    'the limit'      => \&the_limit,
    'kinds of limit' => \&kinds,
    reloads          => \&reloads,
    'a hot key'      => \&hot_key,
    'at rest'        => \&at_rest,
);
done_testing;
