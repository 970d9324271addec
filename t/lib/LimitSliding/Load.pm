package LimitSliding::Load;

# Many GETs over many connections, from one process.
#
#   my $statuses = load(port => 8080, requests => ['/a', ['/b', 'X-Y: z']],
#       connections => 64, pipeline => 16);
#
# Returns the status of each request, in the order of `requests`; undef where
# the connection broke before the response was there. A request that NGINX has
# certainly not begun, since the response before it said `Connection: close`,
# is sent again. Responses must have a Content-Length.
#
# Options:
#   port          a number, or several, [8080, 8081], among which connections
#                 are dealt out
#   requests      paths, or [path, 'Name: value', ...]
#   connections   how many, all opened at the start (64)
#   pipeline      requests under way on each (1)
#   at            { n => sub, ... }: called once n responses are there, while
#                 further requests are under way
#   each          sub ($index, $status, $head), called for each response; $head
#                 is its status line and headers

use v5.36;

use Errno qw(EAGAIN EINTR);
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my $PATIENCE = 30;        # seconds without a single byte

sub load(%opt) {
    my $self = bless {
        connections => 64,
        pipeline    => 1,
        at          => {},
        %opt,
        statuses    => [],
        next        => 0,       # index of the request to be sent next
        again       => [],      # indices to be sent before that one
        done        => 0,
    };

    my $total = @{ $self->{requests} };
    $#{ $self->{statuses} } = $total - 1;

    my @hooks = sort { $a <=> $b } keys %{ $self->{at} };
    local $SIG{PIPE} = 'IGNORE';

    my @ports = ref $self->{port} ? @{ $self->{port} } : $self->{port};
    my @all = map { $self->_open($ports[$_ % @ports]) }
        1 .. $self->{connections};

    while ($self->{done} < $total) {
        $self->_fill($_) for @all;

        while (@hooks && $self->{done} >= $hooks[0]) {
            $self->{at}{ shift @hooks }->();
        }

        $self->_wait(\@all);
    }

    return $self->{statuses};
}

sub _open($self, $port) {
    my $socket = IO::Socket::INET->new(Proto => 'tcp',
        PeerAddr => '127.0.0.1', PeerPort => $port)
        // die "connect: $@";
    $socket->blocking(0);
    $socket->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);

    return {
        port    => $port,
        socket  => $socket,
        fd      => fileno $socket,
        out     => '',
        in      => '',
        sent    => [],           # indices of the requests under way
        closing => 0,            # the server said that it will close
    };
}

# Sends as many requests as the connection has room for.
sub _fill($self, $c) {
    my $sent = $c->{sent};

    if (!$c->{closing} && @$sent <= $self->{pipeline} / 2) {
        while (@$sent < $self->{pipeline}) {
            my $i = shift @{ $self->{again} }
                // ($self->{next} < @{ $self->{requests} }
                    ? $self->{next}++ : last);
            my $request = $self->{requests}[$i];
            my ($path, @headers) = ref $request ? @$request : $request;

            push @$sent, $i;
            $c->{out} .= join "\r\n", "GET $path HTTP/1.1",
                'Host: localhost', @headers, '', '';
        }
    }

    if ($c->{out} ne '') {
        my $n = syswrite $c->{socket}, $c->{out};
        substr($c->{out}, 0, $n, '') if $n;
    }
}

# Waits for the kernel, and reads what is there.
sub _wait($self, $all) {
    my ($read, $write) = ('', '');
    for my $c (@$all) {
        vec($read, $c->{fd}, 1) = 1;
        vec($write, $c->{fd}, 1) = 1 if $c->{out} ne '';
    }

    my $n = select $read, $write, undef, $PATIENCE;
    return if $n < 0 && $! == EINTR;
    die "no response in $PATIENCE s, $self->{done} came\n" if $n <= 0;

    for my $c (@$all) {
        $self->_receive($c) if vec $read, $c->{fd}, 1;
    }
}

sub _receive($self, $c) {
    my $n = sysread $c->{socket}, $c->{in}, 262144, length $c->{in};
    return if !defined $n && ($! == EAGAIN || $! == EINTR);

    $self->_parse($c);
    $self->_reopen($c) unless $n;
}

# Takes all complete responses out of the buffer.
sub _parse($self, $c) {
    my ($statuses, $each) = @$self{qw(statuses each)};
    my $pos = 0;

    while ((my $end = index $c->{in}, "\r\n\r\n", $pos) >= 0) {
        my $head = substr $c->{in}, $pos, $end - $pos;
        my ($bytes) = $head =~ /^[Cc]ontent-[Ll]ength: (\d+)/am
            or die "no Content-Length in:\n$head\n";
        last if length $c->{in} < $end + 4 + $bytes;
        $pos = $end + 4 + $bytes;

        my $i = shift @{ $c->{sent} } // die "unasked response:\n$head\n";
        $statuses->[$i] = substr $head, 9, 3;
        $c->{closing} = 1 if index($head, 'Connection: close') >= 0;
        $self->{done}++;
        $each->($i, $statuses->[$i], $head) if $each;
    }

    substr($c->{in}, 0, $pos, '') if $pos;
}

# The connection is gone, and with it what was under way.
sub _reopen($self, $c) {
    if ($c->{closing}) {
        push @{ $self->{again} }, @{ $c->{sent} };
    } else {
        $self->{done} += @{ $c->{sent} };
    }

    close $c->{socket};
    %$c = %{ $self->_open($c->{port}) };
}

1;
