-- Copyright (C) the limit_sliding authors

-- TOKEN_BUCKET and LEAKY_BUCKET.  A state has the version, a time, the used
-- requests at this time, and the lowest limit since nothing was used.  The
-- used requests are a whole number and a rest in 1/w of a request, because one
-- number might need more than the 53 bits that are exact.
--
-- The excess, requests that a higher limit has admitted beyond this bucket, is
-- set aside in `above`, and requests admitted meanwhile are recorded as of an
-- earlier time, as in the core: bucket.hpp explains it.
--
-- Leased units may be spent by nodes in the epoch of their grant and in the
-- next one, and do not run off until then.  With leases, the state also has
-- the number of an epoch, and the units leased in it and in the one before.

--@ chunk bucket.functions
--@ include multiply

-- Returns the difference of two numbers with rests, or 0 if it is negative.
local function subtract(whole, rest, less, less_rest, w)
  whole, rest = whole - less, rest - less_rest
  if rest < 0 then whole, rest = whole - 1, rest + w end
  if whole < 0 then return 0, 0 end
  return whole, rest
end

-- Divides a number with a rest by the limit in 1/w.  Returns the whole
-- quotient and the rest.
local function divide(whole, rest, limit, w)
  local x = whole * w + rest
  if x < 9007199254740992 then
    local left = x % limit
    return (x - left) / limit, left
  end
  -- 16 times 2 bits of w, the upper ones first
  local left = whole % limit
  local times, digits, sum, n = (whole - left) / limit * w, w / 4294967296, 0, 0
  for i = 1, 16 do
    digits = digits * 4
    local digit = floor(digits)
    digits = digits - digit
    sum = sum * 4 + left * digit
    local over = sum % limit
    n = n * 4 + (sum - over) / limit
    sum = over
  end
  sum = sum + rest
  local over = sum % limit
  return times + n + (sum - over) / limit, over
end

-- Returns used requests after they have run off for `ms`, at least `held`.
local function run_off(whole, rest, ms, limit, w, held)
  local gone, gone_rest = multiply(limit, ms, w)
  whole, rest = subtract(whole, rest, gone, gone_rest, w)
  if whole < held then return held, 0 end
  return whole, rest
end

-- The values are the used requests and their rest.
--@ chunk bucket
--@ include bucket.state
--@ include bucket.capacity
local time, since, low, epoch, held = now, 0, limit, nil, 0
if at then
  if at > now then time = at end
  since = time - at
end

--@ include bucket.excess

if leased or leased_at then
  local span = w < 16000 and floor(w / 16) or 1000
  epoch = (time - time % span) / span
  if leased_at then
    local from = at
    held = newer + older
    for i = 1, 2 do
      local ends = (leased_at + i) * span
      if time < ends then break end
      if from < ends then
        used, used_rest = run_off(used, used_rest, ends - from, limit, w, held)
        from = ends
      end
      held = i == 1 and newer or 0
    end
    used, used_rest = run_off(used, used_rest, time - from, limit, w, held)
    if leased_at + 1 == epoch then
      newer, older = 0, newer
    elseif leased_at ~= epoch then
      newer, older = 0, 0
    end
  end
end
if at and not leased_at then
  used, used_rest = run_off(used, used_rest, since, limit, w, 0)
end
if used + used_rest > 0 then low = lowest end
local taken, taken_rest = used, used_rest
if above + above_rest > 0 then
  taken, taken_rest = subtract(used, used_rest, above, above_rest, w)
end
if taken < held then taken, taken_rest = held < most and held or most, 0 end
values = 2
out[o + 1], out[o + 2] = taken, taken_rest
free = most - taken
if taken_rest > 0 then free = free - 1 end
if free < 0 then free = 0 end
if leased then
  local room = floor((most / 4 - newer - older) / cost)
  local units = n - leased + (room > 0 and room or 0)
  if units < g then g = units end
end
--@ if settles
if purpose == 4 then
  local left
  drain, left = divide(most, 0, limit, w)
  if left > 0 then drain = drain + 1 end
end
--@ end
--@ include grant
local level, level_rest, records = taken + added, taken_rest, added > 0
--@ if rejected
--@ include rejected
if rejected > 0 and level < most then
  level, level_rest, records = most, 0, true
end
--@ end
if records then
  local more, more_rest = 0, 0
  if above + above_rest > 0 and since < longest then
    more, more_rest = subtract(used, used_rest, taken, taken_rest, w)
  end
  if limit < low then low = limit end
  at, used, used_rest = time, level, level_rest
  if more + more_rest > 0 then
    local _, over = divide(more, more_rest, limit, w)
    local room, room_rest = subtract(most, 0, used, used_rest, w)
    local ago, left = divide(room, room_rest, limit, w)
    if left > 0 then ago = ago + 1 end
    local gone, gone_rest = multiply(limit, ago, w)
    used_rest = used_rest + gone_rest + more_rest
    if over > 0 then used_rest = used_rest + limit - over end
    used = used + gone + more + floor(used_rest / w)
    used_rest = used_rest % w
    at = time - ago

    -- The rest of the excess below a whole ms runs off in one more ms.
    level_rest = level_rest + low
  end
  s = pack('>I2I6I7I4I7', version, at, used, used_rest, low)
  if leased and g > n - leased then newer = newer + (g - n + leased) * cost end
  if newer + older > 0 then s = s .. pack('>I6I6I6', epoch, newer, older) end
  --@ include bucket.save
elseif pass == 2 and g < n and limit < low then
  s = sub(s, 1, 19) .. pack('>I7', limit) .. sub(s, 27)
  low = limit
  --@ include bucket.save
end

-- The excess over this bucket, rounded down to whole ms of running off.
--@ chunk bucket.excess
local above, above_rest = 0, 0
if used >= most then
  above, above_rest = subtract(used, used_rest, most, 0, w)
  local _, less = divide(above, above_rest, limit, w)
  above, above_rest = subtract(above, above_rest, floor(less / w), less % w, w)
end

-- Sets `most` to the requests that the bucket holds, and `longest` to the ms in
-- which it fills under any limit.  Both are bounded as in the core, by the bits
-- of its times.
--@ chunk bucket.capacity
local most, longest = limit, w
if algorithm == 4 or extra > 0 then
  local burst, _, window_bits, burst_bits = extra
  _, window_bits = math.frexp(w)
  _, burst_bits = math.frexp(burst)
  local time = window_bits + burst_bits + 2
  time = time < 24 and 24 or time > 34 and 34 or time
  local span = 2 ^ (time - 2)
  if algorithm == 4 then burst = burst + 1 end
  most, longest = math.min(multiply(limit, span, w), burst),
    math.min(burst * w, span)
end

-- Sets the values of the state `s`, if it is of this configuration: `at`, the
-- time, else nil; `used` and `used_rest` then; `lowest`, the limit;
-- `leased_at`, the epoch, if any; and the units leased in it, `newer`, and
-- before, `older`.  `kept` is the number of the window of its time, and `size`
-- its length.
--@ chunk bucket.state
local at, used, used_rest, lowest, leased_at, newer, older
  = nil, 0, 0, limit, nil, 0, 0
local kept, size
if s and (#s == 26 or #s == 44) then
  at, used, used_rest, lowest = unpack_('>I6I7I4I7', s, 3)
  if at > now + w then
    at, used, used_rest = nil, 0, 0
  else
    kept, size = floor(at / w), #s
    if size == 44 then leased_at, newer, older = unpack_('>I6I6I6', s, 27) end
  end
end

-- Writes the state `s` with the time `at`.  It lasts until the `level` at
-- `time` has run off under the limit `low`: a window at least, and 3,000 years
-- at most.  A request that is rejected under a lower limit makes it longer.
-- Each state lasts beyond the window after the one of its time, so that the
-- next states of this window mostly keep its expiry.
--@ chunk bucket.save
local lasts, left, number = w, 0, floor(at / w)
local least = (number + 2) * w - now
if level + level_rest / w > low then
  lasts, left = divide(level, level_rest, low, w)
end
if left > 0 then lasts = lasts + 1 end
lasts = math.min(math.max(lasts + time - now, w), 1e14)
local keep = number == kept and #s == size and lasts <= least
lasts = math.max(lasts, least)
--@ include save

-- Subtracts the cost, except for the part that had run off by the latest
-- admission.  The cost runs off from the time of the grant, after the units
-- that were used before.  If the time is 0, nothing of it has run off.
--
-- A state of a time before the grant has an excess, and only requests that have
-- one were admitted since: the time moves back, as in the core.
--@ chunk bucket.give_back
--@ include bucket.state
local ago, back, back_rest, held = 0, 0, 0, newer + older
if at and taken == 0 then
  back = cost
elseif at and at >= taken then
  back, back_rest = multiply(limit, at - taken, w)
  back, back_rest = subtract(back, back_rest, taken_1, taken_2, w)
  back, back_rest = subtract(cost, 0, back, back_rest, w)
elseif at and not leased_at then
  --@ include bucket.capacity
  --@ include bucket.excess
  local left, left_rest = subtract(used, used_rest, above, above_rest, w)
  left, left_rest = run_off(left, left_rest, math.max(now - at, 0), limit, w, 0)
  if left >= cost then left, left_rest = cost, 0 end
  if above + above_rest > 0 then
    ago, back_rest = divide(left, left_rest, limit, w)
    back, back_rest = floor(back_rest / w), back_rest % w
  end
end
if ago + back + back_rest > 0 then
  at = at - ago
  used, used_rest = subtract(used, used_rest, back, back_rest, w)
  if used < held then used, used_rest = held, 0 end
  local time, low, level, level_rest = at, lowest, used, used_rest
  s = pack('>I2I6I7I4', version, at, used, used_rest) .. sub(s, 20)
  --@ include bucket.save
end
