# The dashboard in a real browser: what it shows, that keys stay text, and what
# becomes of it when NGINX goes and comes back.

use v5.36;
use utf8;

use JSON::PP ();
use Test::More;

use LimitSliding::Browser;
use LimitSliding::Test;

binmode Test::More->builder->$_, ':utf8'
    for qw(output failure_output todo_output);

plan skip_all => LimitSliding::Browser::lacking()
    if LimitSliding::Browser::lacking();

require LimitSliding::Redis;
my $REDIS = LimitSliding::Redis::supported();

my $KEY = q{<img src=x onerror=alert(1)>"'&};
my $LONG = 'W' x 100;
my $ODD = qq{<i>"'&$LONG};

my $redis = $REDIS ? <<'CONF' : '';
    limit_sliding_redis dead { server 127.0.0.1:1; }
    limit_sliding_zone $http_key zone=far:1m rate=1000r/d redis=dead;
CONF
my $far = $REDIS ? 'location /far { limit_sliding zone=far; empty_gif; }' : '';

my $CONF = <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$http_key zone=one:1m rate=3r/d;
    limit_sliding_zone "<u>\$http_key" "zone=<i>\\"'&$LONG:32k" rate=1r/d
        algorithm=log;
    limit_sliding_zone \$http_key zone=quiet:32k rate=\$arg_rate window=90s
        algorithm=token_bucket top=off;
    limit_sliding_zone \$http_key zone=bans:1m rate=1r/d penalty=10m penalty_after=2
        penalty_max=1d;
    $redis
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=one; empty_gif; }
        location /odd { limit_sliding "zone=<i>\\"'&$LONG"; empty_gif; }
        location /dry { limit_sliding zone=one dry_run; empty_gif; }
        location /bans { limit_sliding zone=bans; empty_gif; }
        $far
        location /limits { limit_sliding_api; }
    }
}
CONF

my $nginx = LimitSliding::Test->new->start($CONF);
my $browser = LimitSliding::Browser->new;

# Text of the elements that a selector finds in a card, 'Zone one'.
sub texts($card, $selector) {
    return @{ $browser->run(<<'JS', $card, $selector) };
        const card = document.getElementById(arguments[0]);
        return card ? [...card.querySelectorAll(arguments[1])]
            .filter(node => !node.closest("[hidden]"))
            .map(node => node.textContent) : [];
JS
}

# A table's rows, cells of text only: 'passed 3 7', ...
sub rows($card, $title) {
    return @{ $browser->run(<<'JS', $card, $title) };
        const card = document.getElementById(arguments[0]);
        const table = [...card.querySelectorAll("table")].find(table =>
            table.caption.textContent.startsWith(arguments[1]));
        return [...table.tBodies[0].rows].filter(row => !row.hidden).map(row =>
            [...row.cells].map(cell => cell.textContent).filter(text => text)
                .join(" "));
JS
}

sub status() {
    return $browser->run('return document.getElementById("state").textContent');
}

sub traffic($n, $place, $key) {
    $nginx->statuses($n, $place, headers => [ "Key: $key" ]);
}


# ---- what it shows ----

$browser->visit('http://127.0.0.1:' . $nginx->port . '/limits/dashboard');
ok wait_for(sub { status() eq 'live' }), 'it lives';
is_deeply [ rows('Zone one', 'Requests') ],
    [ 'passed – – 0', 'delayed – – 0', 'rejected – – 0', 'evicted – – 0' ],
    'no rates at first';
is_deeply [ texts('Zone one', 'h2 + dl div') ], [ 'limit3', 'window1 d', 'algorithmcounter',
    'key$http_key', 'when fullevict', 'size1 MiB', 'own limits0' ],
    'settings of a zone';
is_deeply [ texts('Zone quiet', 'h2 + dl div') ], [ 'limit$arg_rate', 'window90 s',
    'algorithmtoken_bucket', 'key$http_key', 'when fullevict', 'size32 KiB',
    'own limits0' ], '... and of one whose rate is a variable';
is_deeply [ texts('Zone quiet', 'p') ], [ (texts('Zone quiet', '.full p')), 'not kept: top=off' ],
    '... and top=off';
is_deeply [ (texts('Zone bans', 'h2 + dl div'))[-2, -1] ],
    [ 'penalty10 min to 1 d after 2', 'banned now0' ], '... and of one that bans';
is $browser->run('return document.title'), 'limit_sliding', 'a title';

traffic(3, '/', $KEY);
traffic(4, '/dry', $KEY);
traffic(2, '/odd', $KEY);
traffic(6, '/bans', $_) for 1 .. 3;
traffic(20, '/', $KEY);
ok wait_for(sub { (rows('Zone one', 'Requests'))[2] =~ / 20$/ }), 'traffic appears';
is_deeply [ map { s/ .* / /r } grep { /ban/ } rows('Zone bans', 'Requests') ],
    [ 'bans 3', 'banned 9' ], 'bans';
is ((texts('Zone bans', 'h2 + dl div'))[-1], 'banned now3', '... and who is banned');
my @fast = map { (split)[2] } rows('Zone one', 'Requests');
cmp_ok $fast[0], '>', 0, '... with rates, of passed requests';
cmp_ok $fast[2], '>', $fast[0], '... and of rejected ones';
like +(rows('Zone one', 'Requests'))[-1], qr/^rejected dry run [\d.]+ [\d.]+ 4$/, 'dry runs';

is_deeply [ rows('Zone one', 'Top') ], [ '<i••• 24' ], 'a key that may be a secret is masked';
$browser->run('document.getElementById("shown").click()');
is_deeply [ rows('Zone one', 'Top') ], [ "$KEY 24" ], '... unless asked for: text, exactly';
is_deeply [ texts("Zone $ODD", 'h2 bdi') ], [ $ODD ], 'so is a zone';
is_deeply [ rows("Zone $ODD", 'Top') ], [ "<u>$KEY 1" ], 'and what is configured';
is $browser->run('return document.querySelectorAll("img, i, u").length'), 0,
    'nothing of it is markup';

$browser->run('[...document.querySelectorAll("td button")].find(button => '
    . 'button.textContent === arguments[0]).click()', $KEY);
ok wait_for(sub { $browser->run('return document.querySelector("dialog[open]").innerText')
    =~ /^Zone one, key \Q$KEY\E\n.*^used\s+3$/ms }), 'it leads to its state';
$browser->run('document.querySelector("dialog").close()');

like $browser->run('return document.querySelector("path.passed")'
    . '.getAttribute("d")'), qr/^M[\d.]+ [\d.]+/, 'a line';
like +(texts('Zone one', '.full p'))[0],
    qr/^0% full: 1 of [\d,]+ slots held, 1 ever used$/, 'how full it is';
is $browser->run('return document.querySelector("meter").value > 0'), 1,
    '... in a picture';

SKIP: {
    skip 'built without hiredis', 10 if !$REDIS;

    is_deeply [ texts('Redis dead', 'h2') ], [ 'Redis dead breaker closed' ], 'a Redis';
    ok wait_for(sub {
        traffic(5, '/far', 'a');
        return (texts('Redis dead', '.badge.bad'))[0];
    }), 'its breaker opens';
    my $alarm;
    my $opened = now;
    ok wait_for(sub {
        ($alarm) = $browser->run('return document.getElementById("alarms").innerText')
            =~ /^(The breaker is open.*: Redis dead)$/m;
    }), '... which is on top';
    cmp_ok now() - $opened, '<', 4, '... within 4 seconds';
    is $browser->run('const alarm = document.querySelector("#alarms a"), box = '
        . 'alarm.getBoundingClientRect(); return box.top > 0 && box.bottom < innerHeight && '
        . 'document.getElementById(decodeURIComponent(alarm.hash.slice(1))).tagName'),
        'SECTION', '... in the first screen, with a link to its place';
    like status(), qr/^\d problems?$/, '... and the page does not say that all is well';
    ok wait_for(sub { $browser->run('return document.getElementById("alarms").innerText')
        =~ /^Decided by on_error.*: Zone far$/m }), '... and so is who decides';
    is $browser->run('return document.querySelector("section").id'), 'Redis dead',
        '... the worst card first';
    like +(rows('Redis dead', 'Calls'))[2], qr/^breaker opened \S+ \S+ [1-9]/, '... counted';
    like +(rows('Zone far', 'Where'))[-1], qr/^fallback \S+ \S+ [1-9]/, 'who decided';
}

is_deeply [ $browser->log ], [], 'the console is empty';


# ---- where it is seen ----

# The least contrast of text and what is behind it, by WCAG.
sub contrast() {
    return $browser->run(<<'JS');
        const light = color => color.match(/[\d.]+/g).slice(0, 3)
            .map(c => c / 255)
            .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
        const ground = node => {
            const color = getComputedStyle(node).backgroundColor;
            return /, 0\)/.test(color) ? ground(node.parentNode) : color;
        };
        return Math.min(...[...document.querySelectorAll("body *")]
            .filter(node => node.innerText && !node.closest("noscript"))
            .map(node => {
                const [a, b] = [light(getComputedStyle(node).color),
                    light(ground(node))].sort((a, b) => b - a);
                return (a + .05) / (b + .05);
            }));
JS
}

my %picture;
for my $scheme (qw(light dark)) {
    $browser->scheme($scheme);
    $picture{$scheme} = $browser->screenshot;
    like $picture{$scheme}, qr/^\x89PNG/, "$scheme";
    cmp_ok contrast(), '>=', 4.5, '... to be read';
}
isnt $picture{light}, $picture{dark}, 'light is not dark';

for my $width (360, 320) {
    $browser->resize($width, 740);
    is $browser->run('return document.documentElement.scrollWidth'), $width,
        "$width pixels suffice";
}


# ---- values of which tests see few ----

# Shows answers, [ms, zone, Redis, selector of what to click on then], and
# returns what a selector then finds, by answer. In one go, so that none of the
# page's own comes between.
sub shown($selector, @answers) {
    return @{ $browser->run(<<'JS', $selector, @answers) };
        const [selector, ...answers] = arguments;
        const zone = { key: "k", limit: 1, window_ms: 1000, slots: 4, keys: 1,
            slots_used: 2, bytes: 1048576, own_limits: 0, passed: 0, delayed: 0,
            rejected: 0, delayed_dry_run: 0, rejected_dry_run: 0,
            unlimited: 0, errors: 0,            evicted: 0, refused: 0, bans: 0, banned_requests: 0, banned: 0,
            penalty: null, top: [], measured: 0,
            decision_times: { sum_ns: 0, buckets: [] }, redis: null, full: "deny",
            algorithm: "fixed", rate: "1r/s" };
        return answers.map(([time_ms, mine, redis, click], i) => {
            if (i === 0) {
                show({ time_ms, zones: {}, redis: {} });
            }
            show({ time_ms, zones: { z: { ...zone, ...mine } },
                redis: redis ? { r: redis } : {} });
            if (click) {
                document.querySelector(click).click();
            }
            return [...document.querySelectorAll(selector)]
                .map(node => node.textContent).join(" ");
        });
JS
}

my $PASSED = 'tbody tr:first-child .n';

is_deeply [ shown("section table:nth-of-type(1) $PASSED",
        map { [ $_->[0], { passed => $_->[1], top => undef } ] }
        [ 1000, 5 ], [ 3000, 10 ], [ 5000, 10_000 ], [ 7000, 2 ],
        [ 8000, 30_000_002 ], [ 6000, 30_000_002 ], [ 7000, 30_000_004 ]) ],
    [ '– – 5', '2.5 2.5 10', '4,995 4,995 10,000', '– 4,995 2', '30M 30M 30M',
        '– 4,995 30M', '2 4,995 30M' ],
    'no rate if a counter or the clock goes back';
is_deeply [ shown("section table:nth-of-type(1) $PASSED",
        [ 1000, { passed => 5, errors => 9 } ],
        [ 3000, { passed => 7, errors => 0 } ]) ],
    [ '– – 5', '– – 7' ], '... or another counter of the zone does';

my @top = map { { key => "k$_", key_uri => "k$_", rejected => 100 - $_,
    truncated => $_ == 1 ? JSON::PP::true : JSON::PP::false } } 1 .. 12;
my @offenders = shown('section > div:nth-last-child(2)',
    map { [ $_, { top => \@top }, undef, $_ % 2 ? 'section > div > button' : undef ] }
        0 .. 3);
like $offenders[0], qr/k1 \(cut\)99k298.*k1090all 12$/,
    'ten offenders, and a button';
like $offenders[1], qr/k1090k1189k1288fewer$/, '... for all';
is $offenders[2], $offenders[1], '... which stays';
is $offenders[3], $offenders[0], '... and for ten';

my %dealt = (redis => 'r', sources => { lease => 1 },
    leases => { size => 1234 });
like +(shown('section', [ 0, \%dealt ]))[0],
    qr/leases size1,234.*lease––1/, 'leases';

is_deeply $browser->run('return [...arguments].filter(maySecret)', map { '$' . $_ }
    qw(binary_remote_addr remote_addr limit_sliding_client host {remote_addr}x host$scheme)),
    [], 'keys that are no secrets';
my @secrets = map { '$' . $_ } qw(http_x_api_key arg_key cookie_session remote_addr_x
    hostname binary_remote_addr$uri {arg_token} remote_user);
is_deeply $browser->run('return [...arguments].filter(maySecret)', @secrets), \@secrets,
    '... that may be';

# $n calls, of which all but one took 100 us or less.
sub calls($time, $n) {
    return [ $time, {}, { servers => [ 'a', 'b' ], topology => 'sentinel',
        timeout_ms => 50, on_error => 'deny', breaker => 'closed',
        breaker_opened => 0, calls => $n, failed_calls => 0,
        latency => { sum_us => 80 * $n, buckets => [
            { le_us => 100, calls => $n ? $n - 1 : 0 },
            { le_us => 2500, calls => $n } ] } } ];
}

is_deeply [ shown('[id^=Redis] h3 + dl', calls(1000, 0), calls(2000, 10),
        calls(2_000_000, 50), calls(2_001_000, 1050)) ],
    [ 'mean–p50–p99–',
        'mean0.08 msp500.1 msp992.5 ms',
        'mean–p50–p99–',
        'mean0.08 msp500.1 msp990.1 ms' ], 'round trips';


# ---- NGINX goes, and comes back ----

ok wait_for(sub { ((texts('Zone one', 'h2'))[0] // '') eq 'Zone one' }), 'real answers again';
$browser->run(<<'JS');
    const row = document.querySelector("tbody tr");
    window.seen = [];
    new MutationObserver(() => window.seen.push(row.cells[1].textContent + " "
        + row.cells[3].textContent)).observe(row, { subtree: true,
            childList: true, characterData: true });
JS

ok $nginx->stop, 'NGINX stops';
ok wait_for(sub { status() =~ /^stale since .+: .+/ }), 'the page says so';
is $browser->run('return document.title'), 'stale: limit_sliding',
    '... in its title, too';
cmp_ok contrast(), '>=', 4.5, '... to be read';
my @log = grep { !/ERR_CONNECTION_REFUSED/ } $browser->log;

$nginx->start($CONF);
traffic(1, '/', 'b');
ok wait_for(sub { status() eq 'live' }), 'NGINX is back';
ok wait_for(sub { (rows('Zone one', 'Requests'))[0] =~ /^passed 0 \S+ 1/ }),
    'counters start anew';
my @seen = @{ $browser->run('return window.seen') };
ok +(grep { /^– [01]$/ } @seen), 'with no rate';
is_deeply [ grep { /^[-−]/ } @seen ], [], '... and none below zero';

is_deeply [ @log, grep { !/ERR_CONNECTION_REFUSED/ } $browser->log ], [],
    'the console has nothing else';

$browser->quit;
$nginx->finish;
