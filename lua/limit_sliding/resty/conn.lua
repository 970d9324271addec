-- Copyright (C) the limit_sliding authors

-- The interface of resty.limit.conn over a zone of limit_sliding with inflight=.
-- docs/lua.md lists the differences.

local limits = require "limit_sliding"

local assert, setmetatable = assert, setmetatable
local floor = math.floor

local _M = { _VERSION = limits._VERSION }
local metatable = { __index = _M }


-- The largest limit, under which a verdict tells all units that a key holds.
local LARGEST = { inflight = 4194302 }


local function set_limit(self)
    self.options.inflight = self.max + self.burst
end


-- Returns a limiter of `max` requests at once, and `burst` more that are delayed; or nil
-- and an error.
function _M.new(zone_name, max, burst, default_conn_delay)
    assert(max > 0 and burst >= 0 and default_conn_delay > 0)

    local zone, err = limits.zone_with(zone_name, "in_flight", "inflight=")
    if not zone then
        return nil, err
    end

    local self = {
        zone = zone,
        max = max + 0,
        burst = burst,
        unit_delay = default_conn_delay,
        committed = false,
        options = {},
        verdict = limits.verdict(),
    }
    set_limit(self)

    local ok
    ok, err = zone:check(self.options)
    if not ok then
        return nil, err
    end

    return setmetatable(self, metatable)
end


-- Returns the requests in flight of the key, by the last verdict.
local function in_flight(verdict)
    local limit = verdict.limit
    return limit == math.huge and 1 or limit - verdict.remaining
end


-- Returns the delay in seconds and the requests in flight; or nil and "rejected", or
-- another error.
function _M.incoming(self, key, commit)
    local zone, verdict = self.zone, self.verdict
    local conn

    if commit then
        -- Redis may have decided another request of this object meanwhile.
        local held, err = zone:hold(key, self.options, verdict)
        self.committed = held ~= nil
        if not held then
            return nil, err
        end

        conn = in_flight(verdict)
    else
        local decided, err = zone:peek(key, self.options, verdict)
        self.committed = false
        if not decided then
            return nil, err
        end

        if not verdict.admitted then
            return nil, "rejected"
        end

        conn = in_flight(verdict) + 1
    end

    if conn > self.max then
        return self.unit_delay * floor((conn - 1) / self.max), conn
    end

    return 0, conn
end


function _M.is_committed(self)
    return self.committed
end


-- Ends the hold of this request.  Returns the requests in flight, or nil and an error; or 0
-- where Lua may not ask Redis for their number.
function _M.uncommit(self, key)
    assert(key)

    local ok, err = self.zone:leave(key)
    if not ok then
        return nil, err
    end

    local verdict = self.zone:peek(key, LARGEST, self.verdict)
    return verdict and in_flight(verdict) or 0
end


function _M.leaving(self, key, req_latency)
    local conn, err = self:uncommit(key)
    if not conn then
        return nil, err
    end

    if req_latency then
        self.unit_delay = (req_latency + self.unit_delay) / 2
    end

    return conn
end


function _M.set_conn(self, conn)
    self.max = conn
    set_limit(self)
end


function _M.set_burst(self, burst)
    self.burst = burst
    set_limit(self)
end


return _M
