-- Copyright (C) the limit_sliding authors

-- What algorithms do between deciding and recording, and to record.

-- Lowers `g` to what is free, and leaves in `records` whether to record it now.
--@ chunk grant
if free < cost then
  g = 0
elseif n > 1 and cost > 0 and not k[6] then
  local fits = floor(free / cost)
  if fits < g then g = fits end
end
local records = pass == 2 and g > 0 and cost > 0 and not k[6]

-- Writes the state `s`.  With `keep` it is written in place and expires when it
-- was to: this spares Redis to look up the key's expiry, and more.
--@ chunk save
S[key] = s
if keep then
  call('SETRANGE', key, '0', s)
else
  call('SET', key, s, 'PX', k[8])
end
