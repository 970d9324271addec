package LimitSliding::Footprint;

# What a process holds of the machine, by /proc.
#
#   my $before = footprint($nginx->master);
#   ...
#   my $after = footprint($nginx->master);
#   is $after->{descriptors}, $before->{descriptors};
#   cmp_ok $after->{kb} - $before->{kb}, '<', 256;

use v5.36;

use Exporter qw(import);

our @EXPORT = qw(footprint);

# Returns { descriptors, mappings, kb } of a process. `kb` is memory of its own
# in kB: pages of zones, which all workers share, are not in it, as a worker has
# those that it happened to touch. ASan holds back what was freed, so that
# memory and mappings tell nothing then, and are 0.
sub footprint($pid) {
    opendir my $dir, "/proc/$pid/fd" or die "/proc/$pid/fd: $!";
    my $descriptors = grep { /^\d/ } readdir $dir;

    open my $maps, '<', "/proc/$pid/maps" or die "/proc/$pid/maps: $!";
    my $mappings = () = <$maps>;

    open my $file, '<', "/proc/$pid/status" or die "/proc/$pid/status: $!";
    my ($kb) = join('', <$file>) =~ /^RssAnon:\s*(\d+) kB/m
        or die "no RssAnon of $pid";

    ($mappings, $kb) = (0, 0) if defined $ENV{ASAN_OPTIONS};
    return { descriptors => $descriptors, mappings => $mappings, kb => $kb };
}

1;
