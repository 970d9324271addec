# What .ci/check-layers says of small trees.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $CHECK = abs_path(dirname(__FILE__) . '/../../.ci/check-layers');

# Rooms, the highest first.
my @ROOMS = qw(http redis ngx redis/logic core);

# Checks a tree of these files, { path => content }, whose README has the rooms that have
# files. Compares the complaints, without the checks that are content.
sub complains($name, $expected, %files) {
    my $dir = tempdir(CLEANUP => 1);
    my %has = map { m{^src/(.*)/} ? ($1 => 1) : () } keys %files;
    $files{'src/README.md'} //= join '', map { "| [`$_`]($_) | a room |\n" } grep { $has{$_} } @ROOMS;

    for my $path (keys %files) {
        make_path(dirname("$dir/$path"));
        open my $file, '>', "$dir/$path" or die "$path: $!";
        print $file $files{$path};
        close $file or die "$path: $!";
    }
    my $output = `'$CHECK' '$dir' 2>&1`;
    is $? >> 8, $expected ? 1 : 0, "$name: the exit code";
    is join('', grep { !/^ok / } split /^/, $output), $expected, $name;
}

complains 'includes that lead down', '', (
    'src/core/lease.hpp'  => "#include <core/lease.hpp>\n",
    'src/core/lease.cpp'  => "#include \"lease.hpp\"\n#include \"core/mix.hpp\"\n",
    'src/core/mix.hpp'    => "// ngx_a, and no #include \"ngx/ngx.hpp\"\n/*\n#include \"a.hpp\"\n*/\n",
    'src/redis/logic/a.h' => "# include \"core/lease.hpp\"\nchar text[] = \"ngx_b\";\n",
    'src/ngx/ngx.hpp'     => "int ngx_c();\n",
    'src/http/page.c'     => "#include \"limit_sliding_page.inc\"\n#include \"ngx/ngx.hpp\"\n",
);

complains 'circles of units', <<'OUTPUT', (
FAILED  no include of src leads in a circle
src/core/a
    -> src/core/b (include at src/core/a.hpp:2)
    -> src/core/c (include at src/core/b.hpp:1)
    -> src/core/a (include at src/core/c.cpp:1)
src/core/c
    -> src/core/d (include at src/core/c.hpp:1)
    -> src/core/c (include at src/core/d.hpp:1)
OUTPUT
    'src/core/a.hpp' => "#pragma once\n#include \"b.hpp\"\n",
    'src/core/b.hpp' => "#include \"core/c.hpp\"\n",
    'src/core/c.cpp' => "#include \"a.hpp\"\n",
    'src/core/c.hpp' => "#include \"d.hpp\"\n",
    'src/core/d.hpp' => "#include \"c.hpp\"\n",
);

complains 'includes that lead up, and names of NGINX', <<'OUTPUT', (
FAILED  includes between rooms lead down
src/core/mix -> src/ngx/ngx (include at src/core/mix.cpp:2)
src/ngx/ngx -> src/http/a (include at src/ngx/ngx.hpp:1)
FAILED  rooms below ngx know no NGINX
src/core/mix.cpp:2: #include "ngx/ngx.hpp"
src/redis/logic/slot.cpp:2: int ngx_b();
src/redis/logic/slot.cpp:1: #include <ngx_core.h>
OUTPUT
    'src/core/mix.cpp'         => "\n#include \"ngx/ngx.hpp\"\n",
    'src/ngx/ngx.hpp'          => "#include \"http/a.hpp\"\n",
    'src/http/a.hpp'           => '',
    'src/redis/logic/slot.cpp' => "#include <ngx_core.h>\nint ngx_b();\n",
);

complains 'rooms that are not those of the README, and a file that is not there', <<'OUTPUT', (
FAILED  every include of src names a file
src/http/a.cpp:1: "one.hpp"
FAILED  the rooms of src/README.md are the folders of src
src/http is not in src/README.md
src/gone of src/README.md has no files
OUTPUT
    'src/README.md'    => "| [`ngx`](ngx) | |\n| [`core`](core) | |\n| [`gone`](gone) | |\n",
    'src/http/a.cpp'   => "#include \"one.hpp\"\n",
    'src/core/one.hpp' => '',
    'src/ngx/b.hpp'    => '',
);

done_testing;
