# lease= with timer_resolution: the time that a worker knows is up to 100 ms old, and units
# of a window must not be spent in the next one all the same.

use v5.36;

use IO::Socket::INET;
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(sleep time);

use LimitSliding::Redis;
use LimitSliding::Test;

my ($LIMIT, $WINDOWS) = (200, 6);

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $template = $nginx->template(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_log_level off;
    limit_sliding_redis shared { server @{[ $redis->server ]}; timeout 2s; }
    limit_sliding_zone \$arg_key zone=leased:1m rate=$LIMIT window=1s algorithm=fixed
        redis=shared lease=auto;
HTTP
    location / { limit_sliding zone=leased; empty_gif; }
SERVER
$nginx->start($template =~ s/%%GLOBALS%%/%%GLOBALS%%\ntimer_resolution 100ms;/r);

my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $nginx->port)
    // die "connect: $!";
my %admitted;    # by second

sub request() {
    print $client "GET /?key=a HTTP/1.1\r\nHost: a\r\n\r\n";
    my $response = '';
    while ($response !~ /\r\n\r\n/) {
        sysread $client, $response, 4096, length $response or die "read: $!";
    }
    my ($length) = $response =~ /^Content-Length: (\d+)/mi;
    while (length($response) < index($response, "\r\n\r\n") + 4 + $length) {
        sysread $client, $response, 4096, length $response or die "read: $!";
    }
    $admitted{ int time }++ if $response =~ m{^HTTP/1.1 200};
}

# Until the end of a window a moderate demand leaves units of a lease; at the beginning of
# the next one, more are demanded than the limit.
for (1 .. $WINDOWS) {
    sleep(1.4 - (time - int time));
    while (time - int time >= 0.3 && time - int time < 0.97) {
        request();
        sleep 0.003;
    }
    sleep(1 - (time - int time));
    request() for 1 .. 2 * $LIMIT;
}
note join ' ', map { "$_: $admitted{$_}" } sort keys %admitted;
cmp_ok max(values %admitted), '<=', $LIMIT, 'no second has more than the limit';
cmp_ok scalar(grep { $_ >= 0.9 * $LIMIT } values %admitted), '>=', 1, '... and some nearly all';
$nginx->finish;
