# A password that changes in its file: connections to come have it without a
# reload, and a file without a password changes nothing.

use v5.36;

use POSIX qw(mkfifo);
use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;

# The user's password is this one from now on, and no connection stays.
sub rotate($server, $password) {
    $server->command(qw(ACL SETUSER limiter on ~* &* +@all resetpass), ">$password");
    $server->kill_clients;
}

my $nginx = LimitSliding::Faults->new(server => $redis->server, timeout => 1, start => 0,
    block => 'user limiter; password_file word;');

# Replaces the file, so that no reader finds half of it.
sub write_word($text, $name = 'word') {
    my $path = $nginx->dir . "/$name";
    $nginx->write_file("$name.new", $text);
    chmod 0600, "$path.new" or die "chmod: $!";
    system 'rm', '-rf', $path if -d $path;
    rename "$path.new", $path or die "rename: $!";
}

sub source($key) {
    return +($nginx->ask("/big?key=$key"))[0]{source};
}

rotate($redis, 'first-word');
write_word("first-word\n");
$nginx->start($nginx->config);
ok defined $nginx->wait_healthy, 'the first password: Redis decides';

# first in the file, or first in Redis

write_word("second-word\r\nanother line\n");
is source('kept'), 'redis', 'another one in the file: connections stay';
rotate($redis, 'second-word');
ok defined $nginx->wait_healthy, '... and in Redis: it decides without a reload';
$nginx->exact('second');

rotate($redis, 'third-word');
is source('third'), 'fallback', 'another one in Redis: the policy decides';
ok wait_for(sub { source('third'); $nginx->log_lines(qr/"allow": WRONGPASS/) }),
    '... and the log tells why';
write_word('third-word');
ok defined $nginx->wait_healthy, '... until it is in the file';
$nginx->exact('third');


# a file without a password: each worker and each block tells once, and has the last password

my $path = $nginx->dir . '/word';
my %ways = (
    missing => [ sub { unlink $path }, qr/open\(\) "\S+word" failed, .*\(2: / ],
    empty   => [ sub { write_word('') }, qr/no password in "\S+word", / ],
    blank   => [ sub { write_word("\n") }, qr/no password in "\S+word", / ],
    folder  => [ sub { unlink $path; mkdir $path }, qr/read\(\) "\S+word" failed, .*\(21: / ],
    fifo    => [ sub { unlink $path; mkfifo($path, 0600) }, qr/no password in "\S+word", / ],
);
for my $way (sort keys %ways) {
    my ($spoil, $why) = @{ $ways{$way} };
    $spoil->();
    $nginx->new_log_lines(qr/./);
    for (1 .. 3) {
        $redis->kill_clients;
        ok defined $nginx->wait_healthy, "$way, $_: Redis decides";
    }
    $nginx->exact($way);
    my %times;
    for ($nginx->log_lines(qr/\[warn\] .* redis "\w+": $why.*the last password is used/)) {
        $times{$1}++ if /\] (\d+#\d+: limit_sliding redis "\w+"): /;
    }
    is_deeply [ grep { $_ > 1 } values %times ], [], '... told once by each';

    write_word('third-word');
    $redis->kill_clients;
    ok defined $nginx->wait_healthy, "$way: a file again";
    ok scalar($nginx->log_lines(qr/\[notice\] .* redis "\w+": "\S+word" has a password again/)),
        '... told, too';
    $nginx->reload;
    ok defined $nginx->wait_healthy, '... a reload';
}


# Many connections leave nothing behind, neither a descriptor nor memory.

sub held() {
    my ($fds, $kilobytes) = (0, 0);
    for my $pid ($nginx->workers) {
        $fds += () = glob "/proc/$pid/fd/*";
        open my $status, '<', "/proc/$pid/status" or die "status: $!";
        $kilobytes += /^VmData:\s+(\d+)/ ? $1 : 0 for <$status>;
    }
    return ($fds, $kilobytes);
}

sub reconnect($times) {
    for (1 .. $times) {
        $redis->kill_clients;
        $nginx->wait_healthy;
    }
}

reconnect(20);
my @before = held();
reconnect(100);
my @after = held();
is $after[0], $before[0], 'many connections: no descriptor is left';
cmp_ok $after[1] - $before[1], '<', 300, '... no memory';
unlike $nginx->log, qr/-word/, '... no password is in the log';
$nginx->finish_one;


# A server that asks for a password on a connection that it knew: a proxy whose Redis has changed

for my $error ('NOAUTH Authentication required.', 'WRONGPASS invalid username-password pair') {
    my $fake = LimitSliding::FakeRedis->new($redis)->start;
    my $behind = LimitSliding::Faults->new(server => $fake->server, timeout => 1, start => 0,
        block => 'user limiter; password_file word;');
    $behind->write_file('word', "third-word\n");
    chmod 0600, $behind->dir . '/word';
    $behind->start($behind->config);
    ok defined $behind->wait_healthy, "$error: Redis decides";
    $behind->fault("$error at any time", sub { $fake->mode('say', "-$error\\r\\n") },
        sub {
            is $fake->stats->{spoilt}, 0, 'connections are closed';
            rotate($redis, 'fourth-word');
            $behind->write_file('word', "fourth-word\n");
            $fake->mode('pass');
        });
    rotate($redis, 'third-word');
    $behind->finish_one;
}


# sentinels

my @sentinels = map { $redis->sentinel } 1, 2;
rotate($_, 'first-word') for @sentinels;
$_->command(qw(ACL SETUSER default on nopass +@all)) for @sentinels;
my $watching = LimitSliding::Faults->new(timeout => 1, start => 0,
    server => join('; server ', map { $_->server } @sentinels),
    block => 'topology sentinel; sentinel_master mymaster;'
        . ' sentinel_user limiter; sentinel_password_file word;');
$watching->write_file('word', "first-word\n");
chmod 0600, $watching->dir . '/word';
$watching->start($watching->config);
ok defined $watching->wait_healthy, 'sentinels: Redis decides';
rotate($_, 'second-word') for @sentinels;
$redis->kill_clients;
is +($watching->ask('/big?key=x'))[0]{source}, 'fallback', '... not with another password';
$watching->write_file('word', "second-word\n");
ok defined $watching->wait_healthy, '... but once it is in the file';
$watching->exact('sentinels');
unlike $watching->log, qr/-word/, '... no password is in the log';
$watching->finish;
