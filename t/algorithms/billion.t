# Limits of a billion: exact where a state holds them, and never exceeded.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;
my $BILLION = 1_000_000_000;
my @ALGORITHMS = qw(counter fixed token_bucket leaky_bucket);

my $zones = join '', map { <<"CONF" } @ALGORITHMS;
    limit_sliding_zone \$http_x_key zone=$_:1m rate=$BILLION window=30d
        algorithm=$_@{[ $_ eq 'leaky_bucket' ? " burst=$BILLION" : '' ]};
CONF
my $places = join '', map { <<"CONF" } @ALGORITHMS;
    location /$_ { limit_sliding zone=$_ cost=\$http_x_cost; empty_gif; }
CONF

$nginx->serve(
    http   => "$zones limit_sliding_headers retry_after draft x;",
    server => $places,
);

for my $algorithm (@ALGORITHMS) {
    my ($name) = @{ (key())[1] };
    my $queued = $algorithm eq 'leaky_bucket';
    my $ask = sub ($cost) {
        return $nginx->get("/$algorithm",
            headers => [ $name, "X-Cost: $cost" ]);
    };

    # what waits in a queue is held back: what leaves at once is enough
    my $first = $queued ? 1 : 900_000_000;
    my $r = $ask->($first);
    is $r->{status}, 200, "$algorithm: most of a billion";
    is header($r, 'X-RateLimit-Limit'), $BILLION, '... of which it tells';

    # a bucket is rounded by less than a request
    my $rest = $BILLION + $queued - $first;
    my $told = header($r, 'X-RateLimit-Remaining');
    $told++ if $algorithm eq 'token_bucket' && $told == $rest - 1;
    is $told, $rest, '... and of the rest';
    like header($r, 'RateLimit-Policy') // '', qr/;q=$BILLION;w=2592000$/,
        '... as a policy';
    next if $queued;

    is $ask->(100_000_100)->{status}, 429, '... of which no more is admitted';
    is $ask->(99_999_000)->{status}, 200, '... and no less';
}

is_deeply [ grep { !/excess: / } $nginx->new_errors ], [],
    'nothing to complain of';

done_testing;
