/* Copyright (C) the limit_sliding authors */

/*
 * Calls and replies of the script as numbers, for tests.
 *
 * A call has keys, KEY for the state {KEY}:SHAPE.  It has the number of kinds of claims; of each
 * kind the algorithm (8 more: another window is requested), the window of the zone, the limit, the
 * precision, burst or calendar (64 more: strict; 8 more: local time), the cost, and the purpose (8
 * more: the caller has leased units left, 16 more: rejected units are recorded, 32 more: the pace
 * follows); then, to refund, the time, the two values and the window of the grant, to lease, the
 * units, the requested window, and for local time, how many numbers follow, and these; of each ask
 * the units, the number of claims, and the number of the kind of each.  Asks at the end are left
 * out if all of their numbers are 1.
 *
 * A reply has the time; of each ask the granted units; of each claim the limit with the flags of
 * scripts.hpp, 0 without a limit, negative if the override is malformed, and -3000 if the state is
 * foreign; the window and the
 * debt, if the flags tell so; and the values, those of a counter as RemoteState has them.
 */

#pragma once

/* Lua around the script: kScriptNumbers, the script as a function `decide`, kScriptNumbersEnd.  It
 * needs the locals `settles` and `cluster`. */
constexpr char kScriptNumbers[] = R"lua(
local kinds, asks = {}, {}
local function shape_of(k)
  local calendar = k.algorithm == 2 and k.extra % 8 or 0
  local letter = ({[0] = 'c', 'l', 'f', 't', 'b'})[k.algorithm]
  if calendar > 0 then
    return letter .. ({'day', 'week', 'month', 'year'})[calendar]
      .. (k.extra > 7 and '.local' or '')
  end
  local window = k.w % 1000 == 0 and k.w / 1000 .. 's' or k.w .. 'ms'
  return letter .. window .. (k.algorithm == 0 and k.extra > 0 and '.' .. k.extra or '')
end
local ARGV, KEYS = (function(A)
  local a, heads = 2, {}
  for i = 1, A[1] do
    local k = {algorithm = A[a] + 0, w = A[a + 1] + 0, limit = A[a + 2] + 0, extra = A[a + 3] + 0,
               cost = A[a + 4], look = A[a + 5] + 0, own = 0, tail = ''}
    local has_own, paced, strict, rejected, held, has_offsets
    if k.algorithm > 7 then k.algorithm, has_own = k.algorithm - 8, true end
    if k.algorithm == 0 and k.extra > 63 then k.extra, strict = k.extra - 64, true end
    if k.algorithm == 2 and k.extra > 7 then has_offsets = true end
    if k.look > 31 then k.look, paced = k.look - 32, true end
    if k.look > 15 then k.look, rejected = k.look - 16, true end
    if k.look > 7 then k.look, held = k.look - 8, true end
    a = a + 6
    local pace = k.limit
    if paced then pace, a = A[a] + 0, a + 1 end
    if settles then k.tail = struct.pack('>I7', pace) end
    if k.look == 2 then
      k.tail = k.tail
        .. struct.pack('>I7I7I7I5', A[a] + 0, A[a + 1] + 0, A[a + 2] + 0, A[a + 3] + 0)
      a = a + 4
    elseif k.look == 3 then
      k.tail = k.tail .. struct.pack('>I4', A[a] + 0)
      a = a + 1
    end
    if has_own then k.own, a = A[a] + 0, a + 1 end
    if has_offsets then
      for j = 1, A[a] do k.tail = k.tail .. struct.pack('>i8', A[a + j] + 0) end
      a = a + 1 + A[a]
    end
    k.held = held
    k.head = function(claims, units)
      return struct.pack('>I1I1I1I4I1I1I1I5I7I4I7I5I7', k.algorithm, k.look, claims, units,
        strict and 1 or 0, rejected and 1 or 0, held and 1 or 0, k.w, k.limit, k.extra,
        k.cost + 0, k.own, 9007199254740991) .. k.tail
    end
    kinds[i] = k
  end
  local claim, names = 1, {}
  local function name(suffix) names[#names + 1] = '{' .. KEYS[claim] .. '}:' .. suffix end
  while KEYS[claim] do
    local units, claims = (A[a] or 1) + 0, (A[a + 1] or 1) + 0
    local ask = {}
    for j = 1, claims do
      ask[j] = kinds[(A[a + 1 + j] or 1) + 0]
      heads[claim] = ask[j].head(claims, units)
      if heads[claim] == heads[claim - 1] and claims == 1 and claim % 3 > 0 then
        heads[claim] = ''
      end
      local shape = shape_of(ask[j])
      name(shape)
      if not cluster then
        name('limit')
        if settles then name(shape .. ':debt') end
        if ask[j].held then name(shape .. ':forgotten') end
      end
      claim = claim + 1
    end
    asks[#asks + 1] = ask
    a = a + 2 + claims
  end
  return heads, names
end)(ARGV)
local function decide()
)lua";

constexpr char kScriptNumbersEnd[] = R"lua(
end
local r = decide()
if r.err then return r end
local now, out, i = r[1], {r[1]}, 2
local function put(number) out[#out + 1] = number end
local function take() i = i + 1 return r[i - 1] end
local function parts_of(limit)
  for _, kind in ipairs({{3, 40}, {7, 36}, {15, 28}, {21, 22}, {31, 7}, {63, 6}, {127, 5},
    {255, 4}, {2047, 3}, {16383, 2}}) do
    if limit <= kind[1] then return kind[2] end
  end
  return 1
end
local function counter(text, k, limit, w)
  local p, auto, ends, at = k.extra, k.extra == 0, 0, 3
  if not text then
    if auto then p = parts_of(limit) end
    put(p) put(math.floor(now * p / w)) put(0)
    for _ = 0, p do put(0) end
    return
  end
  if string.sub(text, 1, 2) == '\255\255' then ends, at = struct.unpack('>I6', text, 3) end
  local number, span = struct.unpack('>I4', text, at), 4294967296
  at = at + 4
  if auto then
    span = 268435456
    p = math.floor(number / span)
    if p > 7 then p = p == 9 and 22 or 4 * p - 4 end
    number = number % span
  end
  local present = math.floor(now * p / w)
  local ago = (present - number) % span
  if ago * 2 >= span then ago = ago - span end
  put(p) put(present - ago) put(ends)
  if auto and p > 7 then
    local counts = {}
    for j = at, #text do
      local age = string.byte(text, j)
      counts[age] = (counts[age] or 0) + 1
    end
    for j = p, 0, -1 do put(counts[j] or 0) end
    return
  end
  local bytes = (#text - at + 1) / (p + 1)
  for j = 0, p do put((struct.unpack('>I' .. bytes, text, at + j * bytes))) end
end
for _, ask in ipairs(asks) do
  put(take())
  for _, k in ipairs(ask) do
    local limit, w, told, is_owing, code = k.limit, k.own > 4 and k.own or k.w, k.limit, false, 0
    if type(r[i]) == 'number' and r[i] < 0 then
      code = -take()
      local base = code
      if code >= 4503599627370496 then
        base = base - 4503599627370496
        w = k.w
      end
      if base >= 2251799813685248 then base = base - 2251799813685248 end
      if base >= 1125899906842624 then base, is_owing = base - 1125899906842624, true end
      if code >= 4503599627370496 then
        limit, told = base, code - (is_owing and 1125899906842624 or 0)
      elseif base == 1 then
        limit, told, w = 0, 0, k.w
      elseif base == 2 then
        told = -limit
      elseif base == 3 then
        limit, told = 0, -3000
      end
    end
    put(told + (is_owing and (told < 0 and -1 or 1) * 1125899906842624 or 0))
    if code >= 6755399441055744 then
      local own = take()
      if own > 4 then w = own end
      put(own)
    end
    if is_owing then put(take()) put(take()) end
    if k.look == 2 or k.look == 4 then
      put(take())
    elseif limit == 0 then
      for _ = 1, ({[0] = 4, 3, 1, 2, 2})[k.algorithm] do put(0) end
    elseif k.algorithm == 0 then
      counter(take(), k, limit, w)
    else
      for _ = 1, ({3, 1, 2, 2})[k.algorithm] do put(take()) end
    end
    if k.held then put(take()) end
  end
end
if i <= #r then return redis.error_reply('the reply is too long') end
return out
)lua";
