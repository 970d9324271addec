#!/bin/sh
# Copyright (C) the limit_sliding authors

# Makes a text into what stands between the braces of an array in C: its bytes.
# The text is what sed prints when it is called with the other arguments.
# Usage: embed.sh OUTPUT SED_ARGUMENT...

set -e
output=$1
shift

# A pipe would hide the failure of a command that is not its last one.
sed "$@" > "$output.txt"
od -An -v -tx1 "$output.txt" > "$output.od"
sed 's/[0-9a-f][0-9a-f]/0x&,/g' "$output.od" > "$output"
