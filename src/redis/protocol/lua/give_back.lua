-- Copyright (C) the limit_sliding authors

-- Refunds a claim, which is always granted: to the debt of the key first.

--@ chunk give_back
local gives = pass == 2 and (taken == 0 or (own or 0) == taken_own)
--@ if settles
if gives and owed > 0 then
  local less = math.min(cost, owed)
  cost, owed = cost - less, owed - less
  --@ include debt.save
  gives = cost > 0
end
--@ end
if not gives then
  -- Only the second pass refunds.  Units that were granted in another window
  -- than the key has now stay in the history of that window.
--@ if counter
elseif algorithm == 0 then
  --@ include counter.give_back
--@ end
--@ if log
elseif algorithm == 1 then
  --@ include log.give_back
--@ end
--@ if fixed
elseif algorithm == 2 then
  --@ include fixed.give_back
--@ end
--@ if bucket
elseif algorithm > 2 then
  --@ include bucket.give_back
--@ end
end
