# Copyright (C) the limit_sliding authors

# Draws what core.c measures: gnuplot -c core.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,440 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8
set datafile separator "\t"

own = '#1a3e6e'
base = '#5b9bd5'
peer = '#c0392b'

set multiplot
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set border 3 linecolor '#888888'
set tics textcolor '#444444' nomirror out
set logscale xy
set xrange [700:14000000]
set yrange [10:20000]
set xtics ('1,000' 1e3, '10,000' 1e4, '100,000' 1e5, '1 M' 1e6, '10 M' 1e7)
set ytics ('10' 10, '100' 100, '1,000' 1e3, '10,000' 1e4)
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set xlabel 'keys' offset 0,0.3
set size 0.42, 0.59

set label 1 '{/=17:Bold A decision of the core, in ns}' \
    at screen 0.06, screen 0.945
set key at screen 0.98, screen 0.965 right top horizontal samplen 2 maxrows 1

do for [i = 1:2] {
    set origin 0.075 + 0.49 * (i - 1), 0.16
    set label 3 '{/:Bold '.(i == 1 ? 'one process' : 'two processes') \
        .'}; dashed: zipf 0.99' at graph 0, graph 1.05

    plot data index 2 * i - 2 using 1:2 with linespoints linewidth 2 \
            pointtype 7 pointsize 0.4 linecolor rgb own \
            title 'limit\_sliding', \
        data index 2 * i - 2 using 1:3 with linespoints linewidth 2 \
            pointtype 7 pointsize 0.4 linecolor rgb peer \
            title 'rbtree, LRU, lock', \
        data index 2 * i - 2 using 1:4 with linespoints linewidth 2 \
            pointtype 7 pointsize 0.4 linecolor rgb base \
            title 'SipHash, one miss', \
        data index 2 * i - 1 using 1:2 with lines linewidth 2 \
            dashtype 3 linecolor rgb own notitle, \
        data index 2 * i - 1 using 1:3 with lines linewidth 2 \
            dashtype 3 linecolor rgb peer notitle, \
        data index 2 * i - 1 using 1:4 with lines linewidth 2 \
            dashtype 3 linecolor rgb base notitle

    unset key
    unset label 1
}

unset multiplot
