-- Copyright (C) the limit_sliding authors

-- A script of its own: it deletes the state of a key, also that of a window of
-- its own if KEYS[1] .. ARGV[2] is its name, and leaves a mark for ARGV[1] ms
-- that tells when.  The other KEYS are the names that it touches, but in a
-- cluster, as keys.lua explains.  The states are deleted first, as Redis
-- refuses no memory to a script that has written.

--@ chunk forget
redis.call('DEL', KEYS[1])
if ARGV[2] then redis.call('DEL', KEYS[1] .. ARGV[2]) end
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
redis.pcall('SET', KEYS[1] .. ':forgotten', now, 'PX', ARGV[1])
return 1
