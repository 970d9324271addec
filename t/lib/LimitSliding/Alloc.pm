package LimitSliding::Alloc;

# An NGINX (LimitSliding::Test) of which one allocation or other call fails, by the
# library of t/faults/alloc.cpp, which is preloaded. Needs glibc and an NGINX
# without sanitizers.
#
#   my $nginx = LimitSliding::Alloc->new;
#   $nginx->fail(17);                # the 17th of all processes from now on
#   $nginx->fail_memory(17);         # ... of the module's, in NGINX's pools
#   $nginx->fail_call(17, EIO);      # ... of the module's calls of files and events
#   ...
#   my $count = $nginx->relent;      # how many there were
#   is $nginx->crashes, '';
#
# Environment: LIMIT_SLIDING_FAULTS, the directory of alloc.so (build/faults).

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);

use LimitSliding::Test;
use parent -norequire, 'LimitSliding::Test';

my $ROOT = abs_path(dirname(__FILE__) . '/../../..');
my $LIBRARY = ($ENV{LIMIT_SLIDING_FAULTS} // "$ROOT/build/faults") . '/alloc.so';

my ($ALLOCATION, $MODULE_MEMORY, $MODULE_CALL) = 0 .. 2;    # as orders.hpp has them

# Crashes that are not the module's: what of the backtrace tells them, and why. All
# that the loader calls of the module is what make coverage has put into it.
my %KNOWN = (
    __nss_passwd_lookup2 => 'glibc reading nsswitch.conf, for the user that NGINX looks up',
    'ngx_http_limit_sliding_module[.]so\S*\n\S*/ld-linux' => 'gcov writing what it has counted',
);
my %known;                # how often each of them was seen

# Returns what is missing, undef if nothing is.
sub lacking() {
    return "no $LIBRARY: make test builds it" if !-r $LIBRARY;
    return 'not of x86-64' if `uname -m` ne "x86_64\n";
    return 'NGINX has a malloc of its own' if $ENV{ASAN_OPTIONS};
    return undef;
}

sub new($class, %opt) {
    my $self = $class->SUPER::new(%opt);
    $self->write_file('orders', pack 'Q5', (0) x 5);
    open $self->{orders}, '+<:raw', $self->dir . '/orders' or die "orders: $!";
    return $self;
}

# Runs a function with the environment in which NGINX gets the library.
sub preloaded($self, $function) {
    local @ENV{qw(LD_PRELOAD ALLOC_FAULT)} = ("$LIBRARY $ENV{LD_PRELOAD}", $self->dir . '/orders');
    return $function->();
}

# Has the n-th allocation from now on fail, of this process if `pid` is given.
sub fail($self, $n, $pid = 0) {
    $self->_order($n, $pid, 0, $ALLOCATION, 0);
}

sub fail_memory($self, $n) {
    $self->_order($n, 0, 0, $MODULE_MEMORY, 0);
}

sub fail_call($self, $n, $errno) {
    $self->_order($n, 0, 0, $MODULE_CALL, $errno);
}

# Has none fail any more. Returns how many there were since it was to fail.
sub relent($self) {
    my $count = $self->allocations;
    $self->_order((0) x 5);
    return $count;
}

sub allocations($self) {
    sysseek $self->{orders}, 16, 0;
    sysread $self->{orders}, my $text, 8;
    return unpack 'Q', $text;
}

sub _order($self, @numbers) {
    sysseek $self->{orders}, 0, 0;
    syswrite $self->{orders}, pack 'Q5', @numbers;
}

# Returns the directives of NGINXs that have all that there is, as common() takes
# them, with two Redis: zones, and a place for each; /limits is the API.
sub everything($redis, $other) {
    return (http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server $redis; timeout 5s; connect_timeout 5s; }
    limit_sliding_redis other  { server $other; timeout 5s; connect_timeout 5s; }
    map \$arg_plan \$plan { default ''; big 1000/30d; }

    limit_sliding_zone \$arg_key zone=one:64k rate=4 window=30d limits=limits.one;
    limit_sliding_zone \$arg_key zone=log:64k rate=4 window=30d algorithm=log;
    limit_sliding_zone \$arg_key zone=leaky:64k rate=1000r/s burst=9 algorithm=leaky_bucket;
    limit_sliding_zone \$arg_key zone=plan:64k rate=4 window=30d penalty=1h penalty_after=2;
    limit_sliding_zone \$arg_key zone=remote:64k rate=4 window=30d redis=shared penalty=1h
        penalty_after=2;
    limit_sliding_zone \$arg_key zone=events:64k rate=4 window=30d redis=shared algorithm=log;
    limit_sliding_zone \$arg_key zone=lease:64k rate=4 window=30d redis=shared lease=2;
    limit_sliding_zone \$arg_key zone=sync:64k rate=4 window=30d redis=shared sync=20ms;
    limit_sliding_zone \$arg_key zone=second:64k rate=4 window=30d redis=other;
    limit_sliding_headers retry_after draft x;
    limit_sliding_log_level warn every=1s;
    add_header X-Source \$limit_sliding_source always;
HTTP
    location /one    { limit_sliding zone=one; empty_gif; }
    location /log    { limit_sliding zone=log; empty_gif; }
    location /leaky  { limit_sliding zone=leaky; empty_gif; }
    location /plan   { limit_sliding zone=plan rate=$plan; empty_gif; }
    location /status { limit_sliding zone=one count_status=404 after_auth; }
    location /settle { limit_sliding zone=one settle=$arg_cost; empty_gif; }
    location /usage  {
        limit_sliding zone=one settle=$limit_sliding_usage;
        limit_sliding_usage tokens;
        proxy_pass http://127.0.0.1:%%PORT%%/answer;
    }
    location /answer { return 200 '{"tokens": 1}'; }
    location /remote { limit_sliding zone=remote; empty_gif; }
    location /events { limit_sliding zone=events; empty_gif; }
    location /lease  { limit_sliding zone=lease; empty_gif; }
    location /sync   { limit_sliding zone=sync; empty_gif; }
    location /several { limit_sliding zone=remote; limit_sliding zone=second;
                        limit_sliding zone=one; empty_gif; }
    location /paid   { limit_sliding zone=remote settle=$arg_cost; empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
}

# Starts NGINX, which may end at once. Returns true if it serves, with as many
# workers as the failure has left; false if it ended, with its $? in
# $self->{status}.
sub try_start($self, $template) {
    unlink $self->dir . '/nginx.pid';
    $self->preloaded(sub { $self->spawn($template) });
    wait_for(sub { $self->is_settled || $self->_reap })
        or die "the start does not end:\n", substr $self->log, -3000;
    return defined $self->{pid};
}

# True if NGINX serves, and what was begun is over.
sub is_settled($self) {
    sleep 0.001;          # until all processes wait
    return -s $self->dir . '/nginx.pid';
}

# Reloads. Returns once that has succeeded or failed; false if the master died.
sub try_reload($self) {
    my %old = map { $_ => 1 } $self->children;
    my $before = $self->log_count(qr/ reconfiguring$/m);
    $self->hup;
    wait_for(sub {
        $self->is_settled;
        return 1 if $self->_reap;
        return 0 if $self->log_count(qr/ reconfiguring$/m) == $before;
        my @now = $self->children;
        return !grep({ !$old{$_} } @now) || !grep { $old{$_} } @now;
    }) or die "the reload does not end:\n", substr $self->log, -3000;
    return defined $self->{pid};
}

# How often this occurs in all that was logged; the text is read only once.
sub log_count($self, $regexp) {
    $self->news;
    my $count = () = $self->{text} =~ /$regexp/g;
    return $count;
}

# Returns what was logged since the last call of new_text().
sub new_text($self) {
    $self->news;
    my $text = substr $self->{text}, $self->{told} // 0;
    $self->{told} = length $self->{text};
    return $text;
}

sub news($self) {
    $self->{text} //= '';
    for my $name (qw(nginx.out error.log)) {
        open my $file, '<:raw', $self->dir . "/$name" or next;
        seek $file, $self->{at}{$name} //= 0, 0;
        local $/;
        $self->{text} .= my $more = <$file> // '';
        $self->{at}{$name} += length $more;
    }
}

# Returns the functions in which the allocation failed.
sub place($text) {
    my ($frames) = $text =~ /^alloc: fails\n(.*?)^alloc: end$/ms or return '';
    return join ' < ', map { m{([^/]+)\((\w*)} ? ($2 || $1) : () } split /\n/, $frames;
}

# Returns what NGINX itself said.
sub words($text) {
    return $text =~ s/^alloc: fails\n.*?^alloc: end\n//msr;
}

# Runs `nginx -t`. Returns its status, as $? has it, and its output.
sub try_config($self, $template) {
    $self->write_file('test.conf', $self->expand($template));
    my ($nginx) = ($self->binaries)[1];
    return $self->preloaded(sub {
        LimitSliding::Process::output_of($nginx, '-t', '-p', $self->dir . '/',
            '-c', $self->dir . '/test.conf');
    });
}

# Returns where a process crashed, by what was logged; those that are known are
# counted instead.
sub crashes($self, $text) {
    my $crash = join '', $text =~ /^alloc: crash\n(.*?)^alloc: end$/msg,
        grep { !/on signal 9\b/ } $text =~ /^(.*exited on signal.*)$/mg;
    return if $crash eq '';
    for my $place (keys %KNOWN) {
        if ($crash =~ /\b$place\b/) {
            $known{$place}++;
            return;
        }
    }
    return "crashed, $crash: " . place($text);
}

# Says what crashes there were that are known.
sub known() {
    return map { "$known{$_} crashes of $KNOWN{$_}\n" } sort keys %known;
}

# Returns what is wrong with requests of a new key, if anything.
sub wrong_answers($self) {
    state $unique = 0;
    sleep 2;              # until a worker that lost Redis has it again
    my $key = 'answers-' . ++$unique;
    return map {
        my $statuses = $self->statuses(5, "/$_?key=$key");
        $statuses eq '200 200 200 200 429' ? () : "$_: $statuses";
    } qw(one remote lease);
}

1;
