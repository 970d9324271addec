-- Copyright (C) the limit_sliding authors

-- COUNTER.  A state has the version, the number of its newest part, and the
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
local auto, used, oldest = extra == 0, 0, 0
local p, part, e, mark, format, size
  = head_parts, head_part, head_elapsed, head_mark, head_format, head_size
if limit ~= head_limit or own then
  --@ include counter.parts
end

-- Most states are of the present part, and so is that of a key without one.
local state, counts, keep, is_present = s, nil, s and true, true
out[o + 1] = s
if not s then state = format and mark .. rep('\0', size - 6) or mark end
if sub(state, 1, 6) ~= mark or format and #state ~= size then
  --@ include counter.other
elseif format then
  counts = {unpack_(format, state, 7)}
end
if counts then
  oldest = counts[1]
  for j = 1, p + 1 do used = used + counts[j] end
else
  used = #state - 6
  while byte(state, oldest + 7) == p do oldest = oldest + 1 end
end

free = limit - used
if oldest > 0 and not is_strict then
  local gone = oldest * e
  if gone < 9007199254740992 then
    gone = (gone - gone % w) / w
  else
    --@ include multiply
    gone = multiply(oldest, e, w)
  end
  if auto and p > 1 then
    local most = floor(limit / p)
    if gone > most then gone = most end
  end
  free = free + gone
end
--@ include grant
if added > 0 then
  local v, at, q = counts, part, p
  if not counts then
    s = state .. rep('\0', added)
  else
    counts[p + 1] = counts[p + 1] + added
    if is_present and format and counts[p + 1] < 16777216 then
      s = mark .. pack(format, unpack(counts, 1, p + 1))
    else
      --@ include counter.pack
    end
  end
  --@ include counter.save
end
--@ if rejected
--@ include rejected
if rejected > 0 then
  --@ include counter.rejected
end
--@ end

-- Decides from a state that the common case cannot.  Sets the reply and
-- `counts`; for one byte a unit, sets `state` instead of `counts`.
--@ chunk counter.other
--@ include counter.newest
keep, is_present, out[o + 1] = false, false, false
if at and at < part and q == p and not format then
  local ages, n = {byte(s, 7, -1)}, 0
  for j = 1, #ages do
    local age = ages[j] + part - at
    if age <= p then
      n = n + 1
      ages[n] = age
    end
  end
  state = mark .. string.char(unpack(ages, 1, n))
  out[o + 1] = n > 0 and state
else
  --@ include counter.counts
  local ends, ahead = 0, nil
  if v and q ~= p then
    --@ include counter.convert
  end
  counts, ahead = v, v and at - part
  if not v or ahead < 0 then
    counts = {}
    for j = 1, p + 1 do counts[j] = v and v[j - ahead] or 0 end
  else
    -- The newest part of a state may begin in the future, if the clock was set
    -- back, or if parts have become longer: then it begins now.
    if ahead > 0 then part, e = at, 0 end
    keep = q == p
    if keep then out[o + 1] = s end
  end
  if v and not keep
    and (ahead > 0 or math.max(unpack(counts, 1, p + 1)) > 0) then
    -- The state of now; if it was converted, with 65535 instead of the version,
    -- and with `ends`.
    local q, v, at, s = p, counts, part, nil
    --@ include counter.pack
    out[o + 1] = ends == 0 and s or pack('>I2I6', 65535, ends) .. sub(s, 3, -1)
  end
end

-- Adds rejected units to the newest part, up to the limit.  If each unit has a
-- byte, there is no more room in all parts: the oldest units are removed.
--@ chunk counter.rejected
if not counts then
  local s, q, v = state, p, nil
  --@ include counter.units
  v[p + 1] = v[p + 1] + added
  counts = v
end
local held = counts[p + 1]
if held < limit then
  counts[p + 1] = math.min(held + rejected, limit)
  if auto and p > 7 then
    used = used + added
    local over = used + counts[p + 1] - held - math.max(used, limit)
    for j = 1, p do
      if over <= 0 then break end
      local less = math.min(counts[j], over)
      counts[j], over = counts[j] - less, over - less
    end
  end
  local v, at, q = counts, part, p
  --@ include counter.pack
  --@ include counter.save
end

-- Sets, for the limit, `p` to the number of parts of the window, `part` to the
-- number of the present one, and `e` to its elapsed ms x p; and for states of
-- this part, `mark` to the first bytes, `format` to the format of the counts,
-- nil if each unit has a byte, and `size` to the length.
--@ chunk counter.parts
p = extra
if p == 0 then
  p = limit > 255 and (limit > 16383 and 1 or limit > 2047 and 2 or 3)
    or limit > 21 and (limit > 127 and 4 or limit > 63 and 5
      or limit > 31 and 6 or 7)
    or limit > 7 and (limit > 15 and 22 or 28) or limit > 3 and 36 or 40
end
e = now * p % w
part = (now * p - e) / w
do
  local auto, q, at, wide = extra == 0, p, part, false
  --@ include counter.mark
  --@ include counter.format
  size = bytes * (p + 1) + 6
end

-- Sets `mark` to the first bytes of a state of `q` parts with the newest part
-- `at`.
--@ chunk counter.mark
local number = at % 4294967296
if auto then
  number = (q < 8 and q or q == 22 and 9 or q / 4 + 1) * 268435456
    + at % 268435456
end
mark = pack('>I2I4', version, number)

-- Sets `format` to the format of the counts of `q` parts, with `bytes` each;
-- nil if each unit has a byte.
--@ chunk counter.format
local bytes = wide and 7 or (not auto or q == 1) and 3 or q < 4 and 2 or 1
if auto and q > 7 then
  format = nil
elseif auto and q < 4 and not wide then
  format = q == 1 and '>I3I3' or q == 2 and '>I2I2I2' or '>I2I2I2I2'
else
  format = '>' .. rep(bytes == 7 and 'I7' or bytes == 3 and 'I3' or 'I1', q + 1)
end

-- Sets, for the state `s`, `q` to the number of parts, and `at` to the number
-- of the newest one, nil if there is none.
--@ chunk counter.newest
local q, at = extra, nil
if s and #s > 5 then
  local newest, span = unpack_('>I4', s, 3), 4294967296
  if auto then
    span = 268435456
    q = floor(newest / span)
    newest = newest % span
    if q > 7 then q = q == 9 and 22 or 4 * q - 4 end
  end
  if q > 0 then
    local present = floor(now * q / w)
    local ago = (present - newest) % span
    if ago * 2 >= span then ago = ago - span end
    at = present - ago
    if at > present + q then at = nil end
  end
end

-- Sets `v` to the counts of a state `s` of `q` parts in which each unit has a
-- byte.
--@ chunk counter.units
v = {}
for j = 1, q + 1 do v[j] = 0 end
for j = 7, #s do
  local k = q + 1 - byte(s, j)
  v[k] = (v[k] or 0) + 1
end

-- Sets `v` to the counts of this state, nil if it has none.
--@ chunk counter.counts
local v
if at then
  local wide, format = #s == 7 * q + 13, nil
  --@ include counter.format
  if not format then
    --@ include counter.units
  elseif #s == bytes * (q + 1) + 6 then
    v = {unpack_(format, s, 7)}
    v[q + 2] = nil
  end
end

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
e = now * p % w
part = (now * p - e) / w

-- Sets `s` to the state with the counts `v` of `q` parts with the newest part
-- `at`.
--@ chunk counter.pack
local mark, format
--@ include counter.mark
local wide = (not auto or q == 1) and math.max(unpack(v, 1, q + 1)) > 16777215
--@ include counter.format
if format then
  s = mark .. pack(format, unpack(v, 1, q + 1))
else
  local ages = {}
  for j = 1, q + 1 do
    for _ = 1, v[j] do ages[#ages + 1] = q + 1 - j end
  end
  s = mark .. string.char(unpack(ages))
end

-- Writes the state `s` of `q` parts with the newest part `at`.  With auto
-- they last two windows, as counts of one part do, so that a clock that is set
-- back finds them again.
--@ chunk counter.save
local lasts
if not keep then
  local ahead = math.max(at * w - now * q, 0)
  lasts = w - floor(((auto and -w * q or -w) - ahead) / q)
end
--@ include save

-- Subtracts the cost from the part in which it was granted, or from the part
-- that holds this one since the number of parts has changed.  If the time is
-- 0, subtracts from the newest parts first.
--@ chunk counter.give_back
local auto, keep = extra == 0, false
--@ include counter.newest
--@ include counter.counts
if v and taken == 0 then
  for i = q + 1, 1, -1 do
    local less = math.min(v[i], cost)
    v[i], cost = v[i] - less, cost - less
  end
elseif v then
  local j = taken_1 > 0 and q - at - floor(-(taken_2 + 1) * q / taken_1)
  if v[j] then v[j] = math.max(v[j] - cost, 0) else v = nil end
end
if v then
  --@ include counter.pack
  --@ include counter.save
end
