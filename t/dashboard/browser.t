# The dashboard in a real browser: what it shows, that keys stay text, and what
# becomes of it when NGINX goes and comes back.

use v5.36;
use utf8;

use JSON::PP ();
use Test::More;

use LimitSliding::Clock real => 'Chromium has timers of its own';

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

# Opens a card.
sub shown_card($card) {
    $browser->run('openCard(arguments[0])', $card);
}

# Text of a row of the tables on top, of those columns that have one.
sub row($card) {
    return $browser->run('return [...(zoneTable.rows.get(arguments[0])'
        . ' ?? redisTable.rows.get(arguments[0])).cells]'
        . '.map(cell => cell.textContent).join(" ").trim()', $card);
}

# The lines of problems.
sub problems() {
    return $browser->run('return document.getElementById("alarms").innerText');
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
is $browser->run('return document.querySelectorAll("section").length'), 0, 'no card is open';
like row('Zone one'), qr/^one (?:0 0%|– –) 0 0 – this node$/, '... but each has a row';
like row('Zone quiet'), qr/^quiet (?:0 0%|– –) – – – this node$/, '... without a limit, too';
shown_card("Zone $_") for 'one', 'quiet', 'bans', $ODD, 'far';
shown_card('Redis dead');
is_deeply [ map { s/^(\w+) .*/$1/r } rows('Zone one', 'Requests') ], [ 'passed', 'rejected' ],
    'counters that never counted are not shown';
is_deeply [ texts('Zone one', 'header + dl div') ], [ 'limit3', 'window1 d', 'algorithmcounter',
    'key$http_key', 'when fullevict', 'size1 MiB', 'keys held0' ],
    'settings of a zone';
is_deeply [ texts('Zone quiet', 'header + dl div') ], [ 'limit$arg_rate', 'window90 s',
    'algorithmtoken_bucket', 'key$http_key', 'when fullevict', 'size32 KiB',
    'keys held0' ], '... and of one whose rate is a variable';
is_deeply [ texts('Zone quiet', 'p') ], [ 'not kept: top=off' ], '... and top=off';
is +(texts('Zone bans', 'header + dl div'))[-1], 'penalty10 min to 1 d after 2',
    '... and of one that bans';
chomp(my $host = lc `hostname`);
is $browser->run('return document.title'), $host, 'the host is the title';
is $browser->run('return document.querySelector("h1").textContent'), $host, '... and on top';
is problems(), 'No problems', 'a calm system';

traffic(3, '/', $KEY);
traffic(4, '/dry', $KEY);
traffic(2, '/odd', $KEY);
traffic(6, '/bans', $_) for 1 .. 3;
traffic(20, '/', $KEY);
ok wait_for(sub { (grep { /^rejected / } rows('Zone one', 'Requests'))[0] =~ / 20$/ }), 'traffic appears';
is_deeply [ map { s/ .* / /r } grep { /ban/ } rows('Zone bans', 'Requests') ],
    [ 'bans 3', 'banned 9' ], 'bans';
is ((texts('Zone bans', 'header + dl div'))[-1], 'banned now3', '... and who is banned');
my @fast = map { (split)[2] } rows('Zone one', 'Requests');
cmp_ok $fast[0], '>', 0, '... with rates, of passed requests';
cmp_ok $fast[1], '>', $fast[0], '... and of rejected ones';
like problems(), qr/^Zone bans 3 keys are banned$/m, 'bans are told';
like row('Zone one'), qr/^one [\d.]+ [\d.]+% 1 1 <i••• this node$/, 'the row has the key at its limit';
is_deeply [ map { s/ //gr } rows('Zone one', 'Keys by share') ],
    [ '100%1', map { $_ . '–' . ($_ + 20) . '%0' } 80, 60, 40, 20, 0 ], '... and the card';
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
is_deeply [ texts('Zone one', 'meter') ], [], 'memory is not shown while there is much';

SKIP: {
    skip 'built without hiredis', 9 if !$REDIS;

    ok wait_for(sub {
        traffic(5, '/far', 'a');
        return row('Redis dead') =~ /\bopen\b/;
    }), 'the breaker of a Redis opens';
    my $opened = now;
    my $line = qr/^Redis dead breaker open for [\d.]+ m?s, [\d.]+ requests\/s of zone far decided by each node alone$/m;
    ok wait_for(sub { traffic(5, '/far', 'a'); problems() =~ $line }),
        '... which is on top, with number, effect and time' or diag problems();
    cmp_ok now() - $opened, '<', 6, '... within 6 seconds';
    is $browser->run('const alarm = document.querySelector("#alarms a"), box = '
        . 'alarm.getBoundingClientRect(); return box.top > 0 && box.bottom < innerHeight && '
        . 'document.getElementById(decodeURIComponent(alarm.hash.slice(1))).tagName'),
        'SECTION', '... in the first screen, with a link to its place';
    like status(), qr/^\d problems?$/, '... and the page does not say that all is well';
    like $browser->run('return document.title'), qr/^\d problems?: \Q$host\E$/, '... nor its title';
    ok wait_for(sub { traffic(5, '/far', 'a'); row('Zone far') =~ /without Redis/ }),
        '... and the row tells who decides';
    is $browser->run('return document.querySelector("section").id'), 'Zone one',
        '... the cards keep their order';
    like +(grep { /^breaker/ } rows('Redis dead', 'Calls'))[0], qr/^breaker opened \S+ \S+ [1-9]/, '... counted';
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
            unlimited: 0, errors: 0, evicted: 0, refused: 0, bans: 0, banned_requests: 0,
            banned: 0, penalty: null, top: [], measured: 0, shares: {},
            decision_times: { sum_ns: 0, buckets: [] }, redis: null, full: "deny",
            algorithm: "fixed", rate: "1r/s" };
        return answers.map(([time_ms, mine, redis, click], i) => {
            if (i === 0) {
                show({ time_ms, zones: {}, redis: {} });
            }
            show({ time_ms, zones: { z: { ...zone, ...mine } },
                redis: redis ? { r: redis } : {} });
            openCard("Zone z");
            openCard("Redis r");
            if (click) {
                document.querySelector(click).click();
            }
            return [...document.querySelectorAll(selector)]
                .map(node => node.textContent).join(" ");
        });
JS
}

is_deeply [ shown('.parts > :first-child tbody tr:first-child .n',
        map { [ $_->[0], { passed => $_->[1], top => undef } ] }
        [ 1000, 5 ], [ 3000, 10 ], [ 5000, 10_000 ], [ 7000, 2 ],
        [ 8000, 30_000_002 ], [ 6000, 30_000_002 ], [ 7000, 30_000_004 ]) ],
    [ '– – 5', '2.5 2.5 10', '4,995 4,995 10,000', '– – 2', '30M 30M 30M',
        '– – 30M', '2 2 30M' ],
    'no rate if a counter or the clock goes back';
is_deeply [ shown('.parts > :first-child tbody tr:first-child .n',
        [ 1000, { passed => 5, errors => 9 } ],
        [ 3000, { passed => 7, errors => 0 } ]) ],
    [ '– – 5', '– – 7' ], '... or another counter of the zone does';

# The server's timeline: rates and a peak from the first answer on.
my %past = (period_ms => 10_000, age_ms => 4000, periods => 5);
is_deeply [ shown('.parts > :first-child tbody tr:first-child .n',
        [ 1000, { passed => 900, timeline => { %past, passed => [ 0, 500, 200, 100, 7 ] } } ],
        [ 3000, { passed => 904, timeline => { %past, passed => [ 0, 500, 200, 100, 11 ] } } ]) ],
    [ '10 50 900', '2 50 904' ], 'a page that was just opened has rates of the past';

# The problems of a zone with this timeline of rejected requests.
sub rejecting($rejected, $passed, %more) {
    return (shown('#alarms', [ 1000, { rejected => 1, passed => 1, timeline => { %past, %more,
        passed => $passed, rejected => $rejected } } ]))[0];
}
is rejecting([ 0, 0, 60, 60, 0 ], [ (40) x 5 ]), 'Zone z 60% of its requests rejected, 6/s, for 20 s',
    'a zone that rejects most';
is rejecting([ (60) x 5 ], [ (40) x 5 ]), 'Zone z 60% of its requests rejected, 6/s, for 44 s',
    '... for as long as is known';
is rejecting([ (60) x 60 ], [ (40) x 60 ], periods => 60),
    'Zone z 60% of its requests rejected, 6/s, for 10 min or longer', '... or longer';
is rejecting([ 0, 0, 40, 40, 0 ], [ (60) x 5 ]), 'No problems', '... not one that passes most';
is rejecting([ 0, 60, 60, 0, 0 ], [ (40) x 5 ]), 'No problems', '... nor one that did';
is rejecting([ 0, 0, 3, 3, 0 ], [ (0) x 5 ]), 'No problems', '... nor a few requests';

is +(shown('#alarms', [ 1000, { timeline => { %past, refused => [ 0, 50, 0, 0, 0 ] } } ]))[0],
    'Zone z 5 new keys/s refused, it is full, until 24 s ago', 'a problem that was';
is +(shown('#alarms', [ 1000, { timeline => { %past, periods => 12,
        refused => [ 50, (0) x 11 ] } } ]))[0], 'No problems', '... and one of long ago';

is +(shown('#alarms', [ 1000, { banned => 1 } ]))[0], 'Zone z 1 key is banned', 'a ban';
is $browser->run('return alarms.count'), 0, '... is no problem';

# What a row tells, as fractions of a sample.
is +(shown('.overview tbody tr .n', [ 1000, { passed => 1,
        shares => { 0 => 9, 20 => 3, 40 => 2, 60 => 2, 80 => 2, 100 => 1234 } } ]))[0],
    '– – 1,234 1,236', 'keys at their limit, and near it';
is_deeply [ shown('.full, meter + *, .part p', [ 1000, { keys => 2, slots => 4, top => undef } ],
        [ 3000, { keys => 3, slots => 4, top => undef } ]) ],
    [ '50% of the slots are held not kept: top=off', '75% of the slots are held not kept: top=off' ],
    'memory';
is_deeply [ map { $browser->run('return document.querySelector("meter").closest(".part").hidden') }
    shown('p', [ 1000, { keys => 2, slots => 4 } ]) ], [ JSON::PP::true ], '... is hidden below 70%';

my @top = map { { key => "k$_", key_uri => "k$_", rejected => 100 - $_,
    truncated => $_ == 1 ? JSON::PP::true : JSON::PP::false } } 1 .. 12;
my @offenders = shown('.parts > :last-child',
    map { [ $_, { top => \@top }, undef, $_ % 2 ? '.parts > :last-child > button' : undef ] }
        0 .. 3);
like $offenders[0], qr/k1 \(cut\)99k298.*k1090all 12/, 'ten offenders, and a button';
like $offenders[1], qr/k1090k1189k1288fewer/, '... for all';
is $offenders[2], $offenders[1], '... which stays';
is $offenders[3], $offenders[0], '... and for ten';

my %dealt = (redis => 'r', sources => { lease => 1, redis => 0 }, leases => { size => 1234 });
like +(shown('section', [ 0, \%dealt ]))[0], qr/leases size1,234.*lease––1/, 'leases';
is_deeply [ shown('.overview tbody td:nth-child(7)', [ 0, \%dealt ],
        [ 1000, { %dealt, sources => { lease => 9, redis => 1 } } ]) ],
    [ 'Redis r', 'lease' ], 'where most is decided';

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
        timeout_ms => 50, on_error => 'deny', breaker => 'closed', open_ms => undef,
        breaker_opened => 0, calls => $n, failed_calls => 0,
        latency => { sum_us => 80 * $n, buckets => [
            { le_us => 100, calls => $n ? $n - 1 : 0 },
            { le_us => 2500, calls => $n } ] } } ];
}

is_deeply [ shown('[id^=Redis] h3 + dl', calls(1000, 0), calls(2000, 10),
        calls(2_000_000, 50), calls(2_001_000, 1050)) ],
    [ 'mean–p50–p99–',
        'mean0.08 msp500.1 msp992.5 ms',
        'mean0.08 msp500.1 msp992.5 ms',
        "mean80 \x{b5}sp50100 \x{b5}sp99100 \x{b5}s" ], 'round trips, in one unit';


# ---- NGINX goes, and comes back ----

ok wait_for(sub { $browser->run('return cards.has("Zone one")') }), 'real answers again';
$browser->run(<<'JS');
    openCard("Zone one");
    window.seen = [];
    const card = document.getElementById("Zone one");
    new MutationObserver(() => {
        const row = card.querySelector("tbody tr");
        window.seen.push(row.cells[1].textContent + " " + row.cells[3].textContent);
    }).observe(card, { subtree: true, childList: true, characterData: true });
JS

ok $nginx->stop, 'NGINX stops';
ok wait_for(sub { status() =~ /^stale since .+: .+/ }), 'the page says so';
is $browser->run('return document.title'), "stale: $host",
    '... in its title, too';
cmp_ok contrast(), '>=', 4.5, '... to be read';
my @log = grep { !/ERR_CONNECTION_REFUSED/ } $browser->log;

$nginx->start($CONF);
traffic(1, '/', 'b');
ok wait_for(sub { status() eq 'live' }), 'NGINX is back';
ok wait_for(sub { (rows('Zone one', 'Requests'))[0] =~ /^passed 0 \S+ 1/ }),
    'counters start anew';
my @seen = @{ $browser->run('return window.seen') };
ok +(grep { /^(?:–|0|0\.\d) [01]$/ } @seen), 'with no rate, or that of the new counters';
is_deeply [ grep { /^[-−]/ } @seen ], [], '... and none below zero';

is_deeply [ @log, grep { !/ERR_CONNECTION_REFUSED/ } $browser->log ], [],
    'the console has nothing else';

$browser->quit;
$nginx->finish;
