/*
 * Copyright (C) the limit_sliding authors
 */

#ifndef LIMIT_SLIDING_REDIS_LUA_CLUSTER_HPP
#define LIMIT_SLIDING_REDIS_LUA_CLUSTER_HPP

#include <string_view>

/* What the script has in a cluster only; see lua.hpp. */

namespace limit_sliding {

/*
 * While a slot moves, a key that does not exist cannot be read where the slot
 * was: of a limit that is an error which means that there is none here.  Any
 * other one is the reply, before anything was written; so is that of a state,
 * which was there when the call began and must have expired since.
 */
constexpr std::string_view kReadInCluster = R"lua(
local keys = #KEYS
got = {}
for i = 1, 2 * keys do
  local is_limit = i % 2 == 0
  local name = is_limit and KEYS[i / 2] .. ':limit' or KEYS[(i + 1) / 2]
  local text = redis.pcall('GET', name)
  if type(text) == 'table' then
    if not (string.find(text.err, 'WRONGTYPE', 1, true)
      or is_limit and string.find(text.err, 'non local key', 1, true)) then
      return text
    end
    text = false
  end
  got[i] = text
end
)lua";

/* When it was taken, k[11], and from what, k[12]. */
constexpr std::string_view kGiveBackKind = R"lua(
  if look == '2' then
    kinds[i][11], kinds[i][12] = tonumber(A[a]), tonumber(A[a + 1])
    a = a + 2
  end
)lua";

constexpr std::string_view kGiveBack = R"lua(
      elseif k[11] then
        local taken, kept = k[11], nil
        for i = 1, k[7] do out[o + i] = 0 end
        if pass == 1 then
)lua";

/* Of the part in which it was taken. */
constexpr std::string_view kCounterGiveBack = R"lua(
local p = k[4]
k[10] = k[10] or '>I2I4' .. string.rep('I3', p + 1)
if s and #s == 9 + 3 * p then
  local v = {unpack_(k[10], s)}
  local d = (v[2] - (taken * p - taken * p % w) / w) % 4294967296
  if v[1] == k[9] and d <= p then
    local i = 3 + p - d
    v[i] = v[i] > cost and v[i] - cost or 0
    kept = pack(k[10], unpack(v, 1, 3 + p))
    S[key] = kept
    call('SET', key, kept, 'PX', k[8])
  end
end
)lua";

/* Events of one time are all the same. */
constexpr std::string_view kLogGiveBack = R"lua(
local n = call('ZCOUNT', key, taken, taken)
if n > cost then n = cost end
if n > 0 then
  local first = call('ZCOUNT', key, '-inf', '(' .. taken)
  call('ZREMRANGEBYRANK', key, first, first + n - 1)
end
)lua";

constexpr std::string_view kFixedGiveBack = R"lua(
if s and #s == 11 then
  local configuration, then_, used = unpack_('>I2I6I3', s)
  if configuration == k[9] and then_ == (taken - taken % w) / w then
    kept = pack('>I2I6I3', k[9], then_, used > cost and used - cost or 0)
    S[key] = kept
    call('SET', key, kept, 'PX', k[8])
  end
end
)lua";

/*
 * Less what of it had run off by the latest admission: all the time since it
 * was taken, but for that in which what there was before would have run off.
 */
constexpr std::string_view kBucketGiveBack = R"lua(
if s and (#s == 19 or #s == 31) then
  local configuration, then_, used, low = unpack_('>I2I6dI3', s)
  if configuration == k[9] and then_ >= taken then
    local gone = (then_ - taken) * limit - k[12]
    local back = cost * w - (gone > 0 and gone or 0)
    local held = 0
    if #s == 31 then
      local _, newer, older = unpack_('>I6I3I3', s, 20)
      held = (newer + older) * w
    end
    if back > used - held then back = used - held end
    if back > 0 then
      used = used - back
      kept = pack('>I2I6d', k[9], then_, used) .. string.sub(s, 17)
      S[key] = kept
      local over = then_ - now - floor(-used / low)
      call('SET', key, kept, 'PX', over > w and over or k[8])
    end
  end
end
)lua";

} // namespace limit_sliding

#endif
