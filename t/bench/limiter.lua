-- A limiter as people write it for ngx_lua: a script for each request, which
-- has one of a pool of connections to itself for as long as that takes.

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

local function bulk(text)
    return '$' .. #text .. '\r\n' .. text .. '\r\n'
end

-- The reply, an integer, or nil and an error.
local function call(socket, command, what, ...)
    local words = { '*6\r\n', bulk(command), bulk(what), bulk('1') }
    for i = 1, 3 do
        words[4 + i] = bulk(tostring((select(i, ...))))
    end

    local sent, problem = socket:send(words)
    if not sent then
        return nil, problem
    end

    local line
    line, problem = socket:receive()
    if not line then
        return nil, problem
    end

    return tonumber(line:match('^:(%d+)$')), line
end

-- Exits with 429 if the limit of the key is exhausted; with 500 if the server,
-- { path of a unix socket } or { address, port }, does not say.
local function limit(server, key, window_ms, count)
    local socket = ngx.socket.tcp()
    socket:settimeout(1000)

    local granted, problem = socket:connect(unpack(server))
    if granted then
        granted, problem = call(socket, 'EVALSHA', digest, key, window_ms,
                                count)
        if not granted and problem:find('^-NOSCRIPT') then
            granted, problem = call(socket, 'EVAL', script, key, window_ms,
                                    count)
        end
    end
    if not granted then
        ngx.log(ngx.ERR, 'redis: ', problem)
        return ngx.exit(500)
    end

    socket:setkeepalive(60000, 128)

    if granted == 0 then
        return ngx.exit(429)
    end
end

return { limit = limit }
