# The dashboard with many zones and hostile names and keys, in a real browser on a
# desk and on a phone: all has room, the worst is on top, and what is looked for is
# found.

use v5.36;
use utf8;

use Test::More;

use LimitSliding::Clock real => 'Chromium has timers of its own';

use LimitSliding::Browser;
use LimitSliding::Test;

binmode Test::More->builder->$_, ':utf8'
    for qw(output failure_output todo_output);

plan skip_all => LimitSliding::Browser::lacking()
    if LimitSliding::Browser::lacking();

my $ZONES = 40;

# Keys of some 60 bytes: without a place to break, from right to left, with marks
# on each other, with what ends an isolation, and with markup.
my @KEYS = ('W' x 60, "\x{202E}" . 'evil' x 14, 'שלום' x 7, "a" . "\x{0301}" x 29,
    "\x{2069}\x{202C}" x 10, '</bdi></td><script>alert(1)</script>', "\x{FDFD}" x 20);
my @SIZES = ([ 1280, 800 ], [ 390, 844 ]);

my $zones = join '', map { my $name = sprintf 'zone_%02d_%s', $_, 'n' x 40; <<"ZONE" } 1 .. $ZONES;
    limit_sliding_zone \$http_key zone=$name:64k rate=${_}r/d;
ZONE
my $places = join '', map { my $name = sprintf 'zone_%02d_%s', $_, 'n' x 40; <<"PLACE" } 1 .. $ZONES;
        location /$_/ { limit_sliding zone=$name; empty_gif; }
PLACE

my $nginx = LimitSliding::Test->new->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    $zones
    limit_sliding_zone \$http_key zone=tiny:32k rate=1r/d full=deny top=off;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        $places
        location /tiny { limit_sliding zone=tiny; empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF

my $browser = LimitSliding::Browser->new;

sub traffic($n, $place, $key) {
    utf8::encode($key);
    $nginx->statuses($n, $place, headers => [ "Key: $key" ]);
}

sub run($script, @args) {
    return $browser->run($script, @args);
}

for my $key (@KEYS) {
    traffic(2, '/1/', $key);
}
traffic(3, "/$_/", 'someone') for 2 .. $ZONES;

$browser->visit('http://127.0.0.1:' . $nginx->port . '/limits/dashboard');
ok wait_for(sub { run('return document.querySelectorAll(".overview tbody tr").length')
    == $ZONES + 1 }), "$ZONES zones and one";
is run('return document.getElementById("alarms").innerText'), 'No problems', 'all is well';
is run('return document.querySelectorAll("section").length'), 0, '... and no card is open';

# The names of zones in the table, shortened: "01 02 ... tiny"
sub order() {
    return join ' ', @{ run('return [...document.querySelectorAll(".overview tbody tr")]'
        . '.map(row => row.cells[0].textContent.replace(/^zone_|_n+$/g, ""))') };
}
my $CONFIGURED = join ' ', (map { sprintf '%02d', $_ } 1 .. $ZONES), 'tiny';
is order(), $CONFIGURED, '... in the order of the configuration';

# All zones are on two screens, before the last row and the table of Redis.
for (@SIZES) {
    my ($width, $height) = @$_;
    $browser->resize($width, $height);
    cmp_ok run('return [...document.querySelectorAll(".overview tbody tr")].at(39)'
        . '.getBoundingClientRect().bottom + scrollY'), '<=', 2 * $height,
        "$width: 40 zones are on two screens";
}

# A full zone, last in the configuration.
$nginx->statuses(1, '/tiny', headers => [ "Key: $_" ]) for 1 .. 1500;
ok wait_for(sub {
    traffic(1, '/tiny', rand);
    return run('return document.getElementById("alarms").innerText')
        =~ /^Zone tiny [\d.]+ new keys\/s refused, it is full, for [\d.]+ (?:s|ms|min)$/m;
}), 'a full zone is told' or diag run('return document.getElementById("alarms").innerText');
is order(), $CONFIGURED, '... and the rows stay where they are';
like run('return document.getElementById("totals").innerText'),
    qr/^requests\/s\s+[\d.]+\s.*^rejected\s+[\d.]+%\s.*^keys at limit\s+[\d,]+\s/ms,
    'key figures of all zones' or diag run('return document.getElementById("totals").innerText');


# ---- sorted by columns ----

# Clicks on the head of a column; returns what assistive technology is told.
sub sorted($head) {
    return run(<<'JS', $head);
        const button = [...document.querySelectorAll(".overview thead button")]
            .find(button => button.textContent.startsWith(arguments[0]));
        button.click();
        return button.closest("th").ariaSort;
JS
}

is sorted('zone'), 'ascending', 'sorted by name';
like order(), qr/^tiny 01 02 .* 40$/, '... really';
is sorted('zone'), 'descending', '... and by it in the other order';
like order(), qr/^40 39 .* 01 tiny$/, '... really';
is sorted('at limit'), 'descending', 'sorted by keys at their limit';
like order(), qr/^tiny /, '... the most first';
is run('return document.querySelectorAll("[aria-sort]").length'), 1, '... and by nothing else';
run('document.querySelector("tbody button").focus()');
my $focused = run('return document.activeElement.textContent');
sorted('requests');
is run('return document.activeElement.textContent'), $focused, '... the focus stays';


# ---- cards, on demand ----

sub sections() {
    return join ' ', @{ run('return [...document.querySelectorAll("section")].map(({ id }) =>'
        . 'id.replace(/^Zone |zone_|_n+$/g, ""))') };
}

run('document.querySelectorAll("tbody button").forEach(button => '
    . '/_0[12]_|tiny/.test(button.textContent) && button.click())');
is sections(), '01 02 tiny', 'rows open cards, which are in the order of the configuration';
is run('return document.querySelectorAll("[aria-expanded=true]").length'), 3, '... marked';
run('document.querySelector("section button").click()');
is sections(), '02 tiny', 'a card is closed';
run('[...cards.keys()].forEach(openCard)');
is run('return document.querySelectorAll("section").length'), $ZONES + 1, 'all cards';

# Returns what is beyond the edges of the window, or of a card.
sub beyond() {
    return @{ run(<<'JS') };
        const wide = document.documentElement.clientWidth;
        return [...document.querySelectorAll("body *")].filter(node => {
            const box = node.getBoundingClientRect();
            if (node.closest("caption")) { return false; }
            const card = node.closest("section, #alarms, #totals, dialog[open]");
            const edge = card?.getBoundingClientRect() ?? { left: 0, right: wide };
            return box.width && (box.right > edge.right + 1 || box.left < edge.left - 1
                || box.right > wide + 1);
        }).map(node => node.tagName + " " + node.className + " " + node.textContent.slice(0, 30));
JS
}

for (@SIZES) {
    my ($width, $height) = @$_;
    $browser->resize($width, $height);
    for my $shown ('masked', 'shown') {
        is run('const { scrollWidth, clientWidth } = document.documentElement; '
            . 'return scrollWidth - clientWidth'), 0, "$width, keys $shown";
        is_deeply [ beyond() ], [], '... all is within';
        run('document.getElementById("shown").click()');
    }
    run('document.getElementById("shown").click()');
    is run('scrollTo(0, 0); const box = document.getElementById("alarms").getBoundingClientRect(); '
        . 'return box.top >= 0 && box.bottom < innerHeight'), 1, '... what is wrong is in sight';

    # Each key is beside its own number.
    is run(<<'JS'), 0, '... keys do not move their numbers';
        return [...document.querySelectorAll("tbody tr")].filter(row => row.cells.length === 2
            && row.cells[1].getBoundingClientRect().left
                < row.cells[0].getBoundingClientRect().right - 1).length;
JS

    # The dialog of the longest.
    run('[...document.querySelectorAll("td button")].find(button => '
        . 'button.textContent.startsWith("WWW")).click()');
    ok wait_for(sub { run('return document.querySelector("dialog[open]")?.innerText')
        =~ /^used\s+1$/m }), '... a key';
    is_deeply [ beyond() ], [], '... has room';
    run('document.querySelector("dialog").close(); document.getElementById("shown").click()');
}

my $alert = run('return document.querySelectorAll("script").length');
is $alert, 1, 'no key is a script';


# ---- filter ----

sub filtered($text) {
    run('const node = document.getElementById("filter"); node.value = arguments[0];'
        . 'node.dispatchEvent(new Event("input", { bubbles: true }))', $text);
    return run('return document.querySelectorAll(".overview tbody tr:not([hidden])").length');
}

is filtered('ZONE_07'), 1, 'a filter';
is run('return document.getElementById("matches").textContent'), '1 of 41', '... says how many';
is filtered('zone_1'), 10, '... of several';
is filtered('evict'), 40, '... also by settings';
is filtered('nowhere'), 0, '... of none';
filtered('');

run('[...cards.keys()].forEach(toggleCard)');
for my $time ('a', 'the same') {
    run('document.querySelector("#alarms a").click()');
    is sections(), 'tiny', "$time link of a problem opens its card";
}
is run('return document.querySelector("section:target").id'), 'Zone tiny', '... and marks it';


# ---- speed ----

# One hundred zones with timelines, in a page that knows none of them, and again.
for my $time (1, 2) {
    my $ms = run(<<'JS');
        const [values] = [...cards.values()].map(({ zone }) => zone);
        const past = Array.from({ length: 60 }, (_, i) => 100 + i * 7 % 31);
        const zones = {};
        for (let i = 0; i < 100; i++) {
            zones["speed" + i] = { ...values, timeline: { period_ms: 10000, age_ms: 5000,
                periods: 60, passed: past, rejected: past } };
        }
        show({ time_ms: 0, zones: {}, redis: {} });
        const start = performance.now();
        show({ time_ms: 1000, zones, redis: {} });
        document.body.offsetHeight;
        return performance.now() - start;
JS
    note sprintf 'a hundred zones: %.1f ms', $ms;
    cmp_ok $ms, '<', 100, 'a hundred zones are shown within 100 ms' if $time == 2;
}


# ---- answers of any order and kind ----

is run(<<'JS'), "3 \x{b5}s", 'the mean time of a decision is that of all decisions';
    const [values] = [...cards.values()].map(({ zone }) => zone);
    const measured = (n, sum_ns) => ({ ...values, measured: n,
        decision_times: { buckets: [{ le_ns: 10000, decisions: n }], sum_ns } });
    show({ time_ms: 2000, zones: { busy: measured(3, 3000), calm: measured(1, 9000) }, redis: {} });
    return totals.values["per decision"].textContent;
JS

# Gives these to a page's class, one after the other. Returns how many problems
# there are after each.
sub problems(@answers) {
    return join ' ', @{ run(<<'JS', \@answers) };
        const alarms = new Alarms(document.createElement("div"));
        const counters = new Counters();
        return arguments[0].map(([seconds, memory]) => {
            alarms.set([{ id: "Redis one", name: "one", counters,
                redis: { breaker: "closed", memory } }], seconds * 1000);
            return alarms.count;
        });
JS
}

my ($none, $five, $six) = (undef, map { { evicted => $_ } } 5, 6);
is problems([ 10, $none ], [ 12, $five ]), '0 0', 'what was not known has not risen';
is problems([ 10, $five ], [ 12, $six ], [ 14, $six ]), '0 1 1', '... what is known has';
is problems([ 10, $five ], [ 12, $none ], [ 14, $six ]), '0 0 1', '... and was known before';
is problems([ 10, $five ], map { [ $_ * 40, $_ > 1 ? $six : $five ] } 1 .. 4), '0 0 1 1 0',
    '... for a minute';
is problems([ 10, $five ], [ 1000, $six ], [ 1002, $six ]), '0 0 0',
    '... but not at some time while nobody looked';
is problems([ 10, $six ], [ 12, $five ]), '0 0', '... nor after a restart';

# A zone that has no limit for some requests, and some of each other count
is run(<<'JS'), 'unlimited', 'a problem only if no request is limited at all';
    const alarms = new Alarms(document.createElement("div"));
    const counters = new Counters();
    const none = { unlimited: 1, passed: 0, delayed: 0, rejected: 0, delayed_dry_run: 0,
        rejected_dry_run: 0 };
    return Object.keys(none).filter(name => {
        alarms.set([{ id: "Zone one", counters, zone: { ...none, [name]: 1 } }], 1000);
        return alarms.count;
    }).join(" ");
JS

is run(<<'JS'), 'Redis one', 'a link keeps the focus while others come';
    const set = memory => alarms.set([{ id: "Redis one", name: "one", counters: new Counters(),
        redis: { breaker: "open", open_ms: 5, memory } },
        ...memory ? [{ id: "Zone tiny", counters: new Counters(), zone: { keys: 10,
            slots: 10 } }] : []], 1000);
    set(null);
    document.querySelector("#alarms a").focus();
    set({ evicted: 1 });
    return document.activeElement.textContent;
JS
is run(<<'JS'), "one\n1", 'a fact that is gone is not shown';
    const facts = new Facts();
    document.body.append(facts.node);
    facts.set({ one: "1", two: "2" });
    facts.set({ one: "1", two: null });
    return facts.node.innerText;
JS

is_deeply [ $browser->log ], [], 'the console is empty';

$browser->quit;
$nginx->finish;
