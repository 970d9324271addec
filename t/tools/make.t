# What make prints of a build, where it puts a package's files, and what NGINX's configure says
# of hiredis.

use strict;
use warnings;
use Cwd 'abs_path';
use File::Basename 'dirname';
use File::Find 'find';
use File::Temp 'tempdir';
use Test::More;

my $HERE = abs_path(dirname(__FILE__) . '/../..');
my $dir = tempdir(CLEANUP => 1);

# What make prints of a small goal, and its exit code.
sub printed {
    my (@arguments) = @_;
    delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
    my $said = `make --no-print-directory -C '$HERE' -W t/bench/steps.cpp BUILD='$dir' @arguments '$dir/bench/steps.so' 2>&1`;
    return ($said, $?);
}

is_deeply([printed()], ["  LINK  steps.so\n", 0], 'a line for each file');
ok(-s "$dir/bench/steps.so", '... which was made');
is_deeply([printed('-s')], ['', 0], '-s: silence');
like((printed('V=1'))[0], qr{^g\+\+ .* -o $dir/bench/steps\.so }m, 'V=1: commands');
my ($said, $failed) = printed('CXX="g++ --no-such-option"');
like($said, qr/unrecognized.*--no-such-option/, 'an error is shown');
isnt($failed, 0, '... and fails make');

for my $goal (qw(model check-arm deb cross check-packages bench-smoke)) {
    my $said = `make --no-print-directory -n -C '$HERE' $goal 2>&1`;
    like($said, qr{\A.*\.ci/packages install $goal\n}, "$goal: its packages are installed first");
    ok(scalar(`'$HERE/.ci/packages' list $goal`), "$goal: it has some");
}

# Two runs of make write the file of settings at once: all that wait for it go on.
my @makes = map {
    my $pid = fork // die "fork: $!";
    exec "make -s -C '$HERE' BUILD='$dir/build' '$dir/build/settings' 2>&1 >> '$dir/makes.log'"
        if $pid == 0;
    $pid;
} 1 .. 12;
is((grep { waitpid($_, 0); $? != 0 } @makes), 0, 'twelve makes at once');
is_deeply([glob "$dir/build/settings*"], ["$dir/build/settings"], 'their one file of settings');

# mktemp makes such names.
my $odd = "$dir/tmp.cSv.S5.cpp";
is(system("cd '$HERE' && make -s BUILD='$odd' '$odd/Makefile' > '$dir/odd.log' 2>&1"
        . " && make -n BUILD='$odd' build > '$dir/odd.log' 2>&1"), 0,
    'a directory whose name looks like those of sources') or diag(`tail -n 5 '$dir/odd.log'`);

SKIP: {
    my $module = $ENV{LIMIT_SLIDING_MODULE} || '';
    skip 'no module built by this makefile', 4 if $module !~ m{^\Q$HERE\E/build/};

    my $log = "$dir/install.log";
    my $root = "$dir/root";
    system("make -s -C '$HERE' -o build install install-lua DESTDIR='$root'"
        . " MODULES_DIR=/m LUA_DIR=/l > '$log' 2>&1");
    my @files;
    find({ wanted => sub { push @files, $File::Find::name =~ s/^\Q$root\E//r if !-d },
           no_chdir => 1 }, $root);
    is_deeply([sort @files], [
        '/l/limit_sliding.lua',
        map({ "/l/limit_sliding/resty/$_.lua" } qw(conn count req)),
        '/m/ngx_http_limit_sliding_module.so',
        '/usr/share/nginx/modules-available/mod-http-limit-sliding.conf',
    ], 'DESTDIR: files, nothing enabled');
    my $installed = "$root/m/ngx_http_limit_sliding_module.so";
    cmp_ok(-s $installed, '<', 1_000_000, 'the module has less than a megabyte');
    unlike(`readelf -SW '$installed'`, qr/\.debug|\.symtab/, '... and no symbols for debuggers');

    system("make -s -C '$HERE' uninstall DESTDIR='$root' MODULES_DIR=/m LUA_DIR=/l > '$log' 2>&1");
    my $left = 0;
    find({ wanted => sub { $left++ if !-d }, no_chdir => 1 }, $root);
    is($left, 0, 'uninstall removes them');
}

# Runs NGINX's configure with a compiler that finds no hiredis. Returns what it says.
my $SOURCE = '/usr/share/nginx/src';
sub configured {
    my ($environment) = @_;
    system("rm -rf '$dir/tree' && mkdir '$dir/tree' && ln -s $SOURCE/* '$dir/tree'"
        . " && rm -f '$dir/tree/Makefile'") == 0 or die 'no tree';
    open my $compiler, '>', "$dir/cc" or die "$dir/cc: $!";
    print $compiler <<'SH';
#!/bin/sh
for word; do
    case $word in *.c) ! grep -qs hiredis "$word" || exit 1 ;; esac
done
exec cc "$@"
SH
    close $compiler;
    chmod 0755, "$dir/cc";
    return `cd '$dir/tree' && env -u WITH_REDIS $environment ./configure --with-cc='$dir/cc' \\
        --without-http_rewrite_module --without-http_gzip_module --builddir='$dir/static' \\
        --add-module='$HERE' 2>&1`;
}

SKIP: {
    skip "no $SOURCE", 4 if !-x "$SOURCE/configure";
    my $said = configured('');
    is($?, 0, 'a static link without hiredis');
    like($said, qr/\n\S+ warning: limit_sliding has NO REDIS, because hiredis was not found\n\s*\z/,
        '... says at the end that it has no Redis');
    $said = configured('WITH_REDIS=yes');
    isnt($?, 0, '... which WITH_REDIS=yes forbids');
    like($said, qr/error: limit_sliding needs hiredis, which was not found\n\z/, '... and says why');
}

done_testing();
