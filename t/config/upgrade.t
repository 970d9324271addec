# What becomes of counts when the module or NGINX itself is replaced: as
# docs/operations.md has it.

use v5.36;

use File::Copy qw(copy);
use Test::More;

use LimitSliding::Api qw(key_path read_key);
use LimitSliding::Test;
use LimitSliding::Upgrade;

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


# An upgrade on the fly

my $kept = 'limit_sliding_zone $arg_key zone=kept:1m rate=2r/h limits=kept;';
my $api = 'location /limits { limit_sliding_api write=on; }';
my $upgrade = LimitSliding::Upgrade->new($nginx, config('a.so') =~ s/(server \{)/$kept $1 $api/r,
    '/?key=other');
my $old = $upgrade->pid;

# Orders limits of new keys until a worker of the master has carried one out, which the
# other one did not; returns that key.
my $ordered = 0;
sub order_by($master) {
    for (1 .. 1000) {
        my $r = $nginx->get(key_path('kept', 'k' . ++$ordered, '&rate=7'), method => 'PUT');
        return "k$ordered" if $r->{status} == 200 && $upgrade->master($r) == $master;
    }
    return 'none';
}

# The limit of a key as a worker of the master has it.
sub limit_by($master, $key) {
    for (1 .. 1000) {
        my $r = $nginx->get(key_path('kept', $key));
        return read_key($r)->{limit} if $upgrade->master($r) == $master;
    }
    return 'none';
}

is $nginx->statuses(3, '/?key=a'), '200 200 429', 'at first';

my $new = $upgrade->begin;
ok $new, 'a new binary' or die $nginx->log;
for ([$old, $new, 'old'], [$new, $old, 'new']) {
    my ($by, $other, $name) = @$_;
    my $key = order_by($by);
    is limit_by($by, $key), 7, "an order that the $name binary carries out";
    ok wait_for(sub { limit_by($other, $key) == 7 }), '... is in force in the other one';
}
$upgrade->hand_over($old, $new);
is $nginx->statuses(3, '/?key=a'), '200 200 429', '... starts empty';

# Back again: the old master has kept its memory.
kill 'HUP', $old;
$upgrade->hand_over($new, $old);
is $nginx->statuses(1, '/?key=a'), '429', 'the old one has its counts';
kill 'QUIT', $new;
ok $upgrade->wait_gone('nginx.pid.oldbin'), 'the new one is gone';
kill 'QUIT', $old;
ok $upgrade->wait_gone('nginx.pid'), 'and so is the old one';

$nginx->finish;
