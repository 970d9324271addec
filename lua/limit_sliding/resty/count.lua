-- Copyright (C) the limit_sliding authors

-- The interface of resty.limit.count over a zone of limit_sliding.  docs/lua.md lists the
-- differences.

local limits = require "limit_sliding"

local assert, setmetatable = assert, setmetatable
local format = string.format

local _M = { _VERSION = limits._VERSION }
local metatable = { __index = _M }


-- Returns a limiter of `limit` requests in `window` seconds; or nil and an error.
function _M.new(zone_name, limit, window)
    assert(limit > 0 and window > 0)

    local zone, err = limits.zone(zone_name)
    if not zone then
        return nil, err
    end

    local self = {
        zone = zone,
        options = { rate = format("%d/%dms", limit, window * 1000) },
        verdict = limits.verdict(),
    }

    -- An invalid limit or window shows at once.
    local rate
    rate, err = zone:check(self.options)
    if not rate then
        return nil, err
    end

    return setmetatable(self, metatable)
end


-- Returns 0 and the remaining requests; or nil and "rejected", or another error.
function _M.incoming(self, key, commit)
    local zone = self.zone
    local decide = commit and zone.take or zone.peek
    local verdict, err = decide(zone, key, self.options, self.verdict)
    if not verdict then
        return nil, err
    end

    if not verdict.admitted then
        return nil, "rejected"
    end

    return 0, commit and verdict.remaining or verdict.remaining - 1
end


-- Gives one request back.  Returns the remaining requests, or nil and an error.
function _M.uncommit(self, key)
    assert(key)

    local ok, err = self.zone:give_back(key, 1, self.options)
    if not ok then
        return nil, err
    end

    local verdict
    verdict, err = self.zone:peek(key, self.options, self.verdict)
    return verdict and verdict.remaining, err
end


return _M
