# The API's list of own limits in Redis: all of them, page by page, without
# holding up Redis.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::FakeRedis;
use LimitSliding::Redis;
use LimitSliding::Test;

$ENV{MALLOC_PERTURB_} = 165;      # what is freed is not there any more

my $N = 10_000;

# Redis notes all commands, with their arguments: its clock is the test's, by which none
# takes long.
my $redis = LimitSliding::Redis->new->start(
    'slowlog-log-slower-than' => 0, 'slowlog-max-len' => 2000);

# Zones in the Redis of these servers, by its block's other directives.
sub start($servers, $block = '', %opt) {
    my $nginx = LimitSliding::Test->new(%opt);
    $nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server $servers;
        timeout 2s;
        connect_timeout 2s;
        $block
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=5r/d redis=shared;
    limit_sliding_zone \$arg_key zone=two:1m rate=5r/d redis=shared;
    limit_sliding_zone \$binary_remote_addr zone=address:1m rate=5r/d
        redis=shared;
    limit_sliding_zone \$arg_key zone=local:1m rate=5r/d;
HTTP
    location /limits { limit_sliding_api write=on; }
    location /one { limit_sliding zone=one; empty_gif; }
SERVER
    return $nginx;
}

# Sets many keys at once: pairs of name and value.
sub fill($redis, @pairs) {
    while (my @some = splice @pairs, 0, 1000) {
        $redis->command('MSET', @some);
    }
}

# Returns how often SCAN was called since the last time.
my $scans = 0;
sub scans($redis) {
    my $before = $scans;
    $scans = $redis->count('scan');
    return $scans - $before;
}

sub told($limit) {
    return join ' ', map { $_ // 'null' } @$limit{qw(key rate ttl)};
}

sub all_told(@limits) {
    return join ', ', sort map { told($_) } @limits;
}


# ten thousand, and other data

my $nginx = start($redis->server);

is $nginx->get('/limits/zones/one/limits')->{body},
    qq({"zone":"one","digest":true,"limits":[],"next":null}\n),
    'no limits: an empty list';

fill($redis, map { my $key = digest($_);
    ("limit_sliding:one:{$key}:limit" => "${_}/1h",
        "limit_sliding:one:{$key}" => 'state') } 1 .. $N);
fill($redis, map { ("limit_sliding:two:{$_}:limit" => '1r/s') } 1 .. 3);
fill($redis, map { ("other:$_" => 'data') } 1 .. 100_000);

$redis->command(qw(SLOWLOG RESET));

for my $n (100, 1000) {
    scans($redis);
    my ($limits, $pages) = all_limits($nginx, 'one', $n);
    my %rates = map { ($_->{key} => $_->{rate}) } @$limits;
    is_deeply \%rates, { map { (digest($_) => "$_/1h") } 1 .. $N },
        "$n a page: each of $N limits";
    cmp_ok @$limits, '<=', 1.05 * $N, '... hardly one of them twice';
    cmp_ok $pages, '<=', 1.5 * $N / $n, '... in so many pages';
    cmp_ok scans($redis), '<=', 1.5 * 120_000 / ($n < 500 ? $n : 500),
        '... with few calls';
}

my ($page, $most) = (limits_page($nginx, 'one', 'n=1'), 0);
for (1 .. 20) {
    my $found = @{ $page->{limits} };
    $most = $found if $found > $most;
    $page = limits_page($nginx, 'one', "n=1&after=$page->{next}");
}
cmp_ok $most, '<=', 30, 'one a page: few';
cmp_ok scalar @{ limits_page($nginx, 'one')->{limits} }, '>=', 80,
    'a hundred a page unless told otherwise';

scans($redis);
$page = limits_page($nginx, 'two', 'n=1000');
is $page->{http}, 200, 'a rare one among others';
cmp_ok scans($redis), '<=', 100, '... a page takes so many calls at most';
is all_told(@{ (all_limits($nginx, 'two', 1000))[0] }),
    '1 1r/s null, 2 1r/s null, 3 1r/s null', '... found with further pages';

my (%calls, %looks);
for my $call (map { $_->[3] } @{ $redis->command(qw(SLOWLOG GET -1)) }) {
    my ($command, @words) = @$call;
    my %option = $command eq 'SCAN' ? @words[1 .. $#words] : ();
    my $keys = $option{COUNT} // @words;
    $calls{$command}++;
    $looks{$command} = $keys if $keys > ($looks{$command} // 0);
}
for my $command (qw(SCAN GET PTTL)) {
    cmp_ok $calls{$command} // 0, '>', 0, "$command is called";
    cmp_ok $looks{$command}, '<=', $command eq 'SCAN' ? 500 : 1,
        '... and never looks at many keys';
}
is $redis->count(qw(keys mget)), 0, 'no command looks at many keys';


# what a limit is

$redis->command('FLUSHALL');
$redis->command('SET', 'limit_sliding:one:{a}:limit', '10r/s', 'PX', 89_500);
$redis->command('SET', 'limit_sliding:one:{b}:limit', '');
$redis->command('SET', 'limit_sliding:one:{c}:limit', '"<' . 'x' x 300);
$redis->command('RPUSH', 'limit_sliding:one:{d}:limit', 'list');
my ($limits) = all_limits($nginx, 'one');
is all_told(@$limits), 'a 10r/s 90, b  null, c "<' . 'x' x 254
    . ' null, d null null', 'values, times to live, and what is no string';

my @answers = map { my $r = $nginx->get('/limits/zones/one/limits',
    method => $_); "$r->{status} " . length $r->{body} } qw(HEAD PUT);
like $answers[0], qr/^200 0$/, 'HEAD';
like $answers[1], qr/^405 /, 'no other method';
is limits_page($nginx, 'none')->{http}, 404, 'no such zone';

for my $case (
    [ 'n=0', '"n" must be an integer from 1 to 1000, not "0"' ],
    [ 'n=1001', '"n" must be an integer from 1 to 1000, not "1001"' ],
    [ 'n=-1', '"n" must be an integer from 1 to 1000, not "-1"' ],
    [ 'n=', '"n" must be an integer from 1 to 1000, not ""' ],
    [ 'after=', '"after" must be a "next" of this list, not ""' ],
    [ 'after=12', '"after" must be a "next" of this list, not "12"' ],
    [ 'after=' . 'x' x 80,
        '"after" must be a "next" of this list, not "' . 'x' x 48 . '..."' ],
) {
    my $answer = limits_page($nginx, 'one', $case->[0]);
    is "$answer->{http} $answer->{error}", "400 $case->[1]", $case->[0];
}
is limits_page($nginx, 'one', 'after=1-0')->{http}, 409,
    'a place in another server';
$nginx->finish_one;


# any bytes, in the zone's name and prefix, too

my @odd = ('*', 'a?', '[b]', 'back\\slash', "\0", "\xff\xfe", "new\nline",
    'q"uote', '}', '{}', '}:limit', 'x}:limit', 'a{b}c', ' ', '%41', 'é',
    '0' x 65_000);
my $prefix = 'p*?[x]\\y:';
(my $quoted = $prefix) =~ s/\\/\\\\/;
$nginx = start($redis->server, qq(key_format plain; key_prefix "$quoted";));

fill($redis, map { ("${prefix}one:{$_}:limit" => '1r/s') } @odd);
fill($redis, map { ("$_:{decoy}:limit" => '1r/s') }
    'pAB?[x]\\y:one', 'p*A[x]\\y:one', 'p*?x\\y:one', 'p*?[x]y:one',
    'p*?[x]\\y:two');

($limits) = all_limits($nginx, 'one', 2);
my @found = sort map { $_->{key_uri} =~ s/%(..)/chr hex $1/ger } @$limits;
is_deeply \@found, [ sort @odd ], 'keys of any bytes, and none but the zone\'s';
ok !limits_page($nginx, 'one')->{digest}, '... told to be no digests';

fill($redis, "${prefix}address:{\x7f\0\0\1}:limit" => '3r/s');
is all_told(@{ (all_limits($nginx, 'address'))[0] }),
    '127.0.0.1 3r/s null', 'an address';
$nginx->finish_one;


# Redis refuses, or is away

$redis->command('FLUSHALL');
$redis->command(qw(ACL SETUSER limited on >secret ~* -@all +evalsha +eval +time
    +mget +set +setrange +get +pttl));
$nginx = start($redis->server, 'user limited; password secret;');
$page = limits_page($nginx, 'one');
is "$page->{http} $page->{error}", '502 redis did not do it, see the log',
    'no right to SCAN: an error';
like $nginx->log, qr/NOPERM .*'scan'/, '... which the log tells';
$redis->command(qw(ACL SETUSER limited +scan));
is limits_page($nginx, 'one')->{http}, 200, '... with it';
$redis->command(qw(SET limit_sliding:one:{a}:limit 1r/s));
$redis->command(qw(ACL SETUSER limited -pttl));
is limits_page($nginx, 'one')->{http}, 502, 'no right to PTTL';
for my $json (api_key($nginx, 'one', 'b', 'PUT', '&rate=0&ttl=1h'), api_key($nginx, 'one', 'b')) {
    is "$json->{http} $json->{own_limit} $json->{ttl_error}",
        '200 1 redis did not tell it, see the log', '... a PUT, or a key: told in the answer';
    is $json->{ttl}, undef, '... without a time';
}
$redis->command(qw(ACL SETUSER limited +pttl));
is limits_page($nginx, 'one')->{http}, 200, '... with it';
my $told = api_key($nginx, 'one', 'b');
ok $told->{ttl} && !exists $told->{ttl_error}, '... as in the answer about a key';
$redis->command('DEL', grep { !/\{a\}/ } $redis->keys);
$nginx->finish_one;

my $fake = LimitSliding::FakeRedis->new($redis)->start;
$nginx = start($fake->server, '', worker_processes => 1);
is limits_page($nginx, 'one')->{http}, 200, 'by a proxy';

$fake->mode('mute');
my $socket = $nginx->send_request('/limits/zones/one/limits');
sleep 0.2;
close $socket;
$socket = $nginx->send_request('/limits/zones/one/limits');
sleep 0.2;
$fake->mode('pass');
is $nginx->read_response($socket)->{status}, 200,
    'one client leaves, another one has its list';

$fake->mode('delay', 0.5);
$socket = $nginx->send_request('/limits/zones/one/limits');
sleep 0.2;
$redis->command(qw(DEL limit_sliding:one:{a}:limit));
is_deeply read_key($nginx->read_response($socket))->{limits}, [],
    'a limit that is removed after it was found';

$fake->mode('mute');
my $since = now();
$page = limits_page($nginx, 'one');
is "$page->{http} $page->{error}", '503 redis does not answer',
    'Redis does not answer';
cmp_ok now() - $since, '<', 4, '... known after its timeout';
$fake->mode('refuse');
is limits_page($nginx, 'one')->{http}, 503, 'it takes no connections';
$fake->mode('pass');
ok wait_for(sub { limits_page($nginx, 'one')->{http} == 200 }),
    '... and again it does';
$fake->stop;
$nginx->finish;
