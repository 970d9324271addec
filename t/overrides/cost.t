# What a million own limits of keys cost: memory, the time of a start and a reload,
# and instructions of a request.

use v5.36;

use IO::Handle;
use Test::More;

use LimitSliding::Clock real => 'valgrind counts instructions, and takes part of the clock';

use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Test;

my $MILLION = 1_000_000;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $dir = $nginx->dir;

# Keys of requests are among them.
open my $file, '>', "$dir/limits" or die "limits: $!";
printf $file "/%07u %d\n", $_ % $MILLION, 1_000_000 + $_ for 1 .. $MILLION;
close $file or die "limits: $!";

my $zone = "limit_sliding_zone \$key zone=full:16m rate=1000000r/s"
    . " limits=$dir/limits limits_max=$MILLION;";


# memory and time

# Returns the seconds of the processor that a process took.
sub cpu($pid) {
    open my $stat, '<', "/proc/$pid/stat" or die "stat: $!";
    my @fields = split ' ', <$stat> =~ s/.*\) //r;
    return ($fields[11] + $fields[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# Returns the bytes of a process's memory of a kind, as shared memory.
sub bytes_of($kind, $pid) {
    open my $status, '<', "/proc/$pid/status" or die "status: $!";
    return (map { /^$kind:\s+(\d+) kB/ ? $1 * 1024 : () } <$status>)[0];
}

sub shared_bytes($pid) { return bytes_of(RssShmem => $pid) }

# Returns the median of the milliseconds that so many calls take, in the best of
# three rounds; a call may return the seconds itself.
sub median_ms($n, $call) {
    my @medians;
    for (1 .. 3) {
        my @ms = sort { $a <=> $b } map {
            my $before = now();
            my $took = $call->();
            1000 * ($took // now() - $before);
        } 1 .. $n;
        push @medians, $ms[ $n / 2 ];
    }
    return (sort { $a <=> $b } @medians)[0];
}

# The API answers in less than a millisecond, beside what the disk takes for an order,
# and the worker serves others meanwhile.
sub answers_at_once() {
    my ($api, $other) = map { $nginx->connect } 1 .. 2;
    my $path = '/limits/zones/full/key?key=/0000042';
    my $n = 0;

    open my $synced, '>', "$dir/synced" or die "synced: $!";
    $synced->autoflush(1);
    my %ms = (
        'a key' => median_ms(100, sub { $nginx->get($path, socket => $api); return undef }),
        'a page of a list' => median_ms(100, sub {
            $nginx->get('/limits/zones/full/limits?n=100', socket => $api);
            return undef;
        }),
        'a request while an order is on its way' => median_ms(100, sub {
            $nginx->send_request("$path&rate=" . ++$n, method => 'PUT', socket => $api);
            my $before = now();
            $nginx->get('/', socket => $other);
            my $took = now() - $before;
            $nginx->read_response($api);
            return $took;
        }),
    );

    # A busy machine, and a busy disk, can only add.
    my ($sync, $order);
    for (1 .. 5) {
        $sync = median_ms(100, sub {
            print $synced "a line\n";
            $synced->sync or die "sync: $!";
            return undef;
        });
        $order = median_ms(100, sub {
            $nginx->get("$path&rate=" . ++$n, method => 'PUT', socket => $api);
            return undef;
        });
        last if $order - $sync < 1;
    }

    note sprintf 'a sync of the disk takes %.2f ms, an order %.2f ms', $sync, $order;
    note sprintf '%s takes %.2f ms', $_, $ms{$_} for sort keys %ms;
    cmp_ok $ms{$_}, '<', 1, "$_ takes less than 1 ms" for sort keys %ms;
    cmp_ok $order - $sync, '<', 1, 'an order takes less than 1 ms, and a sync';
}

SKIP: {
    skip 'a sanitizer takes time, too', 9
        if `ldd @{[ $ENV{LIMIT_SLIDING_NGINX} || '/usr/sbin/nginx' ]}` =~ /libasan/;

    my %section = (server => 'location /limits { limit_sliding_api write=on; }');
    my $in_http = $zone =~ s/\$key/\$arg_key/r;
    $nginx->start($nginx->template(%section, http => $in_http =~ s/limits=\S+//r));
    my $idle = cpu($nginx->master);
    my $empty = shared_bytes($nginx->master);

    $nginx->serve(%section, http => $in_http);
    my $started = cpu($nginx->master);
    note sprintf 'a start takes %.2f s', $started - $idle;
    cmp_ok $started - $idle, '<', 2, "a start with $MILLION limits takes less than 2 s";

    my $bytes = shared_bytes($nginx->master) - $empty;
    note sprintf '%.2f bytes a limit', $bytes / $MILLION;
    cmp_ok $bytes, '<=', 24 * $MILLION + 65536, 'they take 24 bytes each, or less';
    cmp_ok $bytes, '>', 20 * $MILLION, '... and more than nothing';

    $nginx->reload;
    my $reloaded = cpu($nginx->master);
    note sprintf 'a reload takes %.2f s', $reloaded - $started;
    cmp_ok $reloaded - $started, '<', 2, 'a reload takes less than 2 s';

    my ($own) = $nginx->get('/limits/metrics')->{body} =~ /^limit_sliding_own_limits.* (\d+)$/m;
    is $own, $MILLION, 'all are there';
    answers_at_once();
    $nginx->stop;
}


# a large table of which nearly nothing is used

SKIP: {
    skip 'a sanitizer takes memory, too', 5
        if `ldd @{[ $ENV{LIMIT_SLIDING_NGINX} || '/usr/sbin/nginx' ]}` =~ /libasan/;

    my $large = 'limit_sliding_zone $arg_key zone=large:16m rate=1r/s limits_max=10000000';
    my %section = (server => 'location /limits { limit_sliding_api write=on; }');
    $nginx->write_file('few', "a 5\nb 6\n");
    $nginx->start($nginx->template(%section, http => "$large;"));
    my $most = bytes_of(VmHWM => $nginx->master) + (1 << 20);
    $nginx->stop;

    $nginx->start($nginx->template(%section, http => "$large limits=$dir/few;"));
    cmp_ok bytes_of(VmHWM => $nginx->master), '<', $most, 'two limits of ten million: a start';
    $nginx->reload;
    cmp_ok bytes_of(VmHWM => $nginx->master), '<', $most + (2 << 20), '... a reload';

    my ($worker) = $nginx->workers;
    my $before = shared_bytes($worker);
    my $page = $nginx->get('/limits/zones/large/limits');
    like $page->{body}, qr/"key":"[ab]".*"key":"[ab]".*"next":null/s, '... and a list of both';
    cmp_ok shared_bytes($worker) - $before, '<', 1 << 20, '... touch no more of the memory';
    my $ms = median_ms(100, sub { $nginx->get('/limits/zones/large/limits'); return undef });
    cmp_ok $ms, '<', 5, sprintf '... which takes %.2f ms', $ms;
    $nginx->stop;
}


# instructions

SKIP: {
    local %ENV = %ENV;
    my $reason = uncountable($nginx);
    skip $reason, 4 if $reason;

    my $empty = "limit_sliding_zone \$key zone=none:16m rate=1000000r/s limits_max=$MILLION;";
    my $one = $empty =~ s/none/one/r =~ s/limits_max/limits=$dir\/one limits_max/r;
    $nginx->write_file('one', "x 5\n");

    # Paths of requests are among the keys of the file, if nothing is before them.
    my @zones = qw(none one full full);
    my @keys = ('x$uri', 'x$uri', 'x$uri', '$uri');
    my $server = LimitSliding::Callgrind->nginx(
        http      => "$empty $one $zone",
        locations => [ map { "set \$key $keys[$_]; limit_sliding zone=$zones[$_];" } 0 .. 3 ]);
    my ($none, $few, $absent, $present) = map { $server->measure(port => $_, keys => 1000,
        requests => 1000, status => 200) } 0 .. 3;
    $server->stop;

    note sprintf 'none %.0f, another key has one %+.1f, a million others have %+.1f, '
        . 'the key has one %+.1f', $none, map { $_ - $none } $few, $absent, $present;
    cmp_ok $few - $none, '<=', 60, 'another key has a limit: at most 60 instructions more';
    cmp_ok $absent - $none, '<=', 60, 'a million have: at most 60 instructions more';
    cmp_ok $present - $none, '<=', 150, 'the key has: at most 150 instructions more';
    cmp_ok $present, '>', $absent, '... and it is found';
}

$nginx->finish;
