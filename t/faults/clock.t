# Clocks that jump: nothing but windows of the calendar depends on UTC, and the
# monotonic clock may begin anywhere.

use v5.36;

use Test::More;
use Time::HiRes ();
use Time::Local qw(timegm);

use LimitSliding::Api;
use LimitSliding::Clock;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my ($HOUR, $DAY) = (3600, 86_400);
my ($LIMIT, $TIMES, $CONNECTIONS) = (200, 700, 16);

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new;

my %zones = (
    counter => '', log => 'algorithm=log', fixed => 'algorithm=fixed',
    bucket  => 'algorithm=token_bucket',
    remote  => 'redis=shared', events => 'redis=shared algorithm=log',
    lease   => 'redis=shared lease=10', sync => 'redis=shared sync=20ms',
);
my @names = sort keys %zones;
$nginx->common(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared { server @{[ $redis->server ]}; timeout 10s; connect_timeout 10s; }
    limit_sliding_zone \$arg_key zone=ban:1m rate=1 window=30d penalty=30m;
    limit_sliding_log_level off;
    add_header X-Time \$msec always;
HTTP
    location /ban { limit_sliding zone=ban; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
my @places = places(each => "rate=$LIMIT window=30d", zones => \%zones);

# Asserts that exactly the limit passes, of requests to all places. `at` has what
# happens meanwhile. What sync= lets pass more is what 16 connections send within an
# interval and a round trip.
sub exact($name, $key, %at) {
    for my $place (@names) {
        my %got;
        $got{ $_ // 'none' }++ for @{ $nginx->load(connections => $CONNECTIONS,
            requests => [ ("/$place?key=$key") x $TIMES ], at => \%at) };
        my $passed = delete $got{200};
        is_deeply [ keys %got ], [ 429 ], "$name: $place: statuses";
        $place eq 'sync' ? cmp_ok $passed, '>=', $LIMIT, "$name: $place: the limit passes"
            : is $passed, $LIMIT, "$name: $place: exactly the limit passes";
    }
}

# Returns the reset of a key in each zone.
sub resets($key) {
    return map { api_key($nginx, $_, $key)->{reset_ms} } @names;
}


# UTC

my $utc = LimitSliding::Clock->new;
$utc->run(sub { $nginx->start($nginx->template(@places)) });

$nginx->get('/ban?key=a') for 1 .. 2;
my $banned = now;
ok api_key($nginx, 'ban', 'a')->{ban}, 'a key is banned';

for my $jump ([ 'an hour ahead', $HOUR ], [ 'an hour back', -$HOUR ],
    [ '40 days ahead', 40 * $DAY ], [ '40 days back', -40 * $DAY ]) {
    my ($name, $seconds) = @$jump;
    my $key = $name =~ s/ /-/gr;

    exact($name, $key, 100 => sub { $utc->set(utc => $seconds) },
        500 => sub { $utc->set(utc => 0) }, 600 => sub { $utc->set(utc => $seconds) });
    my $told = header($nginx->get('/limits'), 'X-Time') - Time::HiRes::time();
    is sprintf('%.3f', $told), sprintf('%.3f', $seconds), "$name: NGINX has that time";

    sleep 0.1;            # Redis is told what sync= has let pass
    my @before = resets($key);
    $utc->set(utc => 0);
    is join(' ', resets($key)), "@before", "$name: and back, no window moves";
    is $nginx->statuses(1, '/ban?key=a'), '429', "$name: banned";
    is api_key($nginx, 'ban', 'a')->{ban}{left_ms}, sprintf('%.0f', 1000 * ($banned + 1800 - now)),
        "$name: for as long";
}


# A clock that was wrong when the zone was made: a reload makes it right

sub left_of_day() { return $DAY - time % $DAY; }
sub left_of_month($time) {
    my (undef, undef, undef, undef, $month, $year) = gmtime $time;
    return timegm(0, 0, 0, 1, ($month + 1) % 12, $year + ($month == 11) + 1900) - $time;
}
sub resets_of_day($key) { return api_key($nginx, 'daily', $key)->{reset}; }
sub resets_of_month($key) { return api_key($nginx, 'monthly', $key)->{reset}; }

my $HALF = $DAY / 2;
$nginx->stop;
$utc->set(utc => -$HALF);
my @daily = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=daily:1m   rate=2/1d    algorithm=fixed;
    limit_sliding_zone $arg_key zone=monthly:1m rate=2/month algorithm=fixed;
    limit_sliding_zone $arg_key zone=hourly:1m  rate=2/1h    algorithm=fixed;
HTTP
    location / { limit_sliding zone=daily; empty_gif; }
    location /month { limit_sliding zone=monthly; empty_gif; }
    location /hour { limit_sliding zone=hourly; empty_gif; }
SERVER
$utc->run(sub { $nginx->start($nginx->template(@daily)) });
is $nginx->statuses(3, '/?key=before'), '200 200 429', 'windows of a day';
my $wrong = ($HALF + left_of_day()) % $DAY;
is resets_of_day('before'), $wrong, '... of a clock that is half a day late';
$nginx->get('/month?key=before');
is resets_of_month('before'), left_of_month(time - $HALF), '... and of a month';

$utc->set(utc => 0);
is resets_of_day('before'), $wrong, '... and was set: no window moves';
$nginx->reload;
$nginx->get('/?key=new');
is resets_of_day('new'), left_of_day(), '... until a reload';
$nginx->get('/month?key=new');
is resets_of_month('new'), left_of_month(time), '... of a month as well';
is $nginx->log_lines(qr/\[notice\] .*"daily": the clock was set by 43200 s/), 1,
    '... which logs a notice';

is $nginx->statuses(3, '/?key=back'), '200 200 429', 'a key of the present window';
$nginx->get('/hour?key=back') for 1 .. 4;
$utc->set(utc => -$HALF);
$nginx->reload;
is $nginx->log_lines(qr/"daily": the clock was set by -43200 s/), 1,
    '... a step back is logged, too';
is $nginx->statuses(1, '/?key=back'), '429', '... and opens no window anew';
is $nginx->statuses(2, '/hour?key=back'), '200 200', '... but that of a shorter one';


# The monotonic clock: soon after the machine was booted, and around 2^32 ms

for my $boot ([ 'just booted', 1 ], [ '2^32 ms', 2**32 / 1000 - 4 ]) {
    my ($name, $seconds) = @$boot;
    LimitSliding::Clock->new(mono => $seconds - now)->run(sub { $nginx->serve(@places) });
    $redis->command('FLUSHALL');

    my $key = $name =~ s/\W+/-/gr;
    exact($name, $key);
    sleep 5;
    is join(' ', map { $nginx->statuses(1, "/$_?key=$key") } @names),
        join(' ', (429) x @names), "$name: keys are as used up seconds later";
    exact("$name, later", "$key-later");
}

$nginx->finish;
