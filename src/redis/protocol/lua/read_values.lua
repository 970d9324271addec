-- Copyright (C) the limit_sliding authors

-- Reads the values of all `names` into `got`.  Each claim has the state and
-- the override; the debt, if costs are settled; and, if the node has leased
-- units of the key left, the mark of forget.lua, but not in a cluster.

--@ chunk read_values
local names, got = KEYS, call('MGET', unpack(KEYS))

-- In a cluster, KEYS are only the states, and keys are read one by one: while
-- the slot of a call moves, a cluster replies TRYAGAIN if some KEYS exist and
-- others do not.  A key that does not exist then cannot be read at the old
-- node of the slot: for an override or a debt, this error means that there is
-- none.  Any other error is the reply, before anything was written.  So is
-- this error for a state, which existed when the call began, and must have
-- expired since.
--@ chunk read_values.in_cluster
local suffixes, names, got = {'', ':limit', ':debt'}, {}, {}
for i = 0, step * #KEYS - 1 do
  local name = KEYS[floor(i / step) + 1] .. suffixes[i % step + 1]
  local text = pcall('GET', name)
  if type(text) == 'table' then
    if not (string.find(text.err, 'WRONGTYPE', 1, true)
      or i % step > 0 and string.find(text.err, 'non local key', 1, true)) then
      return text
    end
    text = false
  end
  names[i + 1], got[i + 1] = name, text
end
