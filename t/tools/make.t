# What make prints of a build, and where it puts a package's files.

use strict;
use warnings;
use Cwd 'abs_path';
use File::Basename 'dirname';
use File::Find 'find';
use File::Temp 'tempdir';
use Test::More;

my $HERE = abs_path(dirname(__FILE__) . '/../..');
my $SHELL = "$HERE/.ci/quiet-shell";
my $dir = tempdir(CLEANUP => 1);

# Returns what make prints of a makefile with these lines, run by that shell.
sub printed {
    my ($recipe, @arguments) = @_;
    open my $file, '>', "$dir/Makefile" or die "$dir/Makefile: $!";
    print $file "all:\n\t$recipe\n";
    close $file;
    delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
    local $ENV{LIMIT_SLIDING_HERE} = $dir;
    open my $make, '-|', 'make', '-s', '-C', $dir, '--no-print-directory',
        "SHELL=$SHELL", @arguments
        or die "make: $!";
    my $text = do { local $/; <$make> };
    close $make;
    return $text;
}

for my $name (qw(a.c b.cpp)) {
    open my $file, '>', "$dir/$name" or die "$name: $!";
    print $file "int main() { return 0; }\n";
}

is(printed("cc -c -O -o $dir/a.o \\\n\t\t$dir/a.c"), "  CC    a.c\n", 'of C');
ok(-s "$dir/a.o", 'the command was run');
is(printed("g++ -c -o $dir/b.o $dir/b.cpp"), "  CXX   b.cpp\n", 'of C++');
is(printed("cc -o $dir/a \\\n\t$dir/a.o \\\n\t-lm"), "  LINK  a\n", 'of a link');
is(printed("test -c $dir/a -o x; echo said"), "said\n", 'others say what they say');
printed("cc -c -o $dir/c.o $dir/missing.c 2> $dir/log");
isnt($?, 0, 'a failure fails make');

for my $goal (qw(model check-arm deb cross check-packages bench-smoke)) {
    my $said = `make -n -C '$HERE' $goal 2>&1`;
    like($said, qr{^\.ci/install-packages .}m, "$goal: its packages are installed first");
}

# Two runs of make write the file of settings at once: all that wait for it go on.
my @makes = map {
    my $pid = fork // die "fork: $!";
    exec "make -s -C '$HERE' BUILD='$dir/build' PKGS= '$dir/build/settings' 2>&1 >> '$dir/makes.log'"
        if $pid == 0;
    $pid;
} 1 .. 12;
is((grep { waitpid($_, 0); $? != 0 } @makes), 0, 'twelve makes at once');
is_deeply([glob "$dir/build/settings*"], ["$dir/build/settings"], 'their one file of settings');

SKIP: {
    my $module = $ENV{LIMIT_SLIDING_MODULE} || '';
    skip 'no module built by this makefile', 2 if $module !~ m{^\Q$HERE\E/build/};

    my $log = "$dir/install.log";
    my $root = "$dir/root";
    system("make -s -C '$HERE' -o build install DESTDIR='$root'"
        . " MODULES_DIR=/m > '$log' 2>&1");
    my @files;
    find({ wanted => sub { push @files, $File::Find::name =~ s/^\Q$root\E//r if !-d },
           no_chdir => 1 }, $root);
    is_deeply([sort @files], [
        '/m/ngx_http_limit_sliding_module.so',
        '/usr/share/nginx/modules-available/mod-http-limit-sliding.conf',
    ], 'DESTDIR: files, nothing enabled');

    system("make -s -C '$HERE' uninstall DESTDIR='$root' MODULES_DIR=/m > '$log' 2>&1");
    my $left = 0;
    find({ wanted => sub { $left++ if !-d }, no_chdir => 1 }, $root);
    is($left, 0, 'uninstall removes them');
}

done_testing();
