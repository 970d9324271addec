# limit_sliding_api and limits in Redis: what was decided where, calls, and one
# key's state, there.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

$ENV{MALLOC_PERTURB_} = 165;      # what is freed is not there any more

my $redis = LimitSliding::Redis->new->start;
$redis->command(qw(CONFIG SET requirepass secret-word));

my $nginx = LimitSliding::Test->new(worker_processes => 1);

$nginx->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server ${\ $redis->server};
        timeout 2s;
        connect_timeout 2s;
        password secret-word;
    }
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
    add_header X-Limit \$limit_sliding_limit always;
HTTP
    location /limits { limit_sliding_api write=on; }
SERVER

sub all() {
    return api($nginx);
}

sub key(@key) {
    return api_key($nginx, @key);
}

sub ask($place, $key, $times = 1) {
    return $nginx->statuses($times, "/$place", headers => [ "Key: $key" ]);
}


# one key

my %algorithms = places(key => '$http_key', each => 'rate=4r/d redis=shared',
    zones => { map { ($_ => "algorithm=$_") } @ALGORITHMS });

$nginx->serve(%algorithms);

for (@ALGORITHMS) {
    is state_of(key($_, 'a')), '0 4 4', "$_: a key that never came";

    is ask($_, 'a', 6), '200 200 200 200 429 429', "$_: its limit";
    is ask($_, 'b', 1), '200', "$_: another key";

    my $json = key($_, 'a');
    is state_of($json), '4 4 0', "$_: used";
    cmp_ok $json->{reset}, '>', 0, '... until';
    ok !$json->{own_limit}, '... of the zone\'s limit';

    is state_of(key($_, 'a', 'DELETE')), '0 4 4', "$_: forgotten";
    is ask($_, 'a', 5), '200 200 200 200 429', '... it has all of it again';
    is state_of(key($_, 'b')), '1 4 3', '... and another is as it was';

    $json = key($_, 'a', 'PUT', '&rate=6r/d');
    is state_of($json), '4 6 2', "$_: a limit of its own";
    ok $json->{own_limit}, '... as it says';
    is ask($_, 'a', 3), '200 200 429', '... at once';

    is key($_, 'a', 'DELETE')->{limit}, 6, '... kept when it is forgotten';
    $json = key($_, 'a', 'PUT', '&rate=off');
    is $json->{own_limit}, 'off', "$_: no limit";
    is $json->{limit}, undef, '... none';
    is ask($_, 'a', 9), join(' ', (200) x 9), '... indeed';
    is state_of(key($_, 'a', 'PUT', '&rate=default')), '0 4 4',
        "$_: the zone's again";

    # A bucket of such a limit is full again at once.
    next if !/counter|fixed/;
    key($_, 'large', 'PUT', '&rate=1000000000000000');
    is ask($_, 'large', 2), '200 200', "$_: the largest limit";
    is state_of(key($_, 'large')), '2 1000000000000000 999999999999998',
        '... to the unit';
}


# a variable rate

$nginx->serve(places(key => '$http_key', zones => {
    variable => 'rate=$arg_rate window=1d redis=shared',
}));

ask('variable?rate=9', 'a', 2);
is state_of(key('variable', 'a')), '2 9 7', 'a variable rate: the last one';
is state_of(key('variable', 'b')), '0 null null', '... another key has had none';
ask('variable?rate=off', 'c');
is state_of(key('variable', 'c')), '0 null null', '... or was not limited';
is state_of(key('variable', 'a', 'PUT', '&rate=5')), '2 5 3',
    '... a limit of its own';
is header($nginx->get('/variable?rate=9', headers => [ 'Key: a' ]), 'X-Limit'),
    5, '... in force';


# a client by any of its addresses

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $limit_sliding_client zone=client:1m rate=4r/d
        redis=shared;
HTTP
    location /client {
        set_real_ip_from 127.0.0.1;
        limit_sliding_client ipv6=56;
        limit_sliding zone=client;
        empty_gif;
    }
SERVER

sub from($address, $times) {
    return $nginx->statuses($times, '/client',
        headers => [ "X-Real-IP: $address" ]);
}
is from('2001:db8:0:1234::1', 5), '200 200 200 200 429', 'a client';
is state_of(key('client', '2001:db8:0:12ff::2')), '4 4 0', '... used';
is key('client', '2001:db8:0:12ff::2')->{key}, '2001:db8:0:1200::',
    '... shown as its network';
is state_of(key('client', '2001:db8:0:1234::2', 'DELETE')), '0 4 4',
    '... forgotten';
is from('2001:db8:0:1234::1', 2), '200 200', '... and not blocked any more';
is state_of(key('client', '2001:db8:0:1234::2', 'PUT', '&rate=3r/d')), '2 3 1',
    '... a limit of its own';
is from('2001:db8:0:1234::1', 2), '200 429', '... at once';
for my $method (qw(GET PUT DELETE)) {
    my $none = key('client', 'notanip', $method, '&rate=3r/d');
    is $none->{http}, 400, "$method of what is no address: 400";
    like $none->{error}, qr/"key" must be an address/, '... and says so';
}


# as docs/redis.md has it

my %plain = (http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis impatient {
        server ${\ $redis->server};
        timeout 500ms;
        connect_timeout 500ms;
        key_format plain;
        key_prefix "p:";
        password secret-word;
    }
    limit_sliding_zone \$http_key zone=plain:1m rate=4r/d redis=impatient;
HTTP
    location /plain { limit_sliding zone=plain; empty_gif; }
SERVER

$nginx->serve(map { ($_ => $plain{$_} . $algorithms{$_}) } qw(http server));

is key('plain', 'a', 'PUT', '&rate=5r/h')->{limit}, 120, 'by the API';
is $redis->ask('GET', 'p:plain:{a}:limit'), '5r/h', '... to be read in Redis';
$redis->command(qw(SET p:plain:{b}:limit 7r/d));
is key('plain', 'b')->{limit}, 7, 'by Redis, to be read here';
my $hour = key('plain', 'a', 'PUT', '&rate=6/1h&ttl=1m');
is state_of($hour), '0 6 6', 'with a window: a history of its own';
is "$hour->{window} $hour->{own_limit}", '3600 1', '... told';
like $hour->{ttl}, qr/^(?:60|59)$/, '... and it ends';
is $redis->ask('GET', 'p:plain:{a}:limit'), '6/1h', '... to be read in Redis';
is state_of(key('plain', 'a', 'POST', '&cost=2')), '2 6 4', '... charged there';
$hour = key('plain', 'a', 'PUT', '&rate=0');
is_deeply [ @$hour{qw(own_limit limit remaining used ttl)} ],
    [ JSON::PP::true(), 0, 0, undef, undef ], '0';
$hour = key('plain', 'a', 'POST', '&cost=1');
is "$hour->{http} $hour->{error}", '409 the key is blocked', '... cannot be charged';
is key('plain', 'a', 'PUT', '&rate=default')->{window}, 86400, 'default: the window of the zone';
key('plain', 'a', 'PUT', '&rate=5r/h');
ask('plain', 'c%20"');
is_deeply $redis->ask(qw(KEYS p:plain:{c*)), [ 'p:plain:{c%20"}:c86400s' ], 'any key';
is state_of(key('plain', 'c%2520%22')), '1 4 3', '... encoded once';
is state_of(key('plain', 'c%2520%22', 'DELETE')), '0 4 4', '... and forgotten';

for my $case ([ PUT => 'a&rate=00' ], [ PUT => 'a' ], [ GET => '' ],
    [ DELETE => '%' ])
{
    my ($method, $key) = @$case;
    is key('counter', $key, $method)->{http}, 400, "$method key=$key: 400";
}


# what was decided where

my $fake = LimitSliding::FakeRedis->new($redis)->start;

$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis slow {
        server ${\ $fake->server};
        timeout 2s;
        password secret-word;
    }
    limit_sliding_redis unused { server 127.0.0.1:1; }
    limit_sliding_redis dead { server 127.0.0.1:1; on_error allow; }

    limit_sliding_zone \$http_key zone=slow:1m rate=4r/d redis=slow;
    limit_sliding_zone \$http_key zone=dead:1m rate=1r/d redis=dead;
    limit_sliding_zone \$http_key zone=local:1m rate=4r/d;

    $plain{http} $algorithms{http}
HTTP
    location /slow { limit_sliding zone=slow; empty_gif; }
    location /dead { limit_sliding zone=dead; empty_gif; }

    $plain{server} $algorithms{server}
SERVER

my $before = all()->{zones}{counter};
is ask('counter', 'where', 7), '200 200 200 200 429 429 429', 'some requests';
my $after = all()->{zones}{counter};
is_deeply [ map { $after->{$_} - $before->{$_} } qw(passed delayed rejected) ],
    [ 4, 0, 3 ], 'are counted';
is_deeply { map { $_ => $after->{sources}{$_} - $before->{sources}{$_} }
        keys %{ $after->{sources} } },
    { redis => 5, lease => 0, cache => 2, fallback => 0 }, '... and where';
is $after->{redis}, 'shared', '... in which Redis';
is $after->{leases}, undef, '... without leases';
ok !exists all()->{zones}{local}{sources}, 'none in a zone of one node';

my ($top) = grep { $_->{key} eq 'where' } @{ $after->{top} };
is $top->{rejected}, 3, 'top offenders';

is ask('dead', 'a', 3), '200 200 200', 'a Redis that is dead';
$after = all()->{zones}{dead};
is_deeply [ @$after{qw(passed rejected)}, $after->{sources}{fallback} ],
    [ 3, 0, 3 ], '... its policy decides';
is_deeply [ @{ key('dead', 'a') }{qw(http used limit source)} ], [ 200, 0, 1, 'fallback' ],
    '... of its keys this node tells what it knows';
is key('dead', 'a', @$_)->{http}, 503, "... none can be changed: $_->[0]"
    for ['DELETE'], [ 'PUT', '&rate=9' ], [ 'POST', '&cost=1' ];
like key('dead', 'a', 'DELETE')->{error}, qr/redis/, '... as it says';


# calls

my $calls = all()->{redis}{shared};
is_deeply [ sort keys %{ all()->{redis} } ], [ qw(dead impatient shared slow) ],
    'every Redis that is used';
is_deeply $calls->{servers}, [ $redis->server ], 'its server';
is_deeply [ @$calls{qw(topology on_error breaker breaker_opened failed_calls
        timeout_ms)} ],
    [ qw(standalone local closed 0 0 2000) ], '... and how it is';
ask('counter', "call$_") for 1 .. 10;
my $later = all()->{redis}{shared};
is $later->{calls} - $calls->{calls}, 10, 'a call each';
is $later->{latency}{buckets}[-1]{calls}, $later->{calls},
    '... none of them took a second';
cmp_ok $later->{latency}{sum_us} / $later->{calls}, '<', 100_000, '... in all';
is $later->{latency}{sum_us}, 0, "... nor any time, as the clock stood still";
my @cumulated = map { $_->{calls} } @{ $later->{latency}{buckets} };
is "@cumulated", join(' ', sort { $a <=> $b } @cumulated), '... cumulated';

unlike $nginx->get($_)->{body}, qr/secret-word/, "$_: no password"
    for '/limits', '/limits/metrics';


# while Redis does not answer, to which there is a connection

ask('plain', 'warm', 3);
key('plain', $_->[0], 'PUT', "&rate=$_->[1]") for [ large => '7/1h' ], [ off => 'off' ], [ zero => 0 ];
is ask('plain', 'large', 2), '200 200', 'a limit of its own';
my @known = map { key('plain', $_) } qw(warm large off zero);
is_deeply [ map { $_->{source} } @known ], [ ('redis') x 4 ], 'keys, as Redis tells them';
$redis->freeze;
my $put = key('plain', 'a', 'PUT', '&rate=9');
is $put->{http}, 503, 'frozen: no answer';
is ask('plain', 'frozen'), 200, 'by on_error';
ok wait_for(sub {
    ask('plain', 'frozen');
    all()->{redis}{impatient}{breaker} eq 'open';
}), 'the breaker opens';
my $open = all()->{redis}{impatient};
is $open->{breaker_opened}, 1, '... once';
cmp_ok $open->{failed_calls}, '>=', 1, '... calls have failed';
for my $before (@known) {
    my $now = key('plain', $before->{key});
    is delete $now->{source}, 'fallback', "... $before->{key}: this node tells";
    delete @$_{qw(reset reset_ms source)} for $before, $now;
    is_deeply $now, $before, '... what it has counted, and the limit as Redis told it';
}
is key('plain', 'a', 'DELETE')->{http}, 503, '... and no key is changed';

# clients that do not wait for it
for (1 .. 5) {
    my $socket = $nginx->send_request('/limits/zones/counter/key?key=a',
        method => 'DELETE');
    sleep 0.02;
    close $socket;
}
$redis->thaw;

ok wait_for(sub { key('plain', 'a')->{source} eq 'redis' }), 'Redis answers again';
is all()->{redis}{impatient}{breaker}, 'closed', '... the breaker is closed';
is key('plain', 'a')->{limit}, 120, '... and keys are as they were';

# clients that leave while it does what they have ordered: it looks, deletes and
# looks again
is ask('slow', 'a', 5), '200 200 200 200 429', 'a slow Redis';
$fake->mode('delay', 0.3);
for my $until ([ EVALSHA => 1 ], [ EVAL => 1 ], [ EVALSHA => 2 ]) {
    my ($command, $n) = @$until;
    $fake->forget;
    my $socket = $nginx->send_request('/limits/zones/slow/key?key=a',
        method => 'DELETE');
    ok wait_for(sub { ($fake->stats->{commands}{$command} // 0) >= $n }),
        "... $command $n";
    close $socket;
    wait_for(sub { !$fake->stats->{pending} });
}
$fake->mode('pass');
is state_of(key('slow', 'a')), '0 4 4', '... it is done all the same';
$fake->mode('delay', 1);
$fake->forget;
my $socket = $nginx->send_request('/limits/zones/slow/key?key=a&rate=9',
    method => 'PUT');
wait_for(sub { $fake->stats->{commands}{SET} }) or die 'nothing is set';
$fake->reset;
is $nginx->read_response($socket)->{status}, 502,
    'a connection that breaks meanwhile: who knows';
$fake->mode('pass');
ok wait_for(sub { key('slow', 'a')->{http} == 200 }), '... it goes on';

# what Redis refuses
$redis->command(qw(CONFIG SET maxmemory 1));
my $refused = key('counter', 'x', 'PUT', '&rate=9');
is $refused->{http}, 502, 'out of memory: the limit is not set';
like $refused->{error}, qr/redis/, '... as it says';
$redis->command(qw(CONFIG SET maxmemory 0));


# for Prometheus

my ($PROMTOOL) = grep { -x } $ENV{PROMTOOL} // (), 'build/promtool',
    map { "$_/promtool" } split /:/, $ENV{PATH};
my $text = $nginx->get('/limits/metrics')->{body};
like $text, qr/^limit_sliding_redis_call_duration_seconds_bucket\Q{redis="shared",le="0.000250"} \E\d+$/m,
    'a histogram';
like $text, qr/^limit_sliding_decisions_total\Q{zone="counter",source="cache"}\E [1-9]/m,
    'decisions';
like $text, qr/^limit_sliding_redis_breaker_opened_total\Q{redis="impatient"} 1\E$/m,
    'the breaker';
SKIP: {
    skip 'no promtool: .ci/packages unpack build', 1 if !$PROMTOOL;
    $nginx->write_file('metrics', $text);
    my $said = `'$PROMTOOL' check metrics < '${\ $nginx->dir }/metrics' 2>&1`;
    is "$?: $said", '0: ', 'promtool check metrics';
}


# over a reload

my $kept = all()->{redis}{shared}{calls};
$nginx->reload;
is all()->{redis}{shared}{calls}, $kept, 'a reload keeps counts';
is key('plain', 'a')->{limit}, 120, '... new workers ask';

$nginx->finish;
