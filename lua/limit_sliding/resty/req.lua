-- Copyright (C) the limit_sliding authors

-- The interface of resty.limit.req over a zone of limit_sliding with
-- algorithm=leaky_bucket.  docs/lua.md lists the differences.

local limits = require "limit_sliding"

local assert, error, setmetatable = assert, error, setmetatable
local floor = math.floor
local format = string.format

local _M = { _VERSION = limits._VERSION }
local metatable = { __index = _M }


-- Returns the options of `rate` requests a second; or nil and an error.
local function options_of(zone, rate)
    local limit = floor(rate * zone.window_ms / 1000 + 1e-6)
    local options = { rate = format("%d", limit) }
    if limit == 0 then
        return nil, format('rate %g is less than one request in the window of zone "%s", %d ms',
                           rate, zone.name, zone.window_ms)
    end

    local ok, err = zone:check(options)
    return ok and options, err
end


-- Returns nil and an error if the zone has no room for the burst.
local function check_burst(zone, burst)
    if burst > zone.burst then
        return nil, format('burst %g is more than that of zone "%s", %d', burst, zone.name,
                           zone.burst)
    end

    return true
end


-- Returns a limiter of `rate` requests a second, and `burst` more that wait; or nil and
-- an error.
function _M.new(zone_name, rate, burst)
    assert(rate > 0 and burst >= 0)

    local zone, err = limits.zone_with(zone_name, "queues", "algorithm=leaky_bucket")
    if not zone then
        return nil, err
    end

    local ok, options
    ok, err = check_burst(zone, burst)
    if not ok then
        return nil, err
    end

    options, err = options_of(zone, rate)
    if not options then
        return nil, err
    end

    return setmetatable({
        zone = zone,
        burst = burst,
        options = options,
        verdict = limits.verdict(),
    }, metatable)
end


-- Returns the delay in seconds and the requests that are ahead; or nil and "rejected", or
-- another error.
function _M.incoming(self, key, commit)
    local zone, verdict = self.zone, self.verdict
    local decide = commit and zone.take or zone.peek
    local decided, err = decide(zone, key, self.options, verdict)
    if not decided then
        return nil, err
    end

    if not verdict.admitted then
        return nil, "rejected"
    end

    -- The requests in the queue.  The first of them leaves after reset_ms.
    local remaining = verdict.remaining
    local queued = zone.burst + 1 - remaining
    if queued <= 0 or verdict.limit == math.huge then
        return 0, 0
    end

    if commit then
        queued = queued - 1
    end

    if queued > floor(self.burst) then
        if commit then
            zone:give_back(key, 1, self.options)
        end

        return nil, "rejected"
    end

    -- The key may have a limit of its own, in another window.
    local interval_ms = verdict.window_ms / verdict.limit
    local delay_ms = queued == 0 and 0 or (queued - 1) * interval_ms + verdict.reset_ms
    return delay_ms / 1000, delay_ms / interval_ms
end


-- Gives one request back.  Returns true, or nil and an error.
function _M.uncommit(self, key)
    assert(key)
    return self.zone:give_back(key, 1, self.options)
end


function _M.set_rate(self, rate)
    local options, err = options_of(self.zone, rate)
    self.options = options or error(err, 2)
end


function _M.set_burst(self, burst)
    local ok, err = check_burst(self.zone, burst)
    self.burst = ok and burst or error(err, 2)
end


return _M
