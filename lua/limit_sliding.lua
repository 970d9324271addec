-- Copyright (C) the limit_sliding authors

-- Limits of the NGINX module limit_sliding, for programs in ngx_lua:
--
--     local limits = require "limit_sliding"
--     local zone = limits.zone("api")
--     local verdict, err = zone:take(key, { cost = 1, rate = "100/1m" })
--
-- docs/lua.md describes the functions.  They call the module by FFI.  The declarations
-- are those of src/http/lua/border.hpp, in the same words.

local ffi = require "ffi"
local base = require "resty.core.base"
local semaphore = require "ngx.semaphore"

base.allows_subsystem("http")

-- A second `require` in the same Lua must not declare the types again.
if not pcall(ffi.typeof, "limit_sliding_verdict") then
    ffi.cdef [[
typedef struct {
    double window_ms;
    double burst;
    bool in_flight;
    bool queues;
    bool remote;
    bool asks;
} limit_sliding_zone;

typedef struct {
    double limit_number;
    double remaining_number;
    double reset_number;
    double retry_after_number;
    double delay_number;
    double window_ms;
    bool admitted;
    bool is_late;
    unsigned char source_number;
    unsigned char outcome;
    const limit_sliding_zone *zone;
    uint64_t limit_of_claim;
    uint64_t cost;
    uint64_t state;
    uint64_t now_ms;
} limit_sliding_verdict;

typedef struct {
    uint64_t limit;
    uint64_t window_ms;
    unsigned char calendar;
} limit_sliding_rate;

typedef struct limit_sliding_wait limit_sliding_wait;
typedef struct limit_sliding_hold limit_sliding_hold;

int limit_sliding_lua_version(void);
const char *limit_sliding_lua_text(int code);
const limit_sliding_zone *limit_sliding_lua_zone(const char *name, size_t len, const char **error);
bool limit_sliding_lua_rate(const limit_sliding_zone *zone, const char *text, size_t len,
                            limit_sliding_rate *rate);
int limit_sliding_lua_run(const limit_sliding_zone *zone, int operation, const char *key,
                          size_t len, const limit_sliding_rate *rate, uint64_t units,
                          limit_sliding_verdict *verdict);

void limit_sliding_lua_describe(limit_sliding_verdict *verdict);

int limit_sliding_lua_hold(const limit_sliding_zone *zone, void *request, const char *key,
                           size_t len, const limit_sliding_rate *rate, uint64_t units,
                           limit_sliding_verdict *verdict, limit_sliding_hold **hold);
void limit_sliding_lua_release(limit_sliding_hold *hold);
void limit_sliding_lua_drop(limit_sliding_hold *hold);
int limit_sliding_lua_leave(const limit_sliding_zone *zone, void *request, const char *key,
                            size_t len);

limit_sliding_wait *limit_sliding_lua_wait(void *semaphore, int (*post)(void *, int),
                                           void (*free)(void *));
int limit_sliding_lua_ask(limit_sliding_wait *wait, const limit_sliding_zone *zone, int operation,
                          const char *key, size_t len, const limit_sliding_rate *rate,
                          uint64_t units, limit_sliding_verdict *verdict);
int limit_sliding_lua_answer(limit_sliding_wait *wait, limit_sliding_verdict *verdict);
int limit_sliding_lua_ask_hold(limit_sliding_wait *wait, const limit_sliding_zone *zone,
                               void *request, const char *key, size_t len,
                               const limit_sliding_rate *rate, uint64_t units,
                               limit_sliding_verdict *verdict, limit_sliding_hold **hold);
void limit_sliding_lua_end(limit_sliding_wait *wait);
]]
end

local C = ffi.C
local ffi_gc, ffi_string = ffi.gc, ffi.string
local floor, format = math.floor, string.format
local get_phase, get_request = ngx.get_phase, base.get_request
local pairs, pcall, setmetatable, tostring, type = pairs, pcall, setmetatable, tostring, type

-- kLuaVersion of the border.
local VERSION = 2

-- LuaCode and LuaOperation of the border.
local DONE, WAITS = 0, 1
local TAKE, PEEK, CHARGE, GIVE_BACK, FORGET = 0, 1, 2, 3, 4

-- An operation of this file alone.
local HOLD = -1

-- The largest number of units, 2^53.
local UNITS_MAX = 9007199254740992

-- The module ends each wait for Redis by its own timers, so this time never passes.
local PATIENCE_S = 86400

-- Waits and texts of rates that are kept for the next calls.
local IDLE_MAX = 256
local RATES_MAX = 1000

do
    local loaded, version = pcall(function () return C.limit_sliding_lua_version() end)
    if not loaded then
        error("limit_sliding: NGINX has not loaded ngx_http_limit_sliding_module.so", 2)
    elseif version ~= VERSION then
        error("limit_sliding: this file has version " .. VERSION
              .. " of the border, and the module of NGINX has " .. version, 2)
    end
end

local SOURCES = { [0] = "local", "redis", "lease", "cache", "fallback" }

-- Fields of the struct, by the fields that programs read.
local NUMBERS = {
    limit = "limit_number",
    remaining = "remaining_number",
    reset_ms = "reset_number",
    retry_after_ms = "retry_after_number",
    delay_ms = "delay_number",
}

-- `admitted` is the only field that programs read from the struct itself, and `window_ms`
-- is for resty.req.
local new_verdict = ffi.metatype("limit_sliding_verdict", {
    __index = function (verdict, name)
        local field = NUMBERS[name]
        if not field then
            return name == "source" and SOURCES[verdict.source_number]
                or error('a verdict has no field "' .. tostring(name) .. '"', 2)
        end

        if verdict.is_late then
            C.limit_sliding_lua_describe(verdict)
        end

        return verdict[field]
    end,
})

ffi.metatype("limit_sliding_hold", {
    __index = {
        release = function (hold)
            C.limit_sliding_lua_release(hold or error("call hold:release()", 2))
        end,
    },
})

local new_rate = ffi.typeof("limit_sliding_rate")

-- Each cast makes a type of its own, of which Lua has room for 65,536.
local post_semaphore = ffi.cast("int (*)(void *, int)", C.ngx_http_lua_ffi_sema_post)
local free_semaphore = ffi.cast("void (*)(void *)", C.ngx_http_lua_ffi_sema_gc)

local text_out = ffi.new("const char *[1]")
local hold_out = ffi.new("limit_sliding_hold *[1]")

local _M = { _VERSION = "1.0.0" }

local zone_methods = {}
local zone_metatable = { __index = zone_methods }

-- Zones by name, which live as long as the worker.
local zones = {}


-- Returns the zone of this name, or nil and an error.
function _M.zone(name)
    local known = zones[name]
    if known then
        return known
    end

    if type(name) ~= "string" then
        return nil, "the name of a zone must be a string, not " .. tostring(name)
    end

    if get_phase() == "init" then
        return nil, "zones can be used from init_worker_by_lua on"
    end

    local zone = C.limit_sliding_lua_zone(name, #name, text_out)
    if zone == nil then
        return nil, ffi_string(text_out[0]) .. ' "' .. name .. '"'
    end

    zones[name] = setmetatable({
        name = name,
        zone = zone,
        window_ms = zone.window_ms,
        burst = zone.burst,
        in_flight = zone.in_flight,
        limit_name = zone.in_flight and "inflight" or "rate",
        queues = zone.queues,
        remote = zone.remote,
        asks = zone.asks,
        rates = {},
        nrates = 0,
    }, zone_metatable)
    return zones[name]
end


-- Returns the zone of this name if its configuration has set this field, or nil and an
-- error that names the parameter.  For limit_sliding.resty.
function _M.zone_with(name, field, parameter)
    local zone, err = _M.zone(name)
    if zone and not zone[field] then
        return nil, 'zone "' .. name .. '" must have ' .. parameter
    end

    return zone, err
end


-- Returns a verdict that calls may fill again and again.
function _M.verdict()
    return new_verdict()
end


local function error_of(code)
    return ffi_string(C.limit_sliding_lua_text(code))
end


-- Returns the text of a value.  tostring() would round integers above 10^14.
local function text_of(value)
    if type(value) == "number" and floor(value) == value and value <= UNITS_MAX
       and value >= -UNITS_MAX
    then
        return format("%d", value)
    end

    return tostring(value)
end


-- Returns the rate of the text, or nil and an error.
local function parse_rate(zone, text)
    local rate = new_rate()
    local written = text_of(text)
    if not C.limit_sliding_lua_rate(zone.zone, written, #written, rate) then
        return nil, "invalid " .. zone.limit_name .. ' "' .. written .. '"'
    end

    if zone.nrates >= RATES_MAX then
        zone.rates, zone.nrates = {}, 0
    end

    zone.rates[text] = rate
    zone.nrates = zone.nrates + 1
    return rate
end


-- Returns true for 0, 1, ... 2^53.
local function is_units(n)
    return type(n) == "number" and n >= 0 and n <= UNITS_MAX and floor(n) == n
end


-- Returns the name of an unknown option, or nil.
local function find_unknown(zone, options)
    for name in pairs(options) do
        if name ~= "cost" and name ~= zone.limit_name then
            return tostring(name)
        end
    end
end


-- Returns cost and rate of the options, or nil and an error.  Names are checked when the
-- options are others than those of the last call.
local function read_options(zone, options)
    if options ~= zone.options then
        local unknown = find_unknown(zone, options)
        if unknown then
            return nil, 'unknown option "' .. unknown .. '"'
        end

        zone.options = options
    end

    local cost, limit = options.cost, options[zone.limit_name]
    if cost == nil then
        cost = 1
    elseif not is_units(cost) then
        return nil, 'invalid cost "' .. tostring(cost) .. '"'
    end

    if limit == nil then
        return cost
    end

    local rate, err = zone.rates[limit]
    if not rate then
        rate, err = parse_rate(zone, limit)
        if not rate then
            return nil, err
        end
    end

    return cost, rate
end


-- Returns true if the options are valid, or nil and an error.
function zone_methods.check(zone, options)
    local cost, err = read_options(zone, options)
    return cost and true, not cost and err or nil
end


-- Waits that no call uses.
local idle, nidle = {}, 0


-- Returns a wait with its semaphore, or nil and an error.  The wait owns the semaphore.
local function new_wait()
    local sema, err = semaphore.new(0)
    if not sema then
        return nil, err
    end

    local owned = ffi_gc(sema.sem, nil)
    local wait = C.limit_sliding_lua_wait(owned, post_semaphore, free_semaphore)
    if wait == nil then
        ffi_gc(owned, C.ngx_http_lua_ffi_sema_gc)
        return nil, "no memory"
    end

    return { wait = ffi_gc(wait, C.limit_sliding_lua_end), semaphore = sema }
end


-- Returns a wait, or nil and an error.
local function get_wait()
    if nidle > 0 then
        local wait = idle[nidle]
        idle[nidle] = nil
        nidle = nidle - 1
        return wait
    end

    return new_wait()
end


-- Runs a call for which Redis is asked, and lets the coroutine wait meanwhile.  Returns
-- the verdict and, after HOLD, the hold; or nil and an error.
--
-- If the coroutine ends while it waits, nothing refers to the wait any more, and Lua's
-- collector ends it.
local function ask(zone, operation, key, rate, units, verdict)
    if not get_request() then
        return nil, "cannot yield here"
    end

    local wait, err = get_wait()
    if not wait then
        return nil, err
    end

    -- ngx_lua knows where Lua may yield.
    local ok, reason = wait.semaphore:wait(0)
    local code, held = DONE, nil
    if not ok and reason == "timeout" then
        if operation == HOLD then
            code = C.limit_sliding_lua_ask_hold(wait.wait, zone.zone, get_request(), key, #key,
                                                rate, units, verdict, hold_out)
            held = hold_out[0]
        else
            code = C.limit_sliding_lua_ask(wait.wait, zone.zone, operation, key, #key, rate,
                                           units, verdict)
        end

        while code == WAITS do
            ok, err = wait.semaphore:wait(PATIENCE_S)
            if not ok then
                return nil, err
            end

            code = C.limit_sliding_lua_answer(wait.wait, verdict)
        end
    else
        err = "cannot yield here"
    end

    if nidle < IDLE_MAX then
        nidle = nidle + 1
        idle[nidle] = wait
    end

    if code ~= DONE then
        return nil, error_of(code)
    end

    if err then
        return nil, err
    end

    return verdict, held
end


-- Returns key, cost and rate of a call; or nil and an error.
local function read_call(zone, key, options)
    if not zone.zone then
        error("methods of a zone need a colon, as in zone:take()", 3)
    end

    if type(key) ~= "string" then
        if type(key) ~= "number" then
            return nil, "the key must be a string, not " .. tostring(key)
        end

        key = text_of(key)
    end

    if not options then
        return key, 1
    elseif type(options) ~= "table" then
        return nil, "the options must be a table, not " .. tostring(options)
    end

    local cost, rate = read_options(zone, options)
    if not cost then
        return nil, rate
    end

    return key, cost, rate
end


-- Runs a call.  Returns the verdict, which only TAKE and PEEK fill; or nil and an error.
local function run(zone, operation, key, rate, units, verdict)
    if zone.asks or operation == FORGET and zone.remote then
        return ask(zone, operation, key, rate, units, verdict)
    end

    local code = C.limit_sliding_lua_run(zone.zone, operation, key, #key, rate, units, verdict)
    if code ~= DONE then
        return nil, error_of(code)
    end

    return verdict
end


local function decide(zone, operation, key, options, verdict)
    local text, cost, rate = read_call(zone, key, options)
    if not text then
        return nil, cost
    end

    return run(zone, operation, text, rate, cost, verdict or new_verdict())
end


-- Takes units of the key if the limit has room.  Returns the verdict, or nil and an error.
function zone_methods.take(zone, key, options, verdict)
    return decide(zone, TAKE, key, options, verdict)
end


-- Says what take() would say, and takes nothing.
function zone_methods.peek(zone, key, options, verdict)
    return decide(zone, PEEK, key, options, verdict)
end


local done_verdict = new_verdict()


local function settle(zone, operation, key, units, options)
    if not is_units(units) then
        return nil, 'invalid number of units "' .. tostring(units) .. '"'
    end

    if type(options) == "table" and options.cost ~= nil then
        return nil, 'unknown option "cost"'
    end

    local text, err, rate = read_call(zone, key, options)
    if not text then
        return nil, err
    end

    local ok
    ok, err = run(zone, operation, text, rate, units, done_verdict)
    return ok and true, err
end


-- Charges the key, whatever the limit is.  Returns true, or nil and an error.
function zone_methods.charge(zone, key, units, options)
    return settle(zone, CHARGE, key, units, options)
end


-- Gives units back to the key, the newest first.
function zone_methods.give_back(zone, key, units, options)
    return settle(zone, GIVE_BACK, key, units, options)
end


-- Deletes the history of the key.
function zone_methods.forget(zone, key, options)
    return settle(zone, FORGET, key, 0, options)
end


-- Holds units of the key until release(), or until the request ends.  Returns the hold
-- and the verdict; or nil, "rejected" and the verdict; or nil and an error.
function zone_methods.hold(zone, key, options, verdict)
    local text, cost, inflight = read_call(zone, key, options)
    if not text then
        return nil, cost
    end

    verdict = verdict or new_verdict()
    local held
    if zone.remote then
        local told
        told, held = ask(zone, HOLD, text, inflight, cost, verdict)
        if not told then
            return nil, held
        end
    else
        local code = C.limit_sliding_lua_hold(zone.zone, get_request(), text, #text, inflight,
                                              cost, verdict, hold_out)
        if code ~= DONE then
            return nil, error_of(code)
        end

        held = hold_out[0]
    end

    if not verdict.admitted then
        return nil, "rejected", verdict
    end

    return ffi_gc(held, C.limit_sliding_lua_drop), verdict
end


-- Releases the newest hold of the key in this request.  Returns true, or nil and an error.
function zone_methods.leave(zone, key)
    local text, err = read_call(zone, key)
    if not text then
        return nil, err
    end

    local code = C.limit_sliding_lua_leave(zone.zone, get_request(), text, #text)
    if code ~= DONE then
        return nil, error_of(code)
    end

    return true
end


return _M
