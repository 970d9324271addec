# contrib/*.Dockerfile: the stages of nginx.Dockerfile run in a layer over this machine, once as
# in an image that runs as root, and once without. openresty.Dockerfile differs in names and
# paths only. `make check-packages` runs both in a fresh Debian.

use v5.36;

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Clock real => 'it builds in chroots, where no library can be preloaded';

use LimitSliding::Docs;

my $NGINX = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
my $SOURCE = '/usr/share/nginx/src';
my $NAME = 'ngx_http_limit_sliding_module.so';
my $NOBODY = 65534;

# The stages of a Dockerfile, [name, line, ...]; the last one has no name.
sub stages($file) {
    my $text = content($file) =~ s/\\\n\s*//gr =~ s/^#.*\n//mgr;
    return map { my ($from, @lines) = grep { $_ ne '' } split /\n/; [ ($from =~ / AS (\w+)/)[0] // '', @lines ] }
        split /^FROM /m, $text =~ s/\A.*?^FROM //msr;
}


# What can be said of the texts

my @files = map { "contrib/$_.Dockerfile" } qw(nginx openresty);
for my $file (@files) {
    my @stages = stages($file);
    is join(' ', map { $_->[0] } @stages[0, 1]), 'build module', "$file: its stages";
    is_deeply [ grep { /^USER/ } map { @$_ } @stages[1, 2] ], [],
        '... the image keeps the user of its base';
    is content("$file.dockerignore"), content("$files[0].dockerignore"), '... what is not copied';
}

my ($mine, $theirs) = map { join "\n", map { @$_ } stages($_) } @files;
$mine =~ s{/etc/nginx/nginx\.conf}{/usr/local/openresty/nginx/conf/nginx.conf}g;
$mine =~ s{/usr/lib/nginx}{/usr/local/openresty/nginx}g;
$mine =~ s{/run/nginx\.pid /tmp/nginx\.pid}{/usr/local/openresty/nginx/logs/nginx.pid};
$mine =~ s{\bnginx(?= -t| /built)}{openresty}g;
is $theirs, $mine, 'both Dockerfiles differ in names and paths only';


# What runs

my $dir = tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1, CLEANUP => 1);
chmod 0755, $dir;

# Runs a command in a layer over this machine, into which it writes.  Directories in which
# other tests may write at the same time are those of the layer alone.
sub inside($user, $command, $layer) {
    mkdir "$dir/$_" for 'root', $layer, "$layer.work",
        map { "$layer/$_" } qw(tmp run var var/log var/log/nginx);
    chmod 01777, "$dir/$layer/tmp";
    local @ENV{qw(LAYER ROOT USERSPEC COMMAND)} = ("$dir/$layer", "$dir/root", "$user:$user",
        $command);
    delete local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS NGINX)};
    return system(<<'SH') == 0;
exec unshare --mount sh -e -c '
    mount -t overlay overlay -o "lowerdir=/,upperdir=$LAYER,workdir=$LAYER.work" "$ROOT"
    mount --bind /dev "$ROOT/dev"
    for own in tmp run var/log; do mount --bind "$LAYER/$own" "$ROOT/$own"; done
    exec chroot --userspec="$USERSPEC" "$ROOT" sh -c "$COMMAND"
' > "$LAYER.log" 2>&1 < /dev/null
SH
}

# Runs a stage, with what Docker does besides. Changed here: packages are installed already,
# and the source is not downloaded.
sub run_stage($stage, $user, $layer) {
    my (undef, @lines) = @$stage;
    for (@lines) {
        if (/^COPY \. (\S+)$/) {
            my $to = "$dir/$layer$1";
            system("mkdir -p '$to' && tar -c --exclude=./build --exclude=./.git . | tar -x -C '$to'");
        } elsif (/^COPY --from=build (\S+) (\S+)$/) {
            my ($from, $to) = ("$dir/build$1", "$dir/$layer$2");
            my $parent = $to =~ s{[^/]*$}{}r;
            system("mkdir -p '$parent' && cp -p '$from' '$to'");
        } elsif (my ($command) = /^RUN (.*)$/) {
            next if $command =~ /apt-get/;
            $command =~ s{ /built(?= |$)}{ /built $SOURCE} if $command =~ /build-for-nginx/;
            ok inside($user, $command, $layer), "RUN as $user: " . substr $command, 0, 50
                or diag content("$dir/$layer.log");
        }
    }
}

SKIP: {
    skip 'needs root', 1 if $> != 0;
    skip 'another NGINX than the one of the system', 1
        if $NGINX ne '/usr/sbin/nginx' || !-d "$SOURCE/auto";
    skip 'layers cannot be mounted here', 1 if !inside(0, 'true', 'probe');

    # Sites of this machine may listen where something else does, and its modules may write where
    # images let nobody.
    my $tweak = 'cd /etc/nginx && rm -f sites-enabled/* conf.d/* modules-enabled/*';
    ok inside(0, $tweak, 'base'), 'an image with root';

    # What images without root change.
    ok inside(0, "$tweak && sed -i '/^user /d; s|^pid .*|pid /tmp/nginx.pid;|' nginx.conf"
        . ' && sed -i "/^http {/a client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;'
        . ' fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;" nginx.conf'
        . " && chown -R $NOBODY:$NOBODY . /var/log/nginx", 'without'),
        'an image without root';

    my ($build, $module, $image) = stages($files[0]);
    for my $base ([ 0, 'base' ], [ $NOBODY, 'without' ]) {
        my ($user, $name) = @$base;
        system('cp', '-a', "$dir/$name", "$dir/$_$user") for qw(build image);
        system('cp', '-a', "$dir/build0/built", "$dir/build$user/built") if $user != 0;
        symlink "build$user", "$dir/build$user.link";
        rename "$dir/build$user.link", "$dir/build";

        # The module is the same in both.
        run_stage([ grep { $user == 0 || !/build-for-nginx/ } @$build ], 0, "build$user");
        my $layer = "image$user";
        run_stage($_, $user, $layer) for $module, $image;

        my $conf = content("$dir/$layer/etc/nginx/nginx.conf");
        like $conf, qr/\Aload_module modules\/\Q$NAME\E;\n/, "... nginx.conf loads it first";
        is +(stat "$dir/$layer/etc/nginx/nginx.conf")[4], $user, '... and keeps its owner';
        is_deeply [ grep { -f "$dir/$layer$_" } qw(/tmp/limit.conf /tmp/limit.pid /tmp/nginx.pid
            /run/nginx.pid) ], [], '... nothing of the tests stays';
        my $so = "$dir/$layer/usr/lib/nginx/modules/$NAME";
        cmp_ok -s $so, '<', 1_000_000, '... the module has less than a megabyte';
        unlike `readelf -SW '$so'`, qr/\.debug|\.symtab/, '... and no symbols';
    }
}

done_testing;
