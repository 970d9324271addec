# The dashboard's keys in a real browser: all that can be done to a key, by
# keyboard alone; keys that may be secrets; and pages of other sites.

use v5.36;
use utf8;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Clock real => 'Chromium has timers of its own';

use LimitSliding::Api;
use LimitSliding::Browser;
use LimitSliding::Test;

binmode Test::More->builder->$_, ':utf8'
    for qw(output failure_output todo_output);

plan skip_all => LimitSliding::Browser::lacking()
    if LimitSliding::Browser::lacking();

my $SECRET = 'sk-live-0123456789abcdef';

my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 8,
    LocalAddr => '127.0.0.1') or die "listen: $!";

my $nginx = LimitSliding::Test->new->start(<<'CONF' =~ s/%%SILENT%%/$silent->sockport/er);
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $http_key zone=one:1m rate=3r/d;
    limit_sliding_zone $http_key zone=short:1m rate=3 window=1005ms;
    limit_sliding_zone $http_key zone=bans:1m rate=1r/d penalty=10m penalty_after=2;
    limit_sliding_zone $remote_addr zone=address:1m rate=1r/d;
    limit_sliding_zone $limit_sliding_client zone=client:1m rate=1r/d;
    limit_sliding_zone $http_key zone=running:1m inflight=2;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /one     { limit_sliding zone=one; empty_gif; }
        location /bans    { limit_sliding zone=bans; empty_gif; }
        location /address { limit_sliding zone=address; empty_gif; }
        location /client  { limit_sliding zone=client; empty_gif; }
        location /running { limit_sliding zone=running; proxy_pass http://127.0.0.1:%%SILENT%%; }
        location /limits  { limit_sliding_api write=on; }
        location /read    { limit_sliding_api; }
    }
    server {
        listen 127.0.0.1:%%PORT1%%;
        default_type text/html;
        location / {
            return 200 '<form method="post"
                action="http://127.0.0.1:%%PORT%%/limits/zones/one/key?key=a&cost=2"></form>';
        }
    }
}
CONF

my $browser = LimitSliding::Browser->new;
my $url = 'http://127.0.0.1:' . $nginx->port;

sub traffic($n, $place, $key) {
    $nginx->statuses($n, $place, headers => [ "Key: $key" ]);
}

sub live($place) {
    $browser->visit("$url/$place/dashboard");
    return wait_for(sub { $browser->run(<<'JS') == 6 });
        cards.forEach((card, id) => openCard(id));
        return document.querySelectorAll("section").length;
JS
}

# Presses Tab until a button or a field has this text. Returns whether it was
# found.
sub tab_to($text, $card = '') {
    for (1 .. 60) {
        $browser->press('Tab');
        my $found = $browser->run(<<'JS', $card);
            const node = document.activeElement;
            const card = node.closest("section")?.id ?? "";
            return card === arguments[0]
                ? (node.closest("label") ?? node).textContent.trim() : null;
JS
        return 1 if defined $found && $found eq $text;
    }
    return 0;
}

sub dialog() {
    return $browser->run('return document.querySelector("dialog[open]")?.innerText') // '';
}

sub says($pattern, $name) {
    ok wait_for(sub { dialog() =~ $pattern }), $name or diag dialog();
}

sub one($key = 'a') {
    return api_key($nginx, 'one', $key);
}


# ---- look up, forget, limit ----

traffic(5, '/one', 'a');
traffic(5, '/bans', $SECRET);
ok live('limits'), 'the page';
is $browser->run(<<'JS'), 'live', '... whose address ends with a percent sign';
    location.hash = "#50%";
    time = 0;
    return poll().then(() => byId("state").textContent);
JS
ok live('limits'), 'the page';

ok tab_to('Look up a key', 'Zone one'), 'by keyboard';
$browser->press('Enter');
says(qr/^Zone one$/m, '... to a dialog');
$browser->press('a', 'Enter');
says(qr/^Zone one, key •••\n.*^used\s+3\n.*^limit\s+3\n.*^remaining\s+0$/ms, 'the state of a key');

ok tab_to('Forget what it used'), 'forget';
$browser->press('Enter');
says(qr/^used\s+0\n.*It is forgotten\./ms, '... done');
is state_of(one()), '0 3 3', '... really';

ok tab_to('Limit'), 'a limit';
$browser->press(split(//, '9r/d'), 'Tab', '2', 'd', 'Enter');
says(qr/^limit\s+9\n.*^own limit\s+yes, for \d.*The limit is set\./ms, '... set');
is state_of(one()), '0 9 9', '... really';
cmp_ok one()->{ttl}, '<=', 2 * 86400, '... for as long';

ok tab_to('Remove its limit'), 'remove it';
$browser->press('Enter');
says(qr/^own limit\s+no\n.*The limit is removed\./ms, '... done');
is state_of(one()), '0 3 3', '... really';

ok tab_to('Limit'), 'a wrong limit';
$browser->press(' ', '<', 'b', '>', 'x', 'Enter');
says(qr/"rate".*<b>x/, '... the error');
is $browser->run('return document.querySelectorAll("dialog b").length'), 0, '... as text';
says(qr/^used\s+0$/m, '... and the key is still there');

$browser->press('Escape');
ok wait_for(sub { dialog() eq '' }), 'closed by Escape';
is $browser->run('return document.activeElement.textContent'), 'Look up a key',
    '... and on where it was';

ok tab_to('Look up a key', 'Zone client'), 'a zone of addresses';
$browser->press('Enter', split(//, 'who'), 'Enter');
says(qr/"key".*address.*who/, '... no address');
$browser->press('Escape');

ok tab_to('Look up a key', 'Zone running'), 'requests in flight';
$browser->press('Enter', 'a', 'Enter');
says(qr/^used\s+0\n.*^limit\s+2\n.*^in flight here\s+0\noldest of these\s+–$/ms,
    '... the limit of the zone');
my @running = map { $nginx->send_request('/running', headers => ['Key: a']) } 1, 2;
ok wait_for(sub { api_key($nginx, 'running', 'a')->{in_flight} == 2 }), '... two requests';
sleep 1;
ok tab_to('Look up'), '... looked up';
$browser->press('Enter');
says(qr/^used\s+2\n.*^in flight here\s+2\noldest of these\s+[1-9][\d.]* s$/ms,
    '... and the age of the older one');
@running = ();
unlike dialog(), qr/Forget/, '... which cannot be forgotten';
ok tab_to('Limit'), '... a limit';
$browser->press('9', 'Enter');
says(qr/^limit\s+9\n.*^own limit\s+yes, without end\n.*The limit is set\./ms, '... set');
ok tab_to('Remove its limit'), '... remove it';
$browser->press('Enter');
says(qr/^own limit\s+no\n.*The limit is removed\./ms, '... done');
$browser->press('Escape');
unlike $browser->run('return document.body.innerText'), qr/window 0|NaN|null|undefined/,
    '... and a card without a window';

ok tab_to('Look up a key', 'Zone short'), 'a short window';
$browser->press('Enter', 'a', 'Enter');
says(qr/^window\s+1,005 ms$/m, '... in milliseconds');


# ---- answers that are late ----

# Has answers take longer from now on.
$browser->run(<<'JS');
    const before = fetch;
    let wait = 0;
    window.fetch = (...args) => before(...args).then(answer =>
        new Promise(done => setTimeout(done, wait, answer)));
    window.delay = ms => wait = ms;
JS

$browser->run('delay(1500)');
$browser->press('b', 'Enter');
is $browser->run('return document.querySelector("dialog .changes").hidden ? 1 : 0'), 1,
    'nothing can be done to a key until it is known';
$browser->press('Escape');
$browser->run('delay(0)');
ok tab_to('Look up a key', 'Zone bans'), 'another zone';
$browser->press('Enter');
sleep 2;
like dialog(), qr/^Zone bans$/m, '... does not show what comes too late';
$browser->press('Escape');


# ---- a ban, of a key that may be a secret ----

sub page() {
    return $browser->run('return document.documentElement.outerHTML');
}

ok wait_for(sub { page() =~ /sk•••/ }), 'a key that may be a secret';
unlike page(), qr/\Q$SECRET/, '... is nowhere in the page';
ok tab_to('sk•••', 'Zone bans'), '... and can be reached';
$browser->press('Enter');
says(qr/^Zone bans, key sk•••\n.*^banned\s+for \d/ms, '... in a dialog, too');
unlike page(), qr/\Q$SECRET/, '... masked';

ok tab_to('Lift the ban'), 'its ban';
$browser->press('Enter');
says(qr/^banned\s+no\n.*The ban is lifted\./ms, '... is lifted');
is api_key($nginx, 'bans', $SECRET)->{ban}, undef, '... really';
ok tab_to('Close'), 'closed';
$browser->press('Enter');

ok tab_to('show keys'), 'keys';
$browser->press(' ');
ok wait_for(sub { page() =~ /\Q$SECRET/ }), '... are shown if asked for';
$browser->press(' ');
ok wait_for(sub { page() !~ /\Q$SECRET/ }), '... and no longer';

traffic(3, $_, 'x') for '/address', '/client';
ok wait_for(sub { (() = page() =~ />127\.0\.0\.1</g) == 4 }), 'addresses are no secrets';


# ---- without write=on ----

ok live('read'), 'a page that may change nothing';
ok tab_to('Look up a key', 'Zone one'), '... shows keys';
$browser->press('Enter', 'a', 'Enter');
says(qr/^used\s+0\n.*Changes need "limit_sliding_api write=on"/ms, '... and says so');
unlike dialog(), qr/Forget|Set limit/, '... and does not offer it';
is_deeply [ grep { !/40[0-9]/ } $browser->log ], [], 'the console is empty';


# ---- pages of other sites ----

my $before = state_of(one());
my $evil = "http://localhost:" . $nginx->port(1);
for my $site ($evil, 'http://127.0.0.1:' . $nginx->port(1)) {
    $browser->visit("$site/");
    $browser->run('document.forms[0].submit()');
    ok wait_for(sub { $browser->run('return document.body.innerText') =~ /another site/ }),
        "$site: a form is refused";

    $browser->visit("$site/");
    my $done = $browser->run(<<'JS', "$url/limits/zones/one/key?key=a");
        const send = (method, more, mode) =>
            fetch(arguments[0] + more, { method, mode }).catch(() => {});
        return Promise.all([send("POST", "&cost=2", "no-cors"), send("POST", "&cost=2"),
            send("PUT", "&rate=1"), send("DELETE", "")]).then(() => "done");
JS
    is $done, 'done', '... and scripts';
}
is state_of(one()), $before, 'nothing was changed';

$browser->quit;
$nginx->finish;
