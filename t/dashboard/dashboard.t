# limit_sliding_api's dashboard, as it is served: headers, and a policy that
# fits the page. What it does in a browser is in browser.t.

use v5.36;

use Digest::SHA qw(sha256_base64);
use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $http_key zone=one:1m rate=3r/d;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /limits { limit_sliding_api; }
        location /slash/ { limit_sliding_api write=on; }
        location /charset/ { limit_sliding_api; charset utf-8; }
        location /other-charset/ { limit_sliding_api; charset koi8-r; }
        location /denied { limit_sliding_api; deny all; }
    }
    server {
        listen 127.0.0.1:%%PORT1%%;
        location / { limit_sliding_api; }
    }
}
CONF


# ---- where ----

my $page = $nginx->get('/limits/dashboard');
is $page->{status}, 200, 'the dashboard';
my $html = $page->{body};
is $nginx->get('/slash/dashboard')->{body}, $html, '... by a location with /';
is $nginx->get('/dashboard', port => 1)->{body}, $html, '... at the root';
is $nginx->get("/limits/$_")->{status}, 404, "no $_"
    for qw(dashboard/ dashboards Dashboard dashboard/x);
is $nginx->get('/denied/dashboard')->{status}, 403, 'for those allowed only';


# ---- methods ----

my $head = $nginx->get('/limits/dashboard', method => 'HEAD');
is $head->{status}, 200, 'HEAD';
is $head->{body}, '', '... has no body';
is header($head, 'Content-Length'), length $html, '... but its length';
is header($head, 'Content-Security-Policy'),
    header($page, 'Content-Security-Policy'), '... and its policy';

for my $method (qw(POST PUT DELETE OPTIONS)) {
    my $r = $nginx->get('/slash/dashboard', method => $method);
    is $r->{status}, 405, $method;
    is header($r, 'Allow'), 'GET, HEAD', '... is not allowed';
    is header($r, 'Content-Type'), 'application/json', '... and says so';
}


# ---- headers ----

is header($page, 'Content-Type'), 'text/html; charset=utf-8', 'HTML';
is header($page, 'Content-Length'), length $html, 'of a known length';
is header($page, 'Cache-Control'), 'no-store', 'not to be stored';
is header($page, 'X-Content-Type-Options'), 'nosniff', 'not to be guessed at';
is header($nginx->get('/charset/dashboard'), 'Content-Type'),
    'text/html; charset=utf-8', 'one charset';
is $nginx->get('/other-charset/dashboard')->{body}, $html,
    'the same in any charset';


# ---- the policy, and the page that it is for ----

my %policy = map { /^(\S+) *(.*)/ }
    split /; */, header($page, 'Content-Security-Policy');

my %code;
push @{ $code{$1} }, $2
    while $html =~ m{<(style|script)\b[^>]*>(.*?)</\1>}gs;
is @{ $code{$_} }, 1, "one $_" for qw(style script);

is_deeply \%policy, {
    'default-src'     => "'none'",
    'style-src'       => "'sha256-" . sha256_base64($code{style}[0]) . "='",
    'script-src'      => "'sha256-" . sha256_base64($code{script}[0]) . "='",
    'connect-src'     => "'self'",
    'base-uri'        => "'none'",
    'form-action'     => "'none'",
    'frame-ancestors' => "'none'",
    'trusted-types'   => "'none'",
    'require-trusted-types-for' => "'script'",
}, 'the policy has the hashes of style and script, and nothing else';

unlike $html, qr/[^\n -~]/, 'ASCII';
cmp_ok length $html, '<', 48 * 1024, 'small';
unlike $html =~ s{//[ -].*|http://www\.w3\.org/2000/svg}{}gr, qr{//|url\(},
    'nothing from elsewhere';
unlike $html, qr/ (?:on[a-z]+|style)=/, 'no script or style in attributes';
is_deeply [ $html =~ /\b(?:src|href)="([^"]*)"/g ], [ './' ], 'one link';

my $json = $nginx->get('/limits/dashboard/../');
is header($json, 'Content-Type'), 'application/json', '... to the JSON';

$nginx->finish;
