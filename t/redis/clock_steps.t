# The clock of Redis is set: by NTP, or a failover leads to a server with another clock. No key
# is rejected for longer than its window and the step, and a step of more than a window counts as
# none; nor does a step admit more than twice the limit.

use v5.36;

use JSON::PP ();
use Test::More;

use LimitSliding::Clock;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT  = 8;
my $WINDOW = 600;
my %ZONES  = (
    counter   => '',
    precision => 'precision=10',
    log       => 'algorithm=log',
    fixed     => 'algorithm=fixed',
    token     => 'algorithm=token_bucket',
    leaky     => 'algorithm=leaky_bucket nodelay burst=' . ($LIMIT - 1),
);
my @STEPS = (1, 60, 3600, 86_400);

my $clock = LimitSliding::Clock->new;
my $redis = LimitSliding::Redis->new;
$clock->run(sub { $redis->start });
my $nginx = LimitSliding::Test->new;
$nginx->common(http => <<"CONF", server => 'location /limits { limit_sliding_api; }');
    limit_sliding_log_level off;
    ${\ $redis->block('1s', 'on_error deny;')}
CONF
my %places = places(each => "rate=$LIMIT window=${WINDOW}s redis=shared", zones => \%ZONES);
$places{server} .= <<'CONF';
    location /settle {
        limit_sliding zone=fixed cost=1 settle=$arg_cost;
        empty_gif;
    }
CONF
$nginx->serve(%places);

# Returns how many of twice the limit pass.
sub passed($path) {
    return scalar grep { $_ == 200 } split ' ', $nginx->statuses(2 * $LIMIT, $path);
}

for my $step (map { ($_, -$_) } @STEPS) {
    $clock->set(utc => $step < 0 ? -$step : 0);
    stay_in($WINDOW, 2);
    is passed("/$_?key=$step"), $LIMIT, "a step of $step s, $_: before" for sort keys %ZONES;
    $clock->set(utc => $step < 0 ? 0 : $step);

    my %after = map { ($_ => passed("/$_?key=$step")) } keys %ZONES;
    cmp_ok $after{$_}, '<=', $LIMIT, "... $_: no more than twice the limit" for sort keys %after;

    # a window, and a step back that is shorter than one, during which time seems to stand still
    # and, of a counter, the rest of a part
    sleep $WINDOW + ($step < 0 && -$step < $WINDOW ? -$step : 0) + $WINDOW / 10;
    cmp_ok passed("/$_?key=$step"), '>=', 1, "... $_: and not rejected for longer"
        for sort keys %ZONES;
}

my $told = JSON::PP::decode_json($nginx->get('/limits')->{body})->{redis}{shared};
is $told->{clock_steps}, scalar @STEPS, 'steps back are counted';
is scalar($nginx->log_lines(qr/\[notice\].* redis "shared": its clock was set back by \d+ ms/)),
    scalar @STEPS, '... and logged';


# A debt of the future is one of now.

$clock->set(utc => 86_400);
stay_in($WINDOW, 2);
is $nginx->get("/settle?key=debt&cost=@{[ 2 * $LIMIT ]}")->{status}, 200, 'a debt of a window';
$clock->set(utc => 0);
is $nginx->get('/fixed?key=debt')->{status}, 429, '... is owed when the clock was set back';
sleep 2 * $WINDOW + 1;
is $nginx->get('/fixed?key=debt')->{status}, 200, '... and is paid by the windows that follow';

$nginx->finish;
