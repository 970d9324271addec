-- Copyright (C) the limit_sliding authors

-- FIXED.  A state has the version, the number of the window, and the count of
-- the window in 3 or 7 bytes.

--@ chunk fixed
--@ include fixed.state
local window, keep, moment = nil, nil, now
--@ include window
local present = window
if at < window or at > window + 1 then
  used = 0
else
  window, keep = at, true
end
out[o + 1] = used
free = limit - used
--@ include grant
if added > 0 then
  used = used + added
  --@ include fixed.save
end
--@ if rejected
--@ include rejected
if rejected > 0 and used < limit then
  used = math.min(used + rejected, limit)
  --@ include fixed.save
end
--@ end

-- Sets `at` and `used` to the window and the count of the state `s`, or `at`
-- to -1 if there is none.
--@ chunk fixed.state
local at, used = -1, 0
if s and (#s == 11 or #s == 15) then
  at, used = unpack_(#s == 11 and '>I6I3' or '>I6I7', s, 3)
end

-- Writes the count of the window.
--@ chunk fixed.save
local lasts = w + math.max(window * w - now, 0)
if cal > 0 then
  local windows = math.max(window - present, 0) + 1
  --@ include calendar.lasts
end
s = pack(used > 16777215 and '>I2I6I7' or '>I2I6I3', version, window, used)
--@ include save

-- Subtracts the cost from the window in which it was granted, if that is not
-- over, or from the present window if the time of the grant is 0.
--@ chunk fixed.give_back
--@ include fixed.state
local window, keep, moment, present = nil, false, now, nil
--@ include window
present = window
if taken > 0 then
  moment = taken
  --@ include window
end
if at == window then
  used = used > cost and used - cost or 0
  --@ include fixed.save
end
