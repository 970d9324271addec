-- Copyright (C) the limit_sliding authors

-- Reports of nodes with "sync=".  A node reports its total of a key: the units
-- that it has admitted since it knows the key, less those that it has given
-- back.  The script remembers the total, and consumes or gives back the
-- difference from the last report.  So a repeated report counts nothing twice,
-- and the next report makes up for a lost one.
--
-- The totals are a string at <key of the state>:totals, of 12 bytes for each
-- node, in the order of their reports: 6 of a random number of the node and the
-- key, and 6 of the total.  The number 0 has what no node reports: changes by
-- the API, units that found no room at a node, and the totals of nodes beyond
-- the 127 that have reported last.  The total of the number 1 is the time at
-- which the key was forgotten, see forget.lua.

-- Sets `mine` to the total in the last report of this node, nil if there is
-- none, and `others` to the sum of the totals of all others.  Sets `n` and `g`
-- to the units to be consumed, and gives back what the total has lost.
--@ chunk totals
--@ if cluster
entries = S[totals] or pcall('MGET', totals)[1] or ''
--@ else
entries = S[totals] or not own and got[at + step]
  or own and pcall('MGET', totals)[1] or ''
--@ end
for j = 1, #entries - 11, 12 do
  local number, sum = unpack_('>I6i6', entries, j)
  if number == life and life > 0 then
    mine = sum
  elseif number == 1 then
    forgotten = now - sum < 2 * w and sum
  else
    others = others + sum
    if number == 0 or #entries - j > 1535 then
      loose = loose + sum
    else
      kept[#kept + 1] = sub(entries, j, j + 11)
    end
  end
end
if life > 0 then
  local more = total - (mine or acked)
  if purpose == 0 then
    n = math.min(math.max(more, 0), n)
    g = n
  end
  if more < 0 then
    local purpose, cost, taken, taken_1, taken_2 = 2, -more, 0, 0, 0
    --@ include give_back
  end
end

-- Writes the totals, and replies with `others` and the total of this node that
-- is counted now; then with 0 if there was an earlier report of this node, else
-- with 1, or with 2 plus the ms since the key was forgotten, if it was.
--@ chunk totals.save
local sum = total
if limit == 0 then
  sum = acked
elseif life > 0 then
  if purpose == 0 then sum = total - (n - g) end
else
  loose = loose + (purpose == 0 and g * head_cost
    or purpose == 4 and head_cost - lost or purpose == 2 and -head_cost or 0)
end
if limit > 0 and (life > 0 and sum ~= mine or life == 0 and purpose ~= 1) then
  local text = table.concat(kept)
  if loose ~= 0 then text = pack('>I6i6', 0, loose) .. text end
  if forgotten then text = pack('>I6i6', 1, forgotten) .. text end
  if life > 0 then text = text .. pack('>I6i6', life, sum) end
  -- a full bucket may run off in more than a window
  local windows = algorithm > 2 and floor(extra / limit) + 3 or 2
  S[totals] = text
  pcall('SET', totals, text, 'PX', math.min(windows * w, 1e14))
end
out[o + 1], out[o + 2] = others, sum
out[o + 3] = mine and 0 or forgotten and math.max(now - forgotten, 0) + 2 or 1
o = o + 3
--@ if cluster
--@ else
at = at + 1
--@ end
