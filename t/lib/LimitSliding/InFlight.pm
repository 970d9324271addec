package LimitSliding::InFlight;

# Nodes that share limits on requests in flight in one Redis, and requests that
# are held there until the test ends them.
#
#   my $fleet = LimitSliding::InFlight->new($redis, nodes => 2);
#   is $fleet->hold('a', 12), 2;              # two are rejected
#   is $fleet->alive('a'), 10;
#   $fleet->release('a', 3);
#   $fleet->finish;
#   done_testing;
#
# All times are seconds.

use v5.36;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use List::Util qw(sum0);

use LimitSliding::Process;
use LimitSliding::Test;

our @EXPORT_OK = qw(silent_server);

my @servers;              # those that never answer, until the test ends

# Starts the nodes, and waits until Redis decides in all of their workers.
# Options:
#   nodes    how many, 2
#   server   the address of Redis, that of the first argument
#   settings of limit_sliding_redis
#   zone     settings of the zone "held", inflight=10
#   http, server_conf   more directives
sub new($class, $redis, %opt) {
    my $self = bless { redis => $redis, alive => {}, next => 0 }, $class;
    pipe $self->{reached}, my $reached or die "pipe: $!";
    my $silent = silent_server($reached);
    $self->{nodes} = [ map { LimitSliding::Test->new(worker_connections => 4096) }
        1 .. $opt{nodes} // 2 ];
    my $zone = $opt{zone} // 'inflight=10';
    my $server = $opt{server} // $redis->server;
    $self->{directives} = {
        listen => 'reuseport',
        http   => <<"HTTP" . ($opt{http} // ''),
    add_header X-Told "\$limit_sliding_status \$limit_sliding_zone \$limit_sliding_limit \$limit_sliding_remaining" always;
    add_header X-Source \$limit_sliding_source always;
    add_header X-Worker \$pid always;
    limit_sliding_redis shared {
        server $server;
        @{[ $opt{settings} // 'timeout 5s; connect_timeout 5s;' ]}
    }
    limit_sliding_zone \$arg_key zone=held:1m $zone redis=shared;
HTTP
        server => <<"SERVER" . ($opt{server_conf} // ''),
    limit_sliding_log_level off;
    location /silent { limit_sliding zone=held; proxy_pass http://127.0.0.1:$silent; proxy_read_timeout 1h; }
    location /quick { limit_sliding zone=held; empty_gif; }
    location /costly { limit_sliding zone=held cost=\$arg_cost; empty_gif; }
    location /limits { limit_sliding_api write=on; }
SERVER
    };
    $_->serve(%{ $self->{directives} }) for $self->nodes;
    $self->wait_ready if !$opt{unready};
    return $self;
}

# Starts a server that accepts, keeps connections until NGINX closes them, and never answers.
# It ends with the test. It writes the argument "n" of each request to a handle, if there is one.
# Returns its port.
sub silent_server($reached = undef) {
    my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
        LocalAddr => '127.0.0.1') // die "listen: $!";
    push @servers, bless({}, 'LimitSliding::Process')->begin(sub ($self) {
        my $select = IO::Select->new($silent);
        while (my @ready = $select->can_read) {
            for my $socket (@ready) {
                if ($socket == $silent) {
                    $select->add($silent->accept);
                } elsif (!sysread $socket, my $request, 4096) {
                    $select->remove($socket);
                } elsif ($reached && $request =~ /&n=(\d+)/) {
                    syswrite $reached, "$1\n";
                }
            }
        }
    });
    return $silent->sockport;
}

sub nodes($self) { return @{ $self->{nodes} } }
sub node($self, $i) { return $self->{nodes}[$i] }

# Waits until Redis decides in all workers: at first, others may still have to
# report what they hold.
sub wait_ready($self, @nodes) {
    for my $node (@nodes ? @nodes : $self->nodes) {
        my %ready;
        wait_for(sub {
            my $r = $node->get('/costly?cost=0&key=ready');
            $ready{ header($r, 'X-Worker') } = 1 if header($r, 'X-Source') eq 'redis';
            return keys %ready == $node->{worker_processes};
        }) or die "Redis does not decide\n";
    }
}

# Sends n requests of a key that do not end by themselves, to this node or to one
# after the other. Returns how many were rejected; the others are alive.
sub hold($self, $key, $n, $only = undef) {
    my (%sent, %undecided);
    for (1 .. $n) {
        my $i = $only // $self->{next}++ % $self->nodes;
        my $number = ++$self->{sent};
        my $socket = $self->node($i)->send_request("/silent?key=$key&n=$number");
        $sent{$socket} = [ $socket, $i ];
        $undecided{$number} = $socket;
    }

    # who is not rejected is passed to the server that never answers
    my $rejected = 0;
    my $until = now() + 30;
    while (%undecided) {
        my @ready = IO::Select->new($self->{reached}, values %undecided)->can_read($until - now())
            or die "no decision of requests of $key\n";
        for my $socket (@ready) {
            my $text = '';
            sysread $socket, $text, 4096;
            if ($socket == $self->{reached}) {
                delete $undecided{$_} for split /\n/, $text;
                next;
            }
            my ($number) = grep { $undecided{$_} == $socket } keys %undecided;
            delete $undecided{$number};
            delete $sent{$socket};
            $rejected++ if $text =~ /^HTTP\/1\.1 429/;
            die "an answer: $text" if $text !~ /^(HTTP\/1\.1 429|$)/;
        }
    }
    $self->{alive}{$key}{$_} = $sent{$_} for keys %sent;

    # workers remember a refusal for 25 ms
    sleep 0.03 if $rejected;
    return $rejected;
}

# Returns how many requests of the key are alive, of a node or of all. Forgets
# those whose connections were closed.
sub alive($self, $key, $only = undef) {
    my $all = $self->{alive}{$key} // {};
    for my $socket (IO::Select->new(map { $_->[0] } values %$all)->can_read(0)) {
        delete $all->{$socket} if !sysread $socket, my $text, 4096;
    }
    return scalar grep { !defined $only || $_->[1] == $only } values %$all;
}

# Ends n requests of the key, of a node or of any.
sub release($self, $key, $n, $only = undef) {
    my $all = $self->{alive}{$key} // {};
    my @them = grep { !defined $only || $all->{$_}[1] == $only } sort keys %$all;
    delete $all->{$_} for grep { defined } @them[0 .. $n - 1];
}

# Returns the units of a key that Redis counts: those of holders that live.
sub counted($self, $key) {
    my %state = map { /^([0-9a-f]{16}):(\d+)$/ ? ($1 => $2) : () }
        split / /, $self->{redis}->ask('GET', $self->name_of($key) . ':inflight') // '';
    return sum0(map { $state{$_} }
        grep { $self->{redis}->ask('EXISTS', "limit_sliding:holder:$_") } keys %state);
}

sub name_of($self, $key) {
    return 'limit_sliding:held:{' . LimitSliding::Redis::digest($key) . '}';
}

# Waits until Redis counts as many units as requests are alive. Returns that
# number; else "COUNTED counted, ALIVE alive".
sub settled($self, $key, $seconds = 5) {
    my ($counted, $alive);
    return wait_for(sub {
        ($counted, $alive) = ($self->counted($key), $self->alive($key));
        $counted == $alive;
    }, $seconds) ? $alive : "$counted counted, $alive alive";
}

sub finish($self) {
    $self->{alive} = {};
    $_->finish_one for $self->nodes;
}

1;
