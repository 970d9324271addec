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
 * every call.
 *
 * A: arguments.  got: states and limits of single keys, as they were read;
 * S: states as they were written since.  out: the reply.
 *
 * Of each claim: k its kind (algorithm, window, limit, precision or burst,
 * cost, look, values, expiry, digest), key, limit, s its state, o what of the
 * reply is before its values.  Claims of a request that has several are decided
 * in a first pass, and once more in the second one, which records them.
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
    names[2 * i - 1], names[2 * i] = KEYS[i], KEYS[i] .. ':limit'
  end
  got = call('MGET', unpack(names))
end
)lua";

constexpr std::string_view kLimitOf = R"lua(
local function limit_of(text, k)
  if text == 'off' then return 0 end
  local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
  local count, unit = string.match(text, '^(%d+)r/([smhd])$')
  count = count or string.match(text, '^%d+$')
  if count and #count <= 18 then
    local limit = floor(count * k[2] / (units[unit] or k[2]))
    if limit >= 1 and limit <= 4194302 then return limit end
  end
  return -k[3]
end
)lua";

/*
 * Counts of precision + 1 parts of a window, the oldest first; with precision 1
 * just two.  The number of the newest part is kept modulo 2^32, far longer than
 * a state lives.  What counts of the oldest is rounded up, by whichever product
 * stays below 2^53.
 */
constexpr std::string_view kCounterLocals = R"lua(
local function oldest(q, e, w)
  if e * 2 <= w then return q - floor(q * e / w) end
  return -floor(-q * (w - e) / w)
end

local function decide_parts(k, s, limit, o)
  local w, p, d, v = k[2], k[4], k[4] + 1, {}
  local e = now * p % w
  local part = (now * p - e) / w
  k[10] = k[10] or '>I2I4' .. string.rep('I3', p + 1)
  if s and #s == 9 + 3 * p then
    v = {unpack_(k[10], s)}
    if v[1] == k[9] then
      d = (part - v[2]) % 4294967296
      if d >= 2147483648 then part, e, d = part + 4294967296 - d, 0, 0 end
    else
      d = p + 1
    end
  end
  local counts = {}
  for i = 1, p + 1 do
    local count = i + d <= p + 1 and v[2 + d + i] or 0
    counts[i], out[o + i] = count, count
    limit = limit - (i > 1 and count or oldest(count, e, w))
  end
  return limit, part, counts
end
)lua";

constexpr std::string_view kCounter = R"lua(
local part, previous, current, counts
if k[4] > 1 then
  free, part, counts = decide_parts(k, s, limit, o)
else
  local e = now % w
  part, previous, current, free = (now - e) / w, 0, 0, limit
  if s and #s == 12 then
    local configuration, at, older, newer = unpack_('>I2I4I3I3', s)
    if configuration == k[9] then
      local d = (part - at) % 4294967296
      if d == 0 then
        previous, current = older, newer
      elseif d == 1 then
        previous = newer
      elseif d >= 2147483648 then
        part, e, previous, current = part + 4294967296 - d, 0, older, newer
      end
      free = limit - current
      if previous > 0 then free = free - oldest(previous, e, w) end
    end
  end
  out[o + 1], out[o + 2] = previous, current
end
)lua";

constexpr std::string_view kCounterRecord = R"lua(
if counts then
  counts[k[4] + 1] = counts[k[4] + 1] + g * cost
  s = pack(k[10], k[9], part % 4294967296, unpack(counts))
else
  s = pack('>I2I4I3I3', k[9], part % 4294967296, previous, current + g * cost)
end
S[key] = s
call('SET', key, s, 'PX', k[8])
)lua";

/*
 * Members are numbered, so that none is another's; scores are times.  The
 * events to wait for are told by their times.
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
local r = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', now - w)
if type(r) == 'table' and r.err then call('DEL', key) end
local held = call('ZCARD', key)
free = limit - held
out[o + 1], out[o + 2], out[o + 3] = held, -1, -1
if held > 0 then
  out[o + 2] = time_of(key, free < 0 and -free or 0)
end
)lua";

constexpr std::string_view kLogRecord = R"lua(
local newest, seq = 0, 0
if held > 0 then
  local member
  newest, member = time_of(key, -1)
  seq = unpack_('>I6', member) + 1
end
add_events(key, newest, seq, g * cost, w)
)lua";

constexpr std::string_view kLogRejected = R"lua(
if cost <= limit then
  local i = cost - free - 1
  if not k[6] then i = i + g * cost end
  if i >= 0 then out[o + 3] = time_of(key, i) end
end
)lua";

constexpr std::string_view kFixed = R"lua(
local at, count = (now - now % w) / w, 0
if s and #s == 11 then
  local configuration, then_, used = unpack_('>I2I6I3', s)
  if configuration == k[9] and then_ >= at then
    at, count = then_, used
  end
end
out[o + 1] = count
free = limit - count
)lua";

constexpr std::string_view kFixedRecord = R"lua(
s = pack('>I2I6I3', k[9], at, count + g * cost)
S[key] = s
call('SET', key, s, 'PX', k[8])
)lua";

constexpr std::string_view kBucketLocals = R"lua(
local function bits(n)
  local _, e = math.frexp(n)
  return e
end

local function capacity(k, limit)
  local burst = k[4]
  if k[1] == 3 and burst == 0 then return limit end
  local time = bits(k[2]) + bits(burst) + 2
  time = time < 24 and 24 or time > 34 and 34 or time
  local most = floor(limit * 2 ^ (time - 2) / k[2])
  if k[1] == 4 then burst = burst + 1 end
  return burst < most and burst or most
end
)lua";

/*
 * The time of the latest admission, and what was used then, x w.  It lasts a
 * window at least, in which a bucket of a lower limit, too, has run off.
 */
constexpr std::string_view kBucket = R"lua(
local time, used, ran = now, 0, 0
if s and #s == 16 then
  local configuration, then_, was = unpack_('>I2I6d', s)
  if configuration == k[9] then
    used = was
    if then_ > now then time = then_ end
    ran = (time - then_) * limit
  end
end
local full = capacity(k, limit) * w
local taken = used < full and used or full
taken = taken > ran and taken - ran or 0
used = used > ran and used - ran or 0
out[o + 1] = taken
free = (full - taken) / w
)lua";

constexpr std::string_view kBucketRecord = R"lua(
used = used + g * cost * w
s = pack('>I2I6d', k[9], time, used)
S[key] = s
local over = time - now - floor(-used / limit)
call('SET', key, s, 'PX', over > w and over or k[8])
)lua";

constexpr std::string_view kBegin = R"lua(
local kinds, a = {}, 2
for i = 1, A[1] do
  local algorithm, w = tonumber(A[a]), tonumber(A[a + 1])
  local extra = tonumber(A[a + 3])
  kinds[i] = {algorithm, w, tonumber(A[a + 2]), extra, tonumber(A[a + 4]),
    A[a + 5] == '1',
    algorithm == 0 and extra + 1 or algorithm == 1 and 3 or 1,
    algorithm == 0 and tostring(-floor(-w * (extra + 1) / extra)) or A[a + 1],
    (w + algorithm * 8191 + (algorithm == 0 and extra * 131 or 0)) % 65521}
  a = a + 6
)lua";

constexpr std::string_view kLoop = R"lua(
end

local first, at = 0, 2
while A[a] do
  local n, m = tonumber(A[a]), tonumber(A[a + 1])
  local g, o = n, at
  for pass = m == 1 and 2 or 1, 2 do
    o = at
    for j = 1, m do
      local k, key = kinds[tonumber(A[a + 1 + j])], KEYS[first + j]
      local w, limit, cost, free = k[2], k[3], k[5], nil
      local s, text = S[key] or got[2 * (first + j) - 1], got[2 * (first + j)]
      o = o + 1
      out[o] = limit
      if text then
        limit = limit_of(text, k)
        out[o] = limit
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
      o = o + k[7]
    end
  end
  out[at], at, first, a = g, o + 1, first + m, a + 2 + m
end
return out
)lua";

} // namespace limit_sliding

#endif
