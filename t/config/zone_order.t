# The order of directives: zones and blocks of Redis behind the places that use them, and
# places among each other. The demands of a place hold for its zone in any order.

use v5.36;

use List::Util qw(shuffle);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $DRAWS = 4;

srand(my $seed = $ENV{ORDER_SEED} // time);
note "ORDER_SEED=$seed";

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new->common(http => <<'HTTP');
    add_header X-Limit $limit_sliding_limit always;
HTTP

# The directives of each location.
my %places = (
    limits   => [ 'limit_sliding_api;' ],
    settled  => [ 'limit_sliding zone=settled settle=$arg_cost;', 'empty_gif;' ],
    synced   => [ 'limit_sliding zone=synced settle=$arg_cost;', 'empty_gif;' ],
    here     => [ 'limit_sliding zone=here settle=$arg_cost;', 'empty_gif;' ],
    both     => [ 'limit_sliding zone=wide;', 'limit_sliding zone=narrow;', 'empty_gif;' ],
    fixed    => [ 'limit_sliding zone=here rate=3;', 'empty_gif;' ],
    variable => [ 'limit_sliding zone=here rate=$arg_rate;', 'empty_gif;' ],
    statuses => [ 'limit_sliding zone=statuses count_status=404;' ],
    banned   => [ 'limit_sliding zone=banned;', 'limit_sliding zone=here;', 'empty_gif;' ],
    after    => [ 'limit_sliding zone=after after_auth;', 'limit_sliding zone=before;',
        'auth_request /deny;', 'empty_gif;' ],
    deny     => [ 'return 403;' ],
    broad    => [ 'limit_sliding_client ipv4=8;', 'limit_sliding zone=clients;', 'empty_gif;' ],
    client   => [ 'limit_sliding_client ipv4=16;', 'limit_sliding zone=clients;', 'empty_gif;' ],
);

# Neither block of Redis knows the demands on the other one.
my $block = "server ${\ $redis->server}; timeout 5s; connect_timeout 5s;";
my @zones = split /\n/, <<"CONF";
limit_sliding_zone \$arg_key zone=settled:1m rate=100r/d redis=shared;
limit_sliding_zone \$arg_key zone=synced:1m rate=100 window=200ms redis=tight sync=10ms;
limit_sliding_zone \$arg_key zone=wide:1m rate=1000r/d redis=joint;
limit_sliding_zone all zone=narrow:1m rate=1r/d redis=joint;
limit_sliding_zone \$arg_key zone=here:1m rate=100r/d;
limit_sliding_zone \$arg_key zone=statuses:1m rate=2r/d;
limit_sliding_zone \$arg_key zone=banned:1m rate=1r/d penalty=1h;
limit_sliding_zone \$arg_key zone=after:1m rate=1r/d redis=shared;
limit_sliding_zone \$arg_key zone=before:1m rate=1r/d;
limit_sliding_zone \$limit_sliding_client zone=clients:1m rate=1000r/d;
limit_sliding_redis shared { $block }
limit_sliding_redis tight { $block key_prefix tight:; }
limit_sliding_redis joint { $block key_prefix joint:; }
CONF

# Returns the locations, in the order of mix().
sub server($mix) {
    return join '', map { "    location /$_ { " . join(' ', $mix->(@{ $places{$_} })) . " }\n" }
        $mix->(sort keys %places);
}

# Returns the directives of a section: the first zones and blocks are in front of the server,
# the others behind it.
sub section($first, $mix) {
    my @http = $mix->(@zones);
    my @later = splice @http, $first;
    return (http => join("\n", @http), later => join("\n", @later), server => server($mix));
}

# Asserts that so many units of the key are used, soon.
sub uses($zone, $key, $used, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    wait_for(sub { api_key($nginx, $zone, $key)->{used} == $used }, 5);
    is api_key($nginx, $zone, $key)->{used}, $used, $name;
}

sub behaves($name) {
    for my $zone (qw(settled here)) {
        $nginx->get("/$zone?key=a&cost=250");
        uses($zone, 'a', 250, "$name: settle= above the limit, $zone");
    }

    $nginx->get('/synced?key=a&cost=20000');
    sleep 1;
    ok wait_for(sub { api_key($nginx, 'synced', 'a')->{used} > 50 }, 10),
        '... with sync=, over many windows';

    is $nginx->statuses(2, '/both?key=a'), '200 429', "$name: limits of two zones in Redis";
    uses('wide', 'a', 1, '... the one that rejects gives back the units of the other one');

    is header($nginx->get('/fixed?key=b'), 'X-Limit'), 3, "$name: rate= of a place";
    $nginx->get('/variable?key=c&rate=7');
    is api_key($nginx, 'here', 'c')->{limit}, 7, "$name: a variable rate, as the API shows it";

    is $nginx->statuses(3, '/statuses?key=a'), '404 404 429', "$name: count_status=";
    is $nginx->statuses(2, '/banned?key=z'), '200 429', "$name: penalty=";
    ok api_key($nginx, 'banned', 'z')->{ban}, '... the key is banned';

    is $nginx->statuses(2, '/after?key=a'), '403 429', "$name: a limit before authorization";
    is api_key($nginx, 'after', 'a')->{used}, 0, '... with one in Redis after it';

    $nginx->get('/client');
    is api_key($nginx, 'clients', '127.0.9.9')->{used}, 1, "$name: the prefix of a client";
    is api_key($nginx, 'clients', '127.1.9.9')->{used}, 0, '... the longest one';
}

my $as_written = sub (@list) { return @list };
my @orders = (
    [ 'defined first', section(scalar @zones, $as_written) ],
    [ 'defined last', section(0, $as_written) ],
    map { [ "draw $_", section(int rand @zones + 1, \&shuffle) ] } 1 .. $DRAWS,
);

for (@orders) {
    my ($name, %section) = @$_;
    $redis->command('FLUSHALL');
    $nginx->serve(%section);
    behaves($name);

    if (!Test::More->builder->is_passing) {
        diag "ORDER_SEED=$seed, $name:\n$section{http}\n$section{server}\n$section{later}";
        last;
    }
}
$nginx->finish;
