/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_LUA_HPP
#define LIMIT_SLIDING_REDIS_LUA_HPP

#include <string_view>

/* The pieces of the script; scripts.cpp puts them together. */

namespace limit_sliding {

/* The first line. */
constexpr std::string_view kClock =
    R"lua(local T=redis.call('TIME') local now=T[1]*1000+math.floor(T[2]/1000)
)lua";

/*
 * Everything is one loop without functions, which Redis would create anew for
 * every call, as it does tables: those grow in order, which costs least.  Text
 * becomes a number by "+ 0", for less than by tonumber().
 *
 * A: arguments.  got: states and limits of single keys, as they were read;
 * S: states as they were written since.  out: the reply.
 *
 * Of each claim: k its kind (algorithm, window, limit, precision or burst,
 * cost, look, values, expiry, digest), key, limit, s its state, o what of the
 * reply is before its values.  Claims of a request that has several are decided
 * in a first pass, and once more in the second one, which records them.
 *
 * A mark at KEY:forgotten is the time when an order deleted the key's state.
 *
 * An algorithm is a block that writes its values and leaves in `free` what it
 * has left, and one that records g units.  A state begins with a digest of its
 * configuration, k[9]: one of another counts as none.
 */
constexpr std::string_view kPrelude = R"lua(
local A, S, out, got = ARGV, {}, {now}, nil
local floor, call = math.floor, redis.call
local pack, unpack_ = struct.pack, struct.unpack
)lua";

constexpr std::string_view kRead = R"lua(
local keys = #KEYS
if keys == 1 then
  got = call('MGET', KEYS[1], KEYS[1] .. ':limit')
elseif keys > 1 then
  local names = {}
  for i = 1, keys do
    local key = KEYS[i]
    names[2 * i - 1], names[2 * i] = key, key .. ':limit'
  end
  got = call('MGET', unpack(names))
end
)lua";

/*
 * Counts of precision + 1 parts of a window, the oldest first; with precision 1
 * just two.  The number of the newest part is kept modulo 2^32, far longer than
 * a state lives.  What counts of the oldest is rounded up, by whichever product
 * stays below 2^53.
 *
 * A state that stays in its part is written in place: it may expire as was said
 * when that began, which spares Redis to look up the key's expiry, and more.
 */
constexpr std::string_view kCounter = R"lua(
local p = k[4]
local e = now * p % w
local part, oldest, newest, counts, keep = (now * p - e) / w, 0, 0, nil, nil
if p == 1 then
  if s and #s == 12 then
    local configuration, at, older, newer = unpack_('>I2I4I3I3', s)
    if configuration == k[9] then
      local d = (part - at) % 4294967296
      if d >= 2147483648 then part, e, d = part + 4294967296 - d, 0, 0 end
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
  local d, v = p + 1, {}
  k[10] = k[10] or '>I2I4' .. string.rep('I3', p + 1)
  if s and #s == 9 + 3 * p then
    v = {unpack_(k[10], s)}
    if v[1] == k[9] then
      d = (part - v[2]) % 4294967296
      if d >= 2147483648 then part, e, d = part + 4294967296 - d, 0, 0 end
      keep = d == 0
    end
  end
  counts, free = {}, limit
  for i = 1, p + 1 do
    local count = i + d <= p + 1 and v[2 + d + i] or 0
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
)lua";

constexpr std::string_view kCounterRecord = R"lua(
if counts then
  counts[p + 1] = counts[p + 1] + g * cost
  s = pack(k[10], k[9], part % 4294967296, unpack(counts))
else
  s = pack('>I2I4I3I3', k[9], part % 4294967296, oldest, newest + g * cost)
end
S[key] = s
if keep then
  call('SETRANGE', key, '0', s)
else
  call('SET', key, s, 'PX', k[8])
end
)lua";

/*
 * Members are numbered, so that none is another's; scores are times.  The
 * events to wait for are told by their times.  What is over is removed after
 * new ones were added: a script that has written is not refused any memory.
 */
constexpr std::string_view kLogLocals = R"lua(
local function time_of(key, i)
  local r = call('ZRANGE', key, i, i, 'WITHSCORES')
  return tonumber(r[2] or 0), r[1]
end

local function add_events(key, first, seq, units, window)
  local time = now
  if first > time then time = first end
  for start = 0, units - 1, 1000 do
    local args = {}
    for i = start, math.min(start + 999, units - 1) do
      args[#args + 1] = time
      args[#args + 1] = pack('>I6', seq + i)
    end
    call('ZADD', key, unpack(args))
  end
  call('PEXPIRE', key, time - now + window)
end
)lua";

constexpr std::string_view kLog = R"lua(
local all, over = redis.pcall('ZCARD', key), 0
if type(all) == 'table' then
  if not string.find(all.err, 'WRONGTYPE', 1, true) then return all end
  call('DEL', key)
  all = 0
end
if all > 0 then over = call('ZCOUNT', key, '-inf', now - w) end
local held = all - over
free = limit - held
out[o + 1], out[o + 2], out[o + 3] = held, -1, -1
if held > 0 then
  out[o + 2] = time_of(key, over + (free < 0 and -free or 0))
end
)lua";

constexpr std::string_view kLogRecord = R"lua(
local newest, seq = 0, 0
if all > 0 then
  local member
  newest, member = time_of(key, -1)
  seq = unpack_('>I6', member) + 1
end
add_events(key, newest, seq, g * cost, w)
if over > 0 then
  call('ZREMRANGEBYSCORE', key, '-inf', now - w)
  over = 0
end
)lua";

constexpr std::string_view kLogRejected = R"lua(
if cost <= limit then
  local i = cost - free - 1
  if not k[6] then i = i + g * cost end
  if i >= 0 then out[o + 3] = time_of(key, over + i) end
end
)lua";

constexpr std::string_view kFixed = R"lua(
local at, count, keep = (now - now % w) / w, 0, nil
if s and #s == 11 then
  local configuration, then_, used = unpack_('>I2I6I3', s)
  if configuration == k[9] and then_ >= at then
    at, count, keep = then_, used, true
  end
end
out[o + 1] = count
free = limit - count
)lua";

constexpr std::string_view kFixedRecord = R"lua(
s = pack('>I2I6I3', k[9], at, count + g * cost)
S[key] = s
if keep then
  call('SETRANGE', key, '0', s)
else
  call('SET', key, s, 'PX', k[8])
end
)lua";

constexpr std::string_view kBucketLocals = R"lua(
local function bits(n)
  local _, e = math.frexp(n)
  return e
end

local function capacity(k, limit)
  local burst, w = k[4], k[2]
  if k[1] == 3 and burst == 0 then return limit, w end
  local time = bits(w) + bits(burst) + 2
  time = time < 24 and 24 or time > 34 and 34 or time
  local span = 2 ^ (time - 2)
  local most = floor(limit * span / w)
  if k[1] == 4 then burst = burst + 1 end
  local longest = burst * w
  return burst < most and burst or most, longest < span and longest or span
end

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
)lua";

/*
 * A time, what was used then, x w, and the lowest limit since that was nothing.
 *
 * What a higher limit has admitted beyond this one's bucket, `above`, is set
 * aside, and what is admitted meanwhile is recorded as of an earlier time, as
 * in the core: bucket.hpp explains it.
 *
 * A state lasts a window at least, and until it has run off under the lowest
 * limit: a request that is refused under a lower one makes it last longer.
 *
 * What is free is told from `taken` alone, as capacity x w may have more than
 * the 53 bits that are exact.
 *
 * Of n units the last k[13] are leased: nodes may spend them in this epoch and
 * the next, and so long they do not run off.  A state then has, as well, the
 * number of an epoch and what was leased in it and in the one before.
 */
constexpr std::string_view kBucket = R"lua(
local time, used, ran, held, newer, older = now, 0, 0, 0, 0, 0
local span = w < 16000 and floor(w / 16) or 1000
local most, longest = capacity(k, limit)
local full, above, low, since = most * w, 0, limit, 0
local epoch
if s and (#s == 19 or #s == 31) then
  local configuration, then_, was, lowest = unpack_('>I2I6dI3', s)
  if configuration == k[9] then
    used = was
    if then_ > now then time = then_ end
    since = time - then_
    ran = since * limit
    epoch = (time - time % span) / span
    if #s == 31 then
      local at
      at, newer, older = unpack_('>I6I3I3', s, 20)
      ran, held = run_off(was, then_, time, limit, w, span, at, newer, older)
      ran = was - ran
      if at + 1 == epoch then
        newer, older = 0, newer
      elseif at ~= epoch then
        newer, older = 0, 0
      end
    end
    if used > full then above = (used - full) - (used - full) % limit end
    if used > ran then low = lowest end
  end
end
local taken = used - above > ran and used - above - ran or 0
used = used > ran and used - ran or 0
if taken < held then taken = held < full and held or full end
out[o + 1] = taken
free = most - (taken + -taken % w) / w
if free < 0 then free = 0 end
if k[13] then
  epoch = (time - time % span) / span
  local room = floor((most / 4 - newer - older) / cost)
  local most = n - k[13] + (room > 0 and room or 0)
  if most < g then g = most end
end
)lua";

constexpr std::string_view kBucketRecord = R"lua(
local rest = since < longest and used - taken or 0
used = taken + g * cost * w
if limit < low then low = limit end
local over, at = time - now - floor(-used / low), time
if above > 0 and rest > 0 then
  local ago = -floor((used - full) / limit)
  at = time - ago
  used = used + ago * limit + rest + -rest % limit
end
s = pack('>I2I6dI3', k[9], at, used, low)
if k[13] and g > n - k[13] then newer = newer + (g - n + k[13]) * cost end
if newer + older > 0 then s = s .. pack('>I6I3I3', epoch, newer, older) end
S[key] = s
call('SET', key, s, 'PX', over > w and over or k[8])
)lua";

constexpr std::string_view kBucketRejected = R"lua(
if limit < low then
  s = string.sub(s, 1, 16) .. pack('>I3', limit) .. string.sub(s, 20)
  S[key] = s
  local over = time - now - floor(-taken / limit)
  call('SET', key, s, 'PX', over > w and over or k[8])
end
)lua";

/* How many of the units are leased, k[13]. */
constexpr std::string_view kLeasedKind = R"lua(
  if look == '3' or look == '7' then
    kinds[i][13] = A[a] + 0
    a = a + 1
  end
)lua";

/* The node has units of the keys left, k[14]: they have one more value. */
constexpr std::string_view kHeldKind = R"lua(
  if look == '4' or look == '7' then
    kinds[i][14] = true
    kinds[i][7] = kinds[i][7] + 1
  end
)lua";

constexpr std::string_view kBegin = R"lua(
local kinds, a = {}, 2
for i = 1, A[1] do
  local algorithm, w, extra = A[a] + 0, A[a + 1] + 0, A[a + 3] + 0
  kinds[i] = {algorithm, w, A[a + 2] + 0, extra, A[a + 4] + 0,
    A[a + 5] == '1',
    algorithm == 0 and extra + 1 or algorithm == 1 and 3 or 1,
    algorithm == 0 and tostring(-floor(-w * (extra + 1) / extra)) or A[a + 1],
    (w + algorithm * 8191 + (algorithm == 0 and extra * 131 or 0)) % 65521}
  local look = A[a + 5]
  a = a + 6
)lua";

constexpr std::string_view kLoop = R"lua(
end

local first, at = 0, 2
while first < keys do
  local n, m = (A[a] or 1) + 0, (A[a + 1] or 1) + 0
  local g, o = n, at
  out[at] = n
  for pass = m == 1 and 2 or 1, 2 do
    o = at
    for j = 1, m do
      local k, key = kinds[(A[a + 1 + j] or 1) + 0], KEYS[first + j]
      local w, limit, cost, free = k[2], k[3], k[5], nil
      local s, text = S[key] or got[2 * (first + j) - 1], got[2 * (first + j)]
      o = o + 1
      out[o] = limit
      if text then
        local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
        local count, unit = string.match(text, '^(%d+)r/([smhd])$')
        count = count or string.match(text, '^%d+$')
        limit = text == 'off' and 0 or -limit
        if count and #count <= 18 then
          local own = unit and floor(count * w / units[unit]) or count + 0
          if own >= 1 and own <= 4194302 then limit = own end
        end
        out[o] = limit > 0 and limit + 4294967296 or limit
        if limit < 0 then limit = k[3] end
      end
      if limit == 0 then
        for i = 1, k[7] do out[o + i] = 0 end
)lua";

/* Between an algorithm's two blocks. */
constexpr std::string_view kGrant = R"lua(
        local fits = 0
        if free >= cost then
          fits = n
          if n > 1 and cost > 0 and not k[6] then
            fits = floor(free / cost)
          end
        end
        if fits < g then g = fits end
        if pass == 2 and g > 0 and cost > 0 and not k[6] then
)lua";

constexpr std::string_view kEnd = R"lua(
      end
      if k[14] then
        local mark = pass == 2 and redis.pcall('MGET', key .. ':forgotten')
        mark = mark and not mark.err and tonumber(mark[1])
        out[o + k[7]] = mark and math.max(now - mark, 0) + 1 or 0
      end
      o = o + k[7]
    end
  end
  out[at], at, first, a = g, o + 1, first + m, a + 2 + m
end
return out
)lua";

/* Deletes a key's state, and leaves a mark for so many ms. */
constexpr std::string_view kForget = R"lua(
redis.call('DEL', KEYS[1])
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
redis.pcall('SET', KEYS[1] .. ':forgotten', now, 'PX', ARGV[1])
return 1
)lua";

} // namespace limit_sliding

#endif
