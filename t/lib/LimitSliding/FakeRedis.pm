package LimitSliding::FakeRedis;

# A server that speaks as Redis should not: a proxy before a real Redis, which
# spoils replies as it is told, and keeps account of what it was asked.
#
#   my $fake = LimitSliding::FakeRedis->new($redis)->start;
#   $fake->mode('cut');
#   ...
#   is $fake->stats->{accepted}, 1;
#
# Modes; "decision" is the reply to EVALSHA or EVAL, and all else passes:
#   pass            everything passes
#   delay N         replies come N seconds late
#   bytes N         replies come byte by byte, N seconds apart
#   mute            nothing is forwarded, nothing is answered; what was on its
#                   way is kept for the next mode
#   lost            no segment of TCP arrives, nor is acknowledged, and nobody is
#                   told; connections cannot be opened
#   say TEXT        a decision is replaced by this text, `\r\n` written so
#   answer NAME TEXT   the reply to the command NAME is replaced by this text; an
#                   empty one never comes
#   flood HEAD BODY instead of a decision comes HEAD, then BODY without end
#   extra           a decision comes twice, in one piece
#   late            a decision comes twice, the second time a moment later
#   cut             half a decision, then the connection is closed
#   drop            a decision is asked for, and the connection closed
#   refuse          connections are accepted and closed
#   greet TEXT      connections are accepted, told this, and closed
#
# A mode applies to new connections and to those that are open.

use v5.36;

use Errno qw(EAGAIN EINTR);
use IO::Socket::INET;
use IO::Socket::UNIX;
use List::Util qw(max);
use Socket qw(IPPROTO_TCP SOL_SOCKET TCP_NODELAY);
use Time::HiRes ();

use LimitSliding::Process;
use LimitSliding::Redis;
use LimitSliding::Resp qw(decode);
use LimitSliding::Test;
use parent -norequire, 'LimitSliding::Process';

my $FLOOD = 64 << 20;     # bytes after which a flood ends anyway
my $LATE  = 0.02;         # seconds


# ---- the test's side ----

# Starts a cluster of one node, which tells clients to come by way of a fake before it. Returns
# the node and the fake.
sub cluster($class) {
    my $redis = LimitSliding::Redis->new(config => { 'cluster-enabled' => 'yes',
        'cluster-announce-ip' => '127.0.0.1' });
    my $fake = $class->new($redis)->start;
    $redis->start('cluster-announce-port' => $fake->port);
    $redis->command(qw(CLUSTER ADDSLOTSRANGE 0 16383));
    wait_for(sub { $redis->command(qw(CLUSTER INFO)) =~ /cluster_state:ok/ });
    return ($redis, $fake);
}

# In front of this Redis; without one, only modes that need none.
sub new($class, $redis = undef) {
    my $reserved = LimitSliding::Test::reserve_port();
    return bless { %$reserved,
        upstream => $redis && $redis->path }, $class;
}

sub start($self) {
    $self->{listen} = IO::Socket::INET->new(Proto => 'tcp', Listen => 128,
        ReuseAddr => 1, LocalAddr => '127.0.0.1', LocalPort => $self->{port})
        // die "listen: $!";
    $self->begin(\&_serve);
    close delete $self->{listen};
    return $self;
}

sub port($self) { return $self->{port} }

sub server($self) { return "127.0.0.1:$self->{port}" }

# Takes effect before it returns.
sub mode($self, @words) {
    $self->ask('mode', @words);
}

# Breaks all connections.
sub reset($self) {
    $self->ask('reset');
}

# Breaks all connections; those that follow lead to this Redis, as after a failover.
sub lead($self, $redis) {
    $self->ask('lead', $redis->path);
}

# Returns what it saw since the start or the last forget():
#   accepted   connections
#   open       those there are now
#   spoilt     those of them on which a decision was replaced
#   pending    replies, or parts of them, that are still to be sent
#   commands   { NAME => how many }, in capital letters
#   decided    { key => how many times its decision was asked for }, those that
#              Redis answered by NOSCRIPT left out
#   most       the most commands of a connection that had no reply at a time
#   replied    when the last piece of a reply had been sent, in seconds of UTC
#   first      the first bytes of the last connection
sub stats($self) {
    sleep 0;                  # until all is quiet
    return $self->ask('stats');
}

sub forget($self) {
    $self->ask('forget');
}


# ---- the server's side, a process of its own ----

sub _serve($self) {
    @$self{qw(mode conns)} = ([ 'pass' ], {});
    $self->_forget;

    while (1) {
        my ($read, $write) = ('', '');
        vec($read, fileno $_, 1) = 1 for $self->{listen}, $self->{control};

        my $now = _now_ms();
        my $wait_ms;
        for my $c (values %{ $self->{conns} }) {
            for my $side (grep { $_->{socket} } @$c{qw(client server)}) {
                my $fd = fileno $side->{socket};
                vec($read, $fd, 1) = 1;
                my $due = $side->{due}[0] // next;
                if ($due->[0] <= $now) {
                    vec($write, $fd, 1) = 1;
                } elsif (!defined $wait_ms || $due->[0] - $now < $wait_ms) {
                    $wait_ms = $due->[0] - $now;
                }
            }
        }

        next if select($read, $write, undef, defined $wait_ms ? $wait_ms / 1000 : undef) < 0;

        $self->_control if vec $read, fileno $self->{control}, 1;
        $self->_accept  if vec $read, fileno $self->{listen},  1;

        for my $c (values %{ $self->{conns} }) {
            for my $name (qw(client server)) {
                my $side = $c->{$name};
                my $fd = $side->{socket} ? fileno $side->{socket} : next;
                if (vec $write, $fd, 1) {
                    _flush($side);
                    $self->{stats}{replied} = Time::HiRes::time()
                        if $name eq 'client';
                }
                $self->_read($c, $name) if vec $read, $fd, 1;
                last if !$self->{conns}{ $c->{id} };
            }
            $self->_end($c)
                if $c->{closing} && !@{ $c->{client}{due} };
        }
    }
}

sub _control($self) {
    my ($what, @words) = $self->question;
    my $answer = {};

    if ($what eq 'mode') {
        $self->{mode} = \@words;
        _lose($_, $words[0] eq 'lost')
            for $self->{listen}, map { $_->{client}{socket} } values %{ $self->{conns} };
        my @held = values %{ $self->{conns} };
        $self->_client_said($_) for @held;
    } elsif ($what eq 'reset' || $what eq 'lead') {
        $self->{upstream} = $words[0] if $what eq 'lead';
        $self->_end($_) for values %{ $self->{conns} };
    } elsif ($what eq 'stats') {
        my @conns = values %{ $self->{conns} };
        $answer = { %{ $self->{stats} }, open => scalar @conns,
            spoilt => scalar grep({ $_->{spoilt} } @conns),
            pending => scalar map { @{ $_->{client}{due} } } @conns };
    } else {
        $self->_forget;
    }
    $self->answer($answer);
}

# Has the kernel drop what comes for a socket, by a filter that lets nothing pass.
sub _lose($socket, $on) {
    my ($attach, $detach, $return) = (26, 27, 0x06);
    my $code = pack 'S C C L', $return, 0, 0, 0;
    my $program = pack 'S x![P] P', 1, $code;
    if ($on) {
        setsockopt $socket, SOL_SOCKET, $attach, $program or die "filter: $!";
    } else {
        setsockopt $socket, SOL_SOCKET, $detach, pack 'i', 0;    # there may be none
    }
}

sub _forget($self) {
    $self->{stats} = { accepted => 0, commands => {}, decided => {},
        first => '', replied => 0, most => 0 };
}

sub _accept($self) {
    my $socket = $self->{listen}->accept // return;
    my ($mode, $text) = @{ $self->{mode} };
    $self->{stats}{accepted}++;
    $socket->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);

    if ($mode eq 'refuse' || $mode eq 'greet') {
        syswrite $socket, _text($text) if defined $text;
        return close $socket;
    }

    my $upstream = $self->{upstream}
        && IO::Socket::UNIX->new(Peer => $self->{upstream});
    return close $socket if $self->{upstream} && !$upstream;

    my $id = ++$self->{last_id};
    $self->{conns}{$id} = {
        id      => $id,
        client  => _side($socket),
        server  => _side($upstream),
        asked   => [],            # commands without a reply yet
        first   => '',
    };
}

# One of the sockets of a connection: what was read and is not forwarded, and
# what is to be written, [ms when, text].
sub _side($socket) {
    $socket->blocking(0) if $socket;
    return { socket => $socket, in => '', due => [] };
}

# Some of what is due, so that others have their turn.
sub _flush($side) {
    for (1 .. 4) {
        my $due = $side->{due}[0] // last;
        last if $due->[0] > _now_ms();
        my $n = syswrite $side->{socket}, $due->[1];
        return $side->{due} = [] if !defined $n && $! != EAGAIN;
        last if !$n;
        substr($due->[1], 0, $n, '');
        last if $due->[1] ne '';
        if (--$due->[3]) {
            $due->[1] = $due->[2];
        } else {
            shift @{ $side->{due} };
        }
    }
}

sub _read($self, $c, $name) {
    my $side = $c->{$name};
    my $n = sysread $side->{socket}, $side->{in}, 65536, length $side->{in};
    return if !defined $n && ($! == EAGAIN || $! == EINTR);
    return $self->_end($c) if !$n;

    if ($name eq 'client') {
        $self->{stats}{first} = substr $side->{in}, 0, 16 if !$c->{seen}++;
        $self->{stats}{first} =~ s/[^ -~]/./g;
        $self->_client_said($c);
    } else {
        $self->_server_said($c);
    }
}

# Forwards complete commands, and takes them down.
sub _client_said($self, $c) {
    my ($mode, @args) = @{ $self->{mode} };
    return if $mode eq 'mute' || $c->{closing};

    my $in = \$c->{client}{in};
    while (1) {
        my ($words, $end) = eval { decode($in) };
        last if !$end;
        my $raw = substr $$in, 0, $end, '';

        my $command = uc $words->[0];
        my $decision = $command eq 'EVAL' || $command eq 'EVALSHA';
        my @keys = $decision ? @$words[3 .. 2 + $words->[2]] : ();
        $self->{stats}{commands}{$command}++;
        $self->{stats}{decided}{$_}++ for @keys;

        push @{ $c->{asked} },
            { name => $command, decision => $decision, keys => \@keys };
        $self->{stats}{most} = max($self->{stats}{most}, scalar @{ $c->{asked} });
        _put($c->{server}, $raw) if $c->{server}{socket};
        _flush($c->{server})     if $c->{server}{socket};
        if ($decision && $mode eq 'drop') {
            return $self->_end($c);
        }
    }
}

# Forwards complete replies, spoilt.
sub _server_said($self, $c) {
    my $in = \$c->{server}{in};
    while (1) {
        my ($reply, $end) = decode($in);
        last if !$end || $c->{closing};
        my $raw = substr $$in, 0, $end, '';

        my $asked = shift @{ $c->{asked} } // {};
        if (defined $reply && $reply =~ /^-NOSCRIPT/) {
            $self->{stats}{decided}{$_}-- for @{ $asked->{keys} };
        } elsif ($asked->{decision} && $self->_spoil($c, $raw)) {
            next;
        }
        my ($mode, $name, $text) = @{ $self->{mode} };
        if ($mode eq 'answer' && $name eq ($asked->{name} // '')) {
            $raw = _text($text);
        }
        $self->_reply($c, $raw);
    }
}

# A reply as it should be, if perhaps slow.
sub _reply($self, $c, $raw) {
    my ($mode, $seconds) = @{ $self->{mode} };

    if ($mode eq 'delay') {
        _put($c->{client}, $raw, $seconds);
    } elsif ($mode eq 'bytes') {
        my $n = 0;
        _put($c->{client}, $_, $seconds * $n++) for split //, $raw;
    } else {
        _put($c->{client}, $raw);
    }
}

# True if it took care of the decision.
sub _spoil($self, $c, $raw) {
    my ($mode, @args) = @{ $self->{mode} };
    my $client = $c->{client};

    if ($mode eq 'say') {
        _put($client, _text($args[0]));
    } elsif ($mode eq 'flood') {
        my ($head, $body) = map { _text($_) } @args;
        my $block = $body x int(65536 / length $body);
        _put($client, $head);
        _put($client, $block, 0, $FLOOD / 65536);
    } elsif ($mode eq 'extra') {
        _put($client, $raw . $raw);
    } elsif ($mode eq 'late') {
        _put($client, $raw);
        _put($client, $raw, $LATE);
    } elsif ($mode eq 'cut') {
        _put($client, substr $raw, 0, length($raw) / 2);
        $c->{closing} = 1;
    } else {
        return 0;
    }
    $c->{spoilt} = 1;
    return 1;
}

# To be written after so many seconds, so many times, and in order.
sub _put($side, $text, $seconds = 0, $times = 1) {
    push @{ $side->{due} }, [ _now_ms() + 1000 * $seconds, $text, $text, int $times ]
        if $text ne '';
}

# Whole numbers: a sum of fractions may be beyond the time at which it is due.
sub _now_ms() {
    return int 1000 * now() + 0.5;
}

sub _end($self, $c) {
    $_->{socket} && close $_->{socket} for @$c{qw(client server)};
    delete $self->{conns}{ $c->{id} };
}

sub _text($text) {
    return $text =~ s/\\r/\r/gr =~ s/\\n/\n/gr;
}

1;
