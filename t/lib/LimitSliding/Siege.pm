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

use LimitSliding::Load ();
use LimitSliding::Test;
use parent 'LimitSliding::Process';

my $BATCH = 200;          # requests between two looks at whether to go on

# Sends these paths to an NGINX, one after the other and again and again. Option:
# connections, of which each has one request under way (8).
sub new($class, $nginx, $paths, %opt) {
    return bless { connections => 8, %opt, port => $nginx->port,
        paths => $paths }, $class;
}

sub start($self) {
    return $self->begin(sub ($self) {
        my $got = eval { $self->_send_until_asked };
        $self->question;
        $self->answer($got // { error => "$@" });
    });
}

# Returns how often each path had which status, `lost` where the connection broke
# instead. Dies if the load did, of a connection that was refused for example.
sub stop($self) {
    my $got = $self->{pid} ? $self->ask : return;
    $self->SUPER::stop;
    die "siege: $got->{error}\n" if defined $got->{error};
    return $got;
}

# The load itself, until it is asked what it got.
sub _send_until_asked($self) {
    my ($next, %got) = (0);
    my $paths = $self->{paths};
    my $wanted = '';
    vec($wanted, fileno $self->{control}, 1) = 1;

    until (select my $asked = $wanted, undef, undef, 0) {
        my @batch = map { $paths->[ $next++ % @$paths ] } 1 .. $BATCH;
        my $statuses = LimitSliding::Load::load(port => $self->{port},
            connections => $self->{connections},
            requests => [ map { [ $_, 'Connection: close' ] } @batch ]);
        $got{ $batch[$_] }{ $statuses->[$_] // 'lost' }++ for 0 .. $#batch;
    }
    return \%got;
}

1;
