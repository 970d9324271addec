# POST with take=1: charges a key only if its limit has room.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my %ZONES = (
    counter => '', part => 'precision=1', parts => 'precision=10',
    strict  => 'strict', log => 'algorithm=log', fixed => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket', leaky => 'algorithm=leaky_bucket burst=9',
);
my @names = sort keys %ZONES;
my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_connections => 4096);

$nginx->common(server => <<'SERVER', http => <<"HTTP");
    location /limits { limit_sliding_api write=on; }
    location /other { limit_sliding_api write=on; limit_sliding_status 503; }
SERVER
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 2s; connect_timeout 2s; }
HTTP

# Returns "status Retry-After used remaining" of a take.
sub take($zone, $key, $cost, %opt) {
    my $path = key_path($zone, $key, "&cost=$cost&take=1");
    $path =~ s/^\/limits/$opt{at}/ if $opt{at};
    my $r = $nginx->get($path, method => 'POST');
    my $json = read_key($r);
    return "$r->{status} $json->{error}" if $json->{error};
    return join ' ', $r->{status}, header($r, 'Retry-After') || '-',
        map { $_ // 'null' } @$json{qw(used remaining)};
}

# Takes at once, so many times. Returns how many were admitted, and all statuses.
sub at_once($zone, $key, $n) {
    my @sockets = map { $nginx->send_request(key_path($zone, $key, '&cost=1&take=1'),
        method => 'POST') } 1 .. $n;
    my %statuses;
    $statuses{ $nginx->read_response($_, 'POST')->{status} // 'none' }++ for @sockets;
    return join ' ', map { "$_:$statuses{$_}" } sort keys %statuses;
}


# all algorithms, in shared memory and in Redis

for my $where ('', 'redis=shared') {
    my $in = $where eq '' ? 'in memory' : 'in Redis';
    $nginx->serve(http => join '', map { <<"ZONE" } @names);
    limit_sliding_zone \$arg_key zone=$_:1m rate=10 window=1d $ZONES{$_} $where;
ZONE

    for my $zone (@names) {
        my $name = "$zone, $in";
        is take($zone, 'a', 4), '200 - 4 6', "$name: taken";
        like take($zone, 'a', 7), qr/^429 [1-9]\d* 4 6$/, "$name: no room, nothing is taken";
        is take($zone, 'a', 6), '200 - 10 0', "$name: all that is left";
        my $rejected = take($zone, 'a', 1);
        like $rejected, qr/^429 [1-9]\d* 10 0$/, "$name: used up";
        cmp_ok +(split ' ', $rejected)[1], '<=', 2 * 86400, '... for two windows at most';
        is take($zone, 'a', 11), '429 - 10 0', "$name: a cost above the limit has no Retry-After";
        is take($zone, 'a', '9007199254740992'), '429 - 10 0', "$name: the largest cost";
        is take($zone, 'b', 10), '200 - 10 0', "$name: another key";

        # a key that owes
        api_key($nginx, $zone, 'c', 'POST', '&cost=15');
        like take($zone, 'c', 1), qr/^429 [1-9]\d* 15 0$/, "$name: owes";
        api_key($nginx, $zone, 'c', 'POST', '&cost=-7');
        is take($zone, 'c', 2), '200 - 10 0', "$name: given back";
        is at_once($zone, 'd', 30), '200:10 429:20', "$name: 30 at once, exactly the limit";
    }
}


# limits of keys and of requests, bans

for my $where ('', 'redis=shared') {
    my $in = $where eq '' ? 'in memory' : 'in Redis';
    my $id = $where eq '' ? 'm' : 'r';
    $nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_zone \$arg_key zone=$id-own:1m rate=10 window=30d $where;
    limit_sliding_zone \$arg_key zone=$id-plan:1m rate=\$arg_rate window=30d $where;
    limit_sliding_zone \$arg_key zone=$id-ban:1m rate=1 window=30d penalty=1h $where;
HTTP
    location /plan { limit_sliding zone=$id-plan; empty_gif; }
    location /ban { limit_sliding zone=$id-ban; empty_gif; }
SERVER

    my $own = "$id-own";
    api_key($nginx, $own, 'a', 'PUT', '&rate=3/1h&ttl=1h');
    is take($own, 'a', 3), '200 - 3 0', "$in: an own limit";
    my $r = $nginx->get(key_path($own, 'a', '&cost=1&take=1'), method => 'POST');
    my $json = read_key($r);
    is join(' ', $r->{status}, @$json{qw(limit own_limit window)}), '429 3 1 3600',
        "$in: ... rejects";
    cmp_ok $json->{ttl}, '>', 3590, '... as it is told';
    is take($own, 'a', 1, at => '/other') =~ s/ .*//r, '503', "$in: limit_sliding_status";
    api_key($nginx, $own, 'b', 'PUT', '&rate=0');
    is take($own, 'b', 1), '429 - null 0', "$in: a blocked key";
    api_key($nginx, $own, 'c', 'PUT', '&rate=off');
    is take($own, 'c', 100), '200 - 0 null', "$in: a key without a limit has room";
    is api_key($nginx, $own, 'c', 'POST', '&cost=100')->{http}, 409, '... and is not charged';

    like take("$id-plan", 'a', 1), qr/^409 .*no limit/, "$in: a variable that is not known";
    $nginx->get('/plan?key=a&rate=5');
    is take("$id-plan", 'a', 4), '200 - 5 0', "$in: the limit of the last request";
    like take("$id-plan", 'a', 1), qr/^429 [1-9]\d* 5 0$/, '... rejects';
    $nginx->get('/plan?key=b&rate=off');
    is take("$id-plan", 'b', 100), '200 - 0 null', "$in: the last request had no limit";
    is api_key($nginx, "$id-plan", 'b', 'POST', '&cost=100')->{http}, 409, '... so nothing is charged';
    $nginx->get('/plan?key=b&rate=0');
    is take("$id-plan", 'b', 1), '429 - null 0', "$in: the last request was blocked";

    is take("$id-ban", 'a', 1), '200 - 1 0', "$in: before a ban";
    like take("$id-ban", 'a', 1), qr/^429/, '... a rejected take';
    is api_key($nginx, "$id-ban", 'a')->{ban}, undef, '... is no reason for one';
    is $nginx->get('/ban?key=a')->{status}, 429, "$in: a rejected request is";
    my ($status, $wait) = split ' ', take("$id-ban", 'a', 1);
    is $status, 429, '... rejects a take';
    cmp_ok abs($wait - 3600), '<', 30, '... until it ends';
    api_key($nginx, "$id-ban", 'a', 'POST', '&cost=-1');
    like take("$id-ban", 'a', 1), qr/^429/, '... with room, too';
}


# leases: what this node has leased is taken as well

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=leased:1m rate=20 window=1d redis=shared lease=10;
HTTP
    location /leased { limit_sliding zone=leased; empty_gif; }
SERVER
is $nginx->get('/leased?key=a')->{status}, 200, 'leases: a request takes some';
cmp_ok api_key($nginx, 'leased', 'a')->{used}, '>', 1, '... units beyond its own';
is at_once('leased', 'a', 30), '200:19 429:11', '... and takes get all the others';


# arguments, and what has no take

$nginx->serve(http => <<'HTTP');
    limit_sliding_zone $arg_key zone=one:1m rate=10 window=1d;
    limit_sliding_zone $arg_key zone=running:1m inflight=1;
    limit_sliding_zone $arg_key zone=remote:1m rate=10 window=1d redis=shared;
HTTP

for ([ '&cost=1&take=0', '"take" must be "1", not "0"' ],
    [ '&cost=1&take=yes', '"take" must be "1", not "yes"' ],
    [ '&cost=1&take=', '"take" must not be empty' ],
    [ '&take=1', '"cost" must be given' ],
    [ '&cost=-5&take=1', '"cost" must be positive with "take=1", not "-5"' ]) {
    my ($arguments, $error) = @$_;
    my $json = api_key($nginx, 'one', 'a', 'POST', $arguments);
    is "$json->{http} $json->{error}", "400 $error", $arguments;
}
is api_key($nginx, 'one', 'a')->{used}, 0, 'nothing was charged';
like take('running', 'a', 1), qr/^409 POST cannot change units in flight/, 'units in flight';

$redis->stop;
is take('remote', 'a', 1), '503 redis does not answer', 'without Redis: 503' for 1 .. 8;

$nginx->finish;
