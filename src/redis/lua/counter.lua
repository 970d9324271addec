-- Copyright (C) the limit_sliding authors

-- COUNTER.  A state has the digest, the number of the newest part, and the
-- counts of precision + 1 parts of a window, the oldest first.  The number of a
-- part is kept modulo 2^32, which is far longer than a state lasts.

-- What counts of the oldest part is rounded up, by whichever product stays
-- below 2^53.  Precision 1 has no tables, as it is the most common one.
--@ chunk counter
local p = k[4]
local e = now * p % w
local part, oldest, newest, counts, keep = (now * p - e) / w, 0, 0, nil, nil
if p == 1 then
  if s and #s == 12 then
    local digest, at, older, newer = unpack_('>I2I4I3I3', s)
    if digest == k[9] then
      --@ include counter.age
      if d == 0 then
        oldest, newest, keep = older, newer, true
      elseif d == 1 then
        oldest = newer
      end
    end
  end
  out[o + 1], out[o + 2] = oldest, newest
  free = limit - newest
else
  local over = p + 1
  --@ include counter.state
  if v then
    local at = v[2]
    --@ include counter.age
    over, keep = d, d == 0
  end
  counts, free = {}, limit
  for i = 1, p + 1 do
    local count = i + over <= p + 1 and v[2 + over + i] or 0
    counts[i], out[o + i] = count, count
    if i > 1 then free = free - count end
  end
  oldest = counts[1]
end
if oldest > 0 then
  if e * 2 <= w then
    local gone = oldest * e
    free = free - oldest + (gone - gone % w) / w
  else
    local held = -oldest * (w - e)
    free = free + (held - held % w) / w
  end
end
--@ include grant
if records then
  if counts then
    counts[p + 1] = counts[p + 1] + g * cost
    s = pack(k[10], k[9], part % 4294967296, unpack(counts))
  else
    s = pack('>I2I4I3I3', k[9], part % 4294967296, oldest, newest + g * cost)
  end
  --@ include save
end

-- Leaves in `d` how many parts have begun since part `at` was the newest.  If
-- that one is yet to come, as the clock was set back, it begins now.
--@ chunk counter.age
local d = (part - at) % 4294967296
if d >= 2147483648 then part, e, d = part + 4294967296 - d, 0, 0 end

-- Leaves in `v` the digest, the newest part and the counts of the state `s`, if
-- it is one of this configuration.
--@ chunk counter.state
k[10] = k[10] or '>I2I4' .. string.rep('I3', p + 1)
local v = s and #s == 9 + 3 * p and {unpack_(k[10], s)}
if v and v[1] ~= k[9] then v = nil end

-- Takes the cost off the part in which it was taken.
--@ chunk counter.give_back
local p, keep = k[4], false
--@ include counter.state
if v then
  local d = (v[2] - (taken * p - taken * p % w) / w) % 4294967296
  if d <= p then
    local i = 3 + p - d
    v[i] = v[i] > cost and v[i] - cost or 0
    s = pack(k[10], unpack(v, 1, 3 + p))
    --@ include save
  end
end
