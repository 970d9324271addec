# Clocks that jump: nothing but windows of the calendar depends on UTC, and the
# monotonic clock may begin anywhere.

use v5.36;

use Test::More;
use Time::Local qw(timegm);

use LimitSliding::Clocks;
use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

plan skip_all => LimitSliding::Clocks::lacking() if LimitSliding::Clocks::lacking();

my ($HOUR, $DAY) = (3600, 86_400);
my ($LIMIT, $TIMES, $CONNECTIONS) = (200, 1000, 16);

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

# Returns the reset of a key in each zone. The API asks Redis, which is told what sync=
# has let pass an interval later.
sub resets($key) {
    wait_for(sub { api_key($nginx, 'sync', $key)->{remaining} == 0 });
    return map { api_key($nginx, $_, $key)->{reset} } @names;
}


# UTC

my $utc = LimitSliding::Clocks->utc;
$utc->run(sub { $nginx->start($utc->env . $nginx->template(@places)) });

$nginx->get('/ban?key=a') for 1 .. 2;
ok api_key($nginx, 'ban', 'a')->{ban}, 'a key is banned';

for my $jump ([ 'an hour ahead', $HOUR ], [ 'an hour back', -$HOUR ],
    [ '40 days ahead', 40 * $DAY ], [ '40 days back', -40 * $DAY ]) {
    my ($name, $seconds) = @$jump;
    my $key = $name =~ s/ /-/gr;

    exact($name, $key, 100 => sub { $utc->jump($seconds) },
        500 => sub { $utc->jump(0) }, 600 => sub { $utc->jump($seconds) });
    my $told = header($nginx->get('/limits'), 'X-Time') - time;
    cmp_ok abs($told - $seconds), '<', 60, "$name: NGINX has that time";

    my @before = resets($key);
    $utc->jump(0);
    my @after = resets($key);
    my @moved = grep { abs($before[$_] - $after[$_]) > 20 } 0 .. $#names;
    is join(' ', map { "$names[$_] $before[$_] $after[$_]" } @moved), '',
        "$name: and back, no window moves";
    is $nginx->statuses(1, '/ban?key=a'), '429', "$name: banned";
    cmp_ok abs(api_key($nginx, 'ban', 'a')->{ban}{left_ms} - 1_800_000), '<', 120_000,
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
sub is_near($got, $seconds, $name) {
    cmp_ok abs($got - $seconds), '<', 60, $name or diag "$got, not $seconds";
}

my $HALF = $DAY / 2;
$nginx->stop;
$utc->jump(-$HALF);
my @daily = (http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=daily:1m   rate=2/1d    algorithm=fixed;
    limit_sliding_zone $arg_key zone=monthly:1m rate=2/month algorithm=fixed;
    limit_sliding_zone $arg_key zone=hourly:1m  rate=2/1h    algorithm=fixed;
HTTP
    location / { limit_sliding zone=daily; empty_gif; }
    location /month { limit_sliding zone=monthly; empty_gif; }
    location /hour { limit_sliding zone=hourly; empty_gif; }
SERVER
$utc->run(sub { $nginx->start($utc->env . $nginx->template(@daily)) });
is $nginx->statuses(3, '/?key=before'), '200 200 429', 'windows of a day';
my $wrong = ($HALF + left_of_day()) % $DAY;
is_near(resets_of_day('before'), $wrong, '... of a clock that is half a day late');
$nginx->get('/month?key=before');
is_near(resets_of_month('before'), left_of_month(time - $HALF), '... and of a month');

$utc->jump(0);
is_near(resets_of_day('before'), $wrong, '... and was set: no window moves');
$nginx->reload;
$nginx->get('/?key=new');
is_near(resets_of_day('new'), left_of_day(), '... until a reload');
$nginx->get('/month?key=new');
is_near(resets_of_month('new'), left_of_month(time), '... of a month as well');
ok wait_for(sub { $nginx->log_lines(qr/\[notice\] .*"daily": the clock was set by 43\d\d\d s/) }),
    '... which logs a notice';

is $nginx->statuses(3, '/?key=back'), '200 200 429', 'a key of the present window';
$nginx->get('/hour?key=back') for 1 .. 4;
$utc->jump(-$HALF);
$nginx->reload;
ok wait_for(sub { $nginx->log_lines(qr/"daily": the clock was set by -4\d{4} s/) }),
    '... a step back is logged, too';
is $nginx->statuses(1, '/?key=back'), '429', '... and opens no window anew';
is $nginx->statuses(2, '/hour?key=back'), '200 200', '... but that of a shorter one';
$utc->jump(0);


# The monotonic clock: soon after the machine was booted, and around 2^32 ms

SKIP: {
    skip 'no time namespaces', 1 if !LimitSliding::Clocks::has_namespaces();

    for my $boot ([ 'just booted', 1 ], [ '2^32 ms', 2**32 / 1000 - 4 ]) {
        my ($name, $seconds) = @$boot;
        LimitSliding::Clocks::boot_time($seconds, sub { $nginx->serve(@places) });
        $redis->command('FLUSHALL');

        my $key = $name =~ s/\W+/-/gr;
        exact($name, $key);
        sleep 5;
        is join(' ', map { $nginx->statuses(1, "/$_?key=$key") } @names),
            join(' ', (429) x @names), "$name: keys are as used up seconds later";
        exact("$name, later", "$key-later");
    }
}

$nginx->finish;
