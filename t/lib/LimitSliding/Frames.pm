package LimitSliding::Frames;

# Frames of HTTP/2, for clients that do what no library of theirs would.

use v5.36;

use Exporter qw(import);

our @EXPORT = qw(greeting frame request reset_stream read_frame $DATA $HEADERS
    $END_STREAM);

our ($DATA, $HEADERS, $RST_STREAM, $SETTINGS) = (0, 1, 3, 4);
our ($END_STREAM, $END_HEADERS) = (1, 4);

# Returns what a client sends first.
sub greeting() {
    return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame($SETTINGS, 0, 0);
}

sub frame($type, $flags, $stream, $payload = '') {
    return substr(pack('N', length $payload), 1)
        . pack('CCN', $type, $flags, $stream) . $payload;
}

# Returns the frames of a GET, or of a POST whose body is yet to come.
sub request($stream, $path, $method = 'GET') {
    return frame($HEADERS,
        $END_HEADERS | ($method eq 'GET' ? $END_STREAM : 0), $stream,
        ($method eq 'GET' ? "\x82" : "\x83") . "\x86"
        . "\x04" . chr(length $path) . $path . "\x01\x09localhost");
}

sub reset_stream($stream) {
    return frame($RST_STREAM, 0, $stream, pack 'N', 8);
}

# Reads a frame. Returns its type, flags, stream and payload; nothing at the end of
# the connection.
sub read_frame($socket) {
    (read $socket, my $head, 9) == 9 or return;
    my ($length, $type, $flags, $stream) = unpack 'a3CCN', $head;
    $length = unpack 'N', "\0$length";
    my $payload = '';
    !$length || read($socket, $payload, $length) == $length or return;
    return ($type, $flags, $stream, $payload);
}

1;
