-- Copyright (C) the limit_sliding authors

-- FIXED.  A state has the digest, the number of the window, and its count.

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
  s = pack('>I2I6I3', k[9], window, used + g * cost)
  --@ include save
end

-- Leaves in `at` and `used` the window and the count of the state `s`, or -1 in
-- `at` if it is not one of this configuration.
--@ chunk fixed.state
local at, used = -1, 0
if s and #s == 11 then
  local digest
  digest, at, used = unpack_('>I2I6I3', s)
  if digest ~= k[9] then at = -1 end
end

-- Takes the cost off the window in which it was taken, if that is not over.
--@ chunk fixed.give_back
local keep = false
--@ include fixed.state
if at == (taken - taken % w) / w then
  s = pack('>I2I6I3', k[9], at, used > cost and used - cost or 0)
  --@ include save
end
