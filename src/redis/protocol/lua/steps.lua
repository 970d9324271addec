-- Copyright (C) the limit_sliding authors

-- Steps of all algorithms from the decision to the recording.

-- Lowers `g` to the free units, and sets `added` to the units to be recorded
-- now: for a key that owes, with its debt; for a charge, without the units
-- that are owed.
--@ chunk grant
local added = 0
--@ if settles
if purpose == 4 then
  --@ include debt.charge
else
free = free - owed
--@ end
if free < cost then
  g = 0
elseif n > 1 and cost > 0 and purpose ~= 1 then
  local fits = floor(free / cost)
  if fits < g then g = fits end
end
if pass == 2 and purpose ~= 1 then added = g * cost end
--@ if settles
if added > 0 and owed > 0 then
  added, owed = added + owed, 0
  --@ include debt.save
end
end
--@ end

-- Sets `rejected` to the units that this claim rejects and records, or 0; a
-- key that owes records none.  Other claims of the ask may have rejected more.
--@ chunk rejected
local rejected = 0
if is_recorded and pass == 2 and g < n
--@ if settles
  and owed == 0
--@ end
  and free - (purpose == 1 and 0 or g * cost) < cost then
  rejected = (n - g) * cost
end

-- Writes the state `s`, which expires after `lasts` ms, and remembers it for
-- other claims of the call, if there are any.  With `keep` the state is written
-- in place, no shorter than before, and keeps its expiry, which costs Redis
-- less.
--@ chunk save
if names[step + 2] then S[key] = s end
if keep then
  call('SETRANGE', key, '0', s)
else
  call('SET', key, s, 'PX', lasts)
end

-- Returns limit x ms / w as a whole number and a rest in 1/w, exact to 2^53.
--@ chunk multiply
local function multiply(limit, ms, w)
  local x = limit * ms
  if x < 9007199254740992 then
    local rest = x % w
    return (x - rest) / w, rest
  end
  local limit_rest, ms_rest = limit % w, ms % w
  local low = limit_rest % 65536
  local high = (limit_rest - low) / 65536 * ms_rest
  local high_rest = high % w
  local last = high_rest * 65536 + low * ms_rest
  local rest = last % w
  return (ms - ms_rest) / w * limit + (limit - limit_rest) / w * ms_rest
    + (high - high_rest) / w * 65536 + (last - rest) / w, rest
end
