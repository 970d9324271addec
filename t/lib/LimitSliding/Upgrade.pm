package LimitSliding::Upgrade;

# An NGINX (LimitSliding::Test) whose binary is upgraded while it serves. NGINX ignores SIGUSR2
# where its parent has started it in the foreground, so this one is a daemon.
#
#   my $upgrade = LimitSliding::Upgrade->new($nginx, $config, '/free');
#   my $old = $upgrade->pid;
#   my $new = $upgrade->begin or die $nginx->log;
#   $upgrade->hand_over($old, $new);
#   kill 'QUIT', $old;
#   ok $upgrade->wait_gone('nginx.pid.oldbin');
#
# The masters are named by their pids.

use v5.36;

use LimitSliding::Test;

my @all;

# Starts a daemon with an expanded configuration. Responses of `path` have the header X-Worker,
# $pid.
sub new($class, $nginx, $config, $path) {
    my $dir = $nginx->dir;
    my (undef, $binary) = $nginx->binaries;
    $nginx->write_file('nginx.conf', $config =~ s/^daemon off;$//mr);
    system($binary, '-p', "$dir/", '-c', "$dir/nginx.conf") == 0
        or die "no daemon:\n", $nginx->log;
    push @all, my $self = bless { nginx => $nginx, path => $path, owner => $$ }, $class;
    wait_for(sub { $self->pid }) or die "the daemon has no pid\n";
    return $self;
}

# Returns the pid in a file; undef if there is none.
sub pid($self, $name = 'nginx.pid') {
    open my $file, '<', $self->{nginx}->dir . "/$name" or return undef;
    return (<$file> // '') =~ /^(\d+)$/ ? $1 : undef;
}

# Starts the new binary. Returns its master; false if it does not come.
sub begin($self) {
    my $old = $self->pid;
    kill 'USR2', $old;
    return wait_for(sub {
        my $pid = $self->pid;
        return $self->pid('nginx.pid.oldbin') && $pid && $pid != $old && $pid;
    });
}

# Returns the master of the worker that has sent the response.
sub master($self, $response = $self->{nginx}->get($self->{path})) {
    my $worker = header($response, 'X-Worker');
    open my $stat, '<', "/proc/$worker/stat" or return 0;
    return (split ' ', <$stat> =~ s/.*\)//r)[1];
}

# Has the workers of one master shut down, and waits until those of the other one answer.
sub hand_over($self, $from, $to) {
    wait_for(sub { kill 'WINCH', $from; sleep 0.05; $self->master == $to })
        or die "the workers of $from do not leave\n";
}

sub wait_gone($self, $name) {
    return wait_for(sub { !$self->pid($name) });
}

END {
    local $?;
    for my $self (grep { $_->{owner} == $$ } @all) {
        kill 'TERM', grep { defined } map { $self->pid($_) } qw(nginx.pid nginx.pid.oldbin);
    }
}

1;
