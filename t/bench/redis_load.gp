# Copyright (C) the limit_sliding authors

# Draws what redis_load.pl --data writes: gnuplot -c redis_load.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,370 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

colours = "'#1a3e6e' '#5b9bd5' '#aaaaaa' '#c0392b' '#444444'"
names = "'leased' 'coalesced' 'strict' 'Lua' 'no limit'"

set multiplot

set logscale xy
set xrange [850:47000]
set xtics nomirror out ('1,000' 1000, '5,000' 5000, '20,000' 20000, \
    '' 2000 1, '' 10000 1, '' 40000 1)
set ytics nomirror out
set mytics 1
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set size 0.25, 0.57
set xlabel 'requests a second offered' offset 0,0.3

left(column) = 0.05 + 0.322 * column + (column == 2 ? 0.04 : 0)

# A legend of one row, wider than a plot is.
unset key
do for [j = 1:5] {
    x = 0.42 + 0.12 * (j - 1)
    set arrow j from screen x, screen 0.935 to screen x + 0.025, screen 0.935 \
        nohead linewidth 2 linecolor rgb word(colours, j)
    set label 10 + j word(names, j) at screen x + 0.032, screen 0.935
}
set arrow 5 dashtype 2 linewidth 1.2
set label 1 "{/=17:Bold Limits in Redis as load rises}" \
    at screen 0.05, screen 0.935

# Latencies, up to the rates that are kept up with; one scale for both.
set yrange [0.04:100]
set format y '%g'

do for [i = 0:1] {
    set origin left(i), 0.17
    set label 3 (i == 0 ? '{/:Bold p50, ms}; ends where load is too much' \
        : '{/:Bold p99, ms}') at graph 0, graph 1.07

    plot data index 5 using 1:2+i with lines dashtype 2 linewidth 1.2 \
            linecolor rgb word(colours, 5), \
        for [j = 4:1:-1] data index j - 1 using 1:2+i with linespoints \
            pointtype 7 pointsize 0.5 linewidth 2 \
            linecolor rgb word(colours, j)

    # drawn once
    unset label
    unset arrow
}

set origin left(2), 0.17
set label 3 '{/:Bold calls of Redis, a request}' at graph 0, graph 1.07
set yrange [0.0001:1.5]
set ytics (1, '1/10' 0.1, '1/100' 0.01, '1/1,000' 0.001, '1/10,000' 0.0001)

plot for [j = 4:1:-1] data index j - 1 using 1:4 with linespoints \
    pointtype 7 pointsize 0.5 linewidth 2 linecolor rgb word(colours, j)

unset multiplot
