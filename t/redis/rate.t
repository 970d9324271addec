# Rates of requests with windows of their own, and the rate 0, for zones in Redis.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

plan skip_all => 'built without hiredis' if !LimitSliding::Redis::supported();

my $redis = LimitSliding::Redis->new->start;
my %ZONES = (
    counter => '', parts => 'precision=10', log => 'algorithm=log',
    fixed => 'algorithm=fixed', tokens => 'algorithm=token_bucket', leased => 'lease=2',
);
my @names = sort keys %ZONES;

my %config = (
    http   => join('', map { <<"ZONE" } @names) . <<"HTTP",
    limit_sliding_zone \$arg_key zone=$_:1m rate=4 window=1d $ZONES{$_} redis=shared;
ZONE
    limit_sliding_zone \$arg_key zone=other:1m rate=9 window=1d redis=shared;
    limit_sliding_zone \$arg_key zone=local:1m rate=9 window=1d;
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 2s; connect_timeout 2s; }
    limit_sliding_headers retry_after draft;
    add_header X-Status \$limit_sliding_status always;
    add_header X-Source \$limit_sliding_source always;
HTTP
    server => join('', map { <<"PLACE" } @names) . <<'SERVER');
    location /$_ { limit_sliding zone=$_ rate=\$arg_rate; empty_gif; }
PLACE
    location /limits { limit_sliding_api write=on; }
    location /two {
        limit_sliding zone=counter rate=$arg_rate;
        limit_sliding zone=other rate=$arg_other;
        limit_sliding zone=local rate=$arg_local;
        empty_gif;
    }
    location /dry {
        limit_sliding zone=counter rate=$arg_rate dry_run;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

my @nodes = map { my $n = LimitSliding::Test->new; $n->serve(%config); $n } 1 .. 2;
my ($nginx) = @nodes;

# Returns how many of n requests pass, of both nodes by turns.
sub passing($n, $path) {
    return scalar grep { $nodes[$_ % 2]->get($path)->{status} == 200 } 1 .. $n;
}

for my $zone (@names) {
    is passing(6, "/$zone?key=a&rate=3/1h"), 3, "$zone: a limit and a window" if $zone ne 'leased';
    is passing(6, "/$zone?key=b"), 4, '... and that of the zone' if $zone ne 'leased';
    cmp_ok passing(9, "/$zone?key=c&rate=5/1h"), '<=', 5, '... at most';
    like header($nginx->get("/$zone?key=d&rate=5/2h"), 'RateLimit-Policy'), qr/;q=5;w=7200$/,
        '... told';
    my $json = api_key($nginx, $zone, 'd');
    is "$json->{limit} $json->{window}", '5 7200', '... shown';
    is api_key($nginx, $zone, 'd', 'DELETE')->{used}, 0, '... forgotten';

    my $calls = $redis->calls;
    my $r = $nginx->get("/$zone?key=e&rate=0");
    is "$r->{status} " . header($r, 'X-Status'), '429 REJECTED', "$zone: 0";
    is header($r, 'RateLimit-Policy'), qq("$zone";q=0;w=86400), '... told';
    is header($r, 'Retry-After'), '', '... for ever';
    is header($r, 'X-Source'), 'local', '... at once';
    is $redis->calls, $calls, '... Redis is not asked';
    is passing(1, "/$zone?key=e"), 1, '... nothing was used';

    api_key($nginx, $zone, 'f', 'PUT', '&rate=2/30m');
    is passing(4, "/$zone?key=f&rate=9/1h"), 2, "$zone: a key's own limit goes before"
        if $zone ne 'leased';

    passing(2, "/$zone?key=g&rate=5/1h");
    for my $own ('9', '9/30m') {
        api_key($nginx, $zone, 'g', 'PUT', "&rate=$own");
        passing(2, "/$zone?key=g&rate=5/1h");
        is api_key($nginx, $zone, 'g', 'DELETE')->{used}, 0, "$zone: forgotten beside $own";
        is api_key($nginx, $zone, 'g', 'PUT', '&rate=default')->{used}, 0,
            '... in the window of the last request, too';
        passing(2, "/$zone?key=g&rate=5/1h");
    }
}

for my $case ([ 'rate=0', 'counter' ], [ 'other=0', 'other' ], [ 'local=0', 'local' ],
    [ 'rate=0&local=0', 'counter|local' ])
{
    my ($args, $blocks) = @$case;
    my $key = $args =~ s/\W//gr;
    my $r = $nginx->get("/two?key=$key&$args");
    is $r->{status}, 429, "several limits: $args";
    like header($r, 'RateLimit-Policy'), qr/"(?:$blocks)";q=0;w=86400/, '... told';
    is scalar(() = header($r, 'RateLimit') =~ /;r=/g), 3, '... beside the others';
    is header($r, 'Retry-After'), '', '... for ever';
    is api_key($nginx, $_, $key)->{used} // 0, 0, "... all or nothing: $_"
        for grep { $key !~ ($_ eq 'counter' ? 'rate' : $_) } qw(counter other local);
}

my $r = $nginx->get('/dry?key=x&rate=0');
is $r->{status}, 200, 'dry_run beside another';
is api_key($nginx, 'other', 'x')->{used}, 1, '... which counts';
is header($nginx->get('/dry?key=x'), 'X-Status'), 'PASSED', '... and without 0';

$redis->stop;
is $nginx->get('/counter?key=gone&rate=0')->{status}, 429, 'without Redis: 0';
is scalar(grep { $nginx->get('/counter?key=gone&rate=3/1h')->{status} == 200 } 1 .. 5), 3,
    '... and a window, by its own memory';

$nodes[1]->finish_one;
$nginx->finish;
