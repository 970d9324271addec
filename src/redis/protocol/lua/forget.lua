-- Copyright (C) the limit_sliding authors

-- A separate script: it deletes the state of a key, the state of another
-- window at ARGV[2] if that is given, and both debts.  Unless
-- ARGV[1] is 0, it leaves a mark with the present time for ARGV[1] ms.  The
-- other KEYS are names that it touches, but not in a cluster, see
-- read_values.lua.  The states are deleted first, because Redis refuses no
-- memory to a script that has written.

--@ chunk forget
for i = 1, ARGV[2] and 2 or 1 do
  local key = i == 1 and KEYS[1] or ARGV[2]
  redis.call('DEL', key)
  redis.pcall('DEL', key .. ':debt')
  redis.pcall('DEL', key .. ':totals')
end
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
if ARGV[1] ~= '0' then
  redis.pcall('SET', KEYS[1] .. ':forgotten', now, 'PX', ARGV[1])
end
return 1
