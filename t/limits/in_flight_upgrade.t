# Requests in flight while a binary is upgraded, and while workers shut down by force.

use v5.36;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;
use LimitSliding::Upgrade;

my $SHUTDOWN = 2;         # seconds, worker_shutdown_timeout

# It accepts connections, and never answers.
my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
    LocalAddr => '127.0.0.1') // die "listen: $!";

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $text = $nginx->expand($nginx->template(http => <<'HTTP', server => <<"SERVER"));
    limit_sliding_zone $arg_key zone=two:1m inflight=2;
    add_header X-Worker $pid always;
HTTP
    location /silent {
        limit_sliding zone=two;
        proxy_pass http://127.0.0.1:${\ $silent->sockport };
    }
    location /quick { limit_sliding zone=two; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER

sub held() { return api($nginx)->{zones}{two}{held} }

# Asserts that the zone holds so many units, once NGINX has done what it can without time.
sub holds($units, $name) {
    sleep 0;
    is held(), $units, $name;
}

sub status() { return $nginx->get('/quick?key=a')->{status} }


# An upgrade on the fly

my $upgrade = LimitSliding::Upgrade->new($nginx, $text, '/quick?key=other');
my $old = $upgrade->pid;
my @old = map { $nginx->send_request('/silent?key=a') } 1, 2;
holds(2, 'the old binary holds two');
is status(), 429, '... which are all';

my $new = $upgrade->begin;
ok $new, 'a new binary' or die $nginx->log;
$upgrade->hand_over($old, $new);
is held(), 0, 'the new binary counts for itself';
is status(), 200, '... and admits';
my @new = map { $nginx->send_request('/silent?key=a') } 1, 2;
holds(2, '... two as well');
is status(), 429, '... which are all';

# Back again: the old master has kept its memory, with what its old workers hold.
kill 'HUP', $old;
$upgrade->hand_over($new, $old);
is held(), 2, 'the old binary still holds two';
is status(), 429, '... which are all';
@new = ();
is status(), 429, '... whatever the new one releases';
close shift @old;
holds(1, 'one ends in the old binary');
is status(), 200, '... and another is admitted';

# Forward: the old binary leaves for good, and its clients at last.
kill 'HUP', $new;
$upgrade->hand_over($old, $new);
is held(), 0, 'the new binary again: holds nothing';
kill 'QUIT', $old;
@old = ();
ok $upgrade->wait_gone('nginx.pid.oldbin'), 'the old one is gone';
is held(), 0, '... and nothing is held';
is status(), 200, '... and it admits';
kill 'QUIT', $new;
ok $upgrade->wait_gone('nginx.pid'), 'and so is the new one';


# worker_shutdown_timeout: old workers close what they hold.

$text =~ s/^(worker_processes .*)$/$1 worker_shutdown_timeout ${SHUTDOWN}s;/m;
$nginx->start($text);
@old = map { $nginx->send_request('/silent?key=a') } 1, 2;
holds(2, 'two are held');
my %before = map { $_ => 1 } $nginx->workers;
$nginx->hup;
ok wait_for(sub { my @now = $nginx->workers; @now == 1 && !$before{ $now[0] } }), 'a reload';
is status(), 429, '... the old worker keeps them';
sleep $SHUTDOWN;
holds(0, '... until worker_shutdown_timeout');
is status(), 200, '... and another is admitted';
is sysread($old[0], my $rest, 1) // 0, 0, '... as its connections were closed';

$nginx->finish;
