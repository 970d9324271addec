package LimitSliding::Clocks;

# Clocks that an NGINX sees, if this is used before LimitSliding::Test:
#
#   my $clock = LimitSliding::Clocks->utc;         # UTC by libfaketime
#   $clock->run(sub { $nginx->start($clock->env . ...) });
#   $clock->jump(3600);                            # seconds from the true time
#
# LimitSliding::Clocks->both is the same, for the monotonic clock as well.
#
#   LimitSliding::Clocks::boot_time(10, sub { $nginx->start(...) });
#
# The latter starts it in a time namespace, in which the machine was booted so
# many seconds ago. That needs root.

use v5.36;

use File::Temp qw(tempdir);

my $dir;
my ($FAKETIME) = grep { -e } glob '/usr/lib/*/faketime/libfaketime.so.1';
my $nginx;

# What LimitSliding::Test takes for NGINX: it enters the namespace first.  The
# numbers of the calls are those of x86-64.
BEGIN {
    $dir = tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1, CLEANUP => 1);
    $nginx = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
    open my $file, '>', "$dir/nginx" or die "$dir/nginx: $!";
    print $file <<"PERL";
#!$^X
if (my \$offset = \$ENV{BOOT_OFFSET}) {
    my (\$unshare, \$setns, \$newtime) = (272, 308, 0x80);
    syscall(\$unshare, \$newtime) == 0 or die "unshare: \$!";
    open my \$offsets, '>', '/proc/self/timens_offsets' or die;
    print \$offsets "monotonic \$offset 0\\nboottime \$offset 0\\n";
    close \$offsets or die "timens_offsets: \$!";
    open my \$space, '<', '/proc/self/ns/time_for_children' or die;
    syscall(\$setns, fileno \$space, \$newtime) == 0 or die "setns: \$!";
}
exec '$nginx', \@ARGV;
PERL
    close $file or die "$dir/nginx: $!";
    chmod 0755, "$dir/nginx";
    $ENV{LIMIT_SLIDING_NGINX} = "$dir/nginx" if -x $nginx;
}

# Returns what is missing for this, undef if nothing is.
sub lacking() {
    return 'no libfaketime' if !$FAKETIME;
    return 'a sanitizer has to be loaded first' if `ldd '$nginx'` =~ /libasan/;
    return undef;
}

# True if time namespaces work here.
sub has_namespaces() {
    return `uname -m` eq "x86_64\n" && -e '/proc/self/timens_offsets'
        && system('unshare -T true 2>/dev/null') == 0;
}

sub utc($class) {
    return $class->_of(LD_PRELOAD => $FAKETIME, FAKETIME_TIMESTAMP_FILE => "$dir/utc",
        FAKETIME_NO_CACHE => 1, FAKETIME_DONT_FAKE_MONOTONIC => 1);
}

sub both($class) {
    return $class->_of(LD_PRELOAD => $FAKETIME, FAKETIME_TIMESTAMP_FILE => "$dir/both",
        FAKETIME_NO_CACHE => 1);
}

sub _of($class, %env) {
    my $self = bless { file => $env{FAKETIME_TIMESTAMP_FILE}, env => \%env }, $class;
    $self->jump(0);
    return $self;
}

sub jump($self, $seconds) {
    open my $file, '>', "$self->{file}.new" or die "$self->{file}.new: $!";
    printf $file "%+d\n", $seconds;
    close $file or die "$self->{file}: $!";
    rename "$self->{file}.new", $self->{file} or die "$self->{file}: $!";
}

# Calls a function. What it starts sees this clock; by utc(), it keeps the true
# monotonic one.
sub run($self, $function) {
    local %ENV = (%ENV, %{ $self->{env} });
    return $function->();
}

# Returns the directives by which workers keep it.
sub env($self) {
    return join '', map { "env $_;\n" } grep { /^FAKETIME/ } sort keys %{ $self->{env} };
}

sub boot_time($seconds, $function) {
    open my $file, '<', '/proc/uptime' or die "/proc/uptime: $!";
    my ($uptime) = split ' ', readline $file;
    local $ENV{BOOT_OFFSET} = int($seconds - $uptime);
    return $function->();
}

1;
