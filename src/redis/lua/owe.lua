-- Copyright (C) the limit_sliding authors

-- What keys owe, in scripts of zones whose costs are settled.
--
-- A charge may use more than the limit.  What exceeds it is used up in windows
-- to come: the present one is full, each that follows is full, too, and the
-- last one has the rest, 1 .. limit units.  The state of a COUNTER and of a
-- FIXED window then has the digest; the number of the last part, which is yet
-- to come; and the limit of the charge and the rest, in 7 bytes each.  No other
-- state has its length, and where a COUNTER has the number of its parts it has
-- 0.  In the reply they follow a -1.

-- Lowers the `cost` to what a key that has `used` so much may owe: what 1,000
-- windows take, as far as numbers are exact.  A LOG holds each unit: of those
-- that it owes a million, or a window's.
--@ chunk owe.most
local room = math.min(1001 * limit, k[1] == 1
  and limit + math.max(limit, 1000000) or 9007199254740991) - used
if cost > room then
  lost = cost - math.max(room, 0)
  cost = cost - lost
end

-- Leaves in `ahead` how many windows it takes to pay what is `used` beyond the
-- limit, and in `last` what is used in the last one.
--@ chunk owe.split
local last = (used - limit) % limit
local ahead = (used - limit - last) / limit
if last > 0 then ahead = ahead + 1 else last = limit end

-- Writes what a key owes until the part `at`, of which a window has `p`.
--@ chunk owe.save
local keep, lasts = false, 2 * w - floor((now * p - at * w) / p)
--@ if fixed
if k[1] == 2 and cal > 0 then
  local windows = at - present + 1
  --@ include calendar.lasts
end
--@ end
s = pack('>I2I6I7I7', id, at, limit, last)
--@ include save

-- Leaves the state `s`, if a key owes or has owed: `at`, the last part; `each`,
-- the limit; and `last`.
--@ chunk owe.state
local each, last
if s and #s == 22 then
  local digest, number, first, second = unpack_('>I2I6I7I7', s)
  if digest == id and number < 17592186044416 then
    at, each, last = number, first, second
  end
end
