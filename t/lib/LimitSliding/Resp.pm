package LimitSliding::Resp;

# The protocol of Redis, version 2, as far as tests need it.

use v5.36;

use Exporter qw(import);

our @EXPORT_OK = qw(encode decode);

# Returns a command as a client sends it.
sub encode(@words) {
    return join '', '*' . @words . "\r\n",
        map { '$' . length($_) . "\r\n$_\r\n" } @words;
}

# Returns the value that begins at $pos of the text, and the position after it;
# nothing if it is not complete. Errors are strings that begin with '-',
# integers and strings are strings, arrays are references, null is undef. Dies
# if the text is no RESP.
sub decode($text, $pos = 0) {
    my $end = index $$text, "\r\n", $pos;
    return if $end < 0;

    my $type = substr $$text, $pos, 1;
    my $rest = substr $$text, $pos + 1, $end - $pos - 1;
    $pos = $end + 2;

    return ($rest, $pos) if $type eq '+' || $type eq ':';
    return ("-$rest", $pos) if $type eq '-';
    die "no RESP: $type$rest\n"
        if $type !~ /[\$*]/ || $rest !~ /^-?\d{1,10}\z/a;
    return (undef, $pos) if $rest < 0;

    if ($type eq '$') {
        return if length $$text < $pos + $rest + 2;
        return (substr($$text, $pos, $rest), $pos + $rest + 2);
    }

    my @items;
    for (1 .. $rest) {
        (my $item, $pos) = decode($text, $pos) or return;
        push @items, $item;
    }
    return (\@items, $pos);
}

1;
