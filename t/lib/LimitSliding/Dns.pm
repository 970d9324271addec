package LimitSliding::Dns;

# A name server for tests, on a free UDP port of 127.0.0.1: it knows the
# addresses that it was told, and can fall silent.
#
#   my $dns = LimitSliding::Dns->new(ttl => 1)->start;
#   $dns->set('redis.test', '127.0.0.1');
#   ... resolver 127.0.0.1:<port>; ...
#   $dns->mute(1);

use v5.36;

use IO::Socket::INET;
use Socket qw(AF_INET AF_INET6 inet_pton);

use parent 'LimitSliding::Process';

# Options: ttl, of all answers, in seconds (1).
sub new($class, %opt) {
    return bless { ttl => 1, %opt }, $class;
}

sub start($self) {
    my $socket = IO::Socket::INET->new(Proto => 'udp',
        LocalAddr => '127.0.0.1', LocalPort => 0) // die "socket: $!";
    $self->{port} = $socket->sockport;
    $self->begin(sub ($self) { $self->_serve($socket) });
    return $self;
}

sub port($self) { return $self->{port} }

# Takes effect before it returns, as the others do.
sub set($self, $name, @addresses) {
    $self->ask('set', $name, @addresses);
}

sub mute($self, $on) {
    $self->ask('mute', $on ? 1 : 0);
}

# Returns how many questions have come, answered or not.
sub asked($self) {
    return $self->ask('asked')->[0];
}


# ---- the server's side, a process of its own ----

sub _serve($self, $socket) {
    my $control = $self->{control};
    my ($asked, $mute, %names) = (0, 0);

    while (1) {
        my $read = '';
        vec($read, fileno $_, 1) = 1 for $socket, $control;
        next if select($read, undef, undef, undef) < 0;

        if (vec $read, fileno $control, 1) {
            my ($what, @words) = $self->question;
            $mute = $words[0] if $what eq 'mute';
            $names{ lc $words[0] } = [ @words[1 .. $#words] ]
                if $what eq 'set';
            $self->answer([$asked]);
        }
        if (vec $read, fileno $socket, 1) {
            my $from = recv $socket, my $query, 512, 0;
            next if !defined $from;
            $asked++;
            my $answer = $mute ? undef : $self->_answer($query, \%names);
            send $socket, $answer, 0, $from if defined $answer;
        }
    }
}

# Types A and AAAA have the addresses; of other types there is nothing, and no
# name that was not told.
sub _answer($self, $query, $names) {
    my ($id, $flags, $questions) = unpack 'nnn', $query;
    my ($name, $end) = ('', 12);
    while (my $length = ord substr $query, $end, 1) {
        $name .= '.' if $name ne '';
        $name .= lc substr $query, $end + 1, $length;
        $end += $length + 1;
    }
    my $question = substr $query, 12, $end + 5 - 12;
    my ($type) = unpack 'n', substr $query, $end + 1, 2;

    my $known = $names->{$name};
    my @addresses = map { inet_pton($type == 28 ? AF_INET6 : AF_INET, $_) // () }
        $type == 1 || $type == 28 ? @{ $known // [] } : ();
    my @records = map {
        pack('nnnNn', 0xc00c, $type, 1, $self->{ttl}, length) . $_
    } @addresses;

    return pack('nnnnnn', $id, 0x8580 | ($known ? 0 : 3), 1, scalar @records,
        0, 0) . $question . join '', @records;
}

1;
