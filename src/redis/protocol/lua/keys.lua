-- Copyright (C) the limit_sliding authors

-- How the values of all `names` are read into `got`.  Of each claim these are
-- the state and the own limit; the debt, where costs are settled; and, if units
-- of the key are leased, the mark of forget.lua, but in a cluster.

--@ chunk keys
names, got = KEYS, call('MGET', unpack(KEYS))

-- In a cluster keys are read one by one, as a slot may be moving, and KEYS are
-- the states alone: while the slot of a call moves, a cluster answers TRYAGAIN
-- if some of its KEYS exist and others do not.  A key that does not exist then
-- cannot be read where the slot was: of an own limit or a debt, that error
-- means that there is none.  Any other error is the reply, before anything was
-- written.  So is that error of a state, which existed when the call began, and
-- must have expired since.
--@ chunk keys.in_cluster
local suffixes = {'', ':limit', ':debt'}
names, got = {}, {}
for i = 0, step * #KEYS - 1 do
  local name = KEYS[floor(i / step) + 1] .. suffixes[i % step + 1]
  local text = redis.pcall('GET', name)
  if type(text) == 'table' then
    if not (string.find(text.err, 'WRONGTYPE', 1, true)
      or i % step > 0 and string.find(text.err, 'non local key', 1, true)) then
      return text
    end
    text = false
  end
  names[i + 1], got[i + 1] = name, text
end
