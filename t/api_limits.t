# limit_sliding_api and the limits of its location: its own, and no inherited
# ones.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->write_file('html/page', 'a page');

$nginx->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%

    limit_sliding_zone $http_x_key zone=http:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=server:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=after:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=own:1m rate=2 window=30d;

    limit_sliding zone=http;
    limit_sliding_headers x;

    server {
        listen 127.0.0.1:%%PORT%%;

        location / { empty_gif; }
        location /limits { limit_sliding_api; }
    }

    server {
        listen 127.0.0.1:%%PORT1%%;

        limit_sliding zone=server;
        limit_sliding zone=after after_auth;

        location /page { root %%DIR%%/html; }
        location = /exact { limit_sliding_api; }

        location /limits {
            limit_sliding_api write=on;
            limit_except GET { allow all; }

            if ($arg_if) { set $unused 1; }
            if ($arg_proxy) { proxy_pass http://127.0.0.1:%%PORT2%%; }

            # no API any more: a place as any other

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

        location /dry {
            limit_sliding_api;
            limit_sliding_dry_run on;
        }

        # proxy_pass answers, not the API

        location /answered {
            limit_sliding_api;
            proxy_pass http://127.0.0.1:%%PORT2%%;
        }

        location /off {
            limit_sliding_api;
            limit_sliding off;
        }
    }

    server {
        listen 127.0.0.1:%%PORT2%%;
        limit_sliding off;
        location / { return 200; }
    }
}
CONF

my $unique = 0;

# A key that nobody has used.
sub key() {
    return (headers => [ 'X-Key: ' . ++$unique ]);
}

my $KEY = '/zones/own/key?key=x';

for my $case (
    [ 0, '/limits',             'at the http level' ],
    [ 0, '/limits/metrics',     '... metrics' ],
    [ 0, '/limits/dashboard',   '... the dashboard' ],
    [ 0, "/limits$KEY",         '... a key' ],
    [ 1, '/limits',             'at the server level' ],
    [ 1, '/limits/metrics',     '... metrics' ],
    [ 1, "/limits$KEY",         '... a key' ],
    [ 1, "/limits$KEY",         '... in limit_except', 'DELETE' ],
    [ 1, '/limits/?if=1',       '... in an if' ],
    [ 1, '/exact',              '... an exact location' ],
    [ 1, '/dry',                '... dry run' ],
    [ 1, '/off',                '... off' ],
    [ 1, '/limits/api/metrics', '... an API in an API' ],
    [ 1, '/own/api/metrics',    '... in one with a limit' ],
) {
    my ($port, $path, $name, $method) = @$case;
    my @key = key();
    my @get = ($path, @key, port => $port, method => $method // 'GET');

    is $nginx->statuses(4, @get), '200 200 200 200', "$name: not inherited";
    is header($nginx->get(@get), 'X-RateLimit-Limit') // '', '',
        '... nor in header fields';
    is $nginx->statuses(3, $port ? '/page' : '/', @key, port => $port),
        '200 200 429', '... and takes nothing from others';
}

for my $case (
    [ '/own',         'GET',    'its own limit' ],
    [ '/own/metrics', 'GET',    '... of metrics' ],
    [ "/own$KEY",     'DELETE', '... in limit_except' ],
    [ '/own/?if=1',   'GET',    '... in an if' ],
) {
    my ($path, $method, $name) = @$case;
    my @key = key();

    is $nginx->statuses(3, $path, @key, port => 1, method => $method),
        '200 200 429', "$name applies";
    is $nginx->statuses(3, '/page', @key, port => 1), '200 200 429',
        '... and no other';
}

# What is not the API inherits as it would anywhere else.

for my $case (
    [ '/limits/gif',      '/page', 'a location in that of the API' ],
    [ '/limits?proxy=1',  '/page', 'an if with a handler of its own' ],
    [ '/answered',        '/page', 'a location with another handler' ],
    [ '/own/gif',         '/own',  'a location in that of an API' ],
) {
    my ($path, $same, $name) = @$case;
    my @key = key();

    is $nginx->statuses(3, $path, @key, port => 1), '200 200 429',
        "$name: inherits";
    is $nginx->statuses(1, $same, @key, port => 1), '429',
        "... what $same has";
}

$nginx->finish;
