-- Copyright (C) the limit_sliding authors

-- A separate script: it stores the bans that a node reports, and returns the
-- bans that were reported since the last call of the node.
--
-- KEYS[1]  a sorted set of the hashes of banned keys, in hex.  The score is the
--          order of the report: Redis's time in ms, or one more than the last
--          order, so that no two are equal.  The member "since" has the
--          negative begin of the set
-- KEYS[2]  a sorted set of the same hashes.  The score is 32 x the end of the
--          ban in ms of Redis's time, plus the number of its doublings, or 31
--          if the ban was lifted: the end is then when the lift is forgotten
-- ARGV     the begin of the set that the node has read, or 0; the order up to
--          which it was read; the time of Redis in ms until which bans are
--          accepted; of each ban the hash, the ms left, and the number of
--          doublings or 31
--
-- The reply is a flat array of integers: Redis's time in ms; flags, 1 if Redis
-- has lost the set that the node has read, so that the list begins anew, and 2
-- if the call was late; the begin of the set, 0: there is none; the order up
-- to which this reply lists bans; the last order; of each ban the two halves
-- of the hash, and 32 x the ms left plus the number of doublings.
--
-- A Redis that hangs may run a call long after the node has stopped waiting.
-- The times of its bans are wrong then, so they are ignored.
--
-- If the clock was set back, the ends of the stored bans are too late.  The
-- first node that has read the set by the former clock deletes it, so that all
-- nodes report their bans again.  The order of the reports does not show a
-- step, because a burst of reports puts it ahead of the clock, too.
--
-- Each call with new bans removes expired ones.  Redis refuses no memory to a
-- script that has written, so no ban is stored partially.

--@ chunk bans
local T = redis.call('TIME') local now = T[1] * 1000 + math.floor(T[2] / 1000)
local news, ends, call, floor = KEYS[1], KEYS[2], redis.call, math.floor
local since = -(call('ZRANGE', news, 0, 0, 'WITHSCORES')[2] or 0)
local last = (call('ZRANGE', news, -1, -1, 'WITHSCORES')[2] or 0) + 0
local after, written = ARGV[2] + 0, false
if since > 0 and ARGV[1] + 0 == since and ARGV[3] + 0 > now + 60000 then
  call('PEXPIRE', news, 0)
  call('PEXPIRE', ends, 0)
  since, last = 0, 0
end
local lost = ARGV[1] ~= '0' and (ARGV[1] + 0 ~= since or after > last)
local late = now > ARGV[3] + 0
if lost or since == 0 then after = 0 end

for i = 4, late and 0 or #ARGV, 3 do
  local hash, till, n = ARGV[i], now + ARGV[i + 1], ARGV[i + 2] + 0
  local known = (call('ZSCORE', ends, hash) or 0) + 0
  local known_till, known_n = floor(known / 32), known % 32
  local is_new = true
  if known_till > now and n == 31 then
    till = math.max(till, known_till)
  elseif known_till > now and known_n ~= 31 then
    is_new = till > known_till + 1000 or n > known_n
    till, n = math.max(till, known_till), math.max(n, known_n)
  end
  if is_new then
    last, written = math.max(now, last + 1), true
    call('ZADD', ends, till * 32 + n, hash)
    call('ZADD', news, last, hash)
    if since == 0 then
      since = now
      call('ZADD', news, -since, 'since')
    end
  end
end

if written then
  local over = call('ZRANGEBYSCORE', ends, '-inf', now * 32, 'LIMIT', 0, 1000)
  if over[1] then
    call('ZREM', ends, unpack(over))
    call('ZREM', news, unpack(over))
  end
  local latest = call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2] / 32
  local ttl = string.format('%.0f', latest - now + 60000)
  call('PEXPIRE', ends, ttl)
  call('PEXPIRE', news, ttl)
end

last = math.max(last, 0)
local out = {now, (lost and 1 or 0) + (late and 2 or 0), since, after, last}
if last > after then
  local told = call('ZRANGEBYSCORE', news, string.format('(%.0f', after),
    '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
  for i = 1, #told, 2 do
    local hash = told[i]
    local left = (call('ZSCORE', ends, hash) or 0) - now * 32
    if left >= 32 then
      local o = #out
      out[o + 1] = tonumber(string.sub(hash, 1, 8), 16) or 0
      out[o + 2] = tonumber(string.sub(hash, 9, 16), 16) or 0
      out[o + 3] = left
    end
    after = told[i + 1] + 0
  end
  out[4] = after
end
return out
