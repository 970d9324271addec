-- Copyright (C) the limit_sliding authors

-- Numbers of windows, by the clock of the server.  Windows of the calendar are
-- numbered as in core/policy/calendar.hpp.

-- Sets `window` to the number of the window at `moment`.
--@ chunk window
window = (moment - moment % w) / w
--@ if fixed
if algorithm == 2 and cal > 0 then
  --@ include calendar
end
--@ end

-- Does the same for a window of the calendar.  While the local clock shows a
-- time for the second time, after it was set back, `time` stands still.  Months
-- are counted from March of the year 0, 23638 months before January 1970, so
-- that a leap day is the last day of its year.
--@ chunk calendar
local time = moment
if offsets then
  local shown, offset = 0, offsets[2]
  for i = 3, #offsets, 2 do
    if offsets[i] > moment then break end
    shown, offset = math.max(shown, offsets[i] + offset - 1), offsets[i + 1]
  end
  time = math.max(moment + offset, shown)
end
window = floor(time / 86400000)
if cal == 2 then
  window = floor((window + 3) / 7)
elseif cal > 2 then
  local since = window + 719468
  local rest = since % 146097
  local years = floor((rest - floor(rest / 1460) + floor(rest / 36524)
    - floor(rest / 146096)) / 365)
  local day = rest - 365 * years - floor(years / 4) + floor(years / 100)
  window = (floor(since / 146097) * 400 + years) * 12
    + floor((5 * day + 2) / 153) - 23638
  if cal == 4 then window = floor(window / 12) end
end

-- Sets `lasts` to a time in ms in which `windows` windows are sure to end.
--@ chunk calendar.lasts
lasts = floor(windows * w * 1.04) + 172800000
