-- Copyright (C) the limit_sliding authors

-- Reads the values of all `names` into `got`.  The names of each claim are
-- those of its state and its override; of its debt, if costs are settled; and,
-- if the node has leased units of the key left, of the mark of forget.lua.

--@ chunk read_values
local names, got = KEYS, call('MGET', unpack(KEYS))

-- In a cluster, KEYS are the states alone, and the other names, without the
-- mark, are made from them.  While a slot moves, a cluster replies TRYAGAIN to
-- a call if some of its KEYS exist and others do not.  The values are read one
-- by one.  At the node that a slot leaves, the read of a key that does not
-- exist there is an error ("non local key").  For an override or a debt, this
-- error means that there is none.  A state existed when the call began, so it
-- must have expired since.  Then the script returns the error, before it has
-- written anything, as it returns all other errors.  A key of another type
-- counts as none, as with MGET.
--@ chunk read_values.in_cluster
local suffixes, names, got = {'', ':limit', ':debt'}, {}, {}
for i = 0, step * #KEYS - 1 do
  local name = KEYS[floor(i / step) + 1]
  if i % step == 1 then name = string.match(name, '^.*}') end
  name = name .. suffixes[i % step + 1]
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
