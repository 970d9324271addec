package LimitSliding::Process;

# A process that a test has started, which ends with its object: when the object goes, or the
# test ends. The base of servers.
#
#   sub start($self) {
#       return $self->begin(sub ($self) { ... });     # in a process of its own
#   }
#
# Derive from this, and the code of begin() may answer what the test asks:
#
#   is_deeply $self->ask('mode', 'cut'), {};          # in the test
#   my @words = $self->question;                 # in the process, once
#   $self->answer({});                                # fileno $self->{control} can be read

use v5.36;

use JSON::PP;
use POSIX ();
use Scalar::Util qw(weaken);
use Socket qw(AF_UNIX PF_UNSPEC SOCK_STREAM);

my %living;               # pid => object

# Starts a program, without a shell. Appends what it prints to a file. Returns its pid.
sub program($output, @command) {
    my $pid = fork() // die "fork: $!";
    return $pid if $pid;
    open STDIN,  '<',  '/dev/null';
    open STDOUT, '>>', $output;
    _become(@command);
}

# Runs a program, without a shell. Returns its status, as $? has it, and what it prints.
sub output_of(@command) {
    my $pid = open(my $pipe, '-|') // die "fork: $!";
    if (!$pid) {
        open STDIN, '<', '/dev/null';
        _become(@command);
    }
    my $output = do { local $/; <$pipe> // '' };
    close $pipe;
    return ($?, $output);
}

sub _become(@command) {
    open STDERR, '>&', \*STDOUT;
    { no warnings 'exec'; exec { $command[0] } @command }
    POSIX::_exit(127);
}

# Keeps account of a process that is there. `end` is the name of the method that ends it.
sub adopt($self, $pid, $end) {
    @$self{qw(pid owner end)} = ($pid, $$, $end);
    weaken($living{$pid} = $self);
    return $self;
}

# Forgets the process, which has ended. Returns its pid; undef if there is none.
sub released($self) {
    my $pid = delete $self->{pid} // return undef;
    delete $living{$pid};
    return $pid;
}

# Calls the code in a process of its own, which ends with it.
sub begin($self, $code) {
    socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC)
        or die "socketpair: $!";
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        %living = ();
        close $ours;
        $self->{control} = $theirs;
        $SIG{$_} = 'DEFAULT' for qw(HUP INT TERM);
        $SIG{PIPE} = 'IGNORE';
        eval { $code->($self) };
        print STDERR ref $self, ": $@" if $@;
        POSIX::_exit($@ ? 1 : 0);
    }
    close $theirs;
    $self->{control} = $ours;
    return $self->adopt($pid, 'stop');
}

sub ask($self, @words) {
    syswrite $self->{control}, encode_json(\@words) . "\n";
    my $answer = readline $self->{control};
    return decode_json($answer // die ref $self, " is gone\n");
}

sub question($self) {
    my $line = readline $self->{control} // POSIX::_exit(0);
    return @{ decode_json($line) };
}

sub answer($self, $answer) {
    syswrite $self->{control}, encode_json($answer) . "\n";
}

# Ends it at once.
sub stop($self) {
    my $pid = $self->released // return;
    kill 'KILL', $pid;
    waitpid $pid, 0;
}

sub _end_with_object($self) {
    local ($?, $@);
    my $end = $self->{end};
    $self->$end if $self->{pid} && $self->{owner} == $$;
}

sub DESTROY($self) { $self->_end_with_object }

END { defined && $_->_end_with_object for values %living }

1;
