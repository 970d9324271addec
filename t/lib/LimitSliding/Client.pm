package LimitSliding::Client;

# Requests to an NGINX: the part of LimitSliding::Test that speaks HTTP.
# Whoever derives from this provides port($n), the number of the n-th port.

use v5.36;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

use LimitSliding::Load ();

our @EXPORT_OK = qw(header);

our $PATIENCE = 30;       # seconds without a single byte

# Returns the value of a response's header, '' if there is none. The values of
# several lines are joined, as HTTP has it.
sub header($response, $name) {
    return join ', ', @{ $response->{headers}{lc $name} // [] };
}

# Returns a connection to port number `port`, from address `from`; or to the
# socket of a path, `unix`.
sub connect($self, %opt) {
    if ($opt{unix}) {
        return IO::Socket::UNIX->new(Peer => $opt{unix})
            // die "connect: $!";
    }

    return IO::Socket::INET->new(Proto => 'tcp', PeerAddr => '127.0.0.1',
        PeerPort => $self->port($opt{port} // 0),
        $opt{from} ? (LocalAddr => $opt{from}) : ())
        // die "connect: $@";
}

# Sends one request. Options: headers => ['Name: value', ...], version => '1.0',
# method => 'HEAD', body => '...', and those of connect(), or socket => an open
# connection, which is then kept. Returns what read_response() does.
sub get($self, $path, %opt) {
    my $socket = $self->_send($path, %opt);
    return $self->read_response($socket, $opt{method} // 'GET');
}

# The first half of get(): sends the request, and returns its connection, once servers have
# done what they can: requests come in the order in which they are sent.
sub send_request($self, $path, %opt) {
    my $socket = $self->_send($path, %opt);
    select undef, undef, undef, 0;
    return $socket;
}

sub _send($self, $path, %opt) {
    my $socket = $opt{socket} // $self->connect(%opt);
    my $body = $opt{body} // '';
    local $SIG{PIPE} = 'IGNORE';

    print {$socket} join "\r\n",
        ($opt{method} // 'GET') . " $path HTTP/" . ($opt{version} // '1.1'),
        'Host: localhost',
        $opt{socket} ? () : 'Connection: close',
        $body ne '' ? 'Content-Length: ' . length $body : (),
        @{ $opt{headers} // [] }, '', $body;
    $socket->flush;

    return $socket;
}

# The second half: returns { status, headers => { lower-case name => [values] },
# body }, where status is undef if the connection broke. A chunked body is left
# as it came.
sub read_response($self, $socket, $method = 'GET') {
    my $response = { status => undef, headers => {}, body => '' };
    my $text = '';

    while ($text !~ /\r\n\r\n/) {
        _read_some($socket, \$text) or return $response;
    }

    my ($head, $body) = split /\r\n\r\n/, $text, 2;
    my ($first, @lines) = split /\r\n/, $head;
    my ($status) = $first =~ m{^HTTP/1\.[01] (\d{3})};

    for (@lines) {
        my ($name, $value) = split /:\s*/, $_, 2;
        push @{ $response->{headers}{lc $name} }, $value;
    }

    my $length = $response->{headers}{'content-length'}[0];
    $length = 0 if $method eq 'HEAD' || $status =~ /^(?:1..|204|304)$/;
    my $chunked = header($response, 'Transfer-Encoding') eq 'chunked';

    while (!defined $length || length $body < $length) {
        last if $chunked && $body =~ /(?:^|\r\n)0\r\n\r\n$/;
        _read_some($socket, \$body) or last;
    }

    @$response{qw(status body)} = ($status, $body);
    return $response;
}

# Returns the statuses of n requests, one after the other: '200 200 429'.
sub statuses($self, $n, @request) {
    return join ' ', map { $self->get(@request)->{status} // 'none' } 1 .. $n;
}

# Sends GETs over one HTTP/2 connection, as many streams at once as `times`
# says. Returns their responses, without bodies, in the order of their streams.
# Options: times, headers, port, method. Needs nghttp.
sub http2($self, $path, %opt) {
    my @headers = map { s/^([^:]+)/lc $1/er } @{ $opt{headers} // [] };
    unshift @headers, ":method: $opt{method}" if $opt{method};

    open my $pipe, '-|', 'nghttp', '-nv', '-t', $PATIENCE,
        '-m', $opt{times} // 1, map({ ('-H', $_) } @headers),
        'http://127.0.0.1:' . $self->port($opt{port} // 0) . $path
        or die "nghttp: $!";

    my %streams;
    local $_;
    while (<$pipe>) {
        my ($id, $name, $value) = /\brecv \(stream_id=(\d+)\) (:?[^:]+): (.*)/
            or next;
        my $response = $streams{$id} //= { status => undef, headers => {} };
        $response->{status} = $value if $name eq ':status';
        push @{ $response->{headers}{$name} }, $value;
    }
    close $pipe;

    return map { $streams{$_} } sort { $a <=> $b } keys %streams;
}

# True if http2() works here.
sub has_http2($self) {
    return scalar grep { -x "$_/nghttp" } split /:/, $ENV{PATH};
}

# Sends many GETs at once: see LimitSliding::Load, whose options it takes.
# `beside` is other NGINXs, among which the connections are dealt out.
sub load($self, %opt) {
    return LimitSliding::Load::load(%opt,
        port => [ map { $_->port($opt{port} // 0) }
            $self, @{ $opt{beside} // [] } ]);
}

sub _read_some($socket, $buffer) {
    IO::Select->new($socket)->can_read($PATIENCE)
        or die "no response in $PATIENCE s\n";
    return sysread $socket, $$buffer, 65536, length $$buffer;
}

1;
