# One limit over two NGINXs of two workers each: with one Redis, L is L, and
# Redis is asked far less often than there are requests.

use v5.36;

use List::Util qw(max min shuffle);
use Test::More;

use LimitSliding::Exact;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

srand 1;

my $LIMIT       = 1000;
my $REQUESTS    = 5000;
my $CONNECTIONS = 128;

my $redis = LimitSliding::Redis->new->start;
my @nginx = map { LimitSliding::Test->new } 1 .. 2;

$_->common(listen => 'reuseport', http => <<"CONF") for @nginx;
    limit_sliding_log_level off;

    ${\ $redis->block('10s')}

    add_header X-Worker    \$pid                     always;
    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Time      \$msec                    always;
    add_header X-Seconds   \$request_time            always;
CONF

# Starts both with the directives of a section.
sub serve(%directives) {
    $_->serve(%directives) for @nginx;
}

# Sends the requests to both. Returns outcomes, and how many each worker
# answered.
sub run($requests, %options) {
    return outcomes(\@nginx, 'X-Worker', $requests,
        connections => $CONNECTIONS, %options);
}

sub few_calls($path) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    one_call_for_ten([ $redis ], $path, \&run);
}

sub remaining($path) {
    return header($nginx[0]->get($path), 'X-Remaining');
}


# one key: an hour is for the counter that needs it least

my %hour = places(zones => { hour => "rate=${LIMIT}r/h redis=shared" });
serve(%hour);

my ($got, $workers) = run([ ('/hour?key=a') x $REQUESTS ]);
is_deeply $got, { '/hour?key=a' => limited('counter', $LIMIT, $REQUESTS) },
    "$LIMIT an hour: exactly $LIMIT of $REQUESTS pass";
is keys %$workers, 4, '... by all workers';
few_calls('/hour?key=few');

my $flushed = 0;
my $flush = sub { $redis->command(qw(SCRIPT FLUSH)); $flushed++ };
($got) = run([ ('/hour?key=flush') x $REQUESTS ],
    at => { map { $_ => $flush } 1, map { 130 * $_ } 1 .. 10 });
is_deeply $got, { '/hour?key=flush' => limited('counter', $LIMIT, $REQUESTS) },
    'scripts flushed in the middle: exactly as many';
is $flushed, 11, '... flushed';
few_calls('/hour?key=few-flushed');


# ... by each algorithm: in windows of 30 days nothing comes back while the test
# runs

my %zones = zones($LIMIT);
serve(zone_places(\%zones, "rate=$LIMIT window=30d redis=shared"));

for my $name (sort keys %zones) {
    my ($got) = run([ ("/$name?key=a") x $REQUESTS ]);
    is_deeply $got->{"/$name?key=a"}, limited($name, $LIMIT, $REQUESTS),
        $name eq 'leaky' ? "$name: exactly $LIMIT of $REQUESTS would pass"
            : "$name: exactly $LIMIT of $REQUESTS pass";
    few_calls("/$name?key=few");
}


# 50 keys: 4 requests for the first, 8 for the second, and so on

serve(places(zones => { some => 'rate=100 window=30d redis=shared' }));

my @paths = shuffle map { ("/some?key=k$_") x (4 * $_) } 1 .. 50;
($got) = run(\@paths);
is_deeply $got, { map {
    my $passed = min(4 * $_, 100);
    ("/some?key=k$_" => { PASSED => $passed,
        $passed < 4 * $_ ? (REJECTED => 4 * $_ - $passed) : () })
} 1 .. 50 }, '50 keys at once';


# Two limits, all or nothing: what a request took from the first, before the
# second rejected it, is given back, however many race.

serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone all zone=all:1m rate=1000000 window=30d redis=shared;
    limit_sliding_zone all zone=here:1m rate=1000000 window=30d;
    limit_sliding_zone $arg_user zone=user:1m rate=3 window=30d redis=shared;
HTTP
    location /all   { limit_sliding zone=all;   empty_gif; }
    location /here  { limit_sliding zone=here;  empty_gif; }
    location /both {
        limit_sliding zone=all;
        limit_sliding zone=user;
        empty_gif;
    }
    location /mixed {
        limit_sliding zone=here;
        limit_sliding zone=user;
        empty_gif;
    }
SERVER

for my $place (qw(both mixed)) {
    my $key = $place eq 'both' ? 'all' : 'here';
    my @paths = map { ("/$place?user=$place-$_") x 10 } 1 .. 500;
    my ($got) = run(\@paths);
    is scalar grep({ $_->{PASSED} != 3 } values %$got), 0,
        "$place: every user gets 3";
    my $left = remaining("/$key");
    my $other = header($nginx[1]->get("/$key"), 'X-Remaining');
    # Each instance has a zone of its own in its memory.
    my $used = $key eq 'all' ? 1_000_000 - $other - 2
        : 2_000_000 - $left - $other - 2;
    is $used, 3 * 500, "$place: the other was charged for that, and no more";
}


# a reload in the middle

serve(%hour);

my @requests = map { [ '/hour?key=reload',
    $_ % 10 ? () : 'Connection: close' ] } 1 .. $REQUESTS;
my %old = map { $_ => 1 } map { $_->workers } @nginx;
($got, $workers) = run(\@requests, at => {
    300 => sub { $_->hup for @nginx },
    500 => sub {
        for my $nginx (@nginx) {
            wait_for(sub { grep { !$old{$_} } $nginx->workers });
        }
    },
    $REQUESTS / 2 => sub {
        for my $nginx (@nginx) {
            wait_for(sub { !grep { $old{$_} } $nginx->children });
        }
    },
});
$got = $got->{'/hour?key=reload'};
is $got->{PASSED}, $LIMIT, "reloaded in the middle: exactly $LIMIT pass";
is $got->{PASSED} + $got->{REJECTED} + ($got->{lost} // 0), $REQUESTS,
    '... and the rest is rejected';
cmp_ok $got->{lost} // 0, '<=', 2 * $CONNECTIONS,
    '... lost: one at most for a connection and old worker';
cmp_ok scalar(grep { !$old{$_} } keys %$workers), '>=', 2,
    '... new workers took part';
few_calls('/hour?key=few-reloaded');
ok wait_for(sub { $redis->clients <= 4 }),
    '... old workers have left their connections'
    or diag scalar($redis->clients) . ' connections';


# distinct keys

serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=many:4m rate=5 window=30d redis=shared;
HTTP
    location /many { limit_sliding zone=many; empty_gif; }
SERVER

my @keys = map { "/many?key=distinct-$_" } 1 .. 10_000;
my $calls = $redis->calls;
my $most = 0;
my $count = sub { $most = max($most, scalar $redis->clients) };
($got) = run(\@keys, at => { map { 1000 * $_ => $count } 1 .. 9 });
is scalar grep({ ($_->{PASSED} // 0) != 1 } values %$got), 0,
    '10,000 keys: all pass';
is keys %$got, 10_000, '... all of them';
$calls = $redis->calls - $calls;
cmp_ok $calls, '<=', 10_000, '... with one call each at most';
cmp_ok $most, '<=', 4, '... and one connection each worker at most';
cmp_ok $most, '>=', 1, '... which could be seen';
note "calls: $calls, connections: $most";


# what a key takes in Redis

my @names = grep { /^limit_sliding:many:/ } $redis->keys;
is @names, 10_000, 'a key in Redis for each key';
my $bytes = max map { $redis->command(qw(MEMORY USAGE), $_) } @names[0 .. 99];
cmp_ok $bytes, '<=', 150, 'a counter takes 150 bytes at most';
note "bytes: $bytes";
is scalar grep({ $_ <= 0 } $redis->commands(map { [ PTTL => $_ ] } $redis->keys)), 0,
    'all keys expire';

serve(zone_places(\%zones, "rate=$LIMIT window=1s redis=shared", 'brief-'));

# Requests come in two windows, so that there are windows with a past.
for my $delay (left_of(1) + 0.5, 0.6) {
    sleep $delay;
    run([ map { ("/brief-$_?key=idle") x 10 } sort keys %zones ]);
}
my @brief = grep { /:brief-/ } $redis->keys;
is @brief, keys %zones, 'keys of windows of a second';
sleep 2.1;
@brief = grep { /:brief-/ } $redis->keys;
is "@brief", '', '... are gone after two';


# A queue of 10 that leaves at 20 a second: whoever is in it waits, the others
# do not. The answers to them tell how long the queue was offered requests, by
# NGINX's clock.

serve(places(zones => {
    queue => 'rate=20r/s algorithm=leaky_bucket burst=10 redis=shared',
}));

my (@came, @passed, @rejected);
$nginx[0]->load(connections => 200, beside => [ $nginx[1] ],
    requests => [ ('/queue?key=a') x 200 ], each => sub ($i, $status, $head) {
        my ($left, $took)
            = $head =~ /^X-Time: ([\d.]+)\r\nX-Seconds: ([\d.]+)/m;
        push @came, $left - $took;
        push @passed, $left if $status == 200;
        push @rejected, $left if $status == 429;
    });
my $first = min(@came);
@passed = map { $_ - $first } sort { $a <=> $b } @passed;
my $last_rejected = max(@rejected) - $first;
cmp_ok scalar(@passed), '>=', 11, 'a queue: one, and 10 who wait';
cmp_ok scalar(@passed), '<=', 12 + 20 * $last_rejected,
    '... and who came while it moved';
cmp_ok $passed[-1], '>=', 0.45, '... for as long as it takes';
cmp_ok $last_rejected, '<', $passed[-1], '... the others are told before';

$nginx[0]->finish_one;
$nginx[1]->finish;
