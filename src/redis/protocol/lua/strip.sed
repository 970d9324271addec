# Removes from Lua the parts that Redis does not need: indentation, blank lines,
# and lines of comments, except for lines with "--@", which scripts.cpp reads.
s/^ *//
/^$/d
/^--$/d
/^--[^@]/d
