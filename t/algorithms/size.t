# How many keys a zone holds, and what becomes of them when it is full.

use v5.36;

use JSON::PP qw(decode_json);
use List::Util qw(uniq);
use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key zone=big:1m rate=1r/h;
    limit_sliding_zone $arg_key zone=evict:32k rate=50r/h;
    limit_sliding_zone $arg_key zone=deny:32k rate=1r/h full=deny;
    limit_sliding_log_level off;
    add_header X-Status $limit_sliding_status always;
    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location /big   { limit_sliding zone=big;   empty_gif; }
        location /evict { limit_sliding zone=evict; empty_gif; }
        location /deny  { limit_sliding zone=deny;  empty_gif; }
    }
}
CONF

# (passed, rejected) of requests for some keys
sub round($place, @keys) {
    my $statuses = $nginx->load(pipeline => 16,
        requests => [ map { "/$place?key=$_" } @keys ]);
    my %count = (200 => 0, 429 => 0);
    $count{ $_ // 'lost' }++ for @$statuses;
    return @count{200, 429};
}


# 1m holds 60,000 keys

my @keys = map { "key-$_" } 1 .. 60_000;

is_deeply [ round('big', @keys) ], [ 60_000, 0 ], 'first round: all passed';

my ($passed, $rejected) = round('big', @keys);
is $passed + $rejected, 60_000, 'second round: all answered';
cmp_ok $rejected, '>=', 59_000, 'second round: at least 59,000 rejected';
note "$rejected of 60,000 keys were held";


# full=evict: a new key takes the place of one with less to remember, so a
# flood of them does not make those at their limit forgotten

my @heavy = map { "heavy-$_" } 1 .. 100;

is_deeply [ round('evict', (@heavy) x 50) ], [ 5_000, 0 ],
    'evict: 100 keys up to their limit';
is_deeply [ round('evict', map { "new-$_" } 1 .. 20_000) ], [ 20_000, 0 ],
    'evict: a flood of new keys passed';
is_deeply [ round('evict', @heavy) ], [ 0, 100 ],
    'evict: the 100 are still at their limit';


# full=deny: no key is forgotten, so a new one is refused

my @many = map { "key-$_" } 1 .. 20_000;

($passed, $rejected) = round('deny', @many);
is $passed + $rejected, 20_000, 'deny: all answered';
cmp_ok $passed, '>=', 1_500, 'deny: keys held by 32k, at least';
cmp_ok $passed, '<=', 2_048, 'deny: keys held by 32k, at most';

is_deeply [ round('deny', @many) ], [ 0, 20_000 ],
    'deny: none was forgotten, and no new one let in';

my $refused = $nginx->get('/deny?key=late');
is $refused->{status}, 429, 'deny: refused';
is header($refused, 'X-Status'), 'REJECTED', 'deny: which is a rejection';
like header($refused, 'Retry-After'), qr/^[1-9]\d*$/, 'deny: Retry-After';


# own limits of keys have memory of their own: the slots are those of the size, whatever
# limits_max is, at a start and at a reload

# The slots of zones with these limits_max, each of them once.
sub slots($call, $size, @maxes) {
    my $n = 0;
    my $zones = join '', map { "limit_sliding_zone \$arg_key zone=z" . $n++ . ":$size rate=1r/h "
        . ($_ ? "limits_max=$_" : '') . ";\n" } @maxes;
    $call->($nginx->template(http => $zones, server => <<~'SERVER'));
        location /limits { limit_sliding_api; }
        location /z0 { limit_sliding zone=z0; empty_gif; }
        SERVER
    return join ' ', uniq map { $_->{slots} }
        values %{ decode_json($nginx->get('/limits')->{body})->{zones} };
}

my @maxes = (0, 1, 10, 100, 170, 171, 340, 341, map { 10 ** $_ } 3 .. 8);
push @maxes, 5_000_000;
$nginx->stop;
like slots(sub { $nginx->start($_[0]) }, '1m', @maxes), qr/^6[45]\d\d\d$/, 'start: slots of 1m';
like slots(sub { $nginx->reload($_[0]) }, '1m', reverse @maxes), qr/^6[45]\d\d\d$/,
    'reload: slots of 1m';
like slots(sub { $nginx->reload($_[0]) }, '32k', @maxes), qr/^1[6-9]\d\d$/,
    'reload: slots of 32k';
is $nginx->statuses(2, '/z0?key=a'), '200 429', '... which limit';


# drawn sizes and limits_max: each zone has as many slots as one without limits_max

srand(my $seed = $ENV{SIZE_SEED} // time);
note "SIZE_SEED=$seed";

# Returns an integer between two, each order of magnitude as often as another.
sub draw($least, $most) {
    return int exp(log($least) + rand(log(($most + 1) / $least)));
}

my $DRAWS = 200;
my $BATCH = 50;           # zones of one NGINX: all their limits_max have a head in memory
my @pairs = map { [ draw(32 << 10, 4 << 20), draw(1, 10 ** 8) ] } 1 .. $DRAWS;
my @differ;
while (my @batch = splice @pairs, 0, $BATCH) {
    my $n = 0;
    my $zones = join '', map {
        my ($size, $max) = @$_;
        my $name = $n++;
        "limit_sliding_zone \$arg_key zone=own$name:$size rate=1r/h limits_max=$max;\n"
            . "limit_sliding_zone \$arg_key zone=none$name:$size rate=1r/h limits_max=1;\n"
    } @batch;
    $nginx->serve(http => $zones, server => 'location /limits { limit_sliding_api; }');
    my $got = decode_json($nginx->get('/limits')->{body})->{zones};
    for (0 .. $#batch) {
        my @slots = map { $got->{"$_"}{slots} } "own$_", "none$_";
        push @differ, join ' ', @{ $batch[$_] }, @slots
            if !$slots[0] || $slots[0] != $slots[1] || $slots[0] < $batch[$_][0] / 24;
    }
}
is join("\n", @differ), '', "$DRAWS zones have the slots of their size" or diag "SIZE_SEED=$seed";


# the smallest zone has room for all that its parameters need

my @zones;
for my $rate ('rate=9r/m', 'rate=$arg_rate window=1m') {
    for my $rule ('', 'precision=60', 'algorithm=log', 'algorithm=fixed', 'algorithm=token_bucket') {
        for my $redis ('', 'limits_max=100000', 'redis=shared',
            $rule =~ /log|precision/ ? () : ('redis=shared sync=20ms', 'redis=shared lease=5')) {
            push @zones, map { "$rate $rule $redis $_" } '', 'penalty=1h';
        }
    }
}
my $n = 0;
my ($failed, $output) = $nginx->test_config($nginx->template(
    http => join('', 'limit_sliding_redis shared { server 127.0.0.1:1; }',
        map { "limit_sliding_zone \$arg_key zone=s" . $n++ . ":32k $_;\n" } @zones),
    server => join '', map { "location /$_ { limit_sliding zone=s$_ settle=\$arg_cost; }\n" }
        0 .. $#zones));
is $failed, 0, 'zones of 32k with all parameters' or diag $output;

$nginx->finish;
