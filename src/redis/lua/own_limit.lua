-- Copyright (C) the limit_sliding authors

-- Reads the key's own limit from `text`: into `limit`, unless it is malformed,
-- and into the reply, as scripts.hpp describes.  As in nginx.conf a rate has 18
-- digits at most, which are taken by sixes: products of more are not exact.
-- 4194302 and 1e15 are kNarrowMax and kRemoteMax.
--@ chunk own_limit
local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
local count, unit = string.match(text, '^(%d+)r/([smhd])$')
count = count or string.match(text, '^%d+$')
limit = text == 'off' and 0 or -limit
if count and #count <= 18 then
  local each, per, own, rest = unit and w or 1, units[unit] or 1, 0, 0
  count = string.rep('0', 18 - #count) .. count
  for i = 1, 13, 6 do
    rest = rest * 1000000 + string.sub(count, i, i + 5) * each
    local left = rest % per
    own, rest = own * 1000000 + (rest - left) / per, left
  end
  if own >= 1 and own <= (k[1] == 1 and 4194302 or 1e15) then limit = own end
end
out[o] = limit > 0 and limit + 4503599627370496 or limit
if limit < 0 then limit = k[3] end
