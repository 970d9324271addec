# limit_sliding_api and the limits of its location: its own, and no inherited
# ones.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_zone $http_x_key zone=http:1m rate=2 window=30d;
    limit_sliding zone=http;
    limit_sliding_headers x;
CONF

my $KEY = '/zones/own/key?key=x';

# Asserts that each of these cases, [path, name, method], has none of the limits
# that a page has, and takes nothing from them.
sub inherits_nothing(@cases) {
    for (@cases) {
        my ($path, $name, $method) = @$_;
        my @key = key();
        my @get = ($path, @key, method => $method // 'GET');

        is $nginx->statuses(4, @get), '200 200 200 200',
            "$name: not inherited";
        is header($nginx->get(@get), 'X-RateLimit-Limit') // '', '',
            '... nor in header fields';
        is $nginx->statuses(3, '/page', @key), '200 200 429',
            '... and takes nothing from others';
    }
}


# limits of http{}

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=own:1m rate=2 window=30d;
HTTP
    location /page { empty_gif; }
    location /limits { limit_sliding_api; }
    location /own { limit_sliding zone=own; empty_gif; }
SERVER

inherits_nothing(
    [ '/limits',             'at the http level' ],
    [ '/limits/metrics',     '... metrics' ],
    [ '/limits/dashboard',   '... the dashboard' ],
    [ "/limits$KEY",         '... a key' ],
);


# limits of server{}

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=server:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=after:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=own:1m rate=2 window=30d;

    server {
        listen 127.0.0.1:%%PORT2%%;
        limit_sliding off;
        location / { return 200; }
    }
HTTP
    limit_sliding zone=server;
    limit_sliding zone=after after_auth;

    location /page { root %%DIR%%/html; }

    location /limits {
        limit_sliding_api write=on;
        limit_except GET { allow all; }

        if ($arg_if) { set $unused 1; }
        if ($arg_proxy) { proxy_pass http://127.0.0.1:%%PORT2%%; }

        # This is a place as any other, since it has no API.
        location /limits/gif { empty_gif; }
        location /limits/api { limit_sliding_api; }
    }

    location /own {
        limit_sliding_api write=on;
        limit_sliding zone=own;
        limit_except GET { allow all; }

        if ($arg_if) { set $unused 1; }

        location /own/gif { empty_gif; }
        location /own/api { limit_sliding_api; }
    }
SERVER

$nginx->write_file('html/page', 'a page');

$nginx->serve(server => <<'CONF');
    location = /exact { limit_sliding_api; }

    location /dry {
        limit_sliding_api;
        limit_sliding_dry_run on;
    }

    location /off {
        limit_sliding_api;
        limit_sliding off;
    }
CONF

inherits_nothing(
    [ '/limits',             'at the server level' ],
    [ '/limits/metrics',     '... metrics' ],
    [ "/limits$KEY",         '... a key' ],
    [ "/limits$KEY",         '... in limit_except', 'DELETE' ],
    [ '/limits/?if=1',       '... in an if' ],
    [ '/exact',              '... an exact location' ],
    [ '/dry',                '... dry run' ],
    [ '/off',                '... off' ],
    [ '/limits/api/metrics', '... an API in an API' ],
    [ '/own/api/metrics',    '... in one with a limit' ],
);

for my $case (
    [ '/own',         'GET',    'its own limit' ],
    [ '/own/metrics', 'GET',    '... of metrics' ],
    [ "/own$KEY",     'DELETE', '... in limit_except' ],
    [ '/own/?if=1',   'GET',    '... in an if' ],
) {
    my ($path, $method, $name) = @$case;
    my @key = key();

    is $nginx->statuses(3, $path, @key, method => $method), '200 200 429',
        "$name applies";
    is $nginx->statuses(3, '/page', @key), '200 200 429', '... and no other';
}


# A place without the API inherits as it would anywhere else.

$nginx->serve(server => <<'CONF');
    # proxy_pass answers here, not the API.
    location /answered {
        limit_sliding_api;
        proxy_pass http://127.0.0.1:%%PORT2%%;
    }
CONF

for my $case (
    [ '/limits/gif',      '/page', 'a location in that of the API' ],
    [ '/limits?proxy=1',  '/page', 'an if with a handler of its own' ],
    [ '/answered',        '/page', 'a location with another handler' ],
    [ '/own/gif',         '/own',  'a location in that of an API' ],
) {
    my ($path, $same, $name) = @$case;
    my @key = key();

    is $nginx->statuses(3, $path, @key), '200 200 429', "$name: inherits";
    is $nginx->statuses(1, $same, @key), '429', "... what $same has";
}

$nginx->finish;
