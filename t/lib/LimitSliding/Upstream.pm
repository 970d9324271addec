package LimitSliding::Upstream;

# An HTTP server behind an NGINX, which sends responses in parts, as it is told.
#
#   my $upstream = LimitSliding::Upstream->new(sub ($request) {
#       return { parts => [ '{"total_', 'tokens":1}' ] };
#   });
#   ... proxy_pass http://@{[ $upstream->server ]}; ...
#   is plain_body($nginx->get('/')), '{"total_tokens":1}';
#
# The sub runs in a process of the server's. A request is { method, path,
# headers => { lower-case name => value }, body }. A response is
#   status     200
#   headers    [ 'Name: value', ... ]
#   parts      texts, each sent at once; a sub is called in its place
#   framing    length (with a Content-Length), chunked, close, or raw: parts are
#              the head of the response as well, and what follows them

use v5.36;

use Exporter qw(import);
use IO::Socket::INET;
use POSIX ();
use Socket qw(IPPROTO_TCP TCP_NODELAY);

use LimitSliding::Test ();
use parent 'LimitSliding::Process';

our @EXPORT = qw(plain_body);

sub new($class, $handler) {
    my $self = bless { %{ LimitSliding::Test::reserve_port() }, handler => $handler }, $class;
    my $listen = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
        ReuseAddr => 1, LocalAddr => '127.0.0.1', LocalPort => $self->{port})
        // die "listen: $!";
    return $self->begin(sub ($self) { $self->_accept($listen) });
}

sub server($self) { return "127.0.0.1:$self->{port}" }

# Stops the server and all of its connections.
sub stop($self) {
    kill 'KILL', -$self->{pid} if $self->{pid};
    $self->SUPER::stop;
}

sub _accept($self, $listen) {
    setpgrp;
    $SIG{CHLD} = 'IGNORE';
    while (1) {
        my $client = $listen->accept or next;
        next if fork() // die "fork: $!";

        close $listen;
        eval { $self->_serve($client); 1 } or print STDERR "Upstream: $@";
        POSIX::_exit(0);
    }
}

# Returns a response's body without chunks.
sub plain_body($response) {
    my $coding = LimitSliding::Test::header($response, 'Transfer-Encoding');
    return $response->{body} if $coding ne 'chunked';

    my ($rest, $plain) = ($response->{body}, '');
    while ($rest =~ s/^([0-9a-f]+)\r\n//i) {
        my $length = hex $1;
        return $plain if $length == 0 && $rest eq "\r\n";
        last if length $rest < $length + 2;
        $plain .= substr $rest, 0, $length, '';
        $rest =~ s/^\r\n// or last;
    }
    die "the body is not complete\n";
}

sub _serve($self, $client) {
    setsockopt $client, IPPROTO_TCP, TCP_NODELAY, 1;
    my $buffer = '';

    while (my $request = _read_request($client, \$buffer)) {
        my $response = $self->{handler}->($request);
        _respond($client, $request, $response);
        return if ($response->{framing} // '') =~ /close|raw/;
    }
}

sub _read_request($client, $buffer) {
    while ($$buffer !~ /\r\n\r\n/) {
        sysread $client, $$buffer, 65536, length $$buffer or return;
    }
    $$buffer =~ s/^(.*?)\r\n\r\n//s;
    my ($first, @lines) = split /\r\n/, $1;
    my ($method, $path) = split / /, $first;
    my %headers = map { my ($name, $value) = split /:\s*/, $_, 2;
        (lc $name => $value) } @lines;

    my $length = $headers{'content-length'} // 0;
    while (length $$buffer < $length) {
        sysread $client, $$buffer, 65536, length $$buffer or return;
    }
    return { method => $method, path => $path, headers => \%headers,
        body => substr($$buffer, 0, $length, '') };
}

sub _respond($client, $request, $response) {
    my $framing = $response->{framing} // 'length';
    my @parts = @{ $response->{parts} // [] };
    my @head = ('HTTP/1.1 ' . ($response->{status} // 200) . ' Said',
        @{ $response->{headers} // [] });

    if ($framing eq 'length') {
        my $length = 0;
        $length += length for grep { !ref } @parts;
        push @head, "Content-Length: $length";
    }
    push @head, 'Transfer-Encoding: chunked' if $framing eq 'chunked';
    push @head, 'Connection: close' if $framing eq 'close';
    my $head = join("\r\n", @head, '', '');
    _send($client, $head) if $framing ne 'raw';
    return if $request->{method} eq 'HEAD';

    for my $part (@parts) {
        if (ref $part) {
            $part->();
        } elsif ($framing ne 'chunked') {
            _send($client, $part);
        } elsif ($part ne '') {
            _send($client, sprintf "%x\r\n%s\r\n", length $part, $part);
        }
    }
    _send($client, "0\r\n\r\n") if $framing eq 'chunked';
}

# What the peer no longer wants is lost.
sub _send($client, $text) {
    while ($text ne '') {
        my $n = syswrite $client, $text or return;
        substr $text, 0, $n, '';
    }
}

1;
