# What a million own limits of keys cost: memory, the time of a start and a reload,
# and instructions of a request.

use v5.36;

use Test::More;

use LimitSliding::Callgrind;
use LimitSliding::Test;

my $MILLION = 1_000_000;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $dir = $nginx->dir;

# Keys of requests are among them.
open my $file, '>', "$dir/limits" or die "limits: $!";
printf $file "/%07u %d/%s\n", 9_000_000 - $_ * 8, 1_000_000 + $_, $_ % 2 ? '1s' : '1h'
    for 1 .. $MILLION;
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

# Returns the bytes of a process's memory that is shared.
sub shared_bytes($pid) {
    open my $status, '<', "/proc/$pid/status" or die "status: $!";
    return (map { /^RssShmem:\s+(\d+) kB/ ? $1 * 1024 : () } <$status>)[0];
}

SKIP: {
    skip 'a sanitizer takes time, too', 4
        if `ldd @{[ $ENV{LIMIT_SLIDING_NGINX} || '/usr/sbin/nginx' ]}` =~ /libasan/;

    my %section = (server => 'location /limits { limit_sliding_api write=on; }');
    my $config = $nginx->template(%section, http => "set_real_ip_from 127.0.0.1;");
    $nginx->start($nginx->template(%section, http => $zone =~ s/limits=\S+//r =~ s/\$key/\$arg_key/r));
    my $empty = shared_bytes($nginx->master);
    my $idle = cpu($nginx->master);

    $nginx->serve(%section, http => $zone =~ s/\$key/\$arg_key/r);
    my $started = cpu($nginx->master);
    note sprintf 'a start takes %.2f s', $started - $idle;
    cmp_ok $started - $idle, '<', 2, "a start with $MILLION limits takes less than 2 s";

    my $bytes = shared_bytes($nginx->master) - $empty;
    note sprintf '%.2f bytes a limit', $bytes / $MILLION;
    cmp_ok $bytes, '<=', 24 * $MILLION, 'they take 24 bytes each, or less';

    $nginx->reload;
    my $reloaded = cpu($nginx->master);
    note sprintf 'a reload takes %.2f s', $reloaded - $started;
    cmp_ok $reloaded - $started, '<', 2, 'a reload takes less than 2 s';

    my ($own) = $nginx->get('/limits/metrics')->{body} =~ /^limit_sliding_own_limits.* (\d+)$/m;
    is $own, $MILLION, 'all are there';
    $nginx->stop;
}


# instructions

SKIP: {
    skip 'the module is compiled in', 4 if !$nginx->is_dynamic;
    my %binary = $nginx->binaries;
    local $ENV{LIMIT_SLIDING_NGINX} = $binary{'--nginx'};
    local $ENV{LIMIT_SLIDING_MODULE} = $binary{'--module'};

    skip 'no valgrind', 4 if !grep { -x "$_/valgrind" } split /:/, $ENV{PATH};
    skip 'a sanitizer counts, too', 4 if `ldd $ENV{LIMIT_SLIDING_MODULE}` =~ /san\.so/;

    my $empty = "limit_sliding_zone \$key zone=none:16m rate=1000000r/s limits_max=$MILLION;";
    my $one = $empty =~ s/none/one/r =~ s/limits_max/limits=$dir\/one limits_max/r;
    $nginx->write_file('one', "x 5\n");

    # keys of requests begin with 0, 8 of them
    my $server = LimitSliding::Callgrind->nginx(
        http => "$empty $one $zone",
        locations => [
            (map { "set \$key x\$uri; limit_sliding zone=$_;" } qw(none one full)),
            'set $key /9$uri; set $key /8; limit_sliding zone=full;' ]);
    my @counts = map { $server->measure(port => $_, keys => 100, requests => 1000, status => 200) }
        0 .. 2;
    $server->stop;

    my ($none, $few, $absent) = @counts;
    note sprintf 'none %.0f, another key %+.1f, a million other keys %+.1f', $none,
        $few - $none, $absent - $none;
    cmp_ok $few - $none, '<=', 60, 'another key has a limit: at most 60 instructions more';
    cmp_ok $absent - $none, '<=', 60, 'a million have: at most 60 instructions more';
}

$nginx->finish;
