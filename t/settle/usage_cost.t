# What reading usage costs: instructions a byte of bodies that do not have the
# name, by callgrind, in one large buffer each and in small ones.

use v5.36;

use LimitSliding::Clock real => 'callgrind counts instructions';

use Test::More;

use LimitSliding::Test;

my $AT_MOST = 1.5;        # instructions a byte
my $REQUESTS = 4;

plan skip_all => 'no valgrind' if !grep { -x "$_/valgrind" }
    split /:/, $ENV{PATH};

require LimitSliding::Callgrind;

my $nginx = LimitSliding::Test->new;
my %binaries = $nginx->binaries;
$ENV{LIMIT_SLIDING_NGINX} = $binaries{'--nginx'};
$ENV{LIMIT_SLIDING_MODULE} = $binaries{'--module'};

my @WORDS = qw(the model answers so many tokens as it likes to and of them
    nothing is known before its usage is sent);

sub text($n) {
    return join ' ', map { $WORDS[ $_ * 7 % @WORDS ] } 1 .. $n;
}

my %BODIES = (
    text => text(9000) . "\n",
    json => '{"data":[' . join(',', map { qq({"id":"$_","n":1,"type":"item",)
        . qq("name":"n$_","tags":["a","bc","tot"],"total":$_,"ok":true}) }
        1 .. 700) . ']}',
    events => join('', map { qq(data: {"id":"chatcmpl-123","object":)
        . qq("chat.completion.chunk","created":1694268190,"model":"m-4o",)
        . qq("choices":[{"index":0,"delta":{"content":") . text($_ % 3 + 1)
        . qq("},"logprobs":null,"finish_reason":null}]}\n\n) } 1 .. 300),
);

$nginx->write_file("html/$_", $BODIES{$_}) for keys %BODIES;

# The sizes of buffers, each with usage and without.
my %SIZES = (text => [ 100, 65536 ], json => [ 150, 65536 ],
    events => [ 100, 200 ]);

my @PLACES = map { my $body = $_;
    map { my $size = $_;
        map { { body => $body, size => $size, name => $_ } }
            qw(off total_tokens)
    } @{ $SIZES{$body} }
} sort keys %SIZES;

# Returns a server of NGINX's with these places.
sub server(@places) {
    return LimitSliding::Callgrind->nginx(
        http      => 'sendfile off; postpone_output 0; etag off;',
        locations => [ map { <<"CONF" } @places ],
            location /0 {
                root @{[ $nginx->dir ]}/html;
                limit_sliding_usage $_->{name};
                output_buffers 1 $_->{size};
                try_files /$_->{body} =404;
            }
CONF
    );
}

# Returns the instructions of a request to the n-th place.
sub cost_of($server, $n) {
    return $server->measure(port => $n, keys => 1, requests => $REQUESTS,
        status => 200);
}

my $server = server(@PLACES);
my %off;
for my $n (0 .. $#PLACES) {
    my ($body, $size, $name) = @{ $PLACES[$n] }{qw(body size name)};
    my $cost = cost_of($server, $n);
    if ($name eq 'off') {
        $off{$body}{$size} = $cost;
        next;
    }

    my $per_byte = ($cost - $off{$body}{$size}) / length $BODIES{$body};
    note sprintf '%s in buffers of %d: %.2f', $body, $size, $per_byte;
    cmp_ok $per_byte, '<=', $AT_MOST, "$body, buffers of $size";
    cmp_ok $per_byte, '>', 0.1, '... which is read';
}
$server->stop;


# where it is off, a buffer costs a test, and nothing if no place has it

my ($place) = grep { $_->{body} eq 'text' && $_->{size} == 100 } @PLACES;
$server = server($place);
my $more = $off{text}{100} - cost_of($server, 0);
$server->stop;

my $buffers = length($BODIES{text}) / 100;
note sprintf 'off: %.1f a buffer', $more / $buffers;
cmp_ok $more / $buffers, '<=', 20, 'off: a test for each buffer';
cmp_ok $more / $buffers, '>=', 1, '... that is not there if no place has it';

done_testing;
