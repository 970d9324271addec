# Copyright (C) the limit_sliding authors

# Draws what instructions.pl counts: gnuplot -c instructions.gp DATA OUTPUT

data = ARG1

set terminal svg size 960,680 font 'sans-serif,13' background '#ffffff' \
    name 'limit_sliding'
set output ARG2
set encoding utf8
set datafile separator "\t"
set datafile missing 'NaN'

# What is longer is cut, and its figure tells.
end = 3000
cut(x) = x > end ? end : x
is_peer(name) = strstrt(name, 'limit_') == 1 || strstrt(name, 'Lua') == 1 \
    || strstrt(name, 'HAProxy') == 1

stats data index 0 using 0 nooutput
rows = STATS_records

set multiplot
set lmargin 0
set rmargin 0
set tmargin 0
set bmargin 0
set border 1 linecolor '#888888'
set tics textcolor '#444444'
unset ytics
set xtics 1000 nomirror out
set grid xtics linecolor '#dddddd' linetype 1 linewidth 0.6
set xrange [0:end * 1.16]
set yrange [rows - 0.3:-0.7]
set style fill solid noborder
set size 0.37, 0.8
unset key

set label 1 "{/=17:Bold User-space instructions that a limit adds to a" \
    ." request}" at screen 0.02, screen 0.955
set label 2 'dark: one key; light: 100,000 keys' \
    at screen 0.02, screen 0.915 textcolor '#444444'

titles = "'passed' 'rejected, beyond a bare 429'"

do for [i = 0:1] {
    set origin 0.2 + 0.4 * i, 0.06
    set label 3 '{/:Bold '.word(titles, i + 1).'}' at graph 0, graph 1.03
    if (i == 1) {
        unset label 1
        unset label 2
    }

    plot data index i using (0):($0 - 0.17):(0):(cut($2)) \
            :($0 - 0.34):($0):(is_peer(strcol(1)) ? 0x777777 : 0x1a3e6e) \
            with boxxyerror linecolor rgb variable, \
        data index i using (0):($0 + 0.17):(0):(cut($3)) \
            :($0):($0 + 0.34):(is_peer(strcol(1)) ? 0xbbbbbb : 0x5b9bd5) \
            with boxxyerror linecolor rgb variable, \
        data index i using (cut($2)):($0 - 0.17) \
            :(sprintf(' %.0f', $2)) with labels left font ',10' \
            textcolor '#444444', \
        data index i using (cut($3)):($0 + 0.17) \
            :(sprintf(' %.0f', $3)) with labels left font ',10' \
            textcolor '#444444', \
        data index i using (0):0:(i == 0 ? strcol(1).'  ' : '') \
            with labels right noenhanced textcolor '#444444'
}

unset multiplot
