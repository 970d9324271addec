# Tokens of a language model behind NGINX: counted exactly, and its answers pass
# as they are, at once.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Model;
use LimitSliding::Test;
use LimitSliding::Upstream qw(plain_body);

my $REQUESTS = 500;
my $AT_ONCE = 8;

my $nginx = LimitSliding::Test->new;
my $model = LimitSliding::Model->new;
my $proxy = 'proxy_pass http://model/v1/chat/completions;';

$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    upstream model { server @{[ $model->server ]}; keepalive 64; }
    limit_sliding_zone all zone=tokens:1m rate=1000000000 window=30d;
    log_format usage '\$request_uri \$limit_sliding_usage';
    proxy_http_version 1.1;
    proxy_set_header Connection '';
HTTP
    location /limits { limit_sliding_api; }
    location /on {
        limit_sliding_usage total_tokens;
        limit_sliding zone=tokens settle=\$limit_sliding_usage;
        access_log %%DIR%%/usage.log usage;
        $proxy

        location /on/unbuffered { proxy_buffering off; $proxy }
        location /on/gzip { gzip on; gzip_types *; gzip_min_length 1; $proxy }
    }
    location /off {
        $proxy
        location /off/unbuffered { proxy_buffering off; $proxy }
        location /off/gzip { gzip on; gzip_types *; gzip_min_length 1; $proxy }
    }
SERVER


# mixed requests

my @KINDS = ('', '/unbuffered', '/gzip');
my (%expected, @different);

for (my $seed = 1; $seed <= $REQUESTS; $seed += $AT_ONCE) {
    my @seeds = grep { $_ <= $REQUESTS } $seed .. $seed + $AT_ONCE - 1;
    my %sockets;
    for my $n (@seeds) {
        my $with_usage = $n % 7 != 0;
        my %request = chat(seed => $n, stream => $n % 2,
            with_usage => $with_usage);
        push @{ $request{headers} }, 'Accept-Encoding: gzip';
        my $place = "$KINDS[ $n % @KINDS ]?$n";
        $sockets{"/$_$place"} = $nginx->send_request("/$_$place", %request)
            for qw(on off);
        $expected{"/on$place"} = $n % 2 && !$with_usage ? '-'
            : usage($n)->{total_tokens};
    }

    my %body = map { my $r = $nginx->read_response($sockets{$_}, 'POST');
        ($_ => $r->{status} . plain_body($r)) } keys %sockets;
    push @different, grep { $body{$_} ne $body{ s/^\/on/\/off/r } }
        grep { /^\/on/ } keys %body;
}

sleep 0;                  # until NGINX has closed the last ones
open my $log, '<', $nginx->dir . '/usage.log' or die "usage.log: $!";
my %told = map { /^(\S+) (\S+)$/ } <$log>;
is_deeply \%told, \%expected, "$REQUESTS answers: tokens of each";
is join(' ', @different), '', '... and bodies are the same';
my $sum = sum0(grep { $_ ne '-' } values %told);
is $sum, sum0(grep { $_ ne '-' } values %expected), "... $sum in all";

is_deeply [ $nginx->new_errors ], [], '... and nothing is told';

# those that did not tell keep what they have reserved
my $charged = $sum + grep { $_ eq '-' } values %expected;
is api_key($nginx, 'tokens', 'all')->{used}, $charged, '... all are charged';


# the first byte

# Returns the seconds from a request to the first byte of its body, a stream
# that ends without closing the connection to the model.
sub first_byte($path) {
    my $socket = $nginx->connect;
    my $start = now;
    $nginx->send_request($path, chat(seed => 3, stream => 1),
        socket => $socket);
    my $got = '';
    while ($got !~ /\r\n\r\n./s) {
        sysread $socket, $got, 65536, length $got or die "no answer\n";
    }
    return now - $start;
}

is join(' ', map { first_byte("/$_/unbuffered") } qw(on off on)), '0 0 0',
    'the first byte is not delayed';

$model->stop;
$nginx->finish;
