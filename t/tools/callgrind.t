# What LimitSliding::Callgrind reads from a file of callgrind's.

use v5.36;

use File::Temp qw(tempfile);
use Test::More;

use LimitSliding::Callgrind;

my ($out, $path) = tempfile(UNLINK => 1);
print $out <<'OUT';
version: 1
events: Ir

ob=(1) /module.so
fl=(1) /m/src/core/lease.cpp
fn=(1) take(int)
10 4
fi=(2) /m/src/core/mix.hpp
+3 2
fe=(1)
-3 1
cfi=(3) /m/src/http/handler.c
cfn=(2) handle
calls=1 20
* 700
fl=(3)
fn=(3) give.isra.0
20 5
cfn=(4) idle
calls=1 4
20 0

fn=(2)
30 1
cfi=(4) /m/src/redis/ask.c
cfn=(5) ask'2
calls=2 20
+1 50

cfn=(3)
calls=3 9
30 1
fn=(6) give.constprop.1 [clone .part.3]
+1 2

fl=(1)
fn=(7) give
12 1

fl=(4)
fn=(5)
1 1
fn=(8) ask
2 1

totals: 770
OUT
close $out or die "$path: $!";

is_deeply [ sort map {
    "$_->{name} $_->{file} $_->{calls}: " . join ' ', sort keys %{ $_->{from} }
} LimitSliding::Callgrind::executed_in($path) ], [
    'ask /m/src/redis/ask.c 2: /m/src/redis/ask.c',
    'give /m/src/core/lease.cpp 0: /m/src/core/lease.cpp',
    'give /m/src/http/handler.c 3: /m/src/http/handler.c',
    'handle /m/src/http/handler.c 1: /m/src/http/handler.c',
    'take(int) /m/src/core/lease.cpp 0: /m/src/core/lease.cpp'
        . ' /m/src/core/mix.hpp',
], 'functions that ran, and the files whose code they ran';

done_testing;
