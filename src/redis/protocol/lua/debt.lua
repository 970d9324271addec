-- Copyright (C) the limit_sliding authors

-- Debts, in scripts for settled costs.
--
-- Units of a charge that the limit has no room for are a debt of the key.  It
-- is stored beside the history, and counts as used.  Each window after `from`
-- pays `pace` units, the limit of the key or of its zone: docs/algorithms.md
-- has the rule.  Times are in eighths of a window, as in core/facts/debts.hpp;
-- for FIXED only begins of windows.
--
-- A debt is a string at <key of the state>:debt, with the version, the units,
-- `from`, and the pace that its expiry depends on: under a lower pace it is
-- written again, to last longer.  All times are of the server's clock.

-- Sets `owed` to the units of the debt now, 0 if there is none; the reply has
-- `owed_units` and `owed_from`.  Sets `eighth` to the present time, and `drain`
-- to the ms in which a full history runs off; a bucket sets its own.  For a
-- charge, the limit is the pace from here on.
--@ chunk debt
local debt, owed, from, drain = names[at + 2], 0, 0, w
local owed_units, owed_from
local moment, window, eighth, entry = now, nil, nil, got[at + 2]
if own then
  debt = key .. ':debt'
  entry = pcall('MGET', debt)[1]
end
entry = S[debt] or entry
if limit > 0 and (entry or purpose == 4) then
  if algorithm == 2 then
    --@ include window
    eighth = window * 8
  else
    eighth = floor(now * 8 / w)
  end
  if entry and #entry == 22 then
    local units, since, slowest = unpack_('>I7I6I7', entry, 3)
    -- A full history runs off in a window, that of a bucket in more, so a debt
    -- that begins later is of a clock that was set back.
    local latest = eighth + 8 + (algorithm == 2 and 0 or 1)
    local is_far = since > latest
    if is_far and algorithm > 2 then
      is_far = s and #s > 7 and unpack_('>I6', s, 3) > now + w
    end
    if is_far then since = latest end
    local paid = floor(math.max(eighth - since, 0) / 8)
    local left = units - pace * paid
    if left > 0 then owed, from = units, since end
    if pass == 2 and (left <= 0 or pace < slowest or is_far) then
      --@ include debt.save
    end
    if left > 0 then owed, from = left, since + 8 * paid end
  end
  if owed > 0 then
    override = override + 1125899906842624
    owed_units, owed_from = owed, from
  end
  if purpose == 4 then limit = pace end
end

-- Writes the debt, or deletes it when it is paid.  It lasts for a window
-- longer than it takes to pay it, within 3,000 years.
--@ chunk debt.save
if owed > 0 then
  local windows = math.ceil((from - eighth) / 8) + 1 + math.ceil(owed / pace)
  local key, s, keep, lasts = debt, nil, false, windows * w
  --@ if fixed
  if algorithm == 2 and cal > 0 then
    --@ include calendar.lasts
  end
  --@ end
  lasts = math.min(lasts, 1e14)
  s = pack('>I2I7I6I7', version, owed, from, pace)
  --@ include save
elseif entry then
  S[debt] = ''
  call('DEL', debt)
end

-- Sets `added` to the units of debt and charge that the history has room for.
-- The others are owed; units beyond 1,000 windows, or beyond the range of
-- numbers, are lost.  The full history runs off before a new debt is paid.
--@ chunk debt.charge
if pass == 2 then
  local room = math.max(free, 0)
  local most = math.min(1000 * pace, 9007199254740991 - room) + room - owed
  if cost > most then
    lost = cost - math.max(most, 0)
    cost = cost - lost
  end
  added = math.min(owed + cost, room)
  if room > 0 or owed == 0 then
    local ends = algorithm == 2 and eighth + 8 or -floor(-(now + drain) * 8 / w)
    from = math.max(owed > 0 and from or 0, ends)
  end
  owed = owed + cost - added
  --@ include debt.save
end
