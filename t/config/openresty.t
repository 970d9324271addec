# A module that was built for NGINX is refused by OpenResty, and the other way round: their
# structures differ, and NGINX's own check does not notice. LIMIT_SLIDING_OPENRESTY names an
# OpenResty of the version of LIMIT_SLIDING_NGINX, and LIMIT_SLIDING_OPENRESTY_MODULE a module
# that was built for it; both are then tried on each other. Without them, a library shows
# NGINX the queue by which OpenResty is known, and the module is linked once more as it
# would be with OpenResty's headers.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Test::More;

use LimitSliding::Test;

my $HEADER = 'HAVE_POSTED_DELAYED_EVENTS_PATCH';

my $nginx  = LimitSliding::Test->new;
my $dir    = $nginx->dir;
my $BINARY = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
my $MODULE = $ENV{LIMIT_SLIDING_MODULE} // 'build/ngx_http_limit_sliding_module.so';
plan skip_all => 'the module is linked into NGINX' if $MODULE eq '';

# Exit code of `nginx -t`, and its lines of the level emerg. Nothing but http{} is needed.
sub load($binary, $module) {
    $nginx->write_file('nginx.conf', "load_module $module;\npid $dir/pid;\n"
        . "events {}\nhttp { limit_sliding off; }\n");
    my $said = `'$binary' -t -p '$dir' -e '$dir/logs/error.log' -c '$dir/nginx.conf' 2>&1`;
    return ($?, [ map { s/.*\[emerg\] //r } grep { /\[emerg\]/ } split /^/, $said ]);
}

sub is_refused($binary, $module, $name) {
    my ($code, $emergs) = load($binary, $module);
    isnt $code, 0, $name;
    is @$emergs, 1, '... by one message';
    like $emergs->[0], qr/^limit_sliding was built for another ngx_\w+ than this NGINX has: build/,
        '... which says why';
}

sub is_taken($binary, $module, $name) {
    my ($code, $emergs) = load($binary, $module);
    is $code, 0, $name or diag @$emergs;
}

sub run($command) {
    is system("($command) > '$dir/run.log' 2>&1"), 0, 'it runs: ' . substr $command, 0, 60
        or diag `tail -n 20 '$dir/run.log'`;
}


# A library with the queue

my $resty = "$dir/openresty";
run("echo 'void *ngx_posted_delayed_events[2];' | cc -x c -shared -fPIC -o '$dir/queue.so' -");
$nginx->write_file('openresty', "#!/bin/sh\nLD_PRELOAD='$dir/queue.so' exec '$BINARY' \"\$@\"\n");
chmod 0755, $resty;

is_taken($BINARY, abs_path($MODULE), 'NGINX takes the module');
is_refused($resty, abs_path($MODULE), 'OpenResty refuses it');

SKIP: {
    my $build = dirname(abs_path($MODULE));
    skip 'the module was built elsewhere', 5 if !-f "$build/Makefile" || !-d "$build/tree";

    delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};

    # What make would do after a change of one file, into this directory.
    my $object = qr{\S*/addon/shim/layout\.o};
    my $commands = `make -n -C '$build/tree' -f '$build/Makefile' modules -o '$build/Makefile' \\
        -W '@{[ abs_path('src/shim/layout.c') ]}' SHELL=/bin/sh 2> '$dir/make.log'`;
    $commands =~ s/(?=\s-o $object)/ -D$HEADER/;
    $commands =~ s/$object/$dir\/layout.o/g;
    $commands =~ s/-o \S*\/(ngx_http_limit_sliding_module\.so)/-o $dir\/$1/;
    $nginx->write_file('relink', $commands =~ s/^make.*\n//mgr);
    run("cd '$build/tree' && sh -e '$dir/relink'");

    my $other = "$dir/ngx_http_limit_sliding_module.so";
    is_taken($resty, $other, 'OpenResty takes a module that was built for it');
    is_refused($BINARY, $other, 'NGINX refuses it');
}


# Real ones

SKIP: {
    my ($binary, $module) = @ENV{qw(LIMIT_SLIDING_OPENRESTY LIMIT_SLIDING_OPENRESTY_MODULE)};
    skip 'no LIMIT_SLIDING_OPENRESTY', 7 if !$binary;
    is_taken($binary, $module, 'a real OpenResty takes its module');
    is_refused($binary, abs_path($MODULE), '... and refuses ours');
    is_refused($BINARY, $module, 'and the other way round');
}

done_testing;
