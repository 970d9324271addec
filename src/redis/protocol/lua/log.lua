-- Copyright (C) the limit_sliding authors

-- LOG.  A state is a sorted set of events.  Scores are times; members are
-- numbers, so that no two are the same.

--@ chunk log.functions
-- Returns the time and the member of the event with rank i.
local function time_of(key, i)
  local r = call('ZRANGE', key, i, i, 'WITHSCORES')
  return tonumber(r[2] or 0), r[1]
end

-- The values are the number of events, the time of the event that frees the
-- first request when it expires, and the time of the event that makes room for
-- the first rejected request when it expires; -1 if there is none.  A debt
-- counts as used; all events expire before the window that pays first.
-- Expired events are removed after new ones were added, because Redis refuses
-- no memory to a script that has written.
--@ chunk log
local all, over = pcall('ZCARD', key), 0
if type(all) == 'table' then
  if not string.find(all.err, 'WRONGTYPE', 1, true) then return all end
  call('DEL', key)
  all = 0
end
if all > 0 then over = call('ZCOUNT', key, '-inf', now - w) end
local held = all - over
free = limit - held
if free < cost and held > 0 and time_of(key, -1) > now + w then
  call('DEL', key)
  all, over, held, free = 0, 0, 0, limit
end
values = 3
out[o + 1], out[o + 2], out[o + 3] = held, -1, -1
--@ include grant
if held > 0 then
  out[o + 2] = time_of(key, over + (free < 0 and -free or 0))
end
local units = added
--@ if rejected
--@ include rejected
if rejected > 0 then
  -- up to the limit, because they displace older ones
  units = units + math.min(rejected, limit)
end
--@ end
if units > 0 then
  local newest, seq = 0, 0
  if all > 0 then
    local member
    newest, member = time_of(key, -1)
    seq = unpack_('>I6', member) + 1
    if newest > now + w then
      call('DEL', key)
      newest, over = 0, 0
    end
  end
  local time = math.max(now, newest)
  for start = 0, units - 1, 1000 do
    local args = {}
    for j = start, math.min(start + 999, units - 1) do
      args[#args + 1] = time
      args[#args + 1] = pack('>I6', seq + j)
    end
    call('ZADD', key, unpack(args))
  end
  call('PEXPIRE', key, time - now + w)
  if over > 0 then
    call('ZREMRANGEBYSCORE', key, '-inf', now - w)
    over = 0
  end
  --@ if rejected
  if rejected > 0 then
    -- The oldest events beyond the limit are removed, but as many are kept as
    -- there were before.  The values are those from now on.
    local most = math.max(limit, held + added)
    local surplus = held + units - most
    if surplus > 0 then
      call('ZREMRANGEBYRANK', key, 0, surplus - 1)
    else
      most = held + units
    end
    out[o + 2] = time_of(key, math.max(most - limit, 0))
    free = limit - most + g * cost
  end
  --@ end
end
if pass == 2 and g < n and cost <= limit then
  local rank = cost - free - 1
  if purpose ~= 1 then rank = rank + g * cost end
  if rank >= 0 then out[o + 3] = time_of(key, over + rank) end
end

-- Removes events of this time, up to the cost: events of one time are alike.
-- If the time is 0, removes the newest events.
--@ chunk log.give_back
if taken == 0 then
  call('ZREMRANGEBYRANK', key, -cost, -1)
else
  local events = math.min(call('ZCOUNT', key, taken, taken), cost)
  if events > 0 then
    local rank = call('ZCOUNT', key, '-inf', '(' .. taken)
    call('ZREMRANGEBYRANK', key, rank, rank + events - 1)
  end
end
