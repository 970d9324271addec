# Windows of the calendar, in UTC and in local time.

use v5.36;

use POSIX qw(ceil mktime tzset);
use Test::More;
use Time::HiRes qw(time);

use LimitSliding::Api;
use LimitSliding::Clock;
use LimitSliding::Redis;
use LimitSliding::Test;

# The rule of 2026, which needs no file of time zones.
my $BERLIN = 'CET-1CEST,M3.5.0,M10.5.0/3';
my @WINDOWS = qw(day week month year);

# Calls the function in a time zone.
sub in_zone($zone, $function) {
    local $ENV{TZ} = $zone;
    tzset();
    my @values = $function->();
    delete local $ENV{TZ};
    tzset();
    return @values;
}

# Returns the begin and the end of the present window in a zone.
sub window_at($window, $zone, $time) {
    return in_zone($zone, sub {
        my ($day, $month, $year, $weekday) = (localtime $time)[3 .. 6];
        my $monday = $day - ($weekday + 6) % 7;
        my @from = $window eq 'day' ? ($day, $month)
            : $window eq 'week' ? ($monday, $month)
            : (1, $window eq 'month' ? $month : 0);
        my @to = $window eq 'day' ? ($day + 1, $month, $year)
            : $window eq 'week' ? ($monday + 7, $month, $year)
            : $window eq 'month' ? (1, $month + 1, $year)
            : (1, 0, $year + 1);
        return map { mktime(0, 0, 0, @$_, 0, 0, -1) } [ @from, $year ], \@to;
    });
}

my %ZONES;      # name => [ window, time zone ]
for my $window (@WINDOWS) {
    $ZONES{"$window-utc"}   = [ $window, 'UTC0' ];
    $ZONES{"$window-local"} = [ $window, $BERLIN ];
}

# Options: window and calendar of the zone "keys", and a server of Redis.
sub config($nginx, %more) {
    my $redis = $more{server} ? 'redis=shared' : '';
    my $block = $more{server} ? <<"BLOCK" : '';
    limit_sliding_redis shared {
        server          $more{server};
        connect_timeout 5s;
        timeout         5s;
        on_error        deny;
    }
BLOCK
    my $zones = join '', map { <<"ZONE" } sort keys %ZONES;
    limit_sliding_zone \$arg_key zone=$_:32k rate=2 algorithm=fixed
        window=$ZONES{$_}[0] calendar=@{[ s/.*-//r ]} $redis;
ZONE
    my $places = join '', map { <<"PLACE" } sort keys %ZONES;
    location /$_ { limit_sliding zone=$_; empty_gif; }
PLACE
    return $nginx->template(http => <<"HTTP", server => <<"SERVER");
$block
$zones
    limit_sliding_zone \$arg_key zone=keys:32k rate=2 window=$more{window}
        algorithm=fixed $more{calendar} $redis;
    limit_sliding_headers retry_after draft x;
    limit_sliding_log_level off;
HTTP
$places
    location /keys   { limit_sliding zone=keys; empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
}


# what clients and operators are told

my $nginx = LimitSliding::Test->new;
start_in_berlin(window => 'month', calendar => 'calendar=local');

sub start_in_berlin(%more) {
    local $ENV{TZ} = $BERLIN;
    $nginx->start(config($nginx, %more));
}

sub told_of($name) {
    my ($begin, $end) = window_at(@{ $ZONES{$name} }, time);
    my $length = $end - $begin;
    my $left_ms = sprintf '%.0f', 1000 * ($end - time);
    my $left_s = ceil($left_ms / 1000);
    my $quoted = qr/"\Q$name\E"/;

    for my $left (1, 0) {
        my $r = $nginx->get("/$name?key=a");
        is $r->{status}, 200, "$name: passes";
        like header($r, 'RateLimit-Policy'), qr/^$quoted;q=2;w=$length$/,
            '... length of the window';
        like header($r, 'RateLimit'), qr/^$quoted;r=$left;/, '... remaining';
        like header($r, 'RateLimit'), qr/;t=$left_s$/, '... time to its end';
    }

    my $r = $nginx->get("/$name?key=a");
    is $r->{status}, 429, "$name: rejects";
    is header($r, $_), $left_s, "... $_" for qw(Retry-After X-RateLimit-Reset);

    my $key = api_key($nginx, $name, 'a');
    is state_of($key), '2 2 0', '... state of the key';
    is $key->{reset_ms}, $left_ms, '... its reset';

    my $zone = api($nginx)->{zones}{$name};
    is $zone->{window}, $ZONES{$name}[0], '... window of the zone';
    is $zone->{calendar}, $name =~ s/.*-//r, '... its calendar';
    is $zone->{window_ms}, 1000 * $length, '... its length';
}

told_of($_) for sort keys %ZONES;


# reload

sub passes($n) {
    return grep { $nginx->get('/keys?key=a')->{status} == 200 } 1 .. $n;
}

sub reload($window, $calendar) {
    local $ENV{TZ} = $BERLIN;
    $nginx->reload(config($nginx, window => $window, calendar => $calendar));
    return map { s/.*starts empty: //r } $nginx->new_log_lines(qr/starts empty/);
}

is passes(1), 1, 'a request';
is join(' ', reload('month', 'calendar=local')), '', 'the same: nothing is said';
is passes(3), 1, '... and nothing is forgotten';

for my $case (
    [ 'week', 'calendar=local', 'its window was a calendar month, now a calendar week' ],
    [ '30d', 'calendar=local', 'its window was a calendar week, now 2592000000 ms' ],
    [ 'month', 'calendar=local', 'its window was 2592000000 ms, now a calendar month' ],
    [ 'month', '', 'its calendar was local, now utc' ],
    [ 'month', 'calendar=utc', '' ],
    [ 'month', 'calendar=local', 'its calendar was utc, now local' ],
) {
    my ($window, $calendar, $message) = @$case;
    like join(' ', reload($window, $calendar)), qr/^\Q$message\E(?: |$)/,
        "window=$window $calendar: " . ($message || 'nothing is said');
    is passes(3), $message ? 2 : 0, $message ? '... starts empty' : '... is kept';
}

$nginx->finish_one;


# the same in Redis

my $redis = LimitSliding::Redis->new->start;
$nginx = LimitSliding::Test->new;
start_in_berlin(window => 'week', calendar => 'calendar=local lease=5',
    server => $redis->server);
told_of($_) for sort keys %ZONES;
is passes(5), 2, 'a lease, too, is of the limit';
$nginx->finish_one;


# the ends of windows, by a clock that begins 3 seconds before the end

my $clock = LimitSliding::Clock->new;

sub ends($window, $day, $length, $next) {
    my ($year, $month, $mday) = split /-/, $day;
    my ($end) = in_zone($BERLIN,
        sub { mktime(0, 0, 0, $mday + 1, $month - 1, $year - 1900, 0, 0, -1) });
    sleep left_of(1);
    $clock->set(utc => $end - 3 - int time);

    $nginx = LimitSliding::Test->new;
    $clock->run(sub { start_in_berlin(window => '1h', calendar => '') });

    my $ask = sub { $nginx->get("/$window-local?key=a") };
    my $told = sub($r) { header($r, 'RateLimit-Policy') =~ s/.*w=//r };
    my $before = $ask->();
    is $told->($before), $length, "$window at $day: length";
    like header($before, 'RateLimit'), qr/;t=3$/, '... time to its end';
    is $ask->()->{status}, 200, '... limit 2';

    my $r = $ask->();
    is $r->{status}, 429, '... rejects';
    is header($r, 'Retry-After'), 3, '... Retry-After';
    sleep 3;

    $r = $ask->();
    is $r->{status}, 200, '... and passes then';
    is $told->($r), $next, '... in a window that is as long as it is';
    like header($r, 'RateLimit'), qr/;t=$next$/, '... to its end';
    is $ask->()->{status}, 200, '... limit 2';
    is $ask->()->{status}, 429, '... and no more';
    $nginx->finish_one;
}

my $HOUR = 3600;
my $DAY = 24 * $HOUR;

subtests(map { my $case = $_; ("$case->[0] at $case->[1]" => sub { ends(@$case) }) } (
    [ 'day',   '2026-03-28', $DAY,      23 * $HOUR ],
    [ 'day',   '2026-10-24', $DAY,      25 * $HOUR ],
    [ 'week',  '2026-03-29', 7 * $DAY - $HOUR, 7 * $DAY ],
    [ 'month', '2026-02-28', 28 * $DAY, 31 * $DAY - $HOUR ],
    [ 'year',  '2028-12-31', 366 * $DAY, 365 * $DAY ],
));

done_testing;
