-- Copyright (C) the limit_sliding authors

-- Overrides: limits and windows of single keys.

-- Sets `override` to what the override in `text` is in the reply, and, unless
-- it is malformed, `limit` and `own`, as Override::parse() does: rates and
-- windows need a zone with a window.  "off" sets the limit to 0.  As in
-- nginx.conf a rate has 18 digits at most.  They are read by sixes, because
-- larger products are not exact.  4194302 and 1e15 are kNarrowMax and
-- kRemoteMax.
--@ chunk override
local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
local count, unit = string.match(text, '^(%d+)r/([smhd])$')
local time, window
if not count then
  count, time = string.match(text, '^(%d+)/(.+)$')
  count = count or string.match(text, '^%d+$')
end
if time and w > 0 then
  --@ include override.window
end
override = text == 'off' and 1 or text == '0' and 4503599627370496 or 2
if count and #count <= 18 and (window or not time) then
  local each, per, n, rest = unit and w or 1, units[unit] or 1, 0, 0
  count = string.rep('0', 18 - #count) .. count
  for i = 1, 13, 6 do
    rest = rest * 1000000 + string.sub(count, i, i + 5) * each
    local left = rest % per
    n, rest = n * 1000000 + (rest - left) / per, left
  end
  if n >= 1 and n <= (algorithm == 1 and 4194302 or 1e15) then
    limit, override = n, n + 4503599627370496
  end
end
if override ~= 2 then
  if override <= 4503599627370496 then limit = 0 end
  --@ if settles
  pace = limit
  --@ end
  own = window ~= (cal > 0 and algorithm == 2 and cal or w) and window or nil
  if own and limit > 0 then override = override + 2251799813685248 end
end

-- Replies with the terms of the key: its override, and what it owes.
--@ chunk override.reply
o = o + 1
out[o] = -override
if override >= 6755399441055744 then
  o = o + 1
  out[o] = own
end
--@ if settles
if owed_units then
  out[o + 1], out[o + 2] = owed_units, owed_from
  o = o + 2
end
--@ end

-- Sets `window` to the calendar or the ms in `time`, as Window::parse() does,
-- or to nil if it is malformed.
--@ chunk override.window
if algorithm == 2 then
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

-- Makes `own` the window of the claim, whose state has another name then.
--@ chunk other_window
cal = own < 5 and own or 0
w = cal > 0 and ({1, 7, 30, 365})[cal] * 86400000 or own
key = string.match(key, '^.*}:') .. sub('clftb', algorithm + 1, algorithm + 1)
  .. (cal > 0 and ({'day', 'week', 'month', 'year'})[cal]
    or w % 1000 > 0 and w .. 'ms' or w / 1000 .. 's')
if algorithm == 0 and extra > 0 then key = key .. '.' .. extra end
--@ if fixed
if cal > 0 and offsets then key = key .. '.local' end
--@ end
s = S[key]
if not s then
  s = pcall('MGET', key)
  if s.err then return s end
  s = s[1]
end
