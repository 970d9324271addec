# Copyright (C) the limit_sliding authors

# Draws what memory.pl measures: gnuplot -c memory.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,400 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8
set datafile separator "\t"

is_peer(name) = name eq 'limit_req' || strstrt(name, 'Lua') == 1 \
    || strstrt(name, 'HAProxy') == 1

stats data using 0 nooutput

set lmargin at screen 0.2
set rmargin at screen 0.95
set tmargin at screen 0.86
set bmargin at screen 0.1
set border 1 linecolor '#888888'
set tics textcolor '#444444'
unset ytics
set xtics 10000 nomirror out format "%'g"
set grid xtics linecolor '#dddddd' linetype 1 linewidth 0.6
set xrange [0:71000]
set yrange [STATS_records - 0.4:-0.6]
set style fill solid noborder
unset key

set label 1 '{/=17:Bold Keys that a megabyte of shared memory holds}' \
    at screen 0.02, screen 0.93

plot data using (0):0:(0):2:($0 - 0.3):($0 + 0.3) \
        :(is_peer(strcol(1)) ? 0x777777 : 0x1a3e6e) \
        with boxxyerror linecolor rgb variable, \
    data using 2:0:(sprintf(' %.0f', $2)) with labels left font ',10' \
        textcolor '#444444', \
    data using (0):0:(strcol(1).'  ') with labels right noenhanced \
        textcolor '#444444'
