# The programs of docs/lua.md do what the page says, run as they stand.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Lua;
use LimitSliding::Test;

my @blocks = grep { $_->{tag} eq 'nginx' } blocks('docs/lua.md');
my $backend = LimitSliding::Test->new(worker_processes => 1);
$backend->serve(server => 'location / { return 200; }');

# One worker settles each request before it decides the next.
my $nginx = lua_nginx(worker_processes => 1);

# Starts the program that matches, with our library and our backend.
sub program($regexp) {
    my @found = grep { $_->{text} =~ $regexp } @blocks;
    is @found, 1, "program: $regexp";
    $found[0]{run} = 1;
    my $text = configuration($nginx, $found[0]{text});
    $text =~ s/^http \{\n/http {\n$LUA_LIBRARY\n/m;
    $text =~ s{http://127\.0\.0\.1:\K8080}{$backend->port}e;
    $nginx->stop;
    $nginx->start($text);
}

sub statuses($n, @request) { return $nginx->statuses($n, @request) }

program(qr/zone=api:10m/);
is statuses(1, '/api/'), '401', 'no key';
# a window has five parts, and within one nothing is free again
stay_in(12, 2);
is statuses(21, '/api/?large=1', headers => ['X-API-Key: a']), join(' ', (200) x 20, 429), 'twenty large requests';
my $rejected = $nginx->get('/api/', headers => ['X-API-Key: a']);
cmp_ok header($rejected, 'Retry-After'), '<=', 61, '... and then a time to come back, for five units';
is statuses(1, '/api/', headers => ['X-API-Key: b']), '200', 'another key';

program(qr/location \/loop/);
like $nginx->get('/loop')->{body}, qr/a false 1\s.*b false 1\s.*c false 1\s/s, 'a verdict for all keys';

program(qr/log_by_lua_block \{\n    local key, bytes/);
is statuses(2, '/', headers => ['Authorization: Basic YTpi']), '403 403', 'bytes are charged by a timer';

program(qr/zone=running/);
is statuses(12, '/reports/', headers => ['X-API-Key: a']), join(' ', (200) x 12), 'requests one by one';

program(qr/zone=quota/);
is statuses(3, '/api/'), '200 200 200', 'three limits of lua-resty-limit-traffic';

program(qr/zone=work/);
stay_in(20, 2);
is statuses(5, '/work?n=300'), '200 200 200 200 429', 'what Lua sets is charged';

program(qr/zone=customers/);
is statuses(1, '/orders'), '401', 'no customer';
is statuses(21, '/orders', method => 'POST', headers => ['X-Customer: a']), join(' ', (200) x 20, 429),
    'twenty expensive requests';
is statuses(1, '/orders', headers => ['X-Customer: b']), '200', 'another customer';

program(qr/zone=jobs/);
my $json = decode_json($nginx->get('/job', version => '1.0', headers => ['X-API-Key: a'])->{body});
is "$json->{used} $json->{limit}", '3 100', 'the API charges';
is statuses(1, '/limits/zones/jobs/key?key=a'), '404', '... Lua only';

is join(' ', map { $_->{run} ? () : $_->{name} } @blocks), '', 'all programs were run';
$backend->stop;
$nginx->finish;
