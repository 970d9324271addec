-- A limiter as people write it for ngx_lua, with lua-resty-redis: a script for
-- each request, which has one of a pool of connections to itself for as long as
-- that takes.

-- Debian's package, lua-nginx-redis, has it by another name.
local found, redis = pcall(require, 'resty.redis')
if not found then
    redis = require('nginx.redis')
end

local script = [[
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local elapsed = now % window
local part, previous, current = (now - elapsed) / window, 0, 0
local state = redis.call('GET', KEYS[1])
if state then
  local at, older, newer = struct.unpack('>I4I3I3', state)
  if at == part then
    previous, current = older, newer
  elseif at == part - 1 then
    previous = newer
  end
end
if previous * (window - elapsed) / window + current + 1 > limit then
  return 0
end
state = struct.pack('>I4I3I3', part, previous, current + 1)
redis.call('SET', KEYS[1], state, 'PX', 2 * window)
return 1
]]

local function hex(bytes)
    return (bytes:gsub('.', function(byte)
        return string.format('%02x', byte:byte())
    end))
end

local digest = hex(ngx.sha1_bin(script))

-- Exits with 429 if the limit of the key is exhausted; with 500 if the server,
-- { path of a unix socket } or { address, port }, does not say.
local function limit(server, key, window_ms, count)
    local client = redis:new()
    client:set_timeout(1000)

    local granted, problem = client:connect(unpack(server))
    if granted then
        granted, problem = client:evalsha(digest, 1, key, window_ms, count)
        if granted == false and problem:find('^NOSCRIPT') then
            granted, problem = client:eval(script, 1, key, window_ms, count)
        end
    end
    if not granted then
        ngx.log(ngx.ERR, 'redis: ', problem)
        return ngx.exit(500)
    end

    client:set_keepalive(60000, 128)

    if granted == 0 then
        return ngx.exit(429)
    end
end

return { limit = limit }
