-- Copyright (C) the limit_sliding authors

-- TOKEN_BUCKET and LEAKY_BUCKET.  A state has the digest, a time, what was used
-- then, multiplied by the window, and the lowest limit since nothing was used.
--
-- What a higher limit has admitted beyond this one's bucket, `above`, is set
-- aside, and what is admitted meanwhile is recorded as of an earlier time, as
-- in the core: bucket.hpp explains it.
--
-- Units that are leased may be spent by nodes in this epoch and the next one,
-- and so long they do not run off.  The state then also has the number of an
-- epoch, and what was leased in it and in the one before.

--@ chunk bucket.functions
-- Returns how many requests a bucket holds, and how many ms it takes to fill
-- under any limit.  Both are bounded as in the core, by the bits of its times.
local function capacity(k, limit)
  local burst, w = k[4], k[2]
  if k[1] == 3 and burst == 0 then return limit, w end
  local _, window_bits = math.frexp(w)
  local _, burst_bits = math.frexp(burst)
  local time = window_bits + burst_bits + 2
  time = time < 24 and 24 or time > 34 and 34 or time
  local span = 2 ^ (time - 2)
  local most = floor(limit * span / w)
  if k[1] == 4 then burst = burst + 1 end
  local longest = burst * w
  return burst < most and burst or most, longest < span and longest or span
end

-- Returns what of `used` is left after the time from `from` to `to`, and what
-- of that is still leased.  `newer` was leased in this epoch, `older` in the
-- one before.
local function run_off(used, from, to, limit, w, span, epoch, newer, older)
  local held = (newer + older) * w
  for i = 1, 2 do
    local ends = (epoch + i) * span
    if to < ends then break end
    if from < ends then
      used = used - (ends - from) * limit
      if used < held then used = held end
      from = ends
    end
    held = i == 1 and newer * w or 0
  end
  used = used - (to - from) * limit
  return used > held and used or held, held
end

-- The value is what of the bucket is taken, multiplied by the window.  `free`
-- is told from it alone, as the capacity multiplied by the window may have more
-- than the 53 bits that are exact.
--@ chunk bucket
--@ include bucket.state
local most, longest = capacity(k, limit)
local full, leased = most * w, k[13]
local time, since, ran, held, above, low, epoch = now, 0, 0, 0, 0, limit, nil
if at then
  if at > now then time = at end
  since = time - at
  ran = since * limit
end
if leased or leased_at then
  local span = w < 16000 and floor(w / 16) or 1000
  epoch = (time - time % span) / span
  if leased_at then
    local rest
    rest, held = run_off(used, at, time, limit, w, span, leased_at, newer,
      older)
    ran = used - rest
    if leased_at + 1 == epoch then
      newer, older = 0, newer
    elseif leased_at ~= epoch then
      newer, older = 0, 0
    end
  end
end
if used > full then above = (used - full) - (used - full) % limit end
if used > ran then low = lowest end
local taken = used - above > ran and used - above - ran or 0
used = used > ran and used - ran or 0
if taken < held then taken = held < full and held or full end
out[o + 1] = taken
free = most - (taken + -taken % w) / w
if free < 0 then free = 0 end
if leased then
  local room = floor((most / 4 - newer - older) / cost)
  local units = n - leased + (room > 0 and room or 0)
  if units < g then g = units end
end
--@ include grant
if records then
  local rest = since < longest and used - taken or 0
  used = taken + g * cost * w
  if limit < low then low = limit end
  at, taken = time, used
  if above > 0 and rest > 0 then
    local ago = -floor((used - full) / limit)
    at, taken = time - ago, used + ago * limit + rest + -rest % limit
  end
  s = pack('>I2I6dI3', k[9], at, taken, low)
  if leased and g > n - leased then newer = newer + (g - n + leased) * cost end
  if newer + older > 0 then s = s .. pack('>I6I3I3', epoch, newer, older) end
  --@ include bucket.save
end
if pass == 2 and g < n and limit < low then
  s = string.sub(s, 1, 16) .. pack('>I3', limit) .. string.sub(s, 20)
  used, low = taken, limit
  --@ include bucket.save
end

-- Leaves what the state `s` has, if it is one of this configuration: `at`, the
-- time; `used` then; `lowest`, the limit; `leased_at`, the epoch, if any; and
-- what was leased in it, `newer`, and before, `older`.
--@ chunk bucket.state
local at, used, lowest, leased_at, newer, older = nil, 0, limit, nil, 0, 0
if s and (#s == 19 or #s == 31) then
  local digest
  digest, at, used, lowest = unpack_('>I2I6dI3', s)
  if digest ~= k[9] then
    at, used = nil, 0
  elseif #s == 31 then
    leased_at, newer, older = unpack_('>I6I3I3', s, 20)
  end
end

-- Writes the state `s`, for a window at least, and until what was `used` at
-- `time` has run off under the limit `low`.  A request that is refused under a
-- lower limit makes it last longer.
--@ chunk bucket.save
S[key] = s
local over = time - now - floor(-used / low)
call('SET', key, s, 'PX', over > w and over or k[8])

-- Takes off the cost, less what of it had run off by the latest admission: all
-- the time since it was taken, but for that in which what there was before
-- would have run off.
--@ chunk bucket.give_back
--@ include bucket.state
if at and at >= taken then
  local gone = (at - taken) * limit - k[12]
  local back = cost * w - (gone > 0 and gone or 0)
  local held = (newer + older) * w
  if back > used - held then back = used - held end
  if back > 0 then
    local time, low = at, lowest
    used = used - back
    s = pack('>I2I6d', k[9], at, used) .. string.sub(s, 17)
    --@ include bucket.save
  end
end
