# Names of servers where there is no resolver: they are looked up at the start
# and by each reload, and NGINX starts whether or not they are found.

use v5.36;

use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Clock;

my ($DIR, $HOSTS, $PRIVATE);

# An NGINX with an /etc/hosts of its own, and that asks no DNS server outside, where that
# is possible.
BEGIN {
    $DIR = tempdir(CLEANUP => 1);
    $HOSTS = "$DIR/hosts";
    system "echo 127.0.0.9 private.test > $HOSTS; echo nameserver 127.0.0.1 > $DIR/resolv.conf";
    my $enter = "unshare -m sh -c 'mount --bind $HOSTS /etc/hosts &&"
        . " mount --bind $DIR/resolv.conf /etc/resolv.conf &&" . ' exec "$@"\' sh';
    $PRIVATE = `$enter getent hosts private.test 2>/dev/null` =~ /127\.0\.0\.9/;

    if ($PRIVATE) {
        my $nginx = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
        open my $file, '>', "$DIR/nginx" or die "$DIR/nginx: $!";
        print $file "#!/bin/sh\nexec $enter $nginx \"\$@\"\n";
        close $file;
        chmod 0700, "$DIR/nginx";
        $ENV{LIMIT_SLIDING_NGINX} = "$DIR/nginx";
    }
}

use LimitSliding::Cluster;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;

sub nginx(%opt) {
    return LimitSliding::Faults->new(timeout => 0.5, start => 0, %opt);
}

# The warnings of `nginx -t`, which passes, without their times.
sub warnings_of($nginx, $name) {
    my ($exit, $output) = $nginx->test_config($nginx->config);
    is $exit, 0, "$name: the configuration is right" or diag $output;
    return map { s/^.*?(?=\[)//r =~ s/\] \S+ /] /r }
        grep { /\[(?!notice)\w+\]/ } split /\n/, $output;
}


# No name is found: a warning is logged, and policies apply.

for (['one server', 'nowhere.invalid', ''],
    ['sentinels', 'nowhere.invalid; server never.invalid',
        'topology sentinel; sentinel_master mymaster;'],
    ['a cluster', 'nowhere.invalid; server never.invalid',
        'topology cluster;'])
{
    my ($name, $servers, $block) = @$_;
    my $nginx = nginx(server => $servers, block => $block);
    my $n = split /;/, $servers;

    my @warnings = warnings_of($nginx, $name);
    is @warnings, 3 * $n, '... with a warning of each server';
    my $line = 0;
    for my $text (split /\n/, $nginx->expand($nginx->config)) {
        $line++;
        for my $server ($text =~ /server (\w+\.invalid);/g) {
            my $warning = shift @warnings;
            like $warning, qr/^\[warn\] host not found in server "$server" of /,
                '... that names it';
            like $warning, qr/ without a "resolver" .* in \S+:$line$/,
                '... in its line';
        }
    }

    my $start = now;
    $nginx->start($nginx->config);
    cmp_ok now() - $start, '<', 0.02, '... and NGINX starts';
    my $answers = $nginx->rounds(8, 'away');
    is join(' ', map { $_->{status} } @{ $answers->{local} }),
        '200 200 200 200 200 429 429 429', '... local';
    is join(' ', map { $_->{status} } @{ $answers->{allow} }),
        join(' ', (200) x 8), '... allow';
    is join(' ', map { $_->{status} } @{ $answers->{deny} }),
        join(' ', (429) x 8), '... deny';
    $nginx->in_time($answers, 0);
    ok scalar($nginx->log_lines(qr/\[error\].*\.invalid: no resolver/)),
        '... and the log tells why';
    $nginx->reload;
    is +($nginx->ask('/allow?key=reload'))[0]{source}, 'fallback',
        '... a reload that does not find it either is one';
    $nginx->finish_one;
}


# One of several is not found: the others are asked.

my $sentinel = $redis->sentinel;
my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0)->start;

for (['sentinels', $sentinel->server,
        'topology sentinel; sentinel_master mymaster;'],
    ['a cluster', $cluster->servers, 'topology cluster;'])
{
    my ($name, $server, $block) = @$_;
    my $nginx = nginx(server => "nowhere.invalid; server $server",
        block => $block);
    is scalar(warnings_of($nginx, "$name, one is found")), 3,
        '... a warning of the other';
    $nginx->start($nginx->config);
    ok defined $nginx->wait_healthy, '... and Redis decides';
    $nginx->exact('one-found');
    $nginx->finish_one;
}


# A name that comes, goes, and moves, between reloads

sub hosts(@lines) {
    open my $file, '>', $HOSTS or die "$HOSTS: $!";
    print $file map { "$_\n" } '127.0.0.1 localhost', @lines;
    close $file;
}

SKIP: {
    skip 'no private /etc/hosts', 21 if !$PRIVATE;

    my $port = $redis->port;
    my $other = LimitSliding::Redis->new(address => '127.0.0.2',
        port => $port)->start;
    my $nginx = nginx(server => "redis.test:$port");

    hosts();
    $nginx->start($nginx->config);
    is +($nginx->ask('/allow?key=a'))[0]{source}, 'fallback', 'not there';
    $nginx->rounds(8, 'away');

    hosts('127.0.0.1 redis.test');
    my @warnings = warnings_of($nginx, 'a name that is found, without a resolver');
    is @warnings, 3, '... with a warning of each block';
    like $warnings[0], qr/^\[warn\] host name in server "redis\.test:$port" of /, '... that names it';
    like $warnings[0], qr/ "local", without a "resolver" .* in \S+:\d+$/,
        '... and the block, in its line';
    my $resolving = nginx(server => "redis.test:$port",
        http => 'resolver 127.0.0.1:' . $other->port . ';');
    is scalar(warnings_of($resolving, '... with a resolver')), 0, '... without one';
    my $local = nginx(server => "localhost:$port; server 127.0.0.2:$port",
        block => 'topology cluster;');
    is scalar(warnings_of($local, '... "localhost" and an address')), 0, '... without one';

    $nginx->reload;
    ok defined $nginx->wait_healthy(5), 'found by a reload';
    $nginx->exact('found');
    is $other->calls, 0, '... the first Redis';
    is scalar(() = $nginx->log_lines(qr/last addresses/)), 0,
        '... nothing had to be kept';

    hosts();
    $nginx->reload;
    ok defined $nginx->wait_healthy(5),
        'a reload that does not find it keeps its address';
    $nginx->exact('kept');
    like join("\n", $nginx->log_lines(qr/last addresses/)), qr/\[notice\]
        .*server\ "redis\.test:$port"\ of\ limit_sliding_redis\ "local"
        \ keeps\ its\ last\ addresses/x, '... and says so';

    $nginx->reload;
    ok defined $nginx->wait_healthy(5), '... a second one does';

    hosts('127.0.0.2 redis.test');
    $nginx->reload;
    ok defined $nginx->wait_healthy(5), 'another address by a reload';
    cmp_ok $other->calls, '>', 0, '... which is asked';
    $nginx->finish_one;
}

done_testing;
