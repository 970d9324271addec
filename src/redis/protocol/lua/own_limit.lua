-- Copyright (C) the limit_sliding authors

-- Overrides: limits and windows of single keys.

-- Reads the override in `text` into `limit` and `own`, unless it is malformed,
-- and into the reply, as scripts.hpp describes.  As in nginx.conf a rate has
-- 18 digits at most.  They are read by sixes, because larger products are not
-- exact.  4194302 and 1e15 are kNarrowMax and kRemoteMax.
--@ chunk own_limit
local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
local count, unit = string.match(text, '^(%d+)r/([smhd])$')
local time, window
if not count then
  count, time = string.match(text, '^(%d+)/(.+)$')
  count = count or string.match(text, '^%d+$')
end
if time then
  --@ include own_limit.window
end
limit, blocked = text == 'off' and 0 or -limit, text == '0'
if count and #count <= 18 and (window or not time) then
  local each, per, n, rest = unit and w or 1, units[unit] or 1, 0, 0
  count = string.rep('0', 18 - #count) .. count
  for i = 1, 13, 6 do
    rest = rest * 1000000 + string.sub(count, i, i + 5) * each
    local left = rest % per
    n, rest = n * 1000000 + (rest - left) / per, left
  end
  if n >= 1 and n <= (k[1] == 1 and 4194302 or 1e15) then limit = n end
end
out[o] = blocked and 4503599627370496
  or limit > 0 and limit + 4503599627370496 or limit
if blocked then limit = 0 end
if limit < 0 then
  limit = k[3]
else
  --@ if settles
  pace = limit
  --@ end
  own = window ~= (cal > 0 and k[1] == 2 and cal or w) and window or nil
  if own and limit > 0 then
    out[o] = out[o] + 2251799813685248
    o = o + 1
    out[o] = own
  end
end

-- Sets `window` to the calendar or the ms in `time`, as Window::parse() does,
-- or to nil if it is malformed.
--@ chunk own_limit.window
if k[1] == 2 then
  window = ({day = 1, week = 2, month = 3, year = 4})[time]
end
local ms, least, rest = 0, nil, not window and time
while rest do
  local number, name, more = string.match(rest, '^(%d+)(m?[yMwdhms]?)(.*)$')
  local each = name == '' and more == '' and 1000
    or ({ms = 1, w = 604800000, M = 2592000000, y = 31536000000})[name]
    or units[name]
  if not each or least and each >= least then break end
  ms, least, rest = ms + number * each, each, more ~= '' and more
  if not rest and ms >= 100 and ms <= 2592000000 then window = ms end
end

-- Makes `own` the window of the claim.
--@ chunk own_window
cal = own < 5 and own or 0
w = cal > 0 and ({1, 7, 30, 365})[cal] * 86400000 or own
id = (id + w - k[2] + (k[1] == 2 and (cal - k[4]) * 131 or 0)) % 65521
key = key .. ':' .. own
s = S[key]
if not s and k[1] ~= 1 then
  s = redis.pcall('MGET', key)
  if s.err then return s end
  s = s[1]
end
