# Copyright (C) the limit_sliding authors

# Draws what load.pl measures: gnuplot -c load.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,640 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8
set datafile separator tab

names = "'100,000 keys, 1 worker' '100,000 keys, 2 workers'" \
    ." 'one hot key, 2 workers' 'all rejected, 1 worker'" \
    ." 'all rejected, 2 workers'"

# ours, those of NGINX, Lua in it, another server
colour(name) = name eq 'limit_sliding' ? 0x1a3e6e \
    : name[1:3] eq 'Lua' ? 0xc0392b : name[1:7] eq 'HAProxy' ? 0xaaaaaa \
    : 0x5b9bd5
bare(name) = name[1:strstrt(name.',', ',') - 1]

set multiplot

set xtics nomirror out
set ytics nomirror scale 0 noenhanced
set grid xtics linecolor '#dddddd' linetype 1 linewidth 0.6
set border 1 linecolor '#888888'
set tics textcolor '#444444'
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set style fill solid noborder
set yzeroaxis linetype 1 linecolor '#888888'
unset key

# One scale for all, so that cases can be compared.
stats data using 4 nooutput
most = STATS_max
stats data using 3 nooutput
least = STATS_min < 0 ? STATS_min : 0
set xrange [least * 1.05 : most * 1.05]

set label 1 '{/=17:Bold What a limit adds to the CPU of a request},' \
    .' microseconds' at screen 0.02, screen 0.965
set label 3 "of the same server without a limit:\nmedian," \
    ." and the middle half of the rounds" at screen 0.605, screen 0.22 \
    textcolor '#444444'

set size 0.38, 0.19

do for [i = 0:4] {
    column = i < 3 ? 0 : 1
    row = i < 3 ? i : i - 3

    set origin 0.105 + 0.5 * column, 0.69 - 0.305 * row
    set yrange [4.6:-0.6]
    set label 2 '{/:Bold '.word(names, i + 1).'}' at graph 0, graph 1.1

    plot data index i using (0):0:(0):2:($0 - 0.32):($0 + 0.32): \
            (colour(strcol(1))):ytic(bare(strcol(1))) \
            with boxxyerror linecolor rgb variable, \
        data index i using 2:0:3:4 with xerrorbars pointtype -1 \
            linewidth 1.2 linecolor '#444444'
    unset label 1
    unset label 3
}

unset multiplot
