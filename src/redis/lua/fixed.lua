-- Copyright (C) the limit_sliding authors

-- FIXED.  A state has the digest, the number of the window, and its count, in 3
-- or 7 bytes.

--@ chunk fixed
--@ include fixed.state
local window, keep = (now - now % w) / w, nil
if at < window then
  used = 0
else
  window, keep = at, true
end
out[o + 1] = used
free = limit - used
--@ include grant
if records then
  used = used + g * cost
  --@ include fixed.save
end

-- Leaves in `at` and `used` the window and the count of the state `s`, or -1 in
-- `at` if it is not one of this configuration.
--@ chunk fixed.state
local at, used = -1, 0
if s and (#s == 11 or #s == 15) then
  local digest
  digest, at, used = unpack_(#s == 11 and '>I2I6I3' or '>I2I6I7', s)
  if digest ~= k[8] then at = -1 end
end

-- Writes what is used in the window.
--@ chunk fixed.save
local lasts = w + math.max(window * w - now, 0)
s = pack(used > 16777215 and '>I2I6I7' or '>I2I6I3', k[8], window, used)
--@ include save

-- Takes the cost off the window in which it was taken, if that is not over.
--@ chunk fixed.give_back
local window, keep = (taken - taken % w) / w, false
--@ include fixed.state
if at == window then
  used = used > cost and used - cost or 0
  --@ include fixed.save
end
