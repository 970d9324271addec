# Copyright (C) the limit_sliding authors

# Draws the last two blocks of what accuracy --data prints: gnuplot -c
# accuracy_limits.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,420 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

# The largest limits of so many parts, and one above them all.
is_largest(limit) = strstrt(' 3 7 15 31 63 127 255 2047 16383 50000 ', \
    sprintf(' %d ', limit)) > 0

set multiplot

set logscale x
set yrange [0:*]
set xtics nomirror out
set ytics nomirror out
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set xlabel 'limit, requests a minute' offset 0,0.3
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set pointsize 0.5

set label 1 "{/=17:Bold How far a counter is off, by limit and precision}" \
    at screen 0.05, screen 0.94
set key at screen 0.99, screen 0.93 right top horizontal samplen 2 width 1

set origin 0.05, 0.15
set size 0.52, 0.57
set xrange [1.7:80000]
set format x '%g'
set label 3 '{/:Bold error of a rate}, %; above the line: parts of a window' \
    at graph 0, graph 1.06
plot data index 5 using 1:5 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#c0392b' title 'precision=1', \
    data index 5 using 1:4 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#aaaaaa' title 'strict', \
    data index 5 using 1:3 with linespoints pointtype 7 linewidth 2 \
        linecolor '#1a3e6e' title 'the default', \
    data index 5 using 1:6 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#5b9bd5' title 'precision=10', \
    data index 5 using (is_largest($1) ? $1 : NaN):3:2 with labels offset 0,0.7 \
        font 'sans-serif,9' textcolor '#1a3e6e' notitle

unset key
unset label 1
unset logscale x
set origin 0.65, 0.15
set size 0.33, 0.57
set xrange [0:21]
set format x '%g'
set label 3 '{/:Bold wrong decisions}, %' at graph 0, graph 1.06
plot data index 6 using 1:5 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#c0392b', \
    data index 6 using 1:4 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#aaaaaa', \
    data index 6 using 1:3 with linespoints pointtype 7 linewidth 2 \
        linecolor '#1a3e6e', \
    data index 6 using 1:6 with linespoints pointtype 7 linewidth 1.5 \
        linecolor '#5b9bd5'

unset multiplot
