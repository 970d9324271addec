# Copyright (C) the limit_sliding authors

# Draws what accuracy --plot prints: gnuplot -c accuracy.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,820 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8

dark = '#1a3e6e'
light = '#5b9bd5'
grey = '#aaaaaa'
red = '#c0392b'

# Decisions, as in accuracy_plot.c: 1 rejected, 2 otherwise than log.
of(kind) = column(3) == kind ? column(2) : NaN

set multiplot

set xrange [0:480]
set xtics 60 nomirror out
set ytics nomirror out
set border 3 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set format x ''
set pointsize 0.6

bottom = "0.75 0.412 0.075"
lines_height = 0.16
dots_height = 0.1

unset key
set label 1 "{/=17:Bold A client that wants more than 10 requests a minute}" \
    at screen 0.055, screen 0.97

# The legend: what dots are, what lines are.
set label 11 'admitted' at screen 0.065, screen 0.935 \
    offset character 1, 0 point pointtype 7 linecolor rgb light
set label 12 'rejected' at screen 0.175, screen 0.935 \
    offset character 1, 0 point pointtype 7 linecolor rgb grey
set label 13 'admitted, but rejected by log' at screen 0.28, screen 0.935 \
    offset character 1, 0 point pointtype 7 linecolor rgb red
set label 14 'rejected, but admitted by log' at screen 0.56, screen 0.935 \
    offset character 1, 0 point pointtype 6 linewidth 2 linecolor rgb red

set arrow 11 from screen 0.06, screen 0.908 to screen 0.085, screen 0.908 \
    nohead linewidth 2 linecolor rgb dark
set label 15 'admitted in the last 60 s' at screen 0.092, screen 0.908
set arrow 12 from screen 0.28, screen 0.908 to screen 0.305, screen 0.908 \
    nohead linewidth 2 linecolor rgb light
set label 16 'what the counter takes that for' at screen 0.312, screen 0.908
set arrow 13 from screen 0.555, screen 0.908 to screen 0.58, screen 0.908 \
    nohead dashtype 2 linewidth 1.2 linecolor rgb red
set label 17 'the limit' at screen 0.587, screen 0.908

# Dots: a request each.
set yrange [0.2:9]
unset ytics
set border 1
set size 0.93, dots_height
set grid xtics linecolor '#dddddd' linetype 1 linewidth 0.6

do for [i = 0:2] {
    set origin 0.055, word(bottom, i + 1) + (i == 0 ? 0 : lines_height + 0.02)
    set label 3 '{/:Bold '.word("log counter 'counter precision=1'", i + 1) \
        .'}'.(i == 0 ? ', exact: a dot is a request' : '') \
        at graph 0, graph 1.08

    plot data index i using 1:(of(0)) with points pointtype 7 \
            linecolor rgb light, \
        data index i using 1:(of(1)) with points pointtype 7 \
            linecolor rgb grey, \
        data index i using 1:(of(2)) with points pointtype 7 \
            linecolor rgb red, \
        data index i using 1:(of(3)) with points pointtype 6 linewidth 2 \
            linecolor rgb red

    do for [n = 11:17] {
        unset label n
        unset arrow n
    }
    unset label 1
}

set border 3
set yrange [0:14]
set ytics 5 nomirror out
set grid xtics ytics linecolor '#dddddd' linetype 1 linewidth 0.6
set size 0.93, lines_height
unset label 3

do for [i = 1:2] {
    set origin 0.055, word(bottom, i + 1)
    if (i == 2) {
        set format x '%g'
        set xlabel 'seconds; a minute ends at 60, 120, ...' offset 0,0.3
    }
    plot 10 with lines dashtype 2 linewidth 1.2 linecolor rgb red, \
        data index 2 + i using 1:2 with lines linewidth 2 \
            linecolor rgb dark, \
        data index 2 + i using 1:3 with lines linewidth 2 \
            linecolor rgb light
}

unset multiplot
