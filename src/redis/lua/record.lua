-- Copyright (C) the limit_sliding authors

-- What algorithms do between deciding and recording, and to record.

-- Lowers `g` to what is free, and leaves in `records` whether to record it now.
--@ chunk grant
if free < cost then
  g = 0
elseif n > 1 and cost > 0 and not k[6] then
  local fits = floor(free / cost)
  if fits < g then g = fits end
end
local records = pass == 2 and g > 0 and cost > 0 and not k[6]

-- Leaves in `rejected` how many units of cost are rejected by this claim, if it
-- records them, or 0.  Others of the ask may have rejected more.
--@ chunk rejected
local rejected = 0
if k[19] and pass == 2 and g < n
  and free - (k[6] and 0 or g * cost) < cost then
  rejected = (n - g) * cost
end

-- Writes the state `s`, which lasts for so many ms.  With `keep` it is written
-- in place, and is not shorter than before, and expires when it was to: this
-- spares Redis to look up the key's expiry, and more.
--@ chunk save
S[key] = s
if keep then
  call('SETRANGE', key, '0', s)
else
  call('SET', key, s, 'PX', lasts)
end

-- Returns limit x ms / w as a whole number and a rest in 1/w, which are exact
-- as far as numbers are, up to 2^53.
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
