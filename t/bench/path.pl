#!/usr/bin/perl

# Copyright (C) the limit_sliding authors

# Counts the files of src, and the functions, through which a request runs that
# passes: one that Redis decides, and one that shared memory decides.  The
# connection to Redis is there, the script is known, and the key is not new.
#
#     path.pl --nginx PATH --module PATH [--list]
#         [--redis UNITS,FUNCTIONS,FILES] [--memory UNITS,FUNCTIONS,FILES]
#
# A unit is the files of one stem in a folder, lease.cpp and lease.hpp.  Counted
# are the units that define a function that runs, these functions, and the files,
# also those whose functions were put into others by the compiler.  It fails if
# a request runs through more of them than --redis and --memory allow.  The
# defaults are a little above what is, as an alarm: compilers differ in what they
# put into others.  With --list it tells which they are, and the functions of
# each.

use v5.36;

use Cwd qw(abs_path);
use FindBin;
use List::Util qw(uniq);

use lib "$FindBin::Bin/../lib";

use LimitSliding::Bench;

my %option;

BEGIN {
    %option = options({ redis => '22,68,60', memory => '4,6,20' },
        'redis=s', 'memory=s', 'list');
}

use LimitSliding::Callgrind;
use LimitSliding::Redis ();

my $ROOT = abs_path("$FindBin::Bin/../..");
my $REQUESTS = 10;

my $failed = 0;
my @ways = ([ memory => 'shared memory' ]);
my $redis;

if (LimitSliding::Redis::supported()) {
    unshift @ways, [ redis => 'Redis' ];
    $redis = LimitSliding::Redis->new->start;
} else {
    print "built without hiredis\n";
}

my $server = LimitSliding::Callgrind->nginx(
    http      => join('', $redis ? <<"CONF" : (),
limit_sliding_redis shared {
    server ${\$redis->server};
    timeout 5s;
    connect_timeout 5s;
}
limit_sliding_zone \$uri zone=redis:1m rate=4000000r/h redis=shared;
CONF
        "limit_sliding_zone \$uri zone=memory:1m rate=4000000r/h;\n"),
    locations => [ map { "limit_sliding zone=$_->[0];" } @ways ],
    paced     => 1,
);

for my $port (0 .. $#ways) {
    my ($key, $name) = @{ $ways[$port] };
    my $calls = $redis ? $redis->calls : 0;
    my @functions = $server->functions(port => $port, keys => 1,
        requests => $REQUESTS, status => 200);

    # with those before it counts
    die "Redis was not asked\n"
        if $key eq 'redis' && $redis->calls - $calls < $REQUESTS;
    report($name, $option{$key}, @functions);
}

$server->stop;
exit $failed;

# The path of a file of src, relative to its root; nothing if it is another's.
sub own($path) {
    while ($path =~ m{/(?=src/)}g) {
        my $tail = substr $path, $+[0];
        1 while $tail =~ s{[^/]+/\.\./}{};
        return $tail if -e "$ROOT/$tail";
    }
    return;
}

sub unit($file) {
    return $file =~ s/\.\w+$//r;
}

# Says what a request ran through, which is to be so many units, functions and
# files at most.
sub report($name, $allowed, @functions) {
    my (%functions, %files);

    for my $function (@functions) {
        my $file = own($function->{file});
        $functions{$file}{ $function->{name} } = 1 if defined $file;
        $files{$_} = 1 for map { own($_) // () } keys %{ $function->{from} };
    }
    die "no function of src has run: has the module no debug information?\n"
        if !%functions;

    my @names = map { keys %$_ } values %functions;
    my @units = uniq map { unit($_) } keys %functions;
    my @files = uniq sort keys %functions, keys %files;
    my @counts = (scalar @units, scalar @names, scalar @files);
    my @at_most = split /,/, $allowed;
    my $problem = @at_most != @counts
        || grep { $counts[$_] > $at_most[$_] } 0 .. $#counts;

    printf "%s%s: %d units, %d functions, %d files; %s allowed\n",
        $problem ? 'FAILED  ' : 'ok      ', $name, @counts, join ', ', @at_most;
    $failed = 1 if $problem;

    return if !$option{list};
    for my $file (@files) {
        say "    $file", $functions{$file} ? '' : ' (inlined only)';
        say "        $_" for sort keys %{ $functions{$file} // {} };
    }
}
