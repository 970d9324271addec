-- Copyright (C) the limit_sliding authors

-- A separate script: it writes the heartbeat of a holder.  A holder is a worker
-- whose requests hold units, in a zone with inflight=.  It lives as long as its
-- heartbeat, which it writes again every second.
--
-- KEYS[1]  the heartbeat; the value is the holder's epoch
-- KEYS[2]  "TIME RUN": since when, in ms, this server has heard holders without
--          a pause as long as the life of a heartbeat, and its run_id, or
--          nothing without the right to INFO
-- KEYS[3]  the grace: while it exists, hold.lua grants nothing, because holders
--          may not have reported their units; the value is the ms of its begin
-- ARGV     the epoch; the last epoch that the holder knows to be confirmed, 0:
--          none; the TIME that it knows; the life of the heartbeat in ms; 1 if
--          the connection is new, so that this may be another server; 1 if the
--          holder has units that it has not reported
--
-- The reply is three integers: 1 if the heartbeat was written; 0 if it has
-- expired, or the server has lost units, since the last epoch was confirmed,
-- because a late call must revive neither a holder whose units others may have
-- got, nor an old epoch; the TIME; and the ms until the grace ends.

--@ chunk heartbeat
local call, match = redis.call, string.match
local T = call('TIME') local now = T[1] * 1000 + math.floor(T[2] / 1000)
local epoch, last, life = ARGV[1] + 0, ARGV[2] + 0, ARGV[4] + 0

-- Runs a command.  Returns the error, if there is one, and adds the name of the
-- command, which not every Redis tells if the user lacks the right to it; and
-- the reply.
local function fails(...)
  local reply = redis.pcall(...)
  local err = type(reply) == 'table' and reply.err
  return err and {err = err .. ': ' .. (...)}, reply
end

local failure, got = fails('MGET', KEYS[1], KEYS[2], KEYS[3])
if not failure and (ARGV[5] == '1' or not got[1]) then
  -- users need the rights of hold.lua as well
  failure = fails('GET', KEYS[1]) or fails('EXISTS', KEYS[1])
    or fails('PTTL', KEYS[1])
end
if failure then return failure end

local seen, begun = tonumber(got[1] or ''), tonumber(got[3] or '')
local since, run = match(got[2] or '', '^(%d+) (%x*)$')
local known, id = since, run
if ARGV[5] == '1' or not since then
  local info = redis.pcall('INFO', 'server')
  id = type(info) == 'string' and match(info, 'run_id:(%x+)') or run or ''
  if id ~= run then since = string.format('%.0f', now) end
end

-- A holder that knows another TIME has had another server, and other holders
-- may follow it.  On a server that has heard no holder, all holders are new, or
-- write their heartbeats within half a life.
local grace = last ~= 0 and since ~= ARGV[3] and life
  or since ~= known and math.floor(life / 2) or 0
if not begun and grace > 0 then
  call('SET', KEYS[3], string.format('%.0f', now), 'PX', grace)
end
failure = since ~= known and fails('PSETEX', KEYS[2], life, since .. ' ' .. id)
  or fails('PEXPIRE', KEYS[2], life) or not seen and fails('DEL', KEYS[1])
if failure then return failure end
if begun and (ARGV[6] == '1' or grace == life) and now - begun < 10 * life then
  call('PEXPIRE', KEYS[3], life)
end

-- PEXPIRE needs no memory, so holders live in a server that is full.
local is_counted = (last == 0 or seen and seen >= last and since == ARGV[3])
  and epoch >= (seen or 0)
if is_counted and seen == epoch then
  call('PEXPIRE', KEYS[1], life)
elseif is_counted then
  call('SET', KEYS[1], ARGV[1], 'PX', life)
end
local left = (begun or grace > 0) and math.max(call('PTTL', KEYS[3]), 0) or 0
return {is_counted and 1 or 0, since + 0, left}
