package LimitSliding::Model;

# A language model that speaks OpenAI's chat completions, plain and streamed, as
# an upstream does: its answers are noise, but their usage is exact.
#
#   my $model = LimitSliding::Model->new;
#   ... proxy_pass http://@{[ $model->server ]}; ...
#   $nginx->get('/v1/chat/completions', chat(seed => 1, stream => 1));
#   is ..., usage(1)->{total_tokens};
#
# All that a model says follows from the seed of a request, but for the usage of
# a stream, which it tells only if the request has stream_options.include_usage.

use v5.36;

use Exporter qw(import);
use JSON::PP ();

use LimitSliding::Upstream;
use parent -norequire, 'LimitSliding::Upstream';

our @EXPORT = qw(chat usage);

# What a model may say, to mislead those who look for tokens.
my @WORDS = ('the', 'token', '"total_tokens": 7', 'total_tokens', '"total_tokens',
    '{"usage":{"total_tokens":1}}', 'data: {"total_tokens":2}', "\n\n", '\\', '"',
    '\\"', "\x{e9}", '":', 'null', '1.5', 'a longer text that makes no sense');

my $COMPACT = JSON::PP->new->canonical->utf8;
my $PRETTY = JSON::PP->new->canonical->utf8->indent->space_before->space_after;
my $ASCII = JSON::PP->new->canonical->ascii->space_after;

# Returns the options of a request to a model, for LimitSliding::Client's get().
# Options: seed, stream, and with_usage => 0 for a stream without.
sub chat(%opt) {
    my $stream = $opt{stream} ? JSON::PP::true : JSON::PP::false;
    my $body = $COMPACT->encode({
        model    => 'fake',
        messages => [ { role => 'user', content => "seed $opt{seed}" } ],
        stream   => $stream,
        $opt{stream} && ($opt{with_usage} // 1)
            ? (stream_options => { include_usage => JSON::PP::true }) : (),
    });
    return (method => 'POST', body => $body,
        headers => [ 'Content-Type: application/json' ]);
}

# Returns numbers below the given ones, the same for a seed.
sub _random($seed) {
    my $state = $seed * 2_654_435_761 % 4_294_967_296;
    return sub ($below) {
        $state = ($state * 1_103_515_245 + 12_345) % 2_147_483_648;
        return ($state >> 8) % $below;
    };
}

# Returns the usage of the answer to a seed.
sub usage($seed) {
    my $random = _random($seed);
    my ($prompt, $completion) = (1 + $random->(500), 1 + $random->(500));
    return {
        prompt_tokens     => $prompt,
        completion_tokens => $completion,
        total_tokens      => $prompt + $completion,
        completion_tokens_details => { reasoning_tokens => 0 },
    };
}

sub new($class) {
    return $class->SUPER::new(\&_answer);
}

sub _answer($request) {
    my $asked = eval { $COMPACT->decode($request->{body}) }
        or return _error(400, 'invalid JSON');
    my ($seed) = $asked->{messages}[0]{content} =~ /^seed (\d+)$/
        or return _error(400, 'no seed');
    my $random = _random($seed);
    $random->(1) for 1 .. 7;

    my @words = map { $WORDS[ $random->(scalar @WORDS) ] } 0 .. $random->(20);
    return $asked->{stream} ? _stream($asked, $seed, $random, @words)
        : _whole($seed, $random, @words);
}

sub _error($status, $message) {
    return { status => $status, headers => [ 'Content-Type: application/json' ],
        parts => [ $COMPACT->encode({ error => { message => $message } }) ] };
}

sub _whole($seed, $random, @words) {
    my $json = ($COMPACT, $PRETTY, $ASCII)[ $random->(3) ];
    my $text = $json->encode({
        id      => "chatcmpl-$seed",
        object  => 'chat.completion',
        choices => [ {
            index         => 0,
            finish_reason => 'stop',
            message       => {
                role    => 'assistant',
                content => join(' ', @words),
            },
        } ],
        usage   => usage($seed),
    });
    return {
        headers => [ 'Content-Type: application/json' ],
        framing => (qw(length chunked))[ $random->(2) ],
        parts   => [ _cut($random, $text) ],
    };
}

sub _stream($asked, $seed, $random, @words) {
    my $told = ($asked->{stream_options} // {})->{include_usage};
    my $json = ($COMPACT, $ASCII)[ $random->(2) ];
    my $event = sub ($choices, $usage) {
        return 'data: ' . $json->encode({
            id      => "chatcmpl-$seed",
            object  => 'chat.completion.chunk',
            choices => $choices,
            $told ? (usage => $usage) : (),
        }) . "\n\n";
    };

    my @events = map { $event->([ { index => 0, delta => { content => $_ } } ],
        undef) } @words;
    push @events, $event->([], usage($seed)) if $told;

    return {
        headers => [ 'Content-Type: text/event-stream' ],
        framing => (qw(chunked close))[ $random->(2) ],
        parts   => [ $random->(2) ? (@events, "data: [DONE]\n\n")
            : _cut($random, join '', @events, "data: [DONE]\n\n") ],
    };
}

# Cuts a text anywhere.
sub _cut($random, $text) {
    my @parts;
    while ($text ne '') {
        push @parts, substr $text, 0, 1 + $random->(300), '';
    }
    return @parts;
}

1;
