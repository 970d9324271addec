# The API's list of own limits in Redis, of a Redis that answers what it should not,
# late or not at all, and clients that do not wait for it.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

$ENV{MALLOC_PERTURB_} = 165;      # what is freed is not there any more

# Starts an NGINX of one worker with the Redis of these servers.
sub start($servers, $block = '') {
    my $nginx = LimitSliding::Test->new(worker_processes => 1);
    return $nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server $servers;
        timeout 1s;
        connect_timeout 1s;
        key_format plain;
        $block
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=5r/d redis=shared;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /limits { limit_sliding_api; }
    location /one { limit_sliding zone=one; empty_gif; }
SERVER
}

# Returns the status of a page, and its limits or its error.
sub listed($nginx, $arguments = '') {
    my $page = limits_page($nginx, 'one', $arguments);
    return join ' ', $page->{http}, $page->{error}
        // map { "$_->{key}=" . ($_->{rate} // 'null') } @{ $page->{limits} };
}

my $AWAY = '503 redis does not answer';
my $REFUSED = '502 redis did not do it, see the log';

# Asserts what a list is while a command is answered by a text, and that it is
# well afterwards.
sub answers($nginx, $fake, $command, $text, $expected, $name) {
    $fake->mode('answer', $command, $text);
    is listed($nginx), $expected, "$command is answered by $name";
    $fake->mode('pass');
    ok wait_for(sub { listed($nginx) eq '200 a=1r/h' }), '... then well again';
}

sub bulk($text) {
    return '$' . length($text) . "\\r\\n$text\\r\\n";
}

# Returns what SCAN answers with this cursor.
sub scanned($cursor, @names) {
    return '*2\r\n' . bulk($cursor) . '*' . @names . '\r\n'
        . join '', map { bulk($_) } @names;
}


my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;
my $nginx = start($fake->server);
my @workers = $nginx->workers;

$redis->command(qw(SET limit_sliding:one:{a}:limit 1r/h));
is listed($nginx), '200 a=1r/h', 'by a proxy';


# names

answers($nginx, $fake, 'SCAN', '-ERR no list\r\n', $REFUSED, 'an error');
like $nginx->log, qr/\[error\] .*"shared": ERR no list$/m, '... in the log';
sleep 1.1;                # such lines come once a second
for (['a status', '+OK\r\n'], ['a number', ':1\r\n'], ['nil', '$-1\r\n'],
    ['no cursor', scanned('x')], ['a cursor below zero', scanned('-1')])
{
    my ($name, $text) = @$_;
    answers($nginx, $fake, 'SCAN', $text, $REFUSED, $name);
}
like $nginx->log, qr/\[error\] .*"shared": unexpected reply to SCAN$/m, '... in the log';
answers($nginx, $fake, 'SCAN', scanned(0, 'abc', 'limit_sliding:one:{:limit'), '200',
    'names that are none');
answers($nginx, $fake, 'SCAN', '', $AWAY, 'nothing');

# Without end, a page ends with what it has.
$fake->forget;
$fake->mode('answer', 'SCAN', scanned(12));
my $page = limits_page($nginx, 'one');
is_deeply $page->{limits}, [], 'no names, and no end: an empty page';
ok $page->{next}, '... that says where to go on';
is $fake->stats->{commands}{SCAN}, 100, '... after so many calls';

$fake->mode('answer', 'SCAN', scanned(12,
    map { "limit_sliding:one:{$_" . 'x' x 20_000 . '}:limit' } 1 .. 5));

# On a busy machine, a page may end after a quarter of a second.
for (1 .. 20) {
    $fake->forget;
    $page = limits_page($nginx, 'one', 'n=1000');
    last if $fake->stats->{commands}{SCAN} == 11;
}
is "$page->{http} @{ $page->{limits} }", '200 ', 'long names, which are gone';
ok $page->{next}, '... and there are more';
is $fake->stats->{commands}{SCAN}, 11, '... beyond a megabyte';
$fake->mode('pass');

# A slow one: a quarter of a second for a page, and its last calls
$redis->command('MSET', map { ("other:$_" => 'data') } $_ .. $_ + 999)
    for map { 1000 * $_ } 1 .. 30;
$fake->forget;
$fake->mode('delay', 0.1);
$page = limits_page($nginx, 'one');
$fake->mode('pass');
is $page->{http}, 200, 'a slow Redis';
ok $page->{next}, '... a part of the list';
cmp_ok $fake->stats->{commands}{SCAN}, '<=', 4, '... of few calls';
$redis->command('FLUSHALL');
$redis->command(qw(SET limit_sliding:one:{a}:limit 1r/h));


# values

answers($nginx, $fake, 'GET', '-WRONGTYPE no\r\n', '200 a=null', 'WRONGTYPE');
answers($nginx, $fake, 'GET', '-MOVED 1 127.0.0.1:1\r\n', $REFUSED, 'MOVED');
answers($nginx, $fake, 'GET', ':1\r\n', '200', 'a number');
answers($nginx, $fake, 'GET', '$-1\r\n', '200', 'nil');
answers($nginx, $fake, 'GET', '', $AWAY, 'nothing');
answers($nginx, $fake, 'PTTL', '-ERR no\r\n', $REFUSED, 'an error');
answers($nginx, $fake, 'PTTL', '+OK\r\n', $REFUSED, 'a status');
answers($nginx, $fake, 'PTTL', ':-2\r\n', '200', 'that it is gone');
answers($nginx, $fake, 'PTTL', ':9223372036854775807\r\n', $REFUSED,
    'a time whose end is no number');
answers($nginx, $fake, 'PTTL', '', $AWAY, 'nothing');


# Clients that leave while names are told, while values are, and while there is
# no connection

sub leave($seconds, $name) {
    my $socket = $nginx->send_request('/limits/zones/one/limits');
    sleep $seconds;
    close $socket;
    sleep 0.6;
    $fake->mode('pass');
    ok wait_for(sub { listed($nginx) eq '200 a=1r/h' }), "a client leaves: $name";
}

$fake->mode('delay', 0.3);
leave(0.15, 'names');
$fake->mode('delay', 0.3);
leave(0.45, 'values');
$fake->mode('lost');
$fake->reset;
leave(0.2, 'a connection');


# A request is asked for at once, however many lists wait for their replies.

ok wait_for(sub { header($nginx->get('/one?key=beside'), 'X-Source') eq 'redis' }),
    'Redis decides';
$fake->forget;
$fake->mode('delay', 0.6);
my @lists = map { $nginx->send_request('/limits/zones/one/limits') } 1 .. 5;
ok wait_for(sub { ($fake->stats->{commands}{SCAN} // 0) == 5 }), 'five lists wait';
is header($nginx->get('/one?key=beside'), 'X-Source'), 'redis', '... Redis decides beside them';
$fake->mode('pass');
is join(' ', map { $nginx->read_response($_)->{status} } @lists), '200 200 200 200 200',
    '... and tells them';

is "@{[ $nginx->workers ]}", "@workers", 'the same worker as ever';
$nginx->finish_one;
$fake->stop;


# A cluster of one node, which tells clients to come by way of the proxy

($redis, $fake) = LimitSliding::FakeRedis->cluster;
$redis->command(qw(SET limit_sliding:one:{a}:limit 1r/h));

my $dead = LimitSliding::Test::reserve_port();
my $block = 'topology cluster;';
$nginx = start("127.0.0.1:$dead->{port}; server " . $fake->server, $block);
is listed($nginx), '200 a=1r/h', 'the first server is dead: the next one tells';

my $port = $fake->port;
answers($nginx, $fake, 'GET', "-ASK 1 127.0.0.1:$port\\r\\n", '200',
    'ASK: another node tells of it');
answers($nginx, $fake, 'GET', "-MOVED 1 127.0.0.1:$port\\r\\n", $AWAY,
    'MOVED: it may not have been there for long');
answers($nginx, $fake, 'PTTL', "-MOVED 1 127.0.0.1:$port\\r\\n", $AWAY, 'MOVED');
$nginx->finish_one;

# Without any server that can be connected to
$nginx = start("127.0.0.1:$dead->{port}; server 127.0.0.1:$dead->{port}", $block);
is listed($nginx), $AWAY, 'all servers are dead';
$nginx->finish_one;


# What the map of slots says and should not

sub range($first, $last, $host, $port) {
    return "*3\\r\\n:$first\\r\\n:$last\\r\\n*2\\r\\n" . bulk($host) . ":$port\\r\\n";
}

my @wrong = (range(-1, 5, '127.0.0.1', $port), range(0, 16384, '127.0.0.1', $port),
    range(0, 5, '127.0.0.1', 0), range(0, 5, '127.0.0.1', 65536));
my $right = range(0, 16383, '127.0.0.1', $port);

$fake->mode('answer', 'CLUSTER', '*' . (@wrong + 1) . '\r\n' . join '', @wrong, $right);
$nginx = start($fake->server, $block);
is header($nginx->get('/one?key=b'), 'X-Source'), 'redis',
    'ranges that cannot be, and one that can';
is listed($nginx), '200 a=1r/h', '... a list';
$nginx->finish_one;

for (['only such ranges', '*' . @wrong . '\r\n' . join '', @wrong],
    ['a name too long', '*1\r\n' . range(0, 5, 'x' x 300, $port)],
    ['no ranges', '*0\r\n'], ['a status', '+OK\r\n'], ['an error', '-ERR no map\r\n'],
    ['nothing', ''])
{
    my ($name, $text) = @$_;
    $fake->mode('answer', 'CLUSTER', $text);
    $nginx = start($fake->server, $block);
    is header($nginx->get('/one?key=c'), 'X-Source'), 'fallback', "a map of $name";
    is listed($nginx), $AWAY, '... no list';
    $fake->mode('pass');
    ok wait_for(sub { listed($nginx) eq '200 a=1r/h' }), '... then well again';
    ok wait_for(sub { header($nginx->get('/one?key=d'), 'X-Source') eq 'redis' }),
        '... requests, too';
    $nginx->finish_one;
}

done_testing;
