-- Copyright (C) the limit_sliding authors

-- The script that decides limits.  scripts.hpp describes its arguments and its
-- reply.
--
-- The files of this directory consist of chunks, which are sequences of
-- statements.  The build removes comments and indentation, and scripts.cpp
-- joins the chunks, as lines with these directives say:
--
-- chunk NAME    begins a chunk, which ends where the next one begins
-- include NAME  stands for that chunk
-- if NAME       begins lines, up to "else" or "end", that are only in scripts
--               for this algorithm, for a cluster, for settled costs, for
--               refunds, or for recording rejected requests; not nested
--
-- A chunk uses the locals of the chunk that includes it, and sets the locals
-- that its comment names.  Chunks are not functions, because Redis would
-- create these anew for every call.  It creates tables anew, too: to fill them
-- in order costs least.  Text becomes a number by "+ 0", which costs less than
-- tonumber().
--
-- The clock of the server may be set back, or a failover may lead to a server
-- with another clock.  A state that lies more than a window in the future
-- counts as none.  Else its key might be rejected until the clock reaches it.
--
-- These locals are of the call:
--
-- names, got  the names and values of the keys, see read_values.lua
-- S     the states that were written since, by name
-- out   the reply, and `o` its length
-- i, at the number of the claim, and the place of its state in `names`
-- pass  1 if the claim is decided only, 2 if it is recorded as well
-- n, g  the units of the ask, and those that are granted
--
-- These are of the claim:
--
-- key       name of the state
-- s         the state
-- limit     limit in force
-- w         length of the window in ms
-- cal       of FIXED: 1 day, 2 week, 3 month, 4 year; 0: all windows have the
--           length w
-- own       the window as a number, if it is not the zone's: its calendar, or
--           its ms.  The state has another name then, so that each window of
--           a key has a separate history
-- override  what the reply tells of the limit, A + B of scripts.hpp; 0: nothing
-- cost      units of a request
-- free      units that the history has room for

--@ chunk call
local T = redis.call('TIME') local now = T[1] * 1000 + math.floor(T[2] / 1000)
local floor, call, pcall = math.floor, redis.call, redis.pcall
local pack, unpack_ = struct.pack, struct.unpack
local sub, byte, rep = string.sub, string.byte, string.rep
local KEYS, ARGV = KEYS, ARGV

-- States and debts begin with the version of their format, in two bytes.  One
-- with another version is of another version of this module, and its counts
-- must not be lost: the claim is not decided.
local version = 1
--@ if settles
local step = 3
--@ else
local step = 2
--@ end

--@ if cluster
--@ include read_values.in_cluster
--@ else
--@ include read_values
--@ end
--@ if log
--@ include log.functions
--@ end
--@ if bucket
--@ include bucket.functions
--@ end
--@ include head

local S, out, o = {}, {now, 0, 0}, 1
local i, at, first, first_at, last = 1, 1, 1, 1, 0
local place, pass, n, g = 2, 2, 1, 1
while names[at] do
  local text = ARGV[i]
  if text and text ~= head and text ~= '' then
    --@ include head.read
  end
  if i > last then
    first, first_at, last, place = i, at, i + claims - 1, o + 1
    n, g, pass, o = units, units, claims > 1 and 1 or 2, place
  end

  local key, limit, cost = names[at], head_limit, head_cost
  local w, cal, own = head_window, extra, head_own
  local override, free = 0, nil
  local s, text = S[key] or got[at], got[at + 1]
  --@ if settles
  local pace = head_pace
  --@ end
  if text then
    --@ include override
  end
  if own then
    --@ include other_window
  end
  --@ if settles
  --@ include debt
  --@ end
  if s and (algorithm == 1 or byte(s, 2) ~= version)
  --@ if settles
    or entry and entry ~= '' and byte(entry, 2) ~= version
  --@ end
  then
    limit, override = 0, 3
    --@ if settles
    owed_units = nil
    --@ end
  end
  if override > 0 then
    --@ include override.reply
  end

  --@ if syncs
  local totals, entries, others, mine, loose, kept, forgotten
    = key .. ':totals', nil, 0, nil, 0, {}, nil
  if is_synced and limit > 0 then
    --@ include totals
  end
  --@ end

  -- An algorithm writes its values, and sets `free` to the units that its
  -- history has room for; `grant` then sets the units to record.  `lost` is
  -- the number of units of a charge that the key cannot owe.
  local lost, values = 0, 1
  if limit == 0 then
    values = 0
    if override ~= 1 and purpose ~= 2 and purpose ~= 4 then g = 0 end
  --@ if give_back
  elseif purpose == 2 then
    --@ include give_back
  --@ end
  --@ if counter
  elseif algorithm == 0 then
    --@ include counter
  --@ end
  --@ if log
  elseif algorithm == 1 then
    --@ include log
  --@ end
  --@ if fixed
  elseif algorithm == 2 then
    --@ include fixed
  --@ end
  --@ if bucket
  elseif algorithm > 2 then
    --@ include bucket
  --@ end
  end
  --@ if give_back
  if purpose == 2 or purpose == 4 then values, out[o + 1] = 1, lost end
  --@ end
  o = o + values

  --@ if syncs
  if is_synced then
    --@ include totals.save
  end
  --@ end

  -- The mark tells when forget.lua deleted the state of this key.
  if is_held then
    --@ if cluster
    local mark = pass == 2 and pcall('GET', names[at] .. ':forgotten')
    mark = tonumber(type(mark) == 'string' and mark)
    --@ else
    local mark = tonumber(got[at + step])
    at = at + 1
    --@ end
    o = o + 1
    out[o] = mark and math.max(now - mark, 0) + 1 or 0
  end
  at = at + step

  -- If an ask has several claims, a first pass decides them, and a second pass
  -- decides again and records.
  if i < last then
    i = i + 1
  elseif pass == 1 then
    i, at, o, pass = first, first_at, place, 2
  else
    out[place] = g
    i = i + 1
  end
end

-- Removes what a first pass, or a charge, has left behind the reply.
for j = #out, o + 1, -1 do out[j] = nil end
return out
