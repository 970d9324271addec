-- Copyright (C) the limit_sliding authors

-- How the states and own limits of all keys are read into `got`.

--@ chunk keys
if keys == 1 then
  got = call('MGET', KEYS[1], KEYS[1] .. ':limit')
elseif keys > 1 then
  local names = {}
  for i = 1, keys do
    local key = KEYS[i]
    names[2 * i - 1], names[2 * i] = key, key .. ':limit'
  end
  got = call('MGET', unpack(names))
end

-- In a cluster keys are read one by one, as a slot may be moving.  A key that
-- does not exist then cannot be read where the slot was: if it is an own limit,
-- that error means that there is none.  Any other error is the reply, before
-- anything was written.  So is that error of a state, which existed when the
-- call began, and must have expired since.
--@ chunk keys.in_cluster
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
