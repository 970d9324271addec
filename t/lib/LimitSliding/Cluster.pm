package LimitSliding::Cluster;

# A Redis Cluster of local servers: masters, with a replica each.
#
#   my $cluster = LimitSliding::Cluster->new(masters => 3)->start;
#   my $master = $cluster->master_of('key');
#   $cluster->move_slot($slot, $from, $to);

use v5.36;

use List::Util qw(first uniq);

use LimitSliding::Redis ();
use LimitSliding::Test;

my $SLOTS = 16384;

# Options:
#   masters    how many (3)
#   replicas   of each master (1)
#   timeout    of nodes, in seconds (1)
#   config     of each redis.conf
sub new($class, %opt) {
    return bless { masters => 3, replicas => 1, timeout => 1, config => {},
        %opt }, $class;
}

sub start($self) {
    my @nodes = map { $self->start_node } 1 .. $self->{masters}
        * (1 + $self->{replicas});
    my @masters = @nodes[0 .. $self->{masters} - 1];
    $self->{nodes} = \@nodes;

    for my $i (0 .. $#masters) {
        $masters[$i]->command(qw(CLUSTER ADDSLOTSRANGE),
            int($SLOTS * $i / @masters), int($SLOTS * ($i + 1) / @masters) - 1);
    }
    $nodes[$_]->command(qw(CLUSTER SET-CONFIG-EPOCH), $_ + 1) for 0 .. $#nodes;
    $self->meet($_) for @nodes[1 .. $#nodes];

    $self->wait_agreed;
    for my $i (@masters .. $#nodes) {
        my $master = $masters[$i % @masters];
        wait_for(sub { $nodes[$i]->ask(qw(CLUSTER REPLICATE),
            $self->id($master)) eq 'OK' });
    }
    $self->wait_agreed;
    return $self;
}

sub start_node($self) {
    my $node = LimitSliding::Redis->new(config => {
        'cluster-enabled'      => 'yes',
        'cluster-node-timeout' => 1000 * $self->{timeout},
        'cluster-announce-ip'  => '127.0.0.1',
        %{ $self->{config} },
    });
    return $node->start;
}

# Makes the first node know this one.
sub meet($self, $node) {
    $self->{nodes}[0]->command(qw(CLUSTER MEET 127.0.0.1), $node->port,
        $node->{bus});
}

sub alive($self) {
    return grep { $_->pid } @{ $self->{nodes} };
}

sub id($self, $node) {
    return $node->{id} //= $node->command(qw(CLUSTER MYID));
}

# Waits until all living nodes see the same owner of each slot, and the same master
# of each replica, which follows it.
sub wait_agreed($self, $seconds = 30) {
    my %views;
    return wait_for(sub {
        %views = ();
        for my $node ($self->alive) {
            $node->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/ or return 0;
            my %master = $node->command(qw(CLUSTER NODES)) =~ /^(\S+) \S+ \S+ (\S+) /mg;
            $views{ join ' ', map({ "$_->[0]-$_->[1]=$_->[2][2]" }
                sort { $a->[0] <=> $b->[0] } @{ $node->command(qw(CLUSTER SLOTS)) }),
                map { $master{ $self->id($_) } // 'unknown' } $self->alive } .= $node->port . ' ';
        }
        return keys %views == 1
            && !grep {
                my $info = $_->info('replication');
                $info->{role} eq 'slave' && $info->{master_link_status} ne 'up'
            } $self->alive;
    }, $seconds, 0.1) || die "the cluster does not agree:\n",
        map { "$views{$_}: $_\n" } keys %views;
}

# Returns the parameters of the server directive.
sub servers($self) {
    return join '; server ', map { $_->server } @{ $self->{nodes} };
}

sub slot($self, $name) {
    return ($self->alive)[0]->command(qw(CLUSTER KEYSLOT), $name);
}

# Returns the living masters that have slots.
sub masters($self) {
    return grep { $_->info('replication')->{role} eq 'master'
        && $_->command(qw(CLUSTER NODES)) =~ /myself.* \d+(?:-\d+)?(?: |$)/m
    } $self->alive;
}

sub master_of($self, $slot, $from = ($self->alive)[0]) {
    my $range = first { $_->[0] <= $slot && $slot <= $_->[1] }
        @{ $from->command(qw(CLUSTER SLOTS)) };
    return first { $_->port == $range->[2][1] } @{ $self->{nodes} };
}

# Moves slots as redis-cli --cluster reshard does. `between` is called for each
# while it is half moved.
#
# The new owner takes an epoch above all that it knows. If it does not know
# another's last one yet, both have the same; one of them then takes a higher
# one while it still claims what it has just given away, and nodes disagree of
# that slot for good.
sub move_slot($self, $slot, $from, $to, $between = sub { }) {
    $to->command(qw(CLUSTER SETSLOT), $slot, 'IMPORTING', $self->id($from));
    $from->command(qw(CLUSTER SETSLOT), $slot, 'MIGRATING', $self->id($to));
    $between->('empty');
    while (my @keys = @{ $from->command(qw(CLUSTER GETKEYSINSLOT), $slot, 10) })
    {
        $from->command('MIGRATE', '127.0.0.1', $to->port, '', 0, 5000, 'KEYS',
            @keys);
    }
    $between->('moved');
    my @masters = $self->masters;
    wait_for(sub { 1 == uniq map { $_->command(qw(CLUSTER INFO))
        =~ /cluster_current_epoch:(\d+)/ } @masters })
        or die "epochs do not agree\n";
    $_->command(qw(CLUSTER SETSLOT), $slot, 'NODE', $self->id($to))
        for $to, $from, grep { $_ != $to && $_ != $from } @masters;
}

# Returns the calls of all nodes.
sub calls($self) {
    my $calls = 0;
    $calls += $_->calls for $self->alive;
    return $calls;
}

1;
