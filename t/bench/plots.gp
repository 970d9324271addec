# Copyright (C) the limit_sliding authors

# Draws what plots.c prints: gnuplot -c plots.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,800 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

names = "'counter' 'counter precision=1' 'log' 'fixed' 'token\\_bucket'" \
    ." 'leaky\\_bucket burst=30'"

# Bars of so many seconds.
bar = 5
middle(second) = bar * (floor(second / bar) + 0.5)

set multiplot

set xrange [0:300]
set xtics 60 nomirror out
set mxtics 2
set ytics nomirror out
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set boxwidth 0.85 * bar
set style fill solid noborder

# The legend draws functions of which nothing is to be seen.
set key at screen 0.99, screen 0.936 right top horizontal samplen 2 width 1
set label 1 "{/=17:Bold The same bursts under each algorithm:" \
    ." 60 requests a minute}" \
    at screen 0.05, screen 0.965
set label 3 '{/:Bold what comes in}, requests in 5 s' at graph 0, graph 1.12

set origin 0.05, 0.745
set size 0.935, 0.12
set yrange [0:170]
set ytics 80
set format x ''
plot data index 0 using (middle($1)):2 smooth frequency with boxes \
        linecolor '#aaaaaa' notitle, \
    -1 with boxes linecolor '#5b9bd5' title 'admitted in 5 s', \
    -1 with lines linewidth 2 linecolor '#1a3e6e' \
        title 'admitted in the last 60 s', \
    -1 with lines dashtype 2 linewidth 1.2 linecolor '#c0392b' \
        title 'the limit of these'

unset key
unset label 1
set yrange [0:130]
set ytics 60
set size 0.445, 0.17

do for [i = 1:6] {
    column = (i - 1) % 2
    row = (i - 1) / 2

    set origin 0.05 + 0.49 * column, 0.53 - 0.227 * row
    set label 3 '{/:Bold '.word(names, i).'}' at graph 0, graph 1.09
    set format x (row == 2 ? '%g' : '')
    set xlabel (row == 2 ? 'seconds; a minute ends at 60, 120, ...' : '') \
        offset 0,0.3

    plot data index i using (middle($1)):3 smooth frequency with boxes \
            linecolor '#5b9bd5', \
        60 with lines dashtype 2 linewidth 1.2 linecolor '#c0392b', \
        data index i using 1:4 with lines linewidth 2 linecolor '#1a3e6e'
}

unset multiplot
