# Nodes whose zones differ: those that cannot share a state count apart, and a state of another
# version of the module is left alone.

use v5.36;

use JSON::PP;
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT = 10;

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new } 1 .. 2;
$_->common(http => <<"CONF", server => <<'SERVER') for @nginx;
    limit_sliding_log_level off;
    ${\ $redis->block('5s')}
    add_header X-Source \$limit_sliding_source always;
CONF
    location /limits { limit_sliding_api; }
SERVER

# name => [settings of a node, of the other one, where they find the state]
my %PAIRS = (
    (map { ("window-$_" => [ "window=1h algorithm=$_", "window=2h algorithm=$_" ]) }
        qw(counter log fixed token_bucket)),
    'window-leaky' => map([ "window=1h $_", "window=2h $_" ],
        'algorithm=leaky_bucket nodelay burst=' . ($LIMIT - 1)),
    'window-ms'    => [ 'window=3600s', 'window=3600500ms' ],
    'counter-log'  => [ 'window=1h', 'window=1h algorithm=log' ],
    'log-counter'  => [ 'window=1h algorithm=log', 'window=1h' ],
    'fixed-token'  => [ 'window=1h algorithm=fixed', 'window=1h algorithm=token_bucket' ],
    'precision'    => [ 'window=1h', 'window=1h precision=10' ],
    'precisions'   => [ 'window=1h precision=5', 'window=1h precision=10' ],
    'day'          => [ map { "window=$_ algorithm=fixed" } '1d', 'day' ],
    'calendar'     => [ map { "window=$_ algorithm=fixed" } 'week', 'month' ],
    'local'        => [ map { "window=month algorithm=fixed calendar=$_" } 'utc', 'local' ],
);

# Settings that are rules for one state.
my %SHARED = (
    'strict' => [ 'window=1h', 'window=1h strict' ],
    'same'   => [ 'window=60m', 'window=1h' ],
    'burst'  => [ map { "window=1h algorithm=token_bucket burst=$_" } $LIMIT, $LIMIT + 3 ],
);

sub serve($n, $settings) {
    my %all = (%PAIRS, %SHARED);
    $nginx[$n]->serve(places(each => "rate=$LIMIT redis=shared",
        zones => { map { ($_ => $all{$_}[$settings]) } keys %all }));
}

# Sends requests to the nodes in turn. Returns how many pass at each one.
sub passed($zone) {
    my @passed = (0, 0);
    for (1 .. 2 * $LIMIT) {
        $passed[$_] += $nginx[$_]->get("/$zone?key=a")->{status} == 200 for 0, 1;
    }
    return "@passed";
}

# The first window begins, so that no other one does.
stay_in(3600, 60);
serve($_, $_) for 0, 1;
is passed($_), "$LIMIT $LIMIT", "$_: each node has its limit, and no more" for sort keys %PAIRS;
for my $zone (sort keys %SHARED) {
    my ($first, $second) = split / /, passed($zone);
    cmp_ok $first + $second, '<=', $LIMIT + 3, "$zone: one state";
    cmp_ok $first + $second, '>=', $LIMIT, '... of one limit';
}

serve(1, 0);
is passed($_), '0 0', "$_, rolled back: its counts are found" for sort keys %PAIRS;
serve(1, 1);
is passed($_), '0 0', "$_, and again: so are those of the other" for sort keys %PAIRS;

my $shapes = decode_json($nginx[1]->get('/limits')->{body})->{zones};
is_deeply { map { ($_ => $shapes->{$_}{shape}) } qw(precision calendar local burst window-ms) },
    { precision => 'c3600s.10', calendar => 'fmonth', local => 'fmonth.local',
        burst => 't3600s', 'window-ms' => 'c3600500ms' }, 'the API tells what differs';
like $nginx[1]->get('/limits/metrics')->{body},
    qr/^limit_sliding_zone_info\{zone="calendar",shape="fmonth"\} 1$/m, '... and a metric';


# States of another version: on_error decides, and they stay.

my %policy = (local => '200 200 200 200 200 200 200 200 200 200 429', allow => join(' ', (200) x 11),
    deny => join ' ', (429) x 11);
for my $on_error (sort keys %policy) {
    my %zones = (counter => 'c3600s', log => 'l3600s', fixed => 'f3600s', token_bucket => 't3600s',
        leaky_bucket => 'b3600s');
    $nginx[0]->serve(places(each => "rate=$LIMIT window=1h redis=shared on_error=$on_error",
        zones => { map { ($_ => "algorithm=$_"
            . (/leaky/ ? ' nodelay burst=' . ($LIMIT - 1) : '')) } keys %zones }));
    for my $zone (sort keys %zones) {
        my $name = "limit_sliding:$zone:{" . digest($on_error) . "}:$zones{$zone}";
        $redis->command('SET', $name, "\0\7later", 'PX', 60_000);
        is $nginx[0]->statuses(11, "/$zone?key=$on_error"), $policy{$on_error},
            "$zone, another version: on_error $on_error decides";
        is $redis->command('GET', $name), "\0\7later", '... the state stays as it is';
        is $nginx[0]->statuses(11, "/$zone?key=$on_error-other"), $policy{local},
            '... other keys are counted as ever';

        $redis->command('DEL', $name);
        is $nginx[0]->get("/$zone?key=$on_error")->{status}, 200, '... and the key, without that';
    }
    my $told = decode_json($nginx[0]->get('/limits')->{body})->{redis}{shared};
    is $told->{foreign_states}, 5 * 11, '... counted';
    is $told->{breaker_opened}, 0, '... and Redis is not away';
}
cmp_ok scalar($nginx[0]->log_lines(qr/of zone "\w+" in redis is of another version/)), '>=', 1,
    '... logged';
cmp_ok scalar($nginx[0]->log_lines(qr/of zone "\w+" in redis is of another version/)), '<=', 15,
    '... but not for each request';

done_testing;
