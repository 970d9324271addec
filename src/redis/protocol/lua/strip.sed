# Takes out of Lua what Redis does not need: indentation, blank lines, and whole
# lines of comments, but not the lines that scripts.cpp reads: those with "--@".
s/^ *//
/^$/d
/^--$/d
/^--[^@]/d
