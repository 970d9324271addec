# What a worker keeps while Redis hangs: notices of many long keys in a zone with sync=, and
# what requests with such keys turned out to cost.

use v5.36;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LONG = 'x' x 8000;
my %KEYS = (digest => 2000, plain => 6000);   # 16 MB and 48 MB of them
my %MB   = (digest => 8, plain => 36);        # that may wait

my $redis = LimitSliding::Redis->new->start;

sub node($format) {
    return LimitSliding::Test->new(worker_processes => 1)->serve(
        http => <<"HTTP", server => <<'SERVER');
    large_client_header_buffers 4 16k;
    limit_sliding_redis shared {
        server @{[ $redis->server ]}; timeout 5s; connect_timeout 5s; key_format $format;
    }
    limit_sliding_log_level off;
    limit_sliding_zone \$arg_key zone=told:16m rate=100 window=30d redis=shared sync=100ms;
HTTP
    location /told { limit_sliding zone=told; empty_gif; }
SERVER
}

# Returns the memory of the worker that is its own, in kB.
sub resident($nginx) {
    my ($worker) = $nginx->workers;
    open my $file, '<', "/proc/$worker/status" or die "/proc/$worker/status: $!";
    return join('', <$file>) =~ /^RssAnon:\s*(\d+) kB/m ? $1 : die 'no RssAnon';
}

sub passed($nginx, $n) {
    my $statuses = $nginx->load(connections => 16,
        requests => [ map { "/told?key=$LONG$_" } 1 .. $n ]);
    return scalar grep { ($_ // '') eq '200' } @$statuses;
}

for my $format (qw(digest plain)) {
    my $nginx = node($format);
    is passed($nginx, 50), 50, "key_format $format: Redis answers";
    my $before = resident($nginx);
    $redis->freeze;
    is passed($nginx, $KEYS{$format}), $KEYS{$format}, '... Redis hangs: all keys pass';
    my $kb = resident($nginx) - $before;
    note "$kb kB";
    SKIP: {
        skip 'a sanitizer keeps what was freed', 1 if $ENV{ASAN_OPTIONS};
        cmp_ok $kb, '<', $MB{$format} << 10,
            '... and what is to be told of them takes memory within bounds';
    }
    $redis->thaw;
    $nginx->finish_one;
}


# Settlements of requests that were under way when Redis began to hang.  8 MB of a worker's
# have room, which is 139 of such keys, and the others are lost.

my ($SETTLED, $LONGER) = (300, 'x' x 60_000);

my $upstream = IO::Socket::INET->new(Listen => $SETTLED, LocalAddr => '127.0.0.1')
    // die "listen: $!";
my $nginx = LimitSliding::Test->new(worker_processes => 1)->serve(
    http => <<"HTTP", server => <<"SERVER");
    large_client_header_buffers 4 64k;
    limit_sliding_redis shared {
        server @{[ $redis->server ]}; timeout 30s; connect_timeout 30s; key_format plain;
    }
    limit_sliding_zone \$arg_key zone=settled:1m rate=100 window=30d redis=shared;
HTTP
    location /settled {
        limit_sliding zone=settled settle=\$arg_cost;
        proxy_pass http://127.0.0.1:@{[ $upstream->sockport ]}/;
    }
    location /limits { limit_sliding_api; }
SERVER

my (@clients, @admitted);
for (1 .. $SETTLED) {
    push @clients, $nginx->send_request("/settled?cost=5&key=$LONGER$_");
    push @admitted, scalar $upstream->accept;
}
$redis->freeze;
for (@admitted) {
    print $_ "HTTP/1.0 200 OK\r\n\r\n";
    close $_;
}
is join(' ', map { $nginx->read_response($_, 'GET')->{status} } @clients),
    join(' ', (200) x $SETTLED), 'Redis hangs: requests that it has admitted end';
my $lost = api($nginx)->{redis}{shared}{unsettled};
my $kept = $SETTLED - $lost / 4;
cmp_ok $kept, '>=', 130, '... what is to be settled is kept';
cmp_ok $kept, '<=', 145, '... within bounds, and the rest counts as not settled';
$redis->thaw;

# The order in which NGINX reads the responses, and so which of them are kept, is its own.
my @used = map {
    my $path = LimitSliding::Api::key_path('settled', "$LONGER$_");
    $nginx->get($path)->{body} =~ /"used":(\d+)/;
} 1 .. $SETTLED;
is scalar(grep { $_ == 5 } @used), $kept, '... what was kept is settled';
is scalar(grep { $_ == 1 } @used), $SETTLED - $kept, '... and not what was lost';
is api($nginx)->{redis}{shared}{unsettled}, $lost, '... which has been counted';
$nginx->finish_one;

done_testing;
