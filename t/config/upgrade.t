# What becomes of counts when the module or NGINX itself is replaced: as
# docs/operations.md has it.

use v5.36;

use File::Copy qw(copy);
use Test::More;

use LimitSliding::Api qw(key_path read_key);
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $dir = $nginx->dir;

my $text = $nginx->expand(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key$uri zone=one:1m rate=2r/h;
    add_header X-Worker $pid always;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=one; empty_gif; }
    }
}
CONF
my ($module) = $text =~ /^load_module (\S+);/m
    or plan skip_all => 'the module is compiled in';

# The configuration, with a copy of the module.
sub config($name) {
    return $text =~ s/^load_module \S+;/load_module $dir\/$name;/mr;
}

# As `install` does: a new file under the name, none is written to.
sub install($name) {
    copy($module, "$dir/new.so") && rename("$dir/new.so", "$dir/$name")
        or die "$name: $!";
}

install($_) for qw(a.so b.so);
$nginx->start(config('a.so'));
is $nginx->statuses(3, '/?key=a'), '200 200 429', 'at first';

$nginx->reload(config('a.so'));
is $nginx->statuses(1, '/?key=a'), '429', 'a reload';

install('a.so');
$nginx->reload(config('a.so'));
is $nginx->statuses(1, '/?key=a'), '429',
    'a new file of the same name: kept by a reload';
my ($worker) = $nginx->workers;
open my $maps, '<', "/proc/$worker/maps" or die "maps: $!";
like join('', <$maps>), qr{a\.so \(deleted\)}, '... which runs the old one';

my $notice = qr/\[notice\] .*zone "one" starts empty: its module was loaded from another file$/;
is scalar $nginx->log_lines($notice), 0, '... without a notice';
$nginx->reload(config('b.so'));
is $nginx->statuses(3, '/?key=a'), '200 200 429',
    'a file of another name: starts empty';
is scalar $nginx->log_lines($notice), 1, '... and says why, once';
$nginx->reload(config('b.so'));
is scalar $nginx->log_lines($notice), 1, '... and no more with the same file';

# Memory of the same name that another module had is no loss of ours.
$nginx->reload(config('b.so') =~ s{limit_sliding_zone(.*)r/h}{limit_req_zone$1r/m}r
    =~ s/location.*//r);
$nginx->reload(config('b.so'));
is scalar $nginx->log_lines(qr/starts empty/), 1, 'a zone that limit_req had: no notice';
ok $nginx->stop, 'stopped';


# An upgrade on the fly. NGINX ignores that signal where its parent started it
# in the foreground, so this one is a daemon.

my $kept = 'limit_sliding_zone $arg_key zone=kept:1m rate=2r/h limits=kept;';
my $api = 'location /limits { limit_sliding_api write=on; }';
$nginx->write_file('nginx.conf', config('a.so') =~ s/^daemon off;$//mr
    =~ s/(server \{)/$kept $1 $api/r);
my $binary = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
is system($binary, '-p', "$dir/", '-c', "$dir/nginx.conf"), 0, 'a daemon';

sub pid($name) {
    open my $file, '<', "$dir/$name" or return;
    return (<$file> // '') =~ /^(\d+)$/ ? $1 : undef;
}
END {
    local $?;
    kill 'TERM', grep { defined } map { pid($_) } qw(nginx.pid nginx.pid.oldbin);
}

# The master of the worker that has answered.
sub master($response = $nginx->get('/?key=other')) {
    my $pid = header($response, 'X-Worker');
    open my $stat, '<', "/proc/$pid/stat" or return 0;
    return (split ' ', <$stat> =~ s/.*\)//r)[1];
}

# Orders limits of new keys until a worker of the master has carried one out, which the
# other one did not; returns that key.
my $ordered = 0;
sub order_by($master) {
    for (1 .. 1000) {
        my $r = $nginx->get(key_path('kept', 'k' . ++$ordered, '&rate=7'), method => 'PUT');
        return "k$ordered" if $r->{status} == 200 && master($r) == $master;
    }
    return 'none';
}

# The limit of a key as a worker of the master has it.
sub limit_by($master, $key) {
    for (1 .. 1000) {
        my $r = $nginx->get(key_path('kept', $key));
        return read_key($r)->{limit} if master($r) == $master;
    }
    return 'none';
}

my $old = wait_for(sub { pid('nginx.pid') });
is $nginx->statuses(3, '/?key=a'), '200 200 429', 'at first';

kill 'USR2', $old;
my $new = wait_for(sub {
    my $pid = pid('nginx.pid');
    pid('nginx.pid.oldbin') && $pid && $pid != $old && $pid });
ok $new, 'a new binary' or die $nginx->log;
for ([$old, $new, 'old'], [$new, $old, 'new']) {
    my ($by, $other, $name) = @$_;
    my $key = order_by($by);
    is limit_by($by, $key), 7, "an order that the $name binary carries out";
    ok wait_for(sub { limit_by($other, $key) == 7 }), '... is in force in the other one';
}
wait_for(sub { kill 'WINCH', $old; sleep 0.05; master() == $new });
is $nginx->statuses(3, '/?key=a'), '200 200 429', '... starts empty';

# Back again: the old master has kept its memory.
kill 'HUP', $old;
wait_for(sub { kill 'WINCH', $new; sleep 0.05; master() == $old });
is $nginx->statuses(1, '/?key=a'), '429', 'the old one has its counts';
kill 'QUIT', $new;
ok wait_for(sub { !pid('nginx.pid.oldbin') }), 'the new one is gone';
kill 'QUIT', $old;
ok wait_for(sub { !pid('nginx.pid') }), 'and so is the old one';

$nginx->finish;
