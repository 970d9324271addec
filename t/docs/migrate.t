# docs/migrate.md: what another limiter admits, the configuration here admits as well.

use v5.36;

use CPAN::Meta::YAML;
use FindBin;
use IO::Uncompress::Gunzip qw($GunzipError);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Peers qw(haproxy_version lua_modules start_haproxy);
use LimitSliding::Redis;
use LimitSliding::Test;

my $PAGE = 'docs/migrate.md';
my @blocks = blocks($PAGE);

# Speaks to what is no NGINX.
package Old {
    our @ISA = 'LimitSliding::Client';
    sub port($self, $n = 0) { return $self->{port} }
}

# The text of the one block with this tag that matches.
sub block($tag, $regexp) {
    my @found = grep { $_->{tag} eq $tag && $_->{text} =~ $regexp } @blocks;
    die "$PAGE: its $tag blocks with $regexp are not one\n" if @found != 1;
    return $found[0]{text};
}


# limit_req, request by request, on a day of real traffic

my $trace = IO::Uncompress::Gunzip->new("$FindBin::Bin/../data/nasa-http-1995-08-01.tsv.gz")
    or die "trace: $GunzipError";
my @clients = map { (split /\t/)[1] } <$trace>;

# The zones of a snippet, and what stands in its location. Changed here: the key.
sub parts($text) {
    my ($zones, $place) = $text =~ /\A(.*?;)\n\nserver \{\n    location \/ \{\n(.*?)    \}\n\}\n\z/s
        or die "not zones, and a location:\n$text";
    return ($zones =~ s/\$binary_remote_addr/\$arg_client/r, $place);
}

# In dry run both see all requests; one worker decides on them in one order.
for ([ one => 'queue' ], [ two => 'burst' ]) {
    my ($before, $zone) = @$_;
    my ($old_zone, $old) = parts(block('nginx', qr/limit_req zone=$before\b/));
    my ($new_zone, $new) = parts(block('nginx', qr/limit_sliding zone=$zone;/));
    my $nginx = LimitSliding::Test->new(worker_processes => 1);
    $nginx->serve(http => <<"HTTP", server => "location / {\n$old$new empty_gif; }");
    limit_req_dry_run on;
    limit_sliding_dry_run on;
    add_header X-Both "\$limit_req_status \$limit_sliding_status" always;
    $old_zone
    $new_zone
HTTP

    my (%said, @different);
    $nginx->load(pipeline => 4, connections => 16,
        requests => [ map { "/?client=$_" } @clients ],
        each => sub ($n, $status, $head) {
            my ($req, $sliding) = $head =~ /^X-Both: (\w+) (\w+)\r?$/m
                or return push @different, "$n: $head";
            $said{$req}++;
            push @different, "$n: limit_req $req, limit_sliding $sliding" if $req ne $sliding;
        });

    is join("\n", splice @different, 0, 10), '', "limit_req, $zone: the same decisions";
    cmp_ok $said{REJECTED_DRY_RUN} // 0, '>', 50, '... some of which reject';
    cmp_ok $said{PASSED} // 0, '>', 50, '... and some do not';
    $nginx->finish_one;
}


# HAProxy

my $redis = LimitSliding::Redis->new->start;

# The service that authenticates: it knows a user by a token.
my $service = LimitSliding::Test->new(worker_processes => 1);
$service->serve(http => <<'HTTP', server => <<'SERVER');
    map $http_authorization $plan { "Bearer e" free; "Bearer p" paid; }
HTTP
    if ($plan = "") { return 401; }
    add_header X-User $http_authorization;
    add_header X-Plan $plan;
    location / { empty_gif; }
SERVER

# Starts the snippet that matches, before an application and beside our Redis.
sub serve($regexp) {
    my $nginx = LimitSliding::Test->new;
    my $text = block('nginx', $regexp);
    $text =~ s/server 10\.0\.0\.1:6379;/server @{[ $redis->server ]}; timeout 5s; connect_timeout 5s;/;
    $text =~ s{proxy_pass http://127\.0\.0\.1:8080;}{empty_gif;};
    $text =~ s{http://127\.0\.0\.1:\K8081}{$service->port}e;
    $text =~ s/(limit_sliding_(?:status 503|headers retry_after x_ratelimit);\n)(?=    \}\n)/$1empty_gif;\n/;
    $text =~ s/^\}\n\z/    location \/ { empty_gif; }\n}\n/m if $text !~ m{^ *location /[a-z]*/? \{}m;
    $nginx->start(configuration($nginx, $text));
    $redis->command('FLUSHALL');
    return $nginx;
}

sub passed($statuses) {
    return scalar grep { $_ == 200 } @$statuses;
}

SKIP: {
    skip 'no haproxy: .ci/packages unpack build', 4 if !haproxy_version();
    my $text = block('text', qr/stick-table/);
    my ($backend, $rules) = $text =~ /^backend clients\n(.*?)\nfrontend web\n {4}bind :80\n(.*)$/s
        or die "HAProxy's configuration has changed";

    # Changed here: the application is HAProxy itself.
    $rules =~ s/^ *default_backend .*\n//m;
    my $haproxy = start_haproxy(rules => $rules =~ s/^ +//r,
        sections => "backend clients\n$backend");

    my $nginx = serve(qr/zone=clients:/);
    my $old = bless { port => $haproxy->{port} }, 'Old';
    for my $n (60, 20) {
        my %passed = map { my $client = $_->[1]; $_->[0] => passed([ map {
            $client->get('/')->{status} } 1 .. $n ]) } [ before => $old ], [ after => $nginx ];
        is $passed{before}, $n == 60 ? 50 : 0, "HAProxy: of $n, what its limit has room for";
        is $passed{after}, $passed{before}, '... and here as many';
    }
    $nginx->finish_one;
}


# Those that no package has run from where they were built.

# How many of 1500 requests two limiters admit: a configuration, and what replaces it.
sub both($name, $before, $regexp, $path) {
    my $old = LimitSliding::Test->new;
    my $text = $before =~ s/server 10\.0\.0\.1:6379;/server @{[ $redis->server ]};/r
        =~ s{proxy_pass http://127\.0\.0\.1:8080;}{empty_gif;}r
        =~ s/(ratelimit_headers on;)/$1 empty_gif;/r;
    my @modules = $before =~ /_by_lua/ ? lua_modules() : $ENV{LIMIT_SLIDING_RATELIMIT};
    $old->start(join '', map({ "load_module $_;\n" } @modules), configuration($old, $text));
    my $new = serve($regexp);
    my ($was, $is) = map { passed($_->load(connections => 4, requests => [ ($path) x 1500 ])) }
        $old, $new;
    cmp_ok $was, '>', 50, "$name: admits";
    is $is, $was, '... and here as many';
    $_->finish_one for $old, $new;
}

SKIP: {
    skip 'no LIMIT_SLIDING_RATELIMIT, the .so of nginx-ratelimit', 4 if !$ENV{LIMIT_SLIDING_RATELIMIT};
    both('ratelimit', block('text', qr/ratelimit_pass/), qr/zone=api:/, '/');
}
SKIP: {
    skip 'no LIMIT_SLIDING_RESTY, the directory of lua-resty-limit-traffic', 4
        if !$ENV{LIMIT_SLIDING_RESTY} || !lua_modules();
    both('lua-resty-limit-traffic', "lua_package_path '$ENV{LIMIT_SLIDING_RESTY}/lib/?.lua;;';\n"
        . block('nginx', qr/resty\.limit\.count/), qr/zone=counts:/, '/api/');
}


# The others cannot run here: what replaces them has the limits that they have.

my %yaml = map { $_->{name} => CPAN::Meta::YAML->read_string($_->{text}) }
    grep { $_->{tag} eq 'yaml' } @blocks;
is scalar(grep { !$_->[0] } values %yaml), 0, 'YAML can be read';

for my $place (
    [ 'zone_sync',               qr/zone=one:1m rate=100r.s redis/, '/', 51 ],
    [ 'ratelimit of kjdev',      qr/zone=api:/,      '/',     100 ],
    [ 'lua-resty-limit-traffic', qr/zone=counts:/,   '/api/', 1000 ],
    [ 'Kong',                    qr/zone=minute:/,   '/',     100,  'X-API-Key: k-lee-19c0' ],
    [ 'APISIX',                  qr/zone=count:/,    '/',     1000, 'X-API-Key: k-lee-19c0' ],
    [ 'Envoy, local',            qr/zone=everybody/, '/',     200 ],
    [ 'Envoy, ratelimit',        qr/zone=address:/,  '/',     100,  'Authorization: Bearer e' ],
    [ 'AWS',                     qr/zone=throttle:/, '/',     20,   'X-API-Key: k-lee-19c0' ],
) {
    my ($name, $regexp, $path, $limit, @header) = @$place;
    my $nginx = serve($regexp);
    my $n = $limit + 500;
    my $passed = passed($nginx->load(connections => 8, pipeline => 8,
        requests => [ ([ $path, @header ]) x $n ]));

    # tokens come back meanwhile
    my $more = $name =~ /Envoy, local|AWS|zone_sync/ ? $n - 1 : $limit;
    cmp_ok $passed, '>=', $limit, "$name: the limit passes";
    cmp_ok $passed, '<=', $more, '... and no more';
    is $nginx->get($path, headers => ['X-API-Key: invented'])->{status}, 401,
        '... and an invented key is none' if "@header" =~ /API-Key/;
    $nginx->finish_one;
}

my $free = serve(qr/zone=free:/);
sub states() { return scalar grep { /limit_sliding:free:/ } $redis->keys }
is $free->statuses(2, '/', headers => ['Authorization: Bearer p']), '200 200', 'Envoy: another plan';
is $free->statuses(1, '/', headers => [ 'X-Plan: free', 'X-User: e' ]), '401', '... and no user';
is states(), 0, '... which have no limit of the free plan';
is $free->statuses(2, '/', headers => ['Authorization: Bearer e']), '200 200', '... and the free one';
is states(), 1, '... which has one';

$service->stop;
$free->finish;
