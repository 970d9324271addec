# Copyright (C) the limit_sliding authors

# Draws what fleet_figures.cpp prints: gnuplot -c fleet.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,1020 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

strict = '#aaaaaa'
coalesced = '#5b9bd5'
leased = '#1a3e6e'
limit = '#c0392b'

set multiplot

set logscale xy
set format x '10^{%L}'
set format y '%g'
set xtics nomirror out
set ytics nomirror out
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set size 0.4, 0.2

top(row) = 0.715 - 0.315 * row
left(column) = 0.075 + 0.49 * column

set key at screen 0.965, screen 0.978 right top horizontal samplen 2 \
    width -2
set label 1 "{/=17:Bold 1,000 nodes, 10^9  keys," \
    ." 10^7  requests a second}" at screen 0.075, screen 0.978

nodes = "'10' '1,000'"
names = "'1,000 a minute' '1,000,000 a minute'"

set yrange [0.0008:1.5]
set ytics (1, '1/10' 0.1, '1/100' 0.01, '1/1,000' 0.001)

do for [i = 0:1] {
    set origin left(i), top(0)
    set label 3 '{/:Bold a limit of '.word(names, i + 1).'}: calls a request' \
        at graph 0, graph 1.1
    set xlabel 'rank of the key' offset 0,0.3
    set xrange [1:1e6]

    plot data index i using 1:2 with lines linewidth 4 linecolor rgb strict \
            title 'strict', \
        data index i using 1:3 with lines linewidth 2 \
            linecolor rgb coalesced title 'coalesced', \
        data index i using 1:4 with lines linewidth 2 linecolor rgb leased \
            title 'leased', \
        data index i using 1:5 with lines linewidth 2 dashtype 3 \
            linecolor rgb leased notitle
    unset key
    unset label 1
}

do for [i = 0:1] {
    set origin left(i), top(1)
    set label 3 '{/:Bold one key of 1,000,000, '.word(nodes, i + 1) \
        .' nodes}: calls a request' at graph 0, graph 1.1
    set xlabel 'demand, of the limit' offset 0,0.3
    set xrange [0.01:5.7]
    set xtics ('1%%' 0.01, '10%%' 0.1, '100%%' 1)
    set arrow 1 from 1, graph 0 to 1, graph 1 nohead dashtype 2 \
        linewidth 1.2 linecolor rgb limit

    set key at graph 0.02, graph 0.05 left bottom samplen 2 Left reverse

    plot data index 2 + i using 1:2 with lines linewidth 4 \
            linecolor rgb strict notitle, \
        data index 2 + i using 1:3 with lines linewidth 2 \
            linecolor rgb coalesced notitle, \
        data index 2 + i using 1:4 with lines linewidth 2 \
            linecolor rgb leased notitle, \
        data index 2 + i using 1:5 with lines linewidth 2 dashtype 3 \
            linecolor rgb leased title 'leased, if refused until a unit is free'
}

unset arrow 1
set xrange [1:3000]
set xlabel 'nodes' offset 0,0.3
set xtics ('1' 1, '10' 10, '100' 100, '1,000' 1000)

set origin left(0), top(2)
set label 3 '{/:Bold leased, by nodes}: calls a request' at graph 0, graph 1.1
set yrange [0.00001:1.5]
set ytics (1, '1/10' 0.1, '1/100' 0.01, '1/1,000' 0.001)
set key at graph 0.98, graph 0.03 right bottom vertical samplen 2 \
    Right noreverse

plot data index 4 using 1:2 with lines linewidth 2 linecolor rgb leased \
        title '1,000,000 a minute, 90% demand', \
    data index 5 using 1:2 with lines linewidth 2 dashtype 3 \
        linecolor rgb leased title '100%', \
    data index 6 using 1:2 with lines linewidth 2 linecolor rgb coalesced \
        title '1,000 a minute, 90%', \
    data index 7 using 1:2 with lines linewidth 2 dashtype 3 \
        linecolor rgb coalesced title '100%'

set origin left(1), top(2)
set label 3 '{/:Bold leased, by nodes}: units lapsed, requests rejected' \
    at graph 0, graph 1.1
unset logscale y
set yrange [0:1.5]
set ytics ('0%%' 0, '0.5%%' 0.5, '1%%' 1, '1.5%%' 1.5)
set key at graph 0.02, graph 0.98 left top vertical samplen 2 Left reverse

plot data index 6 using 1:3 with lines linewidth 2 linecolor rgb coalesced \
        title 'lapsed, 1,000 a minute, 90% demand', \
    data index 4 using 1:3 with lines linewidth 2 linecolor rgb leased \
        title 'lapsed, 1,000,000 a minute, 90%', \
    data index 5 using 1:4 with lines linewidth 2 dashtype 3 \
        linecolor rgb limit title 'rejected, 1,000,000 a minute, 100%'

unset multiplot
