package LimitSliding::Siege;

# A load that goes on, in a process of its own, while a test does something to
# NGINX.
#
#   my $siege = LimitSliding::Siege->new($nginx, ['/one?key=a', '/two?key=b'])
#       ->start;
#   $nginx->reload for 1 .. 20;
#   my $got = $siege->stop;      # { '/one?key=a' => { 200 => 512, lost => 1 } }
#
# Each request has a connection of its own: a worker that leaves closes idle
# connections without a look at what was just sent on them, which is NGINX's
# way and no fault of the module.

use v5.36;

use JSON::PP qw(decode_json encode_json);
use POSIX ();

use LimitSliding::Load ();
use LimitSliding::Test;

my $BATCH = 200;          # requests between two looks at whether to go on

my %started;              # pid => object, to be ended at exit

# Sends these paths to an NGINX, one after the other and again and again. Option:
# connections, of which each has one request under way (8).
sub new($class, $nginx, $paths, %opt) {
    return bless { connections => 8, %opt, owner => $$, port => $nginx->port,
        paths => $paths }, $class;
}

sub start($self) {
    pipe(my $go_on, my $stop) or die "pipe: $!";
    pipe(my $results, my $report) or die "pipe: $!";

    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        close $_ for $stop, $results;
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        my $got = eval { $self->_send_until($go_on) };
        print {$report} encode_json($got // { error => "$@" });
        close $report;
        POSIX::_exit(0);
    }

    close $_ for $go_on, $report;
    @$self{qw(pid stop results)} = ($pid, $stop, $results);
    $started{$pid} = $self;
    return $self;
}

# Returns how often each path had which status, `lost` where the connection broke
# instead. Dies if the load did, of a connection that was refused for example.
sub stop($self) {
    close delete $self->{stop};
    my $got = decode_json(do { local $/; readline $self->{results} });
    $self->_end('TERM');
    die "siege: $got->{error}\n" if defined $got->{error};
    return $got;
}

sub _end($self, $signal) {
    my $pid = delete $self->{pid} // return;
    delete $started{$pid};
    kill $signal, $pid;
    waitpid $pid, 0;
}

END {
    local $?;
    $_->{owner} == $$ && $_->_end('KILL') for values %started;
}

# The load itself, until the other end of the pipe is closed.
sub _send_until($self, $go_on) {
    my ($next, %got) = (0);
    my $paths = $self->{paths};
    my $wanted = '';
    vec($wanted, fileno $go_on, 1) = 1;

    until (select my $closed = $wanted, undef, undef, 0) {
        my @batch = map { $paths->[ $next++ % @$paths ] } 1 .. $BATCH;
        my $statuses = LimitSliding::Load::load(port => $self->{port},
            connections => $self->{connections},
            requests => [ map { [ $_, 'Connection: close' ] } @batch ]);
        $got{ $batch[$_] }{ $statuses->[$_] // 'lost' }++ for 0 .. $#batch;
    }
    return \%got;
}

1;
