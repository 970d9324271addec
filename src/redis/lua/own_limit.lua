-- Copyright (C) the limit_sliding authors

-- Reads the key's own limit from `text`: into `limit`, unless it is malformed,
-- and into the reply, as scripts.hpp describes.  As in nginx.conf a rate has 18
-- digits at most; 4194302 is kLimitMax.
--@ chunk own_limit
local units = {s = 1000, m = 60000, h = 3600000, d = 86400000}
local count, unit = string.match(text, '^(%d+)r/([smhd])$')
count = count or string.match(text, '^%d+$')
limit = text == 'off' and 0 or -limit
if count and #count <= 18 then
  local own = unit and floor(count * w / units[unit]) or count + 0
  if own >= 1 and own <= 4194302 then limit = own end
end
out[o] = limit > 0 and limit + 4503599627370496 or limit
if limit < 0 then limit = k[3] end
