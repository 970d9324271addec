-- Copyright (C) the limit_sliding authors

-- COUNTER.  A state has the digest, the number of its newest part, and the
-- counts of the parts of a window and of one more, the oldest first.  With
-- precision=auto the limit sets the number of parts, and the upper 4 bits of
-- the number of the newest part tell it.
--
-- The number is kept modulo 2^32, or 2^28 with auto; a state lasts only for a
-- small part of this range.  With auto, a count has 1 byte for 4 to 7 parts,
-- and 2 bytes for 2 or 3 parts.  For more parts most counts are 0, so each
-- unit has a byte: the number of parts from its own to the newest one.  For 1
-- part, and with a given precision, a count has 3 or 7 bytes.

--@ chunk counter
--@ include counter.parts
local ends = 0
--@ include counter.state
if v and q ~= p then
  --@ include counter.convert
end
local e = now * p % w
local part, d, counts, used = (now * p - e) / w, 0, {}, 0
if v then
  d = part - at
  keep = d <= 0 and q == p

  -- The newest part of a state may begin in the future, if the clock was set
  -- back, or if parts have become longer: then it begins now.
  if d < 0 then part, e, d = at, 0, 0 end
end
out[o + 1], out[o + 2], out[o + 3], values = p, part, ends, p + 4
for i = 1, p + 1 do
  local count = v and v[i + d] or 0
  counts[i], out[o + 3 + i] = count, count
  used = used + count
end
free = limit - used
if counts[1] > 0 and not k[9] then
  local gone = counts[1] * e
  if gone < 9007199254740992 then
    gone = (gone - gone % w) / w
  else
    --@ include multiply
    gone = multiply(counts[1], e, w)
  end
  if auto and p > 1 then
    local most = floor(limit / p)
    if gone > most then gone = most end
  end
  free = free + gone
end
--@ include grant
if added > 0 then
  counts[p + 1] = counts[p + 1] + added
  v, at, q = counts, part, p
  --@ include counter.save
end
--@ if rejected
--@ include rejected
if rejected > 0 and counts[p + 1] < limit then
  --@ include counter.rejected
end
--@ end

-- Adds rejected units to the newest part, up to the limit.  If each unit has a
-- byte, there is no more room in all parts: the oldest units are removed.
--@ chunk counter.rejected
local held = counts[p + 1]
counts[p + 1] = math.min(held + rejected, limit)
if auto and p > 7 then
  used = used + added
  local over = used + counts[p + 1] - held - math.max(used, limit)
  for i = 1, p do
    if over <= 0 then break end
    local less = math.min(counts[i], over)
    counts[i], over = counts[i] - less, over - less
  end
end
v, at, q = counts, part, p
--@ include counter.save

-- Sets `p` to the number of parts of the window under the limit.
--@ chunk counter.parts
local p, auto, keep = k[4], k[4] == 0, false
if auto then
  p = limit > 255 and (limit > 16383 and 1 or limit > 2047 and 2 or 3)
    or limit > 21 and (limit > 127 and 4 or limit > 63 and 5
      or limit > 31 and 6 or 7)
    or limit > 7 and (limit > 15 and 22 or 28) or limit > 3 and 36 or 40
end

-- Sets `v` to the counts of the state `s`, `q` to the number of its parts, and
-- `at` to the number of the newest one.  `v` is nil if the state is not of
-- this configuration.
--@ chunk counter.state
local v, q, at = nil, k[4], 0
if s and #s > 5 then
  local span, a1, a2, a3, a4, a5, a6 = 4294967296,
    string.byte(s, 1, 6)
  at = ((a3 * 256 + a4) * 256 + a5) * 256 + a6
  if auto then
    span = 268435456
    q = floor(at / span)
    at = at % span
    if q > 7 then q = q == 9 and 22 or 4 * q - 4 end
  end
  if a1 * 256 + a2 == id and q > 0 then
    if auto and q > 7 then
      v = {}
      for i = 1, q + 1 do v[i] = 0 end
      for i = 7, #s do
        local j = q + 1 - string.byte(s, i)
        v[j] = (v[j] or 0) + 1
      end
    elseif auto and q > 3 then
      if #s == q + 7 then v = {string.byte(s, 7, -1)} end
    else
      local wide = #s == 7 * q + 13
      --@ include counter.format
      if #s == (wide and 7 or auto and q > 1 and 2 or 3) * (q + 1) + 6 then
        v = {unpack_('>' .. format, s, 7)}
        v[q + 2] = nil
      end
    end
    local newest = floor(now * q / w)
    local ago = (newest - at) % span
    if ago * 2 >= span then ago = ago - span end
    at = newest - ago
  end
end

-- Sets `format` to the format of the counts of `q` parts, up to 3 with auto.
--@ chunk counter.format
local format = wide and string.rep('I7', q + 1) or q == 1 and 'I3I3'
  or not auto and string.rep('I3', q + 1) or q == 2 and 'I2I2I2' or 'I2I2I2I2'

-- Converts `v` and `at` from `q` to `p` parts, and lowers `p` until there is
-- room for all counts.  A count moves to the part with the last moment of its
-- own part, so it never ends earlier.  Shorter parts must end where the longer
-- ones do, so that no count moves again when they are converted back.  Sets
-- `ends` to the time at which the unconverted state ends; `v` becomes nil if
-- that has passed.
--@ chunk counter.convert
local last = q + 1
while last > 0 and v[last] == 0 do last = last - 1 end
ends = -floor(-(at + last) * w / q)
if last == 0 or ends <= now then v, ends = nil, 0 end
local room = {[40] = 3, [36] = 7, [28] = 15, [22] = 21, [7] = 31, [6] = 63,
  [5] = 127, [4] = 255, [3] = 2047, [2] = 16383}
while v and p ~= q do
  local newest, most, moved = -floor(-(at + 1) * p / q) - 1, 0, {}
  for i = 1, p + 1 do moved[i] = 0 end
  for i = 1, q + 1 do
    local j = p - newest - floor(-(at - q + i) * p / q)
    moved[j] = moved[j] + v[i]
    if p > 7 then
      most = most + v[i]
    elseif moved[j] > most then
      most = moved[j]
    end
  end
  if p == 1 or most <= room[p] and (p < q or p % q == 0) then
    v, at = moved, newest
    break
  end
  p = p < 8 and p - 1 or p == 40 and 36 or p == 36 and 28
    or p == 28 and 22 or 7
end
if p == q then ends = 0 end

-- Writes the counts `v` of `q` parts with the newest part `at`.  With auto
-- they last two windows, as counts of one part do, so that a clock that is set
-- back finds them again.
--@ chunk counter.save
local number, ahead = at % 4294967296, at * w - now * q
if auto then
  number = (q < 8 and q or q == 22 and 9 or q / 4 + 1) * 268435456
    + at % 268435456
end
if auto and q > 3 then
  local bytes = v
  if q > 7 then
    bytes = {}
    for i = 1, q + 1 do
      for _ = 1, v[i] do bytes[#bytes + 1] = q + 1 - i end
    end
  end
  s = pack('>I2I4', id, number) .. string.char(unpack(bytes))
else
  local wide = not (auto and q > 1) and math.max(unpack(v)) > 16777215
  --@ include counter.format
  s = pack('>I2I4' .. format, id, number, unpack(v))
end
if ahead < 0 then ahead = 0 end
local lasts = w - floor(((auto and -w * q or -w) - ahead) / q)
--@ include save

-- Subtracts the cost from the part in which it was granted, or from the part
-- that holds this one since the number of parts has changed.  If the time is
-- 0, subtracts from the newest parts first.
--@ chunk counter.give_back
local auto, keep = k[4] == 0, false
--@ include counter.state
--@ if settles
if v and taken == 0 then
  for i = q + 1, 1, -1 do
    local less = math.min(v[i], cost)
    v[i], cost = v[i] - less, cost - less
  end
  --@ include counter.save
  v = nil
end
--@ end
if v and k[11] > 0 then
  local i = q - at - floor(-(k[12] + 1) * q / k[11])
  if v[i] then
    v[i] = v[i] > cost and v[i] - cost or 0
    --@ include counter.save
  end
end
