# The methods of a zone in shared memory, called from Lua.

use v5.36;

use Test::More;

use LimitSliding::Api qw(api api_key);
use LimitSliding::Lua;
use LimitSliding::Test;

my $nginx = lua_nginx();
$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=two:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=plain:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=plan:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=any:1m rate=$arg_rate window=1h;
    limit_sliding_zone $arg_key zone=banned:1m rate=1 window=30d penalty=10m penalty_after=2;
    limit_sliding_zone $arg_key zone=recorded:1m rate=2 window=30d count_rejected;
    limit_sliding_zone $arg_key zone=queue:1m rate=1r/h burst=3 algorithm=leaky_bucket;
    limit_sliding_zone $limit_sliding_client zone=clients:1m rate=2 window=30d;
    limit_sliding_zone $arg_key zone=held:1m inflight=2;
    limit_sliding_zone $arg_key zone=few:32k rate=1 window=30d full=deny;
    map $arg_none $none { default ''; }
HTTP
    location /two { limit_sliding zone=two; empty_gif; }
    location /plan { limit_sliding zone=plan rate=$arg_rate; empty_gif; }
    location /any { limit_sliding zone=any; empty_gif; }
    location /clients { limit_sliding zone=clients; empty_gif; }
    location /limits { limit_sliding_api write=on; allow 127.0.0.1; deny all; }
SERVER

sub lua($chunk) { return $nginx->lua($chunk) }

# Returns what n calls of a method say: told($name, 3, 'take("a")').
sub told($zone, $n, $call) {
    return lua("for _ = 1, $n do say(told(zone('$zone'):$call)) end");
}

# Returns a zone in the JSON of the API.
sub counts($zone) { return api($nginx)->{zones}{$zone} }

# Zones

is lua('say(limits.zone("none"))'), 'nil unknown zone "none"', 'an unknown zone';
is lua('say(limits.zone(nil))'), 'nil the name of a zone must be a string, not nil', 'no name';
is lua('say(zone("two").name, zone("two") == zone("two"))'), 'two true', 'a zone knows its name';

# take, peek

is told(two => 3, 'take("a")'), "admitted 2 1 local\nadmitted 2 0 local\nrejected 2 0 local",
    'take: the limit admits exactly its requests';
is $nginx->get('/two?key=a')->{status}, 429, '... and locations share the key';
is $nginx->statuses(3, '/two?key=b'), '200 200 429', 'requests take units';
is told(two => 1, 'take("b")'), 'rejected 2 0 local', '... and Lua sees them';
is told(two => 3, 'peek("c")'), "admitted 2 2 local\n" x 2 . 'admitted 2 2 local', 'peek takes nothing';
is told(two => 1, 'peek("a")'), 'rejected 2 0 local', '... and says what take would say';
is told(two => 1, 'take("d", { cost = 2 })'), 'admitted 2 0 local', 'a cost';
is told(two => 1, 'take("d", { cost = 0 })'), 'admitted 2 0 local', '... of 0 looks';
is told(two => 1, 'take("e", { cost = 3 })'), 'rejected 2 2 local', '... above the limit';
is lua('say(zone("two"):take("e", { cost = 3 }).retry_after_ms)'), 'inf', '... never fits';
is told(two => 1, 'take(12)') . told(two => 1, 'take("12")'),
    'admitted 2 1 localadmitted 2 0 local', 'a number is a key, by its text';
is told(two => 1, 'take(9007199254740991)') . told(two => 1, 'take(9007199254740990)')
    . told(two => 1, 'take("9007199254740991")'),
    'admitted 2 1 localadmitted 2 1 localadmitted 2 0 local', '... with all digits';
is told(two => 2, 'take("a\0b")'), "admitted 2 1 local\nadmitted 2 0 local", 'a key with a zero byte';
is told(two => 1, 'take("a\0c")'), 'admitted 2 1 local', '... which does not end the key';
is told(two => 3, 'take(("x"):rep(100000))'),
    "admitted 2 1 local\nadmitted 2 0 local\nrejected 2 0 local", 'a long key';
like lua('local v = zone("two"):take("a") say(v.reset_ms, v.retry_after_ms, v.delay_ms)'),
    qr/^[12]\d{9} [12]\d{9} 0$/, 'times are in ms';
is lua(<<'LUA'), 'true true false', 'a verdict is filled again';
    local v, two = limits.verdict(), zone("two")
    local first = two:take("f", nil, v)
    local same = first == v
    two:take("f", nil, v)
    say(same, v.admitted, two:take("f", nil, v).admitted)
LUA

is lua(<<'LUA'), '1 1 0 0', 'a verdict tells of its own decision, whenever it is read';
    local two = zone("two")
    local first, second, third = two:take("late"), two:take("late"), two:take("late")
    two:forget("late")
    say(first.remaining, first.remaining, second.remaining, third.remaining)
LUA
is lua(<<'LUA'), 'true', '... and as of its own time';
    local two = zone("two")
    two:take("late", { cost = 2 })
    local second, third = two:take("late"), two:take("late")
    local soon = second.retry_after_ms
    ngx.sleep(0.05)
    say(third.retry_after_ms == soon and two:take("late").retry_after_ms < soon)
LUA

# Limits of the caller

is told(two => 3, 'take("g", { rate = 1 })'), "admitted 1 0 local\n" . join("\n", ('rejected 1 0 local') x 2),
    'a rate as a number of requests in the window';
is told(two => 1, 'take("g", { rate = "3" })'), 'admitted 3 1 local', '... shares the history';
is told(two => 2, 'take("g", { rate = "1/1m" })'), "admitted 1 0 local\nrejected 1 0 local",
    'another window is another history';
is told(two => 1, 'take("g", { rate = "off" })'), 'admitted inf inf local', 'off';
is told(two => 1, 'take("g", { rate = "0" })'), 'rejected 0 0 local', '0 rejects everything';
is told(any => 1, 'take("a")'), 'nil no limit of the key is known: give "rate"', 'a zone without a rate';
is told(any => 1, 'take("a", { rate = 5 })'), 'admitted 5 4 local', '... needs one';
is $nginx->get('/any?key=v&rate=7')->{status}, 200, 'a variable has a rate';
is told(any => 1, 'take("v")'), 'admitted 7 5 local', '... which is known from then on';

told(plan => 1, 'take("a", { rate = 5 })');
is api_key($nginx, 'plan', 'a')->{limit}, 5, '... or a location has one: the API shows the last rate';

for ([ '"1r/x"', '1r/x' ], [ '1.5', '1.5' ], [ '-1', '-1' ], [ '{}', 'table: .*' ], [ 'true', 'true' ]) {
    like told(two => 1, "take('h', { rate = $_->[0] })"), qr/^nil invalid rate "$_->[1]"$/,
        "the rate $_->[0] is quoted";
}
for ([ '-1', '-1' ], [ '0.5', '0.5' ], [ '"2"', '2' ], [ '0/0', '-?nan' ], [ '2^54', '1.8\d+e\+16' ]) {
    like told(two => 1, "take('h', { cost = $_->[0] })"), qr/^nil invalid cost "$_->[1]"$/,
        "the cost $_->[0] is quoted";
}
is told(two => 1, 'take("h", { costs = 2 })'), 'nil unknown option "costs"', 'an unknown option';
is told(two => 1, 'take("h", 5)'), 'nil the options must be a table, not 5', 'options that are no table';
like lua('local v = zone("two"):peek("h") say(v.admited)'), qr/a verdict has no field "admited"$/,
    'a verdict without such a field';
is told(two => 1, 'take("")'), 'nil empty key', 'an empty key';
is told(two => 1, 'take(nil)'), 'nil the key must be a string, not nil', 'no key';
is lua('say(pcall(zone("two").take, "h", "h"))'), 'false methods of a zone need a colon, as in zone:take()',
    'a dot in place of a colon';
is told(two => 1, 'peek("h")'), 'admitted 2 2 local', 'errors take nothing';

# charge, give_back, forget

is lua('say(zone("two"):charge("i", 1)) say(zone("two"):charge("i", 4))'), "true nil\ntrue nil", 'charge';
is told(two => 1, 'peek("i")'), 'rejected 2 0 local', '... whatever the limit is';
is lua('say(zone("two"):give_back("i", 2))'), 'true nil', 'give_back';
is told(two => 1, 'peek("i")'), 'rejected 2 0 local', '... pays the debt first';
is lua('say(zone("two"):give_back("i", 2))') . told(two => 1, 'peek("i")'),
    'true niladmitted 2 1 local', '... and then the history';
is lua('say(zone("two"):forget("i"))') . told(two => 1, 'peek("i")'), 'true niladmitted 2 2 local', 'forget';
lua('zone("two"):charge("i", 2, { rate = "2/1m" })');
is told(two => 1, 'peek("i", { rate = "2/1m" })') . told(two => 1, 'peek("i")'),
    'rejected 2 0 localadmitted 2 2 local', 'charge in another window';
lua('zone("two"):forget("i", { rate = "2/1m" })');
is told(two => 1, 'peek("i", { rate = "2/1m" })'), 'admitted 2 2 local', '... which can be forgotten';
is lua('say(zone("any"):forget("nobody"))'), 'true nil', 'forget needs no limit';
is lua('say(zone("any"):charge("nobody", 1))'), 'nil no limit of the key is known: give "rate"',
    '... but charge does';
is lua(<<'LUA'), 'true no room for the key true nil', 'charge: a full zone with full=deny has no room for a new key';
    local few = zone("few")
    for n = 1, 5000 do few:take(n) end
    for n = 1, 5000 do
        local done, why = few:charge("new " .. n, 1)
        if not done then
            say(few:charge(1, 5), why, few:charge("new " .. n, 0))
            break
        end
    end
LUA
is lua('say(zone("two"):charge("i", -1))'), 'nil invalid number of units "-1"', 'units are not negative';
is lua('say(zone("two"):charge("i", 1, { cost = 2 }))'), 'nil unknown option "cost"', '... and are no option';
is lua('say(zone("two"):give_back("i"))'), 'nil invalid number of units "nil"', '... and must be given';

# Limits of keys

is $nginx->get('/limits/zones/two/key?key=own&rate=3', method => 'PUT')->{status}, 200, 'a key has its own limit';
is told(two => 1, 'take("own")'), 'admitted 3 2 local', '... which Lua gets';
is told(two => 1, 'take("own", { rate = 9 })'), 'admitted 3 1 local', '... ahead of its own rate';
$nginx->get('/limits/zones/two/key?key=own&rate=off', method => 'PUT');
is told(two => 1, 'take("own")'), 'admitted inf inf local', 'off';
is lua('say(zone("two"):charge("own", 5))'), 'true nil', '... counts nothing';
$nginx->get('/limits/zones/two/key?key=own&rate=0', method => 'PUT');
is told(two => 1, 'take("own")'), 'rejected 0 0 local', '0';
is lua('say(zone("two"):charge("own", 5))'), 'true nil', '... counts nothing, too';
$nginx->get('/limits/zones/two/key?key=own&rate=default', method => 'PUT');
is told(two => 1, 'peek("own")'), 'admitted 2 0 local' =~ s/admitted/rejected/r, 'default: what was taken before';

is told(plain => 1, 'take("own")'), 'admitted 2 1 local', 'a zone without debts';
$nginx->get('/limits/zones/plain/key?key=own&rate=3', method => 'PUT');
is told(plain => 1, 'take("own")'), 'admitted 3 1 local', '... has limits of keys';
$nginx->get('/limits/zones/plain/key?key=own&rate=default', method => 'PUT');
lua('zone("plain"):charge("owes", 5)');
is told(plain => 1, 'take("owes")'), 'rejected 2 0 local', '... and then debts';
is told(plain => 1, 'take("owes", { rate = 9 })'), 'admitted 9 3 local', '... which a larger limit counts as well';

# What a zone does with rejections

is told(banned => 4, 'take("a")'), "admitted 1 0 local\n" . join("\n", ('rejected 1 0 local') x 3), 'rejections';
cmp_ok lua('say(zone("banned"):take("a").retry_after_ms)'), '<=', 600_000, '... lead to a ban';
is lua('say(zone("banned"):forget("a"))') . told(banned => 1, 'take("a")'), 'true nilrejected 1 0 local',
    '... which is not forgotten with the history';
$nginx->get('/limits/zones/banned/key?key=a&rate=0', method => 'PUT');
is lua('say(zone("banned"):take("a").retry_after_ms)'), 'inf', '... and has no end for a blocked key';
$nginx->get('/limits/zones/banned/key?key=a&rate=default', method => 'PUT');
$nginx->get('/limits/zones/banned/key?key=a&what=ban', method => 'DELETE');
is told(banned => 1, 'take("a")'), 'admitted 1 0 local', '... but lifted by the API';
my $first = lua('zone("recorded"):take("a", { cost = 2 }) say(zone("recorded"):peek("a").retry_after_ms)');
is told(recorded => 1, 'take("a")'), 'rejected 2 0 local', 'count_rejected';

is told(queue => 5, 'take("a")'), join("\n", map({ "admitted 1 $_ local" } 3, 2, 1, 0), 'rejected 1 0 local'),
    'leaky_bucket';
is lua('local q = zone("queue") say(q:take("b").delay_ms, q:take("b").delay_ms)') =~ s/ 3[56]\d{5}$/ an hour/r,
    '0 an hour', '... tells a delay';
is told(held => 1, 'take("a")'), 'nil the zone has "inflight=": use hold()', 'requests in flight are held';
is told(held => 1, 'peek("a")'), 'admitted 2 2 local', '... and can be looked at';
for my $call ('charge("a", 1)', 'give_back("a", 1)', 'forget("a")') {
    is lua("say(zone('held'):$call)"), 'nil the zone has "inflight=": use hold()', "... $call";
}

# Keys as variables give them

is $nginx->get('/clients')->{status}, 200, 'a key of $limit_sliding_client';
is told(clients => 2, 'take(ngx.var.limit_sliding_client)'), "admitted 2 0 local\nrejected 2 0 local",
    '... is the value of the variable in Lua';

# Counters

my $before = counts('two');
told(two => 3, 'take("counted")');
told(two => 1, 'peek("counted")');
told(two => 1, 'take("counted", { rate = "off" })');
my $after = counts('two');
is_deeply { map { $_ => $after->{$_} - $before->{$_} } qw(passed rejected delayed unlimited) },
    { passed => 2, rejected => 1, delayed => 0, unlimited => 1 }, 'decisions are counted as those of requests';
$before = counts('queue');
told(queue => 2, 'take("c")');
is counts('queue')->{delayed} - $before->{delayed}, 1, '... delays, too';

$nginx->finish;
