# The dashboard for users of a keyboard or a screen reader: names, roles, landmarks,
# headings, tables, and focus, by rules of WCAG 2.2. If AXE names a file of axe-core,
# its rules are checked as well.

use v5.36;
use utf8;

use Test::More;

use LimitSliding::Clock real => 'Chromium has timers of its own';

use LimitSliding::Browser;
use LimitSliding::Docs qw(content);
use LimitSliding::Test;

plan skip_all => LimitSliding::Browser::lacking()
    if LimitSliding::Browser::lacking();

my $nginx = LimitSliding::Test->new->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $http_key zone=one:1m rate=2r/d;
    limit_sliding_zone $http_key zone=full:32k rate=1r/d full=deny penalty=10m;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /one { limit_sliding zone=one; empty_gif; }
        location /full { limit_sliding zone=full; empty_gif; }
        location /limits { limit_sliding_api write=on; }
    }
}
CONF

my $browser = LimitSliding::Browser->new;
$browser->visit('http://127.0.0.1:' . $nginx->port . '/limits/dashboard');
ok wait_for(sub { $browser->run('return cards.size') == 2 }), 'the page';

$nginx->statuses(20, '/one', headers => [ 'Key: a' ]);
$nginx->statuses(3, '/full', headers => [ 'Key: b' ]);
$nginx->statuses(1, '/full', headers => [ "Key: $_" ]) for 1 .. 1600;
ok wait_for(sub { $browser->run('return document.querySelectorAll("#alarms li").length') > 1 }),
    'with problems';

# Returns what breaks a rule, by a function's body in the page.
sub broken($script) {
    return [ @{ $browser->run(<<"JS") } ];
        const name = node => (node.ariaLabel || node.closest("label")?.textContent
            || node.textContent).trim();
        const seen = selector => [...document.querySelectorAll(selector)]
            .filter(node => node.checkVisibility());
        const said = node => node.outerHTML.slice(0, 120);
        $script
JS
}

sub rules($name) {
    is_deeply broken('return seen("button, a, input, meter, [role=img], section, [role=region], '
        . '[role=group]").filter(node => !name(node) && !node.getAttribute("aria-label"))'
        . '.map(said)'), [], "$name: all that has a role has a name";
    is_deeply broken('const all = seen("[id]").map(({ id }) => id); '
        . 'return all.filter((id, i) => all.indexOf(id) !== i)'), [], '... every id is unique';
    is_deeply broken(<<'JS'), [], '... no heading skips a level';
        const levels = seen("h1, h2, h3, h4").map(({ tagName }) => Number(tagName[1]));
        return levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1);
JS
    is_deeply broken(<<'JS'), [], '... tables have a caption, and heads with a scope';
        return seen("table").filter(table => !table.caption?.textContent
            || [...table.tHead.rows[0].cells].some(cell => cell.scope !== "col")
            || [...table.tBodies[0].rows].some(row => row.cells[0].tagName === "TH"
                && row.cells[0].scope !== "row")).map(said);
JS
    is_deeply broken('return seen("th:empty").map(said)'), [], '... of which none is empty';
    is_deeply broken(<<'JS'), [], '... all is in a landmark';
        return [...document.body.children].filter(node => node.checkVisibility()
            && !/^(HEADER|MAIN|DIALOG|SCRIPT)$/.test(node.tagName)).map(said);
JS
    is_deeply broken(<<'JS'), [], '... targets are of 24 pixels, or apart';
        return seen("button, input[type=checkbox]").filter(node => {
            const { width, height } = (node.closest("label, .overview tr > *") ?? node)
                .getBoundingClientRect();
            return Math.min(width, height) < 20;
        }).map(said);
JS
    is_deeply broken(<<'JS'), [], '... focus is seen';
        return seen("button, a, input").filter(node => {
            node.focus({ focusVisible: true });
            const { outlineStyle, outlineWidth } = getComputedStyle(node);
            return document.activeElement === node
                && (outlineStyle === "none" || parseFloat(outlineWidth) < 2);
        }).map(said);
JS

    my $axe = $ENV{AXE} // return;
    $browser->run(content($axe) . '; window.axe = axe;');
    for my $scheme (qw(light dark)) {
        $browser->scheme($scheme);
        is_deeply $browser->run('return axe.run().then(({ violations }) => violations.map('
            . '({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" ")))'),
            [], "$name, $scheme: axe";
    }
}

is $browser->run('return document.documentElement.lang'), 'en', 'a language';
like $browser->run('return document.title'), qr/\w/, 'a title';
is $browser->run('return document.querySelectorAll("h1").length'), 1, 'one head of all';
is $browser->run('return document.querySelectorAll("main").length'), 1, 'one main part';
is $browser->run('return document.getElementById("state").getAttribute("role")'), 'status',
    'the state is told when it changes';

rules('tables');
$browser->run('openCard("Zone one"); openCard("Zone full")');
rules('cards');
$browser->run('keyDialog.open("one", "$http_key", "a")');
ok wait_for(sub { $browser->run('return document.querySelector("dialog").innerText')
    =~ /^limit\s+2/m }), 'a key';
rules('dialog');
$browser->press('Escape');
$browser->resize(390, 844);
rules('phone');

# By keyboard alone: sort, and open a card.
$browser->resize(1280, 800);
$browser->run('document.querySelector("thead button").focus()');
$browser->press('Enter');
is $browser->run('return document.querySelector("[aria-sort]").ariaSort'), 'ascending',
    'a table is sorted by Enter';
$browser->run('[...cards.keys()].forEach(toggleCard)');
$browser->run('document.querySelector("tbody button").focus()');
$browser->press('Enter');
is $browser->run('return document.activeElement.ariaExpanded'), 'true', 'Enter opens a card';
$browser->press('Enter');
is $browser->run('return document.activeElement.ariaExpanded'), 'false', '... and closes it';

$browser->quit;
$nginx->finish;
