package LimitSliding::Lua;

# An NGINX with ngx_lua and our module, in which tests run Lua:
#
#   my $nginx = lua_nginx();
#   $nginx->serve(http => 'limit_sliding_zone $uri zone=api:1m rate=2r/h;');
#   is $nginx->lua('say(zone("api"):take("a").admitted)'), 'true';
#
# lua() runs a chunk in content_by_lua and returns the lines that it says.  The chunk has
# these globals: say(), which takes what print() does; zone(), a zone by its name, or an
# error; `limits`, the library; told(), the fields of a verdict as a text.
#
# A test that imports this is skipped where NGINX cannot have Lua.

use v5.36;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use Test::More ();

use LimitSliding::Peers qw(lua_modules);
use parent 'LimitSliding::Test';

our @EXPORT = qw(lua_nginx $LUA_LIBRARY);

my $ROOT = abs_path(dirname(__FILE__) . '/../../..');

our $LUA_LIBRARY = "lua_package_path '$ROOT/lua/?.lua;;';";

my $HAS_LUA = LimitSliding::Test->new->has_lua;
Test::More::plan(skip_all => 'no ngx_lua: libnginx-mod-http-lua')
    if !$HAS_LUA && !lua_modules();

# Returns an NGINX.  Options are those of LimitSliding::Test; `last`: ours is loaded after
# ngx_lua; and `init`, more Lua for init_by_lua.
sub lua_nginx(%opt) {
    my $init = delete $opt{init} // '';
    my @modules = $HAS_LUA ? () : lua_modules();
    my $nginx = __PACKAGE__->new(%opt, ($opt{last} ? 'before' : 'after') => \@modules);
    $nginx->common(http => <<"HTTP", server => <<'SERVER');
    $LUA_LIBRARY
    client_body_buffer_size 1m;
    limit_sliding_log_level off;
    init_by_lua_block {
        limits = require "limit_sliding"

        function zone(name) return assert(limits.zone(name)) end

        function say(...)
            local lines, values = ngx.ctx.lines or {}, { ... }
            for i = 1, select('#', ...) do values[i] = tostring(values[i]) end
            lines[#lines + 1] = table.concat(values, ' ')
            ngx.ctx.lines = lines
        end

        function told(verdict, err)
            if not verdict then return tostring(verdict) .. ' ' .. tostring(err) end
            return (verdict.admitted and 'admitted' or 'rejected') .. ' ' .. verdict.limit
                .. ' ' .. verdict.remaining .. ' ' .. verdict.source
        end
        $init
    }
HTTP
    location = /lua {
        content_by_lua_block {
            ngx.req.read_body()
            local chunk, err = loadstring(ngx.req.get_body_data(), 'chunk')
            if chunk then err = select(2, pcall(chunk)) end
            if err then say(err) end
            local text = table.concat(ngx.ctx.lines or {}, '\n')
            ngx.header.content_length = #text
            ngx.print(text)
        }
    }
SERVER
    return $nginx;
}

# Runs a chunk.
sub lua($self, $chunk, @request) {
    return $self->get('/lua', method => 'POST', body => $chunk, @request)->{body};
}

1;
