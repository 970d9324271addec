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
-- A      the arguments
-- names  the names of the keys that are read, see read_values.lua
-- got    the values of these keys, as they were read
-- S      the states that were written since, by name
-- out    the reply
-- kinds  the kinds of claims, each with these fields:
--          [1]   algorithm: 0 COUNTER, 1 LOG, 2 FIXED, 3 and 4 the buckets
--          [2]   window of the zone in ms
--          [3]   limit, unless the key has an override
--          [4]   precision of a COUNTER, 0: auto; burst of a bucket; calendar
--                of FIXED, see `cal`
--          [5]   cost
--          [6]   true if nothing is recorded
--          [7]   number of values of such a claim in the reply; a COUNTER sets
--                its own
--          [8]   digest of the configuration, with the zone's window.  A state
--                begins with it, and is ignored if its digest is another one.
--          [9]   true if a COUNTER is strict
--          [10]  of a refund: time of the grant in ms, else nil
--          [11]  of a refund: first value of the reply then
--          [12]  of a refund: second value of the reply then
--          [13]  number of leased units, nil if none may be leased
--          [14]  true if the node has leased units of the key left
--          [15]  true if the units are charged
--          [16]  requested window, if it is not the zone's
--          [17]  of a refund: window in which the units were granted; 0: the
--                zone's
--          [18]  of FIXED with a local calendar: offsets from UTC in order,
--                each with its begin, and the ms that are added
--          [19]  true if rejected units are recorded
--          [20]  units of a debt that a window pays, unless the key has an
--                override
--
-- These locals, which all chunks use, describe the window of a claim:
--
-- w      its length in ms
-- cal    of FIXED: 1 day, 2 week, 3 month, 4 year; 0: all have that length
-- id     digest of the configuration with this window
-- key    name of the state
-- own    the window as a number, if it is not the zone's: its calendar, or its
--        ms.  The name of the state is KEY:own then, so that each window of a
--        key has a separate history.

--@ chunk call
local T = redis.call('TIME') local now = T[1] * 1000 + math.floor(T[2] / 1000)
local A, S, out, names, got = ARGV, {}, {now}, nil, nil
local floor, call = math.floor, redis.call
local pack, unpack_ = struct.pack, struct.unpack
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

local kinds, a = {}, 2
for i = 1, A[1] do
  local algorithm, w, limit = A[a] + 0, A[a + 1] + 0, A[a + 2] + 0
  local extra, look, own = A[a + 3] + 0, A[a + 5] + 0, nil
  if algorithm > 7 then algorithm, own = algorithm - 8, true end
  local strict = algorithm == 0 and extra > 63
  if strict then extra = extra - 64 end
  local paced = look > 31
  if paced then look = look - 32 end
  local rejected = look > 15
  if rejected then look = look - 16 end
  kinds[i] = {algorithm, w, limit, extra, A[a + 4] + 0, look == 1,
    algorithm == 0 and 4 or algorithm == 1 and 3 or algorithm == 2 and 1 or 2,
    (w + algorithm * 8191 + (algorithm < 3 and extra * 131 or 0)) % 65521,
    strict}
  a = a + 6
  --@ if rejected
  kinds[i][19] = rejected
  --@ end
  --@ if settles
  kinds[i][20] = limit
  if paced then
    kinds[i][20] = A[a] + 0
    a = a + 1
  end
  --@ end

  --@ if give_back
  if look == 2 then
    for j = 0, 2 do kinds[i][10 + j] = A[a + j] + 0 end
    kinds[i][7], kinds[i][17] = 1, A[a + 3] + 0
    a = a + 4
  end
  --@ end
  --@ if bucket
  if look == 3 or look == 11 then
    kinds[i][13] = A[a] + 0
    a = a + 1
  end
  --@ end
  kinds[i][14] = look == 8 or look == 11
  --@ if settles
  kinds[i][15] = look == 4
  --@ end
  if own then
    kinds[i][16] = A[a] + 0
    a = a + 1
  end
  --@ if fixed
  if algorithm == 2 and extra > 7 then
    local offsets = {}
    for j = 1, A[a] do offsets[j] = A[a + j] + 0 end
    kinds[i][4], kinds[i][18] = extra - 8, offsets
    a = a + 1 + #offsets
  end
  --@ end
end

-- Each ask is for n units of m claims; g units are granted.  If an ask has
-- several claims, a first pass decides them, and a second pass decides again
-- and records.  The values of a claim follow out[o].
local first, place = 1, 2
while names[first] do
  local n, m = (A[a] or 1) + 0, (A[a + 1] or 1) + 0
  local g, o, here = n, place, first
  out[place] = n
  for pass = m == 1 and 2 or 1, 2 do
    o, here = place, first
    for j = 1, m do
      local k, key = kinds[(A[a + 1 + j] or 1) + 0], names[here]
      local w, cal, id, limit, cost = k[2], k[4], k[8], k[3], k[5]
      local values, own, blocked, free = k[7], k[16], false, nil
      local s, text = S[key] or got[here], got[here + 1]
      o = o + 1
      out[o] = limit
      --@ if settles
      local told, pace, lost = o, k[20], 0
      --@ end
      if text then
        --@ include own_limit
      end
      if own then
        --@ include own_window
      end
      --@ if settles
      --@ include debt
      --@ end

      -- An algorithm writes its values, and sets `free` to the units that its
      -- history has room for; `grant` then sets the units to record.  For a
      -- charge, `lost` is the number of units that cannot be owed either.
      if limit == 0 then
        for i = 1, values do out[o + i] = 0 end
        if blocked and not k[10] and not k[15] then g = 0 end
      --@ if give_back
      elseif k[10] then
        --@ include give_back
      --@ end
      --@ if counter
      elseif k[1] == 0 then
        --@ include counter
      --@ end
      --@ if log
      elseif k[1] == 1 then
        --@ include log
      --@ end
      --@ if fixed
      elseif k[1] == 2 then
        --@ include fixed
      --@ end
      --@ if bucket
      elseif k[1] > 2 then
        --@ include bucket
      --@ end
      end

      --@ if settles
      if k[15] then values, out[o + 1] = 1, lost end
      --@ end

      -- The mark tells when forget.lua deleted the state of this key.
      if k[14] then
        --@ if cluster
        local mark = pass == 2
          and redis.pcall('GET', names[here] .. ':forgotten')
        mark = tonumber(type(mark) == 'string' and mark)
        --@ else
        local mark = tonumber(got[here + step])
        here = here + 1
        --@ end
        values = values + 1
        out[o + values] = mark and math.max(now - mark, 0) + 1 or 0
      end
      o, here = o + values, here + step
    end
  end
  out[place], place, first, a = g, o + 1, here, a + 2 + m
end

--@ if settles
-- Removes numbers of a charge, or of a first pass, behind the reply.
for i = #out, place, -1 do out[i] = nil end
--@ end
return out
