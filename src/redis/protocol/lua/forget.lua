-- Copyright (C) the limit_sliding authors

-- A separate script: it deletes the state of a key, the state of another
-- window at ARGV[3] if that is given, and both debts.  Unless ARGV[1] is 0, it
-- leaves a mark with the present time for ARGV[1] ms, at the name of the state
-- and the suffix ARGV[2]; in place of totals, the time is the total of the
-- number 1.  The other KEYS are names that it touches, but not in a cluster:
-- see read_values.lua.  The states are deleted first, because Redis refuses no
-- memory to a script that has written.

--@ chunk forget
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
for i = 1, ARGV[3] and 2 or 1 do
  local key = i == 1 and KEYS[1] or ARGV[3]
  redis.call('DEL', key)
  redis.pcall('DEL', key .. ':debt')
  if ARGV[1] ~= '0' and (i == 1 or ARGV[2] == ':totals') then
    local mark = ARGV[2] == ':totals' and struct.pack('>I6i6', 1, now) or now
    redis.pcall('SET', key .. ARGV[2], mark, 'PX', ARGV[1])
  end
end
return 1
