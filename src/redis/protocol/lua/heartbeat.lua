-- Copyright (C) the limit_sliding authors

-- A separate script: it writes the heartbeat of a holder.  A holder is a worker
-- whose requests hold units, in a zone with inflight=.  It lives as long as its
-- heartbeat, which it writes again every second.
--
-- KEYS[1]  the heartbeat; the value is the holder's epoch
-- KEYS[2]  "TIME RUN": since when, in ms, this server has counted units, and
--          its run_id, or nothing without the right to INFO
-- ARGV     the epoch; the last epoch that the holder knows to be confirmed, 0:
--          none; the TIME that it knows; the life of the heartbeat in ms; 1 if
--          the connection is new, so that this may be another server
--
-- The reply is three integers: 1 if the heartbeat was written; 0 if it has
-- expired, or the server has lost units, since the last epoch was confirmed,
-- because a late call must revive neither a holder whose units others may have
-- got, nor an old epoch; the TIME; and the ms until all holders, which may not
-- have reported to a new server yet, have either reported or died.

--@ chunk heartbeat
local call, match = redis.call, string.match
local T = call('TIME') local now = T[1] * 1000 + math.floor(T[2] / 1000)
local epoch, last, life = ARGV[1] + 0, ARGV[2] + 0, ARGV[4] + 0
local seen = tonumber(call('GET', KEYS[1]) or '')
local since, run = match(call('GET', KEYS[2]) or '', '^(%d+) (%x*)$')
if ARGV[5] == '1' or not since then
  local info = redis.pcall('INFO', 'server')
  local id = type(info) == 'string' and match(info, 'run_id:(%x+)') or run or ''
  if id ~= run then
    since = string.format('%.0f', now)
    call('SET', KEYS[2], since .. ' ' .. id)
  end
end
local is_counted = last == 0
  or seen and seen >= last and since == ARGV[3]
is_counted = is_counted and epoch >= (seen or 0)
if is_counted then call('SET', KEYS[1], ARGV[1], 'PX', life) end
local left = since + life - now
if left < 0 or left > life then left = 0 end
return {is_counted and 1 or 0, since + 0, left}
