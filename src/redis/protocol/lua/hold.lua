-- Copyright (C) the limit_sliding authors

-- A separate script: it sets the units that a holder, see heartbeat.lua, has of
-- some keys.
--
-- KEYS  the heartbeat of the holder; the grace; of each key its units, KEY;
--       and, if there is a LIMIT, KEY:limit
-- ARGV  the epoch of the holder; the life of the units in ms; of each key
--       "BASE WANTED LIMIT": the units that requests hold, how many more are
--       wanted, and the limit; or "BASE" to give units back; empty or left out
--       at the end: as the key before
--
-- The units of a key are "ID:UNITS ID:UNITS ...", by the ids of holders, 16 hex
-- digits.  Units of a holder without a heartbeat do not count.  BASE is always
-- granted: these requests run, whatever the limit is.
--
-- The reply is a flat array of integers: 0 if the epoch is not that of the
-- heartbeat, and nothing was changed; else 1, or in a grace, when nothing is
-- granted beyond BASE, 1 more than the ms that are left of it; and of each key
-- the granted units beyond BASE and the units of all holders, after its terms,
-- as in the reply of call.lua, if it has an override.

--@ chunk hold
local call, match = redis.call, string.match
local gmatch, sub = string.gmatch, string.sub
local KEYS, ARGV = KEYS, ARGV
local me, names = sub(KEYS[1], -16), sub(KEYS[1], 1, -17)
local got, life = call('MGET', unpack(KEYS)), ARGV[2]
if got[1] ~= ARGV[1] then return {0} end

-- Most keys of a call have the numbers of the key before, so `mine`, the text
-- of the holder's units, is kept for the next key.
local grace = got[2] and call('PTTL', KEYS[2]) or 0
local out, o, gone, ngone = {1 + grace}, 1, nil, 0
local base, wanted, head_limit, mine, mine_held

-- An override is a limit without a window, and as small as one of LOG.
local algorithm, w, cal = 1, 0, 0
local i, at = 3, 3
while KEYS[i] do
  local numbers, key = ARGV[at], KEYS[i]
  if numbers and numbers ~= '' then
    base, wanted, head_limit = match(numbers, '^(%d+) ?(%d*) ?(%d*)$')
    base, wanted, head_limit = base + 0, tonumber(wanted), tonumber(head_limit)
  end

  local state, limit, text = got[i], head_limit, nil
  i, at = i + 1, at + 1
  if limit then
    text = got[i]
    i = i + 1
  end
  if text then
    local override, own
    --@ include override
    --@ include override.reply
    if override == 1 then limit = 1e15 end
  end
  local others, rest = 0, ''
  if state and not (#state < 34 and sub(state, 1, 16) == me) then
    local ids, units, n = nil, nil, 0
    for id, number in gmatch(state, '(%x+):(%d+)') do
      if id ~= me and #id == 16 then
        ids, units, n = ids or {}, units or {}, n + 1
        ids[n], units[n] = names .. id, number
      end
    end
    -- In pieces, because a function gets some 8,000 arguments at most.
    for first = 1, n, 1000 do
      local last = first + 999 < n and first + 999 or n
      local all = call('EXISTS', unpack(ids, first, last)) == last - first + 1
      for j = first, last do
        if all or call('EXISTS', ids[j]) == 1 then
          others = others + units[j]
          ids[j] = ' ' .. sub(ids[j], -16) .. ':' .. units[j]
        else
          ids[j] = ''
        end
      end
    end
    if n > 0 then rest = table.concat(ids) end
  end

  local granted = 0
  if grace == 0 and limit and limit - others > base then
    granted = limit - others - base
    if granted > wanted then granted = wanted end
  end
  local held = base + granted
  if held > 0 then
    if held ~= mine_held then mine, mine_held = me .. ':' .. held, held end
    call('PSETEX', key, life, rest == '' and mine or mine .. rest)
  elseif rest ~= '' then
    call('PSETEX', key, life, sub(rest, 2))
  elseif state then
    gone, ngone = gone or {}, ngone + 1
    gone[ngone] = key
  end
  out[o + 1], out[o + 2] = granted, others + held
  o = o + 2
end

if gone then call('DEL', unpack(gone)) end
return out
