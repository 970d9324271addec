# What limit_sliding does to one client: statuses, Retry-After, variables.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

# No window ends while the test runs, as windows are of 30 days.
$nginx->common(http => <<'CONF');
    limit_sliding_zone $arg_key zone=one:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=wide:1m rate=10 window=30d precision=1;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Reset     $limit_sliding_reset     always;
    add_header X-Source    $limit_sliding_source    always;
CONF

sub statuses($n, @request) {
    return join ' ', map { $nginx->get(@request)->{status} } 1 .. $n;
}

my $DAY = 86400;


# the limit bites, for each key alone

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone text$arg_key$arg_other zone=mixed:1m rate=2 window=30d;
HTTP
    location /one   { limit_sliding zone=one;   empty_gif; }
    location /wide  { limit_sliding zone=wide;  empty_gif; }
    location /mixed { limit_sliding zone=mixed; empty_gif; }
    location /free  { empty_gif; }

    location /503 {
        limit_sliding zone=one;
        limit_sliding_status 503;
        empty_gif;
    }

    location /403 {
        limit_sliding zone=one;
        limit_sliding_status 403;
        empty_gif;
    }

    location /599 {
        limit_sliding zone=one;
        limit_sliding_status 599;
        empty_gif;
    }
SERVER

is statuses(4, '/one?key=a'), '200 200 429 429', 'limit 2';
is statuses(3, '/one?key=b'), '200 200 429', 'another key';
is statuses(3, '/wide?key=a'), '200 200 200', 'another zone, same key';
is statuses(3, '/free?key=a'), '200 200 200', 'no limit here';
is statuses(3, '/503?key=a'), '503 503 503', 'limit_sliding_status 503';
is statuses(1, '/403?key=a'), '403', 'limit_sliding_status 403';
is statuses(1, '/599?key=a'), '599', 'limit_sliding_status 599';
is statuses(3, '/mixed?key=a&other=b'), '200 200 429', 'key of several parts';
is statuses(1, '/mixed?key=&other=ab'), '429', 'which are just joined';
is statuses(3, '/mixed?key=b&other=a'), '200 200 429', 'in their order';


# what describes a request

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    log_format verdict "$arg_key|$limit_sliding_status|$limit_sliding_zone|"
        "$limit_sliding_limit|$limit_sliding_remaining|$limit_sliding_source";
HTTP
    location /one  { limit_sliding zone=one;  empty_gif; }
    location /wide { limit_sliding zone=wide; empty_gif; }
    location /free { empty_gif; }

    location /log {
        limit_sliding zone=one;
        access_log %%DIR%%/access.log verdict;
        empty_gif;
    }
SERVER

my $r = $nginx->get('/one?key=vars');
is header($r, 'X-Status'), 'PASSED', 'passed: status';
is header($r, 'X-Zone'), 'one', 'passed: zone';
is header($r, 'X-Limit'), '2', 'passed: limit';
is header($r, 'X-Remaining'), '1', 'passed: remaining';
is header($r, 'X-Source'), 'local', 'passed: source';
ok !exists $r->{headers}{'retry-after'}, 'passed: no Retry-After';

# One request of the present window weighs 1 until the next one ends.
cmp_ok header($r, 'X-Reset'), '>=', 30 * $DAY, 'passed: reset, at least';
cmp_ok header($r, 'X-Reset'), '<=', 60 * $DAY, 'passed: reset, at most';

$r = $nginx->get('/one?key=vars');
is header($r, 'X-Remaining'), '0', 'passed again: remaining';

# Two of them weigh 1 in the middle of the next one.
cmp_ok header($r, 'X-Reset'), '>=', 15 * $DAY, 'passed again: reset, at least';
cmp_ok header($r, 'X-Reset'), '<=', 45 * $DAY, 'passed again: reset, at most';

$r = $nginx->get('/one?key=vars');
is header($r, 'X-Status'), 'REJECTED', 'rejected: status';
is header($r, 'X-Zone'), 'one', 'rejected: zone';
is header($r, 'X-Limit'), '2', 'rejected: limit';
is header($r, 'X-Remaining'), '0', 'rejected: remaining';
is header($r, 'X-Source'), 'local', 'rejected: source';
is @{ $r->{headers}{'retry-after'} // [] }, 1, 'rejected: one Retry-After';
like header($r, 'Retry-After'), qr/^[1-9]\d*$/, 'rejected: whole seconds';
is header($r, 'Retry-After'), header($r, 'X-Reset'),
    'rejected: what is left grows when this request would be admitted';

$r = $nginx->get('/free?key=vars');
is join(' ', grep { /^x-/ } keys %{ $r->{headers} }), '',
    'no variable has a value where no limit is';

$nginx->get("/log?key=log") for 1 .. 3;
$nginx->get("/log");
my $expected = <<'LOG';
log|PASSED|one|2|1|local
log|PASSED|one|2|0|local
log|REJECTED|one|2|0|local
-|-|-|-|-|-
LOG

open my $file, '<', $nginx->dir . '/access.log' or die "access.log: $!";
my $logged = do { local $/; <$file> };
is_deeply [ sort split /\n/, $logged ], [ sort split /\n/, $expected ], 'in an access log';


# The n requests of one window count n x (1 - t) when t of the next one has
# passed, and so leave room for one more at t = 1/n. We don't know when that
# window begins, but it is the same for all of them.

my ($reset_of_first, @wrong_resets);
for my $n (1 .. 10) {
    my $reset = header($nginx->get('/wide?key=resets'), 'X-Reset');
    my $expected = ($reset_of_first //= $reset) - 30 * $DAY * (1 - 1 / $n);
    push @wrong_resets, "$n: $reset, expected $expected"
        if abs($reset - $expected) >= 1;         # it is rounded
}
is "@wrong_resets", '', 'reset follows from the decay';

$r = $nginx->get('/wide?key=resets');
is $r->{status}, 429, 'after ten requests';
cmp_ok abs(header($r, 'Retry-After') - $reset_of_first + 27 * $DAY), '<=', 1,
    '... so does Retry-After';


# empty keys

my $OTHER = <<'CONF';
    limit_sliding_zone $arg_other zone=other:1m rate=2 window=30d;
CONF

$nginx->serve(http => $OTHER, server => <<'SERVER');
    location /one { limit_sliding zone=one; empty_gif; }

    location /two-keys {
        limit_sliding zone=one;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

is statuses(5, '/one'), '200 200 200 200 200', 'no key, no limit';
is statuses(5, '/one?key='), '200 200 200 200 200', 'empty key, no limit';

$r = $nginx->get('/one?key=');
is join(' ', grep { /^x-|^retry/ } keys %{ $r->{headers} }), '',
    'nothing accounted, nothing said';

$r = $nginx->get('/two-keys?other=a');
is header($r, 'X-Zone'), 'other', 'one of two keys empty: the other counts';
is statuses(2, '/two-keys?other=a'), '200 429', '... and limits';


# several limits at one place: all or nothing

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $OTHER
    limit_sliding_zone \$arg_key zone=week:1m rate=2 window=7d;
HTTP
    location /one   { limit_sliding zone=one;   empty_gif; }
    location /wide  { limit_sliding zone=wide;  empty_gif; }
    location /other { limit_sliding zone=other; empty_gif; }

    location /last-tight {
        limit_sliding zone=wide;
        limit_sliding zone=one;
        empty_gif;
    }

    location /first-tight {
        limit_sliding zone=one;
        limit_sliding zone=wide;
        empty_gif;
    }

    location /week-month {
        limit_sliding zone=week;
        limit_sliding zone=one;
        empty_gif;
    }

    location /month-week {
        limit_sliding zone=one;
        limit_sliding zone=week;
        empty_gif;
    }

    location /two-keys {
        limit_sliding zone=one;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

for my $place (qw(last-tight first-tight)) {
    $r = $nginx->get("/$place?key=$place");
    is header($r, 'X-Zone'), 'one', "$place: the least share left describes";
    is header($r, 'X-Remaining'), '1', "$place: its remaining";

    is statuses(4, "/$place?key=$place"), '200 429 429 429',
        "$place: the tightest rejects";

    $r = $nginx->get("/$place?key=$place");
    is header($r, 'X-Zone'), 'one', "$place: what rejects describes";
    like header($r, 'Retry-After'), qr/^[1-9]\d*$/, "$place: Retry-After";

    $r = $nginx->get("/wide?key=$place");
    is header($r, 'X-Remaining'), '7',
        "$place: rejected requests consumed from neither";
}

for my $place (qw(week-month month-week)) {
    is statuses(3, "/$place?key=$place"), '200 200 429', "$place: both full";
    $r = $nginx->get("/$place?key=$place");
    is header($r, 'X-Zone'), 'one', "$place: the longer wait describes";
    cmp_ok header($r, 'Retry-After'), '>=', 15 * $DAY,
        "$place: Retry-After holds for both";
}

is statuses(2, '/other?other=z'), '200 200', 'second limit filled';
is statuses(3, '/two-keys?key=z&other=z'), '429 429 429', 'it rejects';
is statuses(3, '/one?key=z'), '200 200 429', 'the first was not consumed';


# dry run

$nginx->serve(server => <<'CONF');
    location /one { limit_sliding zone=one; empty_gif; }

    location /dry {
        limit_sliding zone=one;
        limit_sliding_dry_run on;
        empty_gif;
    }
CONF

is statuses(5, '/dry?key=dry'), '200 200 200 200 200', 'dry run rejects none';
$r = $nginx->get('/dry?key=dry');
is header($r, 'X-Status'), 'REJECTED_DRY_RUN', 'but says what it would do';
is header($r, 'X-Remaining'), '0', 'dry run: remaining';
ok !exists $r->{headers}{'retry-after'}, 'dry run: no Retry-After';
is header($nginx->get('/dry?key=dry2'), 'X-Status'), 'PASSED',
    'dry run: passed';
is statuses(1, '/one?key=dry'), '429', 'dry run counts what it admits';


# inheritance

$nginx->serve(server => <<'CONF');
    limit_sliding zone=one;
    limit_sliding_status 418;

    location /inherit { empty_gif; }
    location /off     { limit_sliding off;       empty_gif; }
    location /own     { limit_sliding zone=wide; empty_gif; }

    location /nested {
        limit_sliding off;
        location /nested/on { limit_sliding zone=one; empty_gif; }
        location /nested/as { empty_gif; }
    }
CONF

is statuses(3, '/inherit?key=i'), '200 200 418', 'inherited';
is statuses(3, '/off?key=i'), '200 200 200', 'off';
ok !exists $nginx->get('/off?key=i')->{headers}{'x-status'},
    'off: not accounted';
is header($nginx->get('/own?key=i'), 'X-Zone'), 'wide',
    'own limit in place of all that would be inherited';
is statuses(10, '/own?key=i'),
    '200 200 200 200 200 200 200 200 200 418', 'own limit, inherited status';
is statuses(1, '/nested/on?key=i'), '418', 'on again below off';
is statuses(3, '/nested/as?key=i'), '200 200 200', 'off is inherited';


# Retry-After is honest: limit 1 in 2 s is free again when the next window ends

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=short:1m rate=1 window=2s;
HTTP
    location /short { limit_sliding zone=short; empty_gif; }
SERVER

is statuses(1, '/short?key=a'), '200', 'short window: passed';
$r = $nginx->get('/short?key=a');
is $r->{status}, 429, 'short window: rejected';

my $retry_after = header($r, 'Retry-After');
cmp_ok $retry_after, '>=', 2, 'short window: Retry-After, at least';
cmp_ok $retry_after, '<=', 4, 'short window: Retry-After, at most';

# It is rounded up: the time is up to a second less.
sleep $retry_after - 1;
is $nginx->get('/short?key=a')->{status}, 429, 'a second before the time';
my $waited = 0;
for (1 .. 10) {
    sleep 0.1;
    $waited++ if $nginx->get('/short?key=a')->{status} == 429;
}
cmp_ok $waited, '<', 10, 'admitted within that second';
is statuses(1, '/short?key=a'), '429', '... once';

$nginx->finish;
