# Charging keys by hand, over the API, and giving back.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

my %ZONES = (
    counter => '', part => 'precision=1', parts => 'precision=10',
    strict  => 'strict', log => 'algorithm=log', fixed => 'algorithm=fixed',
    tokens  => 'algorithm=token_bucket', leaky => 'algorithm=leaky_bucket burst=99',
);
my @names = sort keys %ZONES;

$nginx->common(http => join('', map { <<"ZONE" } @names) . <<'HTTP', server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=$_:1m rate=100 window=1d $ZONES{$_};
ZONE
    limit_sliding_zone $arg_key zone=variable:1m rate=$arg_rate window=30d;
    limit_sliding_zone $arg_key zone=few:32k rate=1 window=1d full=deny;
    limit_sliding_zone $arg_key zone=few_log:32k rate=1 window=1d full=deny algorithm=log;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /counter  { limit_sliding zone=counter;  empty_gif; }
    location /variable { limit_sliding zone=variable; empty_gif; }
SERVER

# Asserts how keys of a zone are charged by hand, and what is given back.
sub charges($zone) {
    is charge($zone, 'a', 30), '30 70', "$zone: charged";
    is charge($zone, 'a', 12), '42 58', "$zone: charged more";
    is charge($zone, 'a', -40), '2 98', "$zone: given back";
    is charge($zone, 'a', -40), '0 100', "$zone: no more than is used";
    is charge($zone, 'a', '-9007199254740992'), '0 100', "$zone: nor then";
    is charge($zone, 'a', 100), '100 0', "$zone: all of it";
    is charge($zone, 'a', 1), '101 0', "$zone: owes";
    is charge($zone, 'a', 400), '501 0', "$zone: owes more";
    cmp_ok api_key($nginx, $zone, 'a')->{reset}, '>', 3 * 86400, "$zone: for some windows";
    is charge($zone, 'a', -402), '99 1', "$zone: given back what was owed";
    is charge($zone, 'b', -5), '0 100', "$zone: a key that used nothing";
    like charge($zone, 'c', '9007199254740992'), qr/^\d+ 0$/, "$zone: the largest";
    is api_key($nginx, $zone, 'b')->{used}, 0, "$zone: others are not charged";
}

$nginx->serve;

# Charges a key; returns "used remaining", or the error.
sub charge($zone, $key, $cost) {
    my $json = api_key($nginx, $zone, $key, 'POST', "&cost=$cost");
    return $json->{error} // "$json->{used} $json->{remaining}";
}

charges($_) for @names;

is $nginx->get('/counter?key=a')->{status}, 200, 'one was left';
is $nginx->get('/counter?key=a')->{status}, 429, 'which is used';

like charge('variable', 'new', 5), qr/no limit/, 'the limit is not known';
$nginx->get('/variable?key=new&rate=10');
is charge('variable', 'new', 5), '6 4', 'that of the last request';
$nginx->get('/variable?key=new&rate=off');
like charge('variable', 'new', 5), qr/no limit/, 'there is none';
api_key($nginx, 'counter', 'own', 'PUT', '&rate=7');
is charge('counter', 'own', 5), '5 2', 'a limit of its own';
api_key($nginx, 'counter', 'own', 'PUT', '&rate=off');
is api_key($nginx, 'counter', 'own', 'POST', '&cost=5')->{http}, 409, 'off: 409';

for my $zone (qw(few few_log)) {
    my $n = 1;
    $n++ while $n < 5000 && api_key($nginx, $zone, "k$n", 'POST', '&cost=1')->{used};
    my $json = api_key($nginx, $zone, "k$n", 'POST', '&cost=1');
    is "$json->{http} $json->{error}", '507 no room for the key', "$zone: a full zone";
    is api_key($nginx, $zone, "k$n")->{used}, 0, '... has not charged a new key';
    is charge($zone, 'k1', 1), '2 0', '... but one that it has';
    charge($zone, 'k1', '9007199254740992');
    is api_key($nginx, $zone, 'k1', 'POST', '&cost=5')->{http}, 200, '... whatever it owes';
}


# in Redis, for two nodes

my $redis = LimitSliding::Redis->new->start;
my %shared = (http => join('', map { <<"ZONE" } @names) . <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=r_$_:1m rate=100 window=1d $ZONES{$_} redis=shared;
ZONE
    limit_sliding_zone \$arg_key zone=leased:1m rate=1000 window=1d redis=shared lease=100;
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 2s; connect_timeout 2s; }
HTTP
    location /limits { limit_sliding_api write=on; }
    location /r_counter { limit_sliding zone=r_counter; empty_gif; }
SERVER
my $other = LimitSliding::Test->new;
$other->common(%shared)->serve;
$nginx->serve(http => $shared{http}, server => <<'SERVER');
    location /r_counter { limit_sliding zone=r_counter; empty_gif; }
    location /leased    { limit_sliding zone=leased;    empty_gif; }
SERVER

for my $zone (map { "r_$_" } @names) {
    charges($zone);
    is api_key($other, $zone, 'a')->{used}, 99, "$zone: the other node knows";
}

is $other->get('/r_counter?key=a')->{status}, 200, 'in Redis: one was left';
is $nginx->get('/r_counter?key=a')->{status}, 429, 'in Redis: which is used';
is charge('r_counter', 'a', -1), '99 1', 'in Redis: given back';
is $nginx->get('/r_counter?key=a')->{status}, 200, 'in Redis: and used again';

is $nginx->get('/leased?key=a')->{status}, 200, 'leases: units are taken';
is charge('leased', 'a', 2), '102 898', 'leases: charged beside what is leased';
is charge('leased', 'a', 2), '104 896', 'leases: which is kept';
is $nginx->statuses(50, '/leased?key=a'), join(' ', (200) x 50), 'leases: and spent';
is api_key($nginx, 'leased', 'a')->{used}, 104, 'leases: nothing more was taken';

api_key($nginx, 'r_fixed', 'off', 'PUT', '&rate=off');
is api_key($nginx, 'r_fixed', 'off', 'POST', '&cost=5')->{http}, 409, 'in Redis: no limit';
api_key($nginx, 'r_fixed', 'own', 'PUT', '&rate=9');
is charge('r_fixed', 'own', 5), '5 4', 'in Redis: a limit of its own';

$redis->stop;
is api_key($nginx, 'r_fixed', 'a', 'POST', '&cost=5')->{http}, 503, 'without Redis: 503'
    for 1 .. 8;           # known to be away at last

$other->finish_one;
$nginx->finish;
