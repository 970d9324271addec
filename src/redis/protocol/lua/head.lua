-- Copyright (C) the limit_sliding authors

-- The head of a claim, which describes it, and, at the first claim of an ask,
-- the ask.  scripts.hpp lists the fields.  Claims with equal heads follow each
-- other, so all that depends on the head alone is computed once.

--@ chunk head
local head, algorithm, purpose, claims, units, is_strict, is_recorded, is_held
local head_window, head_limit, extra, head_cost, head_own
--@ if settles
local head_pace
--@ end
--@ if give_back
local taken, taken_1, taken_2, taken_own
--@ end
--@ if counter
local head_parts, head_part, head_elapsed, head_mark, head_format, head_size
--@ end
--@ if bucket
local leased
--@ end
--@ if syncs
local is_synced, life, acked, total
--@ end
--@ if fixed
local offsets
--@ end

--@ chunk head.read
local at, deadline
head = text
algorithm, purpose, claims, units, is_strict, is_recorded, is_held, head_window,
  head_limit, extra, head_cost, head_own, deadline, at
  = unpack_('>I1I1I1I4I1I1I1I5I7I4I7I5I7', head)
-- A Redis that hangs may run a call long after the node has stopped waiting.
-- The call would charge a later time then, so it does nothing.  All heads of
-- a call have one deadline.
if now > deadline then return {err = 'LATE ' .. now} end
--@ if syncs
is_synced = is_held > 1
--@ end
is_strict, is_recorded, is_held = is_strict > 0, is_recorded > 0, is_held == 1
if head_own == 0 then head_own = nil end
--@ if settles
head_pace, at = unpack_('>I7', head, at)
--@ end
--@ if give_back
if purpose == 2 then
  taken, taken_1, taken_2, taken_own, at = unpack_('>I7I7I7I5', head, at)
end
--@ end
--@ if counter
if algorithm == 0 then
  local limit, w, p, part, e, mark, format, size = head_limit, head_window
  --@ include counter.parts
  head_parts, head_part, head_elapsed, head_mark, head_format, head_size
    = p, part, e, mark, format, size
end
--@ end
--@ if bucket
leased = purpose == 3 and unpack_('>I4', head, at)
--@ end
--@ if syncs
if is_synced then life, acked, total, at = unpack_('>I6i7i7', head, at) end
--@ end
--@ if fixed
offsets = nil
if algorithm == 2 and extra > 7 then
  extra, offsets = extra - 8, {}
  for j = 1, (#head - at + 1) / 8 do
    offsets[j] = unpack_('>i8', head, at + 8 * j - 8)
  end
end
--@ end
