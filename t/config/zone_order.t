# Zones that are defined behind the places that use them: what a place demands of
# a zone holds as it does in the other order.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new->common(http => <<'HTTP', server => <<'SERVER');
    add_header X-Limit $limit_sliding_limit always;
HTTP
    location /limits   { limit_sliding_api; }
    location /settled  { limit_sliding zone=settled settle=$arg_cost; empty_gif; }
    location /synced   { limit_sliding zone=synced settle=$arg_cost; empty_gif; }
    location /here     { limit_sliding zone=here settle=$arg_cost; empty_gif; }
    location /both     { limit_sliding zone=wide; limit_sliding zone=narrow; empty_gif; }
    location /fixed    { limit_sliding zone=here rate=3; empty_gif; }
    location /variable { limit_sliding zone=here rate=$arg_rate; empty_gif; }
    location /statuses { limit_sliding zone=statuses count_status=404; }
    location /banned   { limit_sliding zone=banned; empty_gif; }
    location /client   {
        limit_sliding_client ipv4=16;
        limit_sliding zone=clients;
        empty_gif;
    }
SERVER

# What one block of Redis is to do is not known to the other one.
my $block = "server ${\ $redis->server}; timeout 5s; connect_timeout 5s;";
my $zones = <<"CONF";
    limit_sliding_zone \$arg_key zone=settled:1m rate=100r/d redis=shared;
    limit_sliding_zone \$arg_key zone=synced:1m rate=100 window=200ms redis=tight sync=10ms;
    limit_sliding_zone \$arg_key zone=wide:1m rate=1000r/d redis=joint;
    limit_sliding_zone all zone=narrow:1m rate=1r/d redis=joint;
    limit_sliding_zone \$arg_key zone=here:1m rate=100r/d;
    limit_sliding_zone \$arg_key zone=statuses:1m rate=2r/d;
    limit_sliding_zone \$arg_key zone=banned:1m rate=1r/d penalty=1h;
    limit_sliding_zone \$limit_sliding_client zone=clients:1m rate=1000r/d;
    limit_sliding_redis shared { $block }
    limit_sliding_redis tight { $block key_prefix tight:; }
    limit_sliding_redis joint { $block key_prefix joint:; }
CONF

# Asserts that so many units of the key are used, soon.
sub uses($zone, $key, $used, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    wait_for(sub { api_key($nginx, $zone, $key)->{used} == $used }, 5);
    is api_key($nginx, $zone, $key)->{used}, $used, $name;
}

for my $order (qw(http later)) {
    $redis->command('FLUSHALL');
    $nginx->serve($order => $zones);
    my $name = $order eq 'http' ? 'defined first' : 'defined last';

    for my $zone (qw(settled here)) {
        $nginx->get("/$zone?key=a&cost=250");
        uses($zone, 'a', 250, "$name: settle= above the limit, $zone");
    }

    $nginx->get('/synced?key=a&cost=2000');
    sleep 1;
    cmp_ok api_key($nginx, 'synced', 'a')->{used}, '>', 50, '... with sync=, over many windows';

    is $nginx->statuses(2, '/both?key=a'), '200 429', "$name: limits of two zones in Redis";
    uses('wide', 'a', 1, '... the one that rejects gives back what the other took');

    is header($nginx->get('/fixed?key=b'), 'X-Limit'), 3, "$name: rate= of a place";
    $nginx->get('/variable?key=c&rate=7');
    is api_key($nginx, 'here', 'c')->{limit}, 7, "$name: a variable rate, as the API shows it";

    is $nginx->statuses(3, '/statuses?key=a'), '404 404 429', "$name: count_status=";
    is $nginx->statuses(2, '/banned?key=a'), '200 429', "$name: penalty=";
    ok api_key($nginx, 'banned', 'a')->{ban}, '... the key is banned';

    $nginx->get('/client');
    is api_key($nginx, 'clients', '127.0.9.9')->{used}, 1, "$name: the prefix of a client";
}
$nginx->finish;
