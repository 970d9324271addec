# Redis that answers what it should not: the policy applies, nothing else
# breaks, and afterwards limits are exact again.

use v5.36;

use List::Util qw(max);
use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new->start;
my $fake = LimitSliding::FakeRedis->new($redis)->start;

my $nginx = LimitSliding::Faults->new(server => $fake->server, timeout => 10);

sub recover() {
    $fake->mode('pass');
}


# Nonsense: the connection is closed at once, and no memory goes into it.

my $REASON = qr/"(?:local|allow|deny)": /;

# `says` is the reason in the log.
sub nonsense($name, @mode) {
    my $says = ref $mode[-1] ? pop @mode : undef;
    my $before = $nginx->peaks;
    $nginx->fault($name, sub { $fake->mode(@mode) }, \&recover,
        during => sub ($answers) {
            is $fake->stats->{spoilt}, 0, 'connections are closed';
            is max(map { map { $_->{seconds} } @$_ } values %$answers), '0.000',
                'no answer waits';
            is scalar $nginx->log_lines(qr/no reply in time|took too long/), 0,
                '... nor does a call or a connection';
            ok scalar $nginx->log_lines(qr/$REASON$says/), '... the log tells what has come'
                if $says;
            my $peaks = $nginx->peaks;
            cmp_ok max(map { $peaks->{$_} - $before->{$_} } keys %$peaks),
                '<=', 16 << 20, 'and no more than 16 MiB are taken';
        });
}

nonsense('garbage', 'say', "\x{1}\x{2}nonsense\\r\\n\x{7f}",
    qr/invalid reply: "\\x01\\x02nonsense"/);
nonsense('HTTP', 'say', 'HTTP/1.1 400 Bad Request\r\n\r\n',
    qr{invalid reply: "HTTP/1\.1 400 Bad Request"});
nonsense('a long line', 'say', 'x"' . 'y' x 1000 . '\r\n', qr/invalid reply: "x\\x22y{30}"/);
nonsense('an echo', 'say', 'You said AUTH word', qr/invalid reply: "You said "/);
nonsense('a huge bulk', 'flood', '$536870912\r\n', 'x' x 1000);
nonsense('a huge bulk in an array', 'flood', '*2\r\n$536870912\r\n',
    'x' x 1000);
nonsense('a bulk beyond numbers', 'say', '$99999999999999999999\r\n');
nonsense('a negative bulk', 'say', '$-5\r\n');
nonsense('a huge array', 'flood', '*1000000000\r\n', ':1\r\n' x 100);
nonsense('an array beyond numbers', 'say', '*99999999999999999999\r\n');
nonsense('arrays in arrays', 'flood', '', '*1\r\n' x 100);
nonsense('a line without end', 'flood', '+', 'x' x 1000);
nonsense('a number without end', 'flood', ':', '1' x 1000);
nonsense('a reply cut short', 'cut');
nonsense('closed without a reply', 'drop');

# Replies that are well-formed and of another kind
nonsense('a status', 'say', '+OK\r\n', qr/unexpected reply: "OK"/);
nonsense('null', 'say', '$-1\r\n');
nonsense('an empty array', 'say', '*0\r\n');
nonsense('an array of nulls', 'say', '*3\r\n$-1\r\n$-1\r\n$-1\r\n');
nonsense('too short an array', 'say', '*1\r\n:1\r\n');
nonsense('numbers beyond numbers', 'say',
    '*4\r\n' . ':99999999999999999999\r\n' x 4);

# RESP3, which was not asked for
nonsense('a map', 'say', '%1\r\n+a\r\n:1\r\n');


# One reply too many: it is nobody's verdict. One key has used 1 of its limit,
# the other 5: a verdict of the one for the other would show. A late one comes
# when nothing is under way, as nobody could tell it from a verdict otherwise.

for my $mode (qw(extra late)) {
    my %is = ("few-$mode" => 1, "more-$mode" => 5);
    for my $key (sort keys %is) {
        $nginx->get("/big?key=$key") for 1 .. $is{$key};
    }

    $fake->mode($mode);
    my (@wrong, $redis_said);
    for (1 .. 20) {
        for my $key (sort keys %is) {
            my ($answer) = $nginx->ask("/big?key=$key");
            wait_for(sub { !$fake->stats->{pending} });
            push @wrong, "$key: $answer->{status}" if $answer->{status} != 200;
            next if $answer->{source} ne 'redis';
            $redis_said++;
            my $used = 1_000_000 - $answer->{remaining};
            push @wrong, "$key: $used after $is{$key}"
                if $used <= $is{$key} || $used > $is{$key} + 20;
            $is{$key} = $used;
        }
    }
    is join(', ', @wrong), '', "$mode reply: nobody's verdict";
    ok $redis_said, '... and there were verdicts';
    # Two of the three blocks were not asked.
    cmp_ok $fake->stats->{open}, '<=', 4, '... the connection is closed';
    recover();
    ok defined $nginx->wait_healthy, '... and Redis decides again';
    $nginx->exact("after-$mode");
}

$nginx->finish_one;


# Arrays that are as long as they should be, of numbers that cannot be: time,
# granted units, values. Some would divide by zero. A counter has a state instead:
# a digest, the number of the newest part, with the number of parts above its lower
# 28 bits, and counts.

sub state_of($parts, @bytes) {
    return pack 'nNC*', 0, $parts << 28, @bytes;
}

my %algorithms = (
    'counter'              => [ undef ],
    'counter precision=10' => [ undef ],
    'log'                  => [ (0) x 3 ],
    'fixed'                => [ 0 ],
    'token_bucket'         => [ 0, 0 ],
    'leaky_bucket burst=9' => [ 0, 0 ],
);
my %states = (
    'no state'            => 'x',
    'a state cut short'   => state_of(3),
    'no parts'            => state_of(0, (0) x 8),
    'parts of no counter' => state_of(13, (0) x 62),
    'too few counts'      => state_of(3, (0) x 7),
    'too many counts'     => state_of(3, (0) x 9),
    'a unit of no part'   => state_of(10, 0, 37),
    );
my @algorithms = sort keys %algorithms;

$nginx = LimitSliding::Test->new(worker_processes => 1)->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    add_header X-Source \$limit_sliding_source always;
    @{[ map { <<"LIMIT" } 0 .. $#algorithms ]}
    limit_sliding_redis r$_ {
        server @{[ $fake->server ]};
        timeout 5s;
        connect_timeout 5s;
        on_error allow;
    }
    limit_sliding_zone \$arg_key zone=z$_:1m rate=1000 window=30d
        redis=r$_ algorithm=$algorithms[$_];
    server {
        listen 127.0.0.1:%%PORT$_%% reuseport;
        location / { limit_sliding zone=z$_; empty_gif; }
    }
LIMIT
}
CONF

# Returns who decided a request.
sub said($port) {
    return header($nginx->get('/?key=' . ++$nginx->{unique}, port => $port), 'X-Source');
}

# Returns an array in the protocol of Redis; texts are in arrays of one.
sub array(@elements) {
    return join '', '*' . @elements . '\r\n', map {
        !defined $_ ? '$-1\r\n'
            : ref $_ ? '$' . length($_->[0]) . '\r\n' . $_->[0] . '\r\n'
            : ":$_\\r\\n"
    } @elements;
}

# An override has 2^52 more, and 2^51 more before the code of a window; it is negative.
my $own = 1 << 52;
my $window = $own + (1 << 51);
for my $port (0 .. $#algorithms) {
    my @values = @{ $algorithms{ $algorithms[$port] } };
    my $counter = $algorithms[$port] =~ /counter/;
    my $most = $algorithms[$port] eq 'log' ? 4_194_302 : 10 ** 15;
    my %elements = (
        'granted, but blocked' => [ 1, 1, -$own, @values ],
        'a window of no limit' => [ 1, 1, -$window, 60_000, @values ],
        'a window too short'   => [ 1, 1, -$window - 1, 99, @values ],
        'a window too long'    => [ 1, 1, -$window - 1, 2_592_000_001, @values ],
        'a window below zero'  => [ 1, 1, -$window - 1, -1, @values ],
        'a window cut short'   => [ 1, 1, -$window - 1 ],
        'a limit too high'     => [ 1, 1, -$own - $most - 1, @values ],
        'a limit below all'    => [ 1, 0, '-9223372036854775808', @values ],
        'flags of nothing'     => [ 1, 0, -3, @values ],
        'flags beyond all'     => [ 1, 0, -2 * $own - 1, @values ],
        'more than asked for'  => [ 1, 2, @values ],
        'less than nothing'    => [ 1, -1, @values ],
        'a time before all'    => [ -1, 1, @values ],
        'a time after all'     => [ '9223372036854775807', 1, @values ],
        'a text for a number'  => [ 1, ['1'], @values ],
        'nothing for a number' => [ 1, undef, @values ],
        'one more'             => [ 1, 1, @values, 0 ],
        'one less'             => [ 1, 1, @values[0 .. $#values - 1] ],
    );
    if (!$counter) {
        $elements{'counts below zero'} = [ 1, 0, @values[0 .. $#values - 1], -2 ];
    } else {
        $elements{'a number for a text'} = [ 1, 0, 7 ];
        $elements{$_} = [ 1, 0, [ $states{$_} ] ] for keys %states;
        $elements{'a part long ago'} = [ 1 << 41, 0, [ state_of(3, (0) x 8) ] ];
    }
    for my $name (sort keys %elements) {
        is said($port), 'redis', 'Redis decides';
        $fake->mode('say', array(@{ $elements{$name} }));
        is said($port), 'fallback', "$algorithms[$port]: $name";
        recover();
        sleep 0.25;           # which is when a worker connects again
    }
    # the most that is possible, a time in 2038
    $fake->mode('say', array(1 << 41, 0,
        $counter ? [ state_of(3, (255) x 8) ]
            : ('9223372036854775807') x @values));
    $nginx->get("/?key=most", port => $port);
    recover();
    sleep 0.25;
    is said($port), 'redis', "$algorithms[$port]: all that is possible, no worse";
}

$nginx->finish;
