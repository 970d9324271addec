# Copyright (C) the limit_sliding authors

# Draws what fleet_sync.cpp prints: gnuplot -c fleet_sync.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,420 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

strict = '#aaaaaa'
coalesced = '#5b9bd5'
leased = '#1a3e6e'
fast = '#f0b27a'
middle = '#d35400'
slow = '#78281f'

# an axis of powers has no 0
drawn(share) = share < 0.001 ? 0.001 : share

set multiplot

set logscale xy
set xrange [1:1000]
set xtics nomirror out ('1' 1, '10' 10, '100' 100, '1,000' 1000)
set ytics nomirror out
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set size 0.235, 0.56
set xlabel 'nodes' offset 0,0.3
set key at graph 1, graph 0.02 right bottom vertical samplen 1.5
set label 1 "{/=17:Bold One key of 10,000 a minute}" \
    at screen 0.08, screen 0.94

set origin 0.08, 0.2
set label 3 '{/:Bold 90% demand}: calls a request' at graph 0, graph 1.08
set yrange [0.0005:1.5]
set ytics (1, '1/10' 0.1, '1/100' 0.01, '1/1,000' 0.001)

plot data index 8 using 1:2 with lines linewidth 4 linecolor rgb strict \
        title 'strict', \
    data index 8 using 1:4 with lines linewidth 2 linecolor rgb coalesced \
        title 'coalesced', \
    data index 8 using 1:6 with lines linewidth 2 linecolor rgb leased \
        title 'leased', \
    data index 8 using 1:8 with lines linewidth 2 linecolor rgb fast \
        title 'sync=10ms', \
    data index 8 using 1:10 with lines linewidth 2 linecolor rgb middle \
        title '100ms', \
    data index 8 using 1:12 with lines linewidth 2 linecolor rgb slow \
        title '1s'

unset key
unset label 1
set yrange [0.001:200]
set ytics ('0.001%%' 0.001, '0.01%%' 0.01, '0.1%%' 0.1, '1%%' 1, '10%%' 10, \
    '100%%' 100)

set origin 0.405, 0.2
set label 3 '{/:Bold 200%, for long}: over the limit' at graph 0, graph 1.08

plot for [i = 4:6] data index 9 using 1:(drawn(column(2 * i + 1))) with lines linewidth 2 \
    linecolor rgb (i == 4 ? fast : i == 5 ? middle : slow)

set origin 0.73, 0.2
set label 3 '{/:Bold 1,000%, from nothing}: over the limit' \
    at graph 0, graph 1.08

plot for [i = 4:6] data index 10 using 1:(drawn(column(2 * i + 1))) with lines linewidth 2 \
    linecolor rgb (i == 4 ? fast : i == 5 ? middle : slow)

unset multiplot
