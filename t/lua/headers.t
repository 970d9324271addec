# Fields about limits that Lua sets itself: they stay, and ours of the same names are not sent.

use v5.36;

use Test::More;

use LimitSliding::Lua;
use LimitSliding::Test qw(:DEFAULT key);

my $SET = <<'LUA';
    ngx.header["Retry-After"] = "lua"
    ngx.header["X-RateLimit-Limit"] = "lua"
LUA

for my $last (0, 1) {
    my $nginx = lua_nginx(last => $last);
    next if $last && !$nginx->is_dynamic;
    subtest 'limit_sliding loaded ' . ($last ? 'last' : 'first') => sub { try_headers($nginx) };
}
done_testing;

sub try_headers($nginx) {
    $nginx->serve(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $http_x_key zone=one:1m rate=1 window=30d;
    server { listen 127.0.0.1:%%PORT1%%; location / { return 200 page; } }
HTTP
    limit_sliding_headers retry_after x_ratelimit;
    limit_sliding zone=one;
    error_page 429 /page;
    location /filter  { header_filter_by_lua_block { $SET } error_page 429 /filtered; empty_gif; }
    location /content { content_by_lua_block { $SET ngx.print("page") } }
    location /proxied {
        access_by_lua_block { $SET }
        proxy_pass http://127.0.0.1:%%PORT1%%/;
    }
    location /page {
        limit_sliding off;
        content_by_lua_block { $SET ngx.print("page") }
    }
    location /filtered {
        limit_sliding off;
        header_filter_by_lua_block { $SET }
        return 429;
    }
SERVER

    for my $path (qw(/filter /content /proxied)) {
        my @key = key();
        for my $name (qw(passed rejected)) {
            my $r = $nginx->get($path, @key);
            is_deeply [ map { join ', ', @{ $r->{headers}{$_} // [] } }
                qw(retry-after x-ratelimit-limit) ], [ 'lua', 'lua' ],
                "$path, $name: what Lua has set";
            is scalar @{ $r->{headers}{'x-ratelimit-remaining'} // [] }, 1, '... and the rest';
        }
    }
    $nginx->finish;
}
