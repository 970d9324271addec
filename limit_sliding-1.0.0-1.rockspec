-- Metadata of the Lua library for luarocks.  Whoever publishes the library names the
-- repository.
rockspec_format = "3.0"
package = "limit_sliding"
version = "1.0.0-1"

source = {
    url = "git+https://localhost.localdomain/limit_sliding",
    tag = "1.0.0",
}

description = {
    summary = "Lua library of the NGINX module limit_sliding",
    detailed = "Sliding-window rate limits for programs in ngx_lua, by FFI into the module.",
    license = "BSD-2-Clause",
}

dependencies = { "lua == 5.1" }

build = {
    type = "builtin",
    modules = {
        ["limit_sliding"] = "lua/limit_sliding.lua",
        ["limit_sliding.resty.conn"] = "lua/limit_sliding/resty/conn.lua",
        ["limit_sliding.resty.count"] = "lua/limit_sliding/resty/count.lua",
        ["limit_sliding.resty.req"] = "lua/limit_sliding/resty/req.lua",
    },
}
