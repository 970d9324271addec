# The recipes of docs/recipes.md do what they say, run as they stand.

use v5.36;

use IO::Select;
use IO::Socket::INET;
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Redis ();
use LimitSliding::Test;

my $PAGE = 'docs/recipes.md';
my @recipes = grep { $_->{tag} eq 'nginx' } blocks($PAGE);

my $nginx = LimitSliding::Test->new;
my $backend = LimitSliding::Test->new(worker_processes => 1);
my $connection;

# Starts the recipe that matches, with its upstreams at our backend, and its Redis at
# this address.  Nothing else is changed but what LimitSliding::Docs says.
sub recipe($regexp, $redis = '') {
    my @found = grep { $_->{text} =~ $regexp } @recipes;
    is @found, 1, "recipe: $regexp";
    $found[0]{run} = 1;

    my $port = $backend->port;
    my $text = configuration($nginx, $found[0]{text});
    $text =~ s/(upstream \w+ \{ server 127\.0\.0\.1:)9;/$1$port;/g;
    $text =~ s/server \K10\.0\.0\.1:6379/$redis/;
    undef $connection;
    $nginx->stop;
    $nginx->start($text);
}

# Sends a request on one connection, where it finds those before it settled.
sub ask($path, @headers) {
    $connection //= $nginx->connect;
    my $r = $nginx->get($path, headers => \@headers, socket => $connection);
    undef $connection if header($r, 'Connection') eq 'close';
    return $r;
}

sub statuses($n, @request) {
    return join ' ', map { ask(@request)->{status} } 1 .. $n;
}

$backend->write_file('html/v1/stream', <<'STREAM') if mkdir $backend->dir . '/html/v1';
data: {"choices":[{"delta":{"content":"\"total_tokens\": 9"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":400,"completion_tokens":9600,"total_tokens":10000}}

data: [DONE]

STREAM
$backend->write_file('html/v1/cut', qq(data: {"choices":[{"delta":{}}],"usage":null}\n\n));
$backend->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    map $http_x_password $login { right ok; default failed; }
    server {
        listen 127.0.0.1:%%PORT%%;
        default_type text/event-stream;

        location /v1/ { gzip on; gzip_types *; }
        location /v1/chat {
            return 200 '{"usage": {"total_tokens": 12000, "prompt_tokens": 5}}';
        }
        location /v1/few { return 200 '{"usage": {"total_tokens":20}}'; }
        location /v1/error { return 400 '{"error": {}}'; }
        location /v1/told { add_header X-Tokens-Used $arg_tokens; return 200; }
        location /login {
            add_header X-Login $login;
            if ($http_x_user = guess) { return 401; }
            return 200 form;
        }
        location /account/login { if ($login = failed) { return 401; } return 200 form; }
        location /page { return 200 page; }
    }
}
CONF


recipe(qr/total_tokens/);

# Returns what a request says is left of a zone, before it is settled: 500 less.
sub left($key, $zone = 'minute') {
    my $r = ask('/v1/few', "Authorization: $key");
    my ($left) = header($r, 'RateLimit') =~ /"$zone";r=(\d+)/;
    return $left + 500;
}

is left('a'), 50_000, 'tokens: none used';
is left('a'), 49_980, 'tokens: few';
ask('/v1/chat', 'Authorization: a');
is left('a'), 37_960, 'tokens: at once';
ask('/v1/stream', 'Authorization: a', 'Accept-Encoding: gzip');
is left('a'), 27_940, 'tokens: streamed';
ask('/v1/error', 'Authorization: a');
is left('a'), 27_920, 'tokens: an error is free';
ask('/v1/cut', 'Authorization: a');
is left('a'), 27_400, 'tokens: a stream without usage';
is left('a', 'month'), 10_000_000 - 22_620, 'tokens: by the month';
is statuses(5, '/v1/chat', 'Authorization: a'), '200 200 200 429 429', 'tokens: used up';
my $r = ask('/v1/chat', 'Authorization: a');
cmp_ok header($r, 'Retry-After'), '>=', 1, 'tokens: when to come again';
like header($r, 'RateLimit'), qr/"minute";r=0;/, 'tokens: nothing is left';
is ask('/v1/chat', 'Authorization: b')->{status}, 200, 'tokens: others are served';


recipe(qr/penalty/);
is statuses(3, '/account/login'), '401 401 401', 'bans: three may fail';
is statuses(5, '/account/login'), '429 429 429 429 429', 'bans: five are rejected';
cmp_ok header(ask('/account/login'), 'Retry-After'), '>', 590, 'bans: banned for 10 minutes';
is statuses(1, '/account/login', 'X-Password: right'), '429', 'bans: whatever is sent';


recipe(qr/upstream_http_x_tokens_used/);
is statuses(3, '/v1/told?tokens=24000', 'X-Api-Key: a'), '200 200 200', 'a header: three';
is statuses(1, '/v1/told?tokens=24000', 'X-Api-Key: a'), '429', 'a header: used up';
is statuses(3, '/v1/told?tokens=100', 'X-Api-Key: b'), '200 200 200', 'a header: others';


my $DIR = $nginx->dir;
mkdir "$DIR/html/downloads" or die $!;
open my $file, '>', "$DIR/html/downloads/large" or die $!;
truncate $file, 2_000_000_000 or die $!;
close $file;
$nginx->write_file('html/downloads/small', 'x' x 500);
recipe(qr/kilobytes/);

# Downloads a file, and throws it away.
sub download($path) {
    my $socket = $nginx->send_request($path);
    my ($bytes, $head) = (0, '');
    while (sysread $socket, my $buffer, 1 << 20) {
        $head ||= $buffer;
        $bytes += length $buffer;
    }
    return (substr($head, 9, 3), $bytes);
}

is statuses(10, '/downloads/small'), join(' ', (200) x 10), 'bytes: small files';
for my $n (1 .. 3) {
    my ($status, $bytes) = download('/downloads/large');
    is $status, 200, "bytes: large file $n";
    cmp_ok $bytes, '>', 2_000_000_000, '... all of it';
}
ok wait_for(sub { (ask('/downloads/small')->{status}) == 429 }, 5), 'bytes: used up';
cmp_ok header(ask('/downloads/small'), 'Retry-After'), '>', 0, 'bytes: when to come again';
unlink "$DIR/html/downloads/large";


recipe(qr/proxy_cache_path/);
is ask('/page')->{status}, 200, 'cache: asked for';
is statuses(200, '/page'), join(' ', (200) x 200), 'cache: what it has is free';
my %count;
$count{ ask("/page?n=$_")->{status} }++ for 1 .. 100;
cmp_ok $count{200} // 0, '>=', 15, 'cache: what it has not is limited';
cmp_ok $count{429} // 0, '>=', 20, '... and the rest rejected';


recipe(qr/x_login/);
is statuses(20, '/login', 'X-Password: right'), join(' ', (200) x 20), 'login: right';
is statuses(6, '/login', 'X-Password: wrong'), '200 200 200 200 200 429', 'login: wrong';
is ask('/login', 'X-Password: right')->{status}, 429, 'login: too late';


if (LimitSliding::Redis::supported()) {
    my $redis = LimitSliding::Redis->new->start;
    my @guess = ('X-User: guess', 'X-Api-Key: a');
    recipe(qr/on_error=deny/, $redis->server);
    ok wait_for(sub { ask('/page', 'X-Api-Key: a')->{status} == 200 }), 'both: a page';
    is statuses(3, '/login', 'X-Api-Key: a'), '200 200 200', 'both: logins';
    is statuses(1, '/login', @guess), '401', 'both: a guess';

    $redis->kill9;
    is statuses(4, '/page', 'X-Api-Key: a'), '200 200 200 200', 'both: Redis is away, pages';
    is statuses(4, '/login', 'X-Api-Key: a'), '429 429 429 429', '... logins';
} else {
    $_->{run} = 1 for grep { $_->{text} =~ /on_error=deny/ } @recipes;
}


is join(' ', map { $_->{name} } grep { !$_->{run} } @recipes), '', 'all were run';
$backend->stop;
$nginx->finish;
