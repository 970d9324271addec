# Pages of other sites cannot have a browser change limits: it tells who has made
# it send a request.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;
$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=one:1m rate=100r/d;
HTTP
    location /limits { limit_sliding_api write=on; }
SERVER
$nginx->serve;

my $HOST = 'localhost';   # as the requests say

# Sends a change of each kind; returns the statuses, or "0" if some was made in
# spite of another status than 200.
sub changes(@headers) {
    my @statuses;
    for my $change ([ POST => '&cost=5' ], [ PUT => '&rate=7r/d' ], [ DELETE => '' ]) {
        api_key($nginx, 'one', 'a', 'PUT', '&rate=default');
        api_key($nginx, 'one', 'a', 'DELETE');
        api_key($nginx, 'one', 'a', 'POST', '&cost=1');
        my $before = state_of(api_key($nginx, 'one', 'a'));
        my $r = $nginx->get(key_path('one', 'a', $change->[1]), method => $change->[0],
            headers => \@headers);
        my $is_changed = state_of(api_key($nginx, 'one', 'a')) ne $before;
        push @statuses, $is_changed == ($r->{status} == 200) ? $r->{status} : 0;
    }
    return "@statuses";
}

for (
    [ 'no browser' ],
    [ 'this page', 'Sec-Fetch-Site: same-origin', "Origin: http://$HOST" ],
    [ 'a bookmark', 'Sec-Fetch-Site: none' ],
    [ 'this page, in an old browser', "Origin: http://$HOST" ],
    [ '... over TLS in front of NGINX', "Origin: https://$HOST" ],
    [ '... behind a proxy that changes Host', 'Sec-Fetch-Site: same-origin',
        'Origin: https://limits.example' ],
) {
    my ($what, @headers) = @$_;
    is changes(@headers), '200 200 200', $what;
}

for (
    [ 'another site', 'Sec-Fetch-Site: cross-site', 'Origin: https://evil.example' ],
    [ '... that names this one', 'Sec-Fetch-Site: cross-site', "Origin: http://$HOST" ],
    [ 'another port, or name of this site', 'Sec-Fetch-Site: same-site' ],
    [ 'a word to come', 'Sec-Fetch-Site: other' ],
    [ 'two words', 'Sec-Fetch-Site: same-origin', 'Sec-Fetch-Site: cross-site' ],
    [ 'another site, in an old browser', 'Origin: https://evil.example' ],
    [ '... with this name in it', "Origin: http://$HOST.evil.example" ],
    [ '... with this name before it', "Origin: http://evil.example/http://$HOST" ],
    [ '... another port', 'Origin: http://localhost:8080' ],
    [ '... no scheme', "Origin: $HOST" ],
    [ '... two', "Origin: http://$HOST", 'Origin: https://evil.example' ],
    [ 'a page without a site', 'Origin: null' ],
    [ '... of no name', 'Origin: ' ],
) {
    my ($what, @headers) = @$_;
    is changes(@headers), '403 403 403', "$what: refused";
}

like api_key_with('Origin: null')->{error}, qr/another site/, '... which it says';

sub api_key_with(@headers) {
    return read_key($nginx->get(key_path('one', 'a', '&cost=5'), method => 'POST',
        headers => \@headers));
}

# What a browser asks before it sends other methods than POST.
is $nginx->get('/limits/zones/one/key?key=a', method => 'OPTIONS', headers => [
    'Origin: https://evil.example', 'Access-Control-Request-Method: DELETE' ])->{status}, 405,
    'a browser may not send DELETE for another site';

# To read is harmless: no other page sees the answer.
my $r = $nginx->get('/limits', headers => [ 'Sec-Fetch-Site: cross-site',
    'Origin: https://evil.example' ]);
is $r->{status}, 200, 'GET';
is header($r, 'Access-Control-Allow-Origin'), '', '... which no other page may read';

$nginx->finish;
