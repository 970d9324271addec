-- A limiter as people write it for ngx_lua on one node: a sliding window
-- counter in a shared dict, one entry for each key and window.

local floor = math.floor

-- Exits with 429 if the limit of the key is exhausted.
local function limit(dict, key, window, count)
    local now = ngx.now()
    local part = floor(now / window)
    local name = key .. ':' .. part

    local current, problem = dict:incr(name, 1, 0, 2 * window)
    if not current then
        ngx.log(ngx.ERR, 'shared dict: ', problem)
        return
    end

    local previous = dict:get(key .. ':' .. part - 1) or 0

    if previous * (1 - (now - part * window) / window) + current > count then
        dict:incr(name, -1)
        return ngx.exit(429)
    end
end

return { limit = limit }
