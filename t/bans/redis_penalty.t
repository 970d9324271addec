# Bans of zones in Redis, as far as they are one node's: what Redis rejects leads to a
# ban, which Redis is not asked about.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 2);
my $server = "127.0.0.1:" . $redis->port;

my %ZONES = map { $_ => "algorithm=$_" } @ALGORITHMS;
my @names = sort keys %ZONES;

$nginx->common(http => <<"HTTP" . join('', map { <<"ZONE" } @names), server => <<'SERVER');
    limit_sliding_redis shared { server $server; timeout 5s; connect_timeout 5s; }
    limit_sliding_zone \$arg_key zone=leased:1m rate=2 window=1d redis=shared lease=2 penalty=1h;
    limit_sliding_zone \$arg_key zone=free:1m rate=100 window=1d redis=shared;

    add_header X-Status \$limit_sliding_status always;
    add_header X-Source \$limit_sliding_source always;
HTTP
    limit_sliding_zone \$arg_key zone=$_:1m rate=2 window=1d redis=shared $ZONES{$_}
        penalty=2s penalty_after=20 penalty_max=4s;
ZONE
    location /limits { limit_sliding_api write=on; }
SERVER

sub ban($zone, $key) { return api_key($nginx, $zone, $key)->{ban} }

$nginx->serve(server => join '', map { <<"PLACE" } @names, 'leased');
    location /$_ { limit_sliding zone=$_; empty_gif; }
    location /$_/dry { limit_sliding zone=$_ dry_run; empty_gif; }
    location /$_/both { limit_sliding zone=free; limit_sliding zone=$_; empty_gif; }
PLACE

for my $zone (@names) {
    my $path = "/$zone?key=a";
    is $nginx->statuses(2, $path), '200 200', "$zone: passed";
    is $nginx->statuses(19, $path), join(' ', (429) x 19), "$zone: rejected 19 times";
    is ban($zone, 'a'), undef, "$zone: no ban yet";
    is header($nginx->get($path), 'Retry-After'), 2, "$zone: banned by the next";
    is ban($zone, 'a')->{doublings}, 0, "$zone: the API shows it";

    my $r = $nginx->get($path);
    is $r->{status}, 429, "$zone: a banned request";
    is header($r, 'X-Source'), 'local', "$zone: ... is this node's decision";
    is header($nginx->get("/$zone/dry?key=a"), 'X-Status'), 'REJECTED_DRY_RUN', "$zone: dry run";
    is $nginx->get("/$zone/both?key=a")->{status}, 429, "$zone: beside another limit";
    is api_key($nginx, 'free', 'a')->{used}, 0, "$zone: ... which counts nothing";
    is $nginx->get("/$zone?key=b")->{status}, 200, "$zone: another key";

    is api_key($nginx, $zone, 'a', 'DELETE', '&what=ban')->{ban}, undef, "$zone: lifted";
    is api_key($nginx, $zone, 'a')->{used}, 2, "$zone: ... and nothing else";
    api_key($nginx, $zone, 'a', 'DELETE');
    is $nginx->get($path)->{status}, 200, "$zone: forgotten";
}

is $nginx->statuses(4, '/leased?key=a'), '200 200 429 429', 'leased: rejected';
is ban('leased', 'a')->{left}, 3600, 'leased: banned';
api_key($nginx, 'leased', 'a', 'DELETE');
is $nginx->get('/leased?key=a')->{status}, 429, 'a plain DELETE keeps the ban';

api_key($nginx, 'leased', 'a', 'PUT', '&rate=off');
is $nginx->get('/leased?key=a')->{status}, 200, 'off: not banned';
api_key($nginx, 'leased', 'blocked', 'PUT', '&rate=0');
is $nginx->statuses(3, '/leased?key=blocked'), '429 429 429', 'blocked';
is ban('leased', 'blocked'), undef, '... leads to no ban';
api_key($nginx, 'leased', 'a', 'PUT', '&rate=0');
is header($nginx->get('/leased?key=a'), 'Retry-After'), '', 'banned and blocked: no end is told';

# Bans hold, and are lifted, while Redis is away.
api_key($nginx, 'leased', 'a', 'PUT', '&rate=default');
$redis->stop;
is $nginx->get('/leased?key=a')->{status}, 429, 'without Redis: banned';
is api_key($nginx, 'leased', 'a')->{ban}{left}, 3600, '... as the API shows';
is_deeply [ @{ api_key($nginx, 'leased', 'a', 'DELETE', '&what=ban') }{qw(http ban source)} ],
    [ 200, undef, 'fallback' ], '... lifted';
is $nginx->get('/leased?key=a')->{status}, 200, '... and admitted';

# A ban that begins then is told as any other.
is $nginx->statuses(3, '/leased?key=away'), '200 200 429', 'without Redis: rejected';
is_deeply [map { s/.*?((?:limiting|denying) request.*?"\w+").*/$1/r }
    $nginx->log_lines(qr/ing request.*key=away/)],
    ['limiting requests, excess: 1.000 by zone "leased"',
     'limiting requests, banned for 3600s by zone "leased"'], '... and logged';

$nginx->finish(allow => [qr/redis|connect/]);
