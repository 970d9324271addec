-- Copyright (C) the limit_sliding authors

-- FIXED.  A state has the digest, the number of the window, and its count, in 3
-- or 7 bytes.

--@ chunk fixed
--@ include fixed.state
local window, keep, moment = nil, nil, now
--@ include fixed.window
local present = window
--@ if settles
--@ include fixed.owed
--@ end
if at < window then
  used = 0
else
  window, keep = at, true
end
out[o + 1] = used
free = limit - used
--@ if settles
keep = keep and not each
if k[15] then
  --@ include owe.most
  used = used + cost
  if pass == 1 or cost == 0 then
    -- The second pass charges.
  else
    --@ include fixed.settle
  end
else
  if owed then
    out[o + 1], out[o + 2], out[o + 3], out[o + 4] = -1, due, each, last
    values = 4
  end
--@ end
--@ include grant
if records then
  used = used + g * cost
  --@ include fixed.save
end
--@ if rejected
--@ include rejected
if rejected > 0 and used < limit then
  used = math.min(used + rejected, limit)
  --@ include fixed.save
end
--@ end
--@ if settles
end
--@ end

-- Leaves in `window` the number of the window at `moment`.
--@ chunk fixed.window
window = (moment - moment % w) / w
if cal > 0 then
  --@ include calendar
end

-- Leaves in `at` and `used` the window and the count of the state `s`, or -1 in
-- `at` if it is not one of this configuration.
--@ chunk fixed.state
local at, used = -1, 0
--@ if settles
--@ include owe.state
if each then used = last end
--@ end
if s and (#s == 11 or #s == 15) then
  local digest
  digest, at, used = unpack_(#s == 11 and '>I2I6I3' or '>I2I6I7', s)
  if digest ~= id then at = -1 end
end

-- Leaves in `owed` what a key owes and has used, if it does, as used in the
-- present window, and in `due` the last one.
--@ chunk fixed.owed
local owed, due
if each and window < at then
  owed, due = (at - window) * each + last, at
  if owed > 9007199254740991 then owed = 9007199254740991 end
  used, at = owed, window
end

-- Writes what is used, which may be more than the limit.
--@ chunk fixed.settle
if used > limit then
  --@ include owe.split
  local at, p = window + ahead, 1
  --@ include owe.save
else
  --@ include fixed.save
end

-- Writes what is used in the window.
--@ chunk fixed.save
local lasts = w + math.max(window * w - now, 0)
if cal > 0 then
  local windows = math.max(window - present, 0) + 1
  --@ include calendar.lasts
end
s = pack(used > 16777215 and '>I2I6I7' or '>I2I6I3', id, window, used)
--@ include save

-- Takes the cost off the window in which it was taken, if that is not over, or
-- off the present one if no time tells when; or off what the key owes.
--@ chunk fixed.give_back
--@ include fixed.state
local window, keep, moment, present = nil, false, now, nil
--@ include fixed.window
present = window
--@ if settles
--@ include fixed.owed
if owed then
  used = math.min(math.max(owed - cost, 0), 1001 * limit)
  --@ include fixed.settle
  at = -1
end
--@ end
if taken > 0 then
  moment = taken
  --@ include fixed.window
end
if at == window then
  used = used > cost and used - cost or 0
  --@ include fixed.save
end
