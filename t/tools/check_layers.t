# What .ci/check-layers says of small trees, compiled as by NGINX's build.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $CHECK = abs_path(dirname(__FILE__) . '/../../.ci/check-layers');
my $CC = $ENV{CC} || 'cc';

# Headers of a module, which all trees have.
my %COMMON = (
    'src/ngx/ngx.hpp'  => "typedef struct { int index; } ngx_module_t;\n",
    'src/core/mix.hpp' => "inline int mix(int a) { return a * 3; }\n",
);

# Rooms, the highest first.
my @ROOMS = qw(http http/api redis ngx redis/logic core core/api core/x core/y);

# Returns tables of those rooms that have files.
sub readme(%files) {
    my %has = map { m{^src/(.*)/} ? ($1 => 1) : () } keys %files;
    return join '', map { "| [`$_`]($_) | a room |\n" } grep { $has{$_} } @ROOMS;
}

sub write_file($path, $content) {
    make_path(dirname($path));
    open my $file, '>', $path or die "$path: $!";
    print $file $content;
    close $file or die "$path: $!";
}

# Writes files, { path => content }, compiles their sources into build/addon of
# the same directory, and returns that.
sub tree(%files) {
    my $dir = tempdir(CLEANUP => 1);
    my @flags = map { "-I$dir/src$_" } '', '/core', '/redis', '/ngx';
    my $makefile = '';
    %files = (%COMMON, %files);
    $files{'src/README.md'} //= readme(%files);

    write_file("$dir/$_", $files{$_}) for keys %files;
    for my $path (grep { /\.c(?:pp)?$/ } sort keys %files) {
        my ($folder, $stem) = $path =~ m{([^/]+)/([^/]+)\.\w+$};
        my $object = "$dir/build/addon/$folder/$stem.o";
        make_path(dirname($object));
        system(split(' ', $CC), '-O2', @flags, '-c', '-o', $object, "$dir/$path") == 0
            or die "$path does not compile\n";
        $makefile .= "$object: override CFLAGS += @flags -O2\n";
    }
    write_file("$dir/build/Makefile", $makefile);
    return $dir;
}

# Returns the complaints about a tree, without the checks that are content.
sub complaints($dir, @options) {
    my $output = `'$CHECK' --root '$dir' @options '$dir/build' 2>&1`;
    my $exit = $? >> 8;
    my @lines = grep { !/^ok / } split /\n/, $output;
    is $exit, @lines ? 1 : 0, 'the exit code goes with the output';
    return join "\n", @lines;
}

my %layers = (
    'src/core/lease.hpp'       => "int lease(int);\n",
    'src/core/lease.cpp'       => <<'CODE',
#include "lease.hpp"
#include "mix.hpp"
int lease(int a) { return mix(a); }
CODE
    'src/redis/logic/terms.hpp' => "int terms(int);\n",
    'src/redis/logic/terms.cpp' => <<'CODE',
// Works for any ngx_module_t.
#include "terms.hpp"
#include "lease.hpp"
int terms(int a) { return lease(a) + 1; }
CODE
    'src/redis/call.cpp'        => <<'CODE',
#include "logic/terms.hpp"
int call(int a, int (*tell)(int)) { return tell(terms(a)); }
CODE
    'src/http/handler.cpp'      => <<'CODE',
#include "ngx.hpp"
extern "C" ngx_module_t limit_module;
int call(int, int (*)(int));
static int tell(int a) { return a + limit_module.index; }
extern "C" int handler(int a) { return call(a, tell); }
CODE
    'src/http/module.c'         => <<'CODE',
#include "../ngx/ngx.hpp"
int handler(int);
int (*limit_handlers[])(int) = { handler };
ngx_module_t limit_module = { 1 };
CODE
);

is complaints(tree(%layers)), '',
    'layers, a callback, a table, and the name of the module';

# ---- circles ----

is complaints(tree(%layers, 'src/http/handler.cpp' => <<'CODE')),
int call(int, int (*)(int));
extern "C" int (*limit_handlers[])(int);
static int tell(int a) { return limit_handlers[0](a); }
extern "C" int handler(int a) { return call(a, tell); }
CODE
    <<'OUTPUT' =~ s/\n$//r, 'other data of the module makes an arrow';
FAILED  no file of src leads back to itself
src/http/handler
    -> src/http/module (needs limit_handlers)
    -> src/http/handler (needs handler)
2 units lead to each other: src/http/handler src/http/module
OUTPUT

my $dir = tree(
    'src/core/a.hpp' => "#pragma once\n#include \"b.hpp\"\n",
    'src/core/b.hpp' => "#pragma once\n/* #include \"d.hpp\" */\n"
        . "# include \"c.hpp\"\n",
    'src/core/c.cpp' => "#include <a.hpp>\n",
    'src/core/c.hpp' => '',
    'src/core/d.hpp' => "#include \"a.hpp\"\n",
);
is complaints($dir), <<'OUTPUT' =~ s/\n$//r, 'a circle of includes';
FAILED  no file of src leads back to itself
src/core/a
    -> src/core/b (include at src/core/a.hpp:2)
    -> src/core/c (include at src/core/b.hpp:3)
    -> src/core/a (include at src/core/c.cpp:1)
3 units lead to each other: src/core/a src/core/b src/core/c
OUTPUT

my $dot = `'$CHECK' --root '$dir' --dot '$dir/build'`;
like $dot, qr/^digraph src \{\n.*^\}\n\z/ms, '--dot writes a graph';
like $dot, qr{"src/core/a" -> "src/core/b" \[style = dashed, color = red\];},
    'with what is in a circle';
like $dot, qr{"src/core/d" -> "src/core/a" \[style = dashed\];},
    'and what is not';

$dir = tree(
    'src/redis/a.cpp' => <<'CODE',
namespace one { void b(int), c(int); void a(int i) { b(i); c(i); } }
CODE
    'src/redis/b.cpp' => "namespace one { void a(int); void b(int i)"
        . " { a(i); } }\n",
    'src/redis/c.cpp' => "namespace one { void a(int), b(int); void c(int i)"
        . " { a(i); b(i); } }\n",
);
is complaints($dir), <<'OUTPUT' =~ s/\n$//r, 'circles of calls, demangled';
FAILED  no file of src leads back to itself
src/redis/a
    -> src/redis/b (needs one::b)
    -> src/redis/a (needs one::a)
src/redis/a
    -> src/redis/c (needs one::c)
    -> src/redis/a (needs one::a)
3 units lead to each other: src/redis/a src/redis/b src/redis/c
OUTPUT
like complaints($dir, '--all'), qr{src/redis/a
    -> src/redis/c \(needs one::c\)
    -> src/redis/b \(needs one::b\)
    -> src/redis/a \(needs one::a\)
}, '--all shows those through other arrows as well';

# ---- folders ----

is complaints(tree(%layers,
    'src/core/mix.cpp'    => "#include \"ngx.hpp\"\n",
    'src/core/call.cpp'   => "#include \"call.hpp\"\n",
    'src/redis/call.hpp'  => '',
    'src/redis/logic/terms.cpp' => <<'CODE',
int mark();
int terms(int a) { return a + mark(); }
CODE
    'src/redis/marks.cpp' => <<'CODE',
extern "C" int handler(int);
int mark() { return handler(1); }
CODE
    'src/http/handler.cpp' => <<'CODE')),
extern "C" int handler(int a) { return a; }
CODE
    <<'OUTPUT' =~ s/\n$//r, 'arrows to what is above';
FAILED  arrows between rooms lead down
src/core/call -> src/redis/call (include at src/core/call.cpp:1)
src/core/mix -> src/ngx/ngx (include at src/core/mix.cpp:1)
src/redis/logic/terms -> src/redis/marks (needs mark)
src/redis/marks -> src/http/handler (needs handler)
FAILED  rooms below ngx know no NGINX
src/core/mix.cpp:1: #include "ngx.hpp"
OUTPUT

is complaints(tree(
    'src/redis/logic/slot.cpp' => "// ngx_a\nint ngx_b();\n",
    'src/redis/slot.cpp'       => "int ngx_c();\n",
)), <<'OUTPUT' =~ s/\n$//r, "NGINX's names";
FAILED  rooms below ngx know no NGINX
src/redis/logic/slot.cpp:2: int ngx_b();
OUTPUT

is complaints(tree(
    'src/README.md'    => "| [`ngx`](ngx) | |\n| [`core`](core) | |\n| [`gone`](gone) | |\n",
    'src/http/a.cpp'   => '',
    map { ("src/core/u$_.hpp" => '') } 1 .. 14,
)), <<'OUTPUT' =~ s/\n$//r, 'rooms that are not as the README says';
FAILED  the rooms of src/README.md are the folders of src, none too full
src/core has 15 units, not at most 14
src/http is not in src/README.md
src/gone of src/README.md has no files
OUTPUT

# ---- what would leave arrows out ----

$dir = tree(
    'src/core/a.cpp'       => '',
    'src/core/b.cpp'       => '',
    'src/http/api/lease.c' => '',
    'src/core/api/lease.c' => '',
    'src/core/x/one.hpp'   => '',
    'src/core/y/one.hpp'   => '',
    'src/core/z.hpp'       => "#include \"one.hpp\"\n",
);
unlink "$dir/build/addon/core/a.o" or die;
utime 1, 1, "$dir/build/addon/core/b.o" or die;
is complaints($dir), <<"OUTPUT" =~ s/\n$//r, 'objects and includes amiss';
FAILED  every source has an object, as new as itself
src/core/a.cpp has no object in $dir/build
$dir/build/addon/core/b.o is older than src/core/b.cpp
src/http/api/lease.c and src/core/api/lease.c have the same object
FAILED  every include of src is found, and is one file
src/core/z.hpp:1: "one.hpp" may be any of src/core/x/one.hpp src/core/y/one.hpp
OUTPUT

done_testing;
