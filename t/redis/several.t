# Limits of two Redis blocks at one place, a server and a cluster: all or nothing,
# each with the breaker, the timeout and the policy of its own. Two NGINXs of two
# workers each.

use v5.36;

use List::Util qw(first sum0);
use Test::More;
use Time::HiRes qw(sleep);

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Exact;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

srand 1;

my $MANY        = 1_000_000;
my $LIMIT       = 300;
my $CONNECTIONS = 64;

my $redis = LimitSliding::Redis->new->start;
my $cluster = LimitSliding::Cluster->new(replicas => 0,
    config => { 'cluster-require-full-coverage' => 'no' })->start;
my @nginx = map { LimitSliding::Test->new } 1 .. 2;

# Returns the blocks, `one` and `many`, with these settings each.
sub blocks($one = '', $many = '') {
    return <<"CONF";
    limit_sliding_redis one { server ${\ $redis->server}; $one }
    limit_sliding_redis many { topology cluster; server ${\ $cluster->servers}; $many }
CONF
}

my $PATIENT = 'timeout 5s; connect_timeout 5s;';

$_->common(listen => 'reuseport', http => <<'CONF') for @nginx;
    limit_sliding_log_level off;
    limit_sliding_headers retry_after draft;

    add_header X-Worker    $pid                     always;
    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Source    $limit_sliding_source    always;
    add_header X-Seconds   $request_time            always;
CONF

# Starts both with the directives of a section.
sub serve(%directives) {
    $_->serve(%directives, server => "$directives{server}\nlocation /limits { limit_sliding_api; }")
        for @nginx;
}

# Sends the requests to both. Returns outcomes, and how many each source decided.
sub run($requests, %options) {
    return outcomes(\@nginx, 'X-Source', $requests, connections => $CONNECTIONS, %options);
}

sub used($zone, $key, $nginx = $nginx[0]) {
    my $used;
    wait_for(sub { defined($used = api_key($nginx, $zone, $key)->{used}) });
    return $used;
}

# Asserts that so much is used, soon.
sub uses($zone, $key, $used, $name) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    wait_for(sub { used($zone, $key) == $used }, 10);
    is used($zone, $key), $used, $name;
}

# Returns a location with limits of these zones, each with more parameters.
sub place($path, @limits) {
    return "location $path { " . join('', map { "limit_sliding zone=$_; " } @limits)
        . "empty_gif; }\n";
}


# What a request took of one before the other rejected it is given back, by each
# algorithm, whichever of them rejects.

my %zones = zones($LIMIT);
my @names = grep { $_ ne 'leaky' } sort keys %zones;
my %in = (one => 'many', many => 'one');      # block => the other
my ($http, $server) = ('', '');

for my $block (sort keys %in) {
    $http .= "limit_sliding_zone \$arg_user zone=user-$block:1m rate=3 window=30d redis=$block;\n";
    for my $name (@names) {
        $http .= "limit_sliding_zone \$arg_all zone=$block-$name:1m $zones{$name} rate=$MANY"
            . " window=30d redis=$block;\n";
        $server .= place("/$block-$name", "$block-$name", "user-$in{$block}");
    }
}
serve(http => blocks($PATIENT, $PATIENT) . $http, server => $server);

for my $block (sort keys %in) {
    for my $name (@names) {
        my $all = "$block-$name";
        my ($got, $sources)
            = run([ map { ("/$all?all=x&user=$name-$_") x 10 } 1 .. 100 ]);
        is sum0(map { $_->{PASSED} // 0 } values %$got), 300,
            "$name in $block: every user gets 3";
        ok !$sources->{fallback}, '... by Redis';

        # A bucket refills meanwhile, by a unit in 2.6 s.
        my $used = 0;
        wait_for(sub { ($used = used($all, 'x')) == 300 }, 5);
        cmp_ok abs($used - 300), '<=', $name eq 'tokens' ? 20 : 0,
            "... the other was charged for these ($used)";
    }
}
cmp_ok $redis->count('zremrangebyrank'), '>', 0, '... some was given back by the server';
cmp_ok sum0(map { $_->count('zremrangebyrank') } $cluster->alive), '>', 0, '... and the cluster';


# Two limits that one key uses up. Two requests may each get the last unit of one of
# them, and give it back: whoever asks on gets it.

my %same = places(zones => { map { $_ => "rate=$LIMIT window=30d redis=$_" } sort keys %in });
serve(http => blocks($PATIENT, $PATIENT) . $same{http} . <<"HTTP",
    limit_sliding_zone \$arg_key zone=here:1m rate=1000 window=30d;
    limit_sliding_zone \$arg_key zone=tight:1m rate=${\($LIMIT - 1)} window=30d redis=one;
    limit_sliding_zone \$arg_key zone=wide:1m rate=400 window=30d redis=one;
    limit_sliding_zone \$arg_other zone=other:1m rate=500 window=30d redis=many;
HTTP
    server => $same{server} . place('/both', qw(many here one))
        . place('/reverse', qw(one many))
        . place('/four', qw(other wide one many)) . place('/tell', qw(many tight other)));

# Asks on until so many have passed, or nobody passes any more.
sub ask_on($path, $passed, $limit) {
    for (1 .. 5) {
        last if $passed >= $limit;
        sleep 1.1;      # as long as a node knows that a key is exhausted
        my ($got) = run([ ($path) x 20 ], connections => 1);
        $passed += $got->{$path}{PASSED} // 0;
    }
    return $passed;
}

for my $place (qw(both reverse four)) {
    my $path = "/$place?key=$place&other=$place";
    my $calls = $redis->calls + $cluster->calls;
    my ($got, $sources) = run([ ($path) x 10_000 ]);
    my $passed = $got->{$path}{PASSED};
    $calls = $redis->calls + $cluster->calls - $calls;
    ok !$sources->{fallback}, "$place: by Redis";
    cmp_ok $passed, '<=', $LIMIT, '... no more than the limit pass';
    cmp_ok $passed, '>=', $LIMIT - $CONNECTIONS, '... and hardly less';
    cmp_ok $calls, '<=', 2000, '... with a call for ten requests, of each Redis';
    is ask_on($path, $passed, $LIMIT), $LIMIT, '... exactly the limit, once they are given back';
    uses($_, $place, $LIMIT, "... as $_ knows") for qw(one many);
    note "passed: $passed, calls: $calls";
}
uses('wide', 'four', $LIMIT, '... and the wider ones');
uses('other', 'four', $LIMIT, '... of both blocks');
is sum0(map { used('here', 'both', $_) } @nginx), $LIMIT,
    'shared memory gives back what both reject';


# What headers and variables tell

my $r = $nginx[0]->get('/tell?key=tell&other=tell');
is header($r, 'X-Zone') . ' ' . header($r, 'X-Remaining') . ' ' . header($r, 'X-Source'),
    'tight ' . ($LIMIT - 2) . ' redis', 'the tightest limit is described';
$r = $nginx[0]->get('/tell?key=more&other=four');
is header($r, 'X-Zone') . ' ' . header($r, 'X-Remaining'), 'other 199',
    '... of whichever block';
run([ ('/one?key=shut') x (2 * $LIMIT) ]);
$r = $nginx[1]->get('/four?key=shut&other=open');
is $r->{status} . ' ' . header($r, 'X-Zone') . ' ' . header($r, 'X-Remaining'), '429 one 0',
    'the one that rejects is described';
cmp_ok header($r, 'Retry-After'), '>', 1, '... with a time to try again';
is used('many', 'shut') + used('wide', 'shut') + used('other', 'open'), 0,
    '... and nothing is taken of the others';


# Stages, dry runs, and what is settled

serve(http => blocks($PATIENT, $PATIENT) . <<"HTTP",
    limit_sliding_zone \$arg_key zone=one:1m rate=5 window=30d redis=one;
    limit_sliding_zone \$arg_key zone=many:1m rate=3 window=30d redis=many;
    limit_sliding_zone \$arg_key zone=log:1m rate=5 window=30d algorithm=log redis=one;
    auth_basic_user_file %%DIR%%/htpasswd;
HTTP
    server => place('/watched', 'one', 'many dry_run')
        . place('/both-watched', 'one dry_run', 'many dry_run')
        . place('/settled', 'log cost=$arg_cost settle=$arg_real',
            'many cost=0 settle=$arg_real') . <<'SERVER');
    location /auth {
        auth_basic realm;
        limit_sliding zone=one after_auth;
        limit_sliding zone=many after_auth;
        empty_gif;
    }
    location /counted {
        limit_sliding zone=one count_status=404;
        limit_sliding zone=many count_status=404;
    }
SERVER
$_->write_file('htpasswd', "ann:{PLAIN}secret\n") for @nginx;

my $five = join ' ', (200) x 5, 429;
my $three = join ' ', (200) x 3, 429, 429;
is $nginx[0]->statuses(6, '/watched?key=a'), $five, 'dry_run: the other is enforced';
is used('one', 'a') . ' ' . used('many', 'a'), '5 3', '... each is counted';
is $nginx[0]->statuses(5, '/both-watched?key=b'), join(' ', (200) x 5), '... both in dry run';
uses('one', 'b', 3, '... would be all or nothing');

my @ann = (headers => [ 'Authorization: Basic YW5uOnNlY3JldA==' ]);
is join(' ', map { $nginx[0]->get('/auth?key=c', @ann)->{status} } 1 .. 5), $three, 'after_auth';
is used('one', 'c') . ' ' . used('many', 'c'), '3 3', '... all or nothing';
is $nginx[0]->get('/auth?key=d')->{status}, 401, '... nothing before';
is used('one', 'd') . ' ' . used('many', 'd'), '0 0', '... is counted';

my @counted;
for (1 .. 5) {
    push @counted, $nginx[0]->get('/counted?key=e')->{status};
    my $n = $_ < 3 ? $_ : 3;
    wait_for(sub { used('many', 'e') == $n && used('one', 'e') == $n });
}
is "@counted", '404 404 404 429 429', 'count_status';
is used('one', 'e') . ' ' . used('many', 'e'), '3 3', '... counted in both on the way out';

is $nginx[0]->get('/settled?key=f&cost=2&real=1')->{status}, 200, 'settle';
uses('log', 'f', 1, '... gives back to one');
uses('many', 'f', 1, '... and charges the other');
is $nginx[0]->get('/settled?key=f&cost=4&real=2')->{status}, 200, '... again';
uses('many', 'f', 3, '... now it is used up');
is $nginx[0]->get('/settled?key=f&cost=1&real=1')->{status}, 429, '... and rejects';
uses('log', 'f', 3, '... what was reserved of the first is given back, too');


# Leases of one block, while the other is asked about each request

serve(http => blocks($PATIENT, $PATIENT) . <<"HTTP",
    limit_sliding_zone \$arg_key zone=leased:1m rate=3000 window=30d algorithm=fixed
        redis=one lease=50;
    limit_sliding_zone \$arg_key zone=asked:1m rate=2000 window=30d redis=many;
    limit_sliding_zone \$arg_key zone=spent:1m rate=3000 window=30d redis=many lease=50;
HTTP
    server => place('/half', qw(leased asked)) . place('/leases', qw(leased spent))
        . place('/leased', 'leased'));

my $calls = $redis->calls;
my ($got, $sources) = run([ ('/half?key=a') x 1000 ], connections => 1);
$calls = $redis->calls - $calls;
is $got->{'/half?key=a'}{PASSED}, 1000, 'leases: all pass';
cmp_ok $calls, '<=', 100, '... with a call of that Redis for ten';
uses('asked', 'a', 1000, '... and the other one counts each');
cmp_ok used('leased', 'a'), '<=', 1000 + 2 * 50, '... which are charged, and what is leased';
($got) = run([ ('/half?key=a') x 2000 ]);
$got = ask_on('/half?key=a', 1000 + $got->{'/half?key=a'}{PASSED}, 2000);
is $got, 2000, '... to the limit of the other';
uses('asked', 'a', 2000, '... which is used up');
my ($left) = run([ ('/leased?key=a') x 2000 ]);
cmp_ok $left->{'/leased?key=a'}{PASSED}, '<=', 1000, '... and rejections cost the lease nothing';
cmp_ok $left->{'/leased?key=a'}{PASSED}, '>=', 1000 - 4 * 50, '... but what is left of it';

($got, $sources) = run([ ('/leases?key=b') x 2000 ], connections => 8);
is $got->{'/leases?key=b'}{PASSED}, 2000, 'leases of both: all pass';
cmp_ok $sources->{lease} // 0, '>=', 1800, '... most without asking';


# A Redis that goes away: the other goes on. A quota fails open, a login closed.

sub start_policies($one, $many) {
    serve(http => blocks("on_error allow; $one", "on_error allow; $many") . <<"HTTP",
    limit_sliding_zone \$arg_key zone=quota:1m rate=$MANY window=30d redis=one on_error=allow;
    limit_sliding_zone \$arg_key zone=login:1m rate=$MANY window=30d redis=one on_error=deny;
    limit_sliding_zone \$arg_key zone=here:1m rate=50 window=30d redis=one on_error=local;
    limit_sliding_zone \$arg_key zone=limit:1m rate=$LIMIT window=30d redis=many on_error=local;
    limit_sliding_zone \$arg_key zone=total:1m rate=$MANY window=30d redis=many;
    limit_sliding_zone \$arg_key zone=memory:1m rate=$MANY window=30d;
HTTP
        server => join('', map { place("/$_", $_, 'memory', 'total') } qw(quota login here))
            . place('/quota-limit', qw(quota limit)) . place('/quota-login', qw(total quota login))
            . place('/total', 'total') . place('/limit', 'limit'));
}

# Sends requests while the server is broken in their middle. Returns how many passed.
sub break($path, $break) {
    my ($got) = run([ ($path) x 4000 ], at => { 1500 => $break });
    return $got->{$path}{PASSED};
}

for ([ killed => sub { $redis->kill9 }, sub { $redis->start } ],
    [ frozen => sub { $redis->freeze }, sub { $redis->thaw }])
{
    my ($how, $break, $heal) = @$_;
    for my $place (qw(quota login here quota-limit)) {
        start_policies('timeout 300ms; connect_timeout 300ms;', $PATIENT);
        my $key = "$how-$place";
        my $passed = break("/$place?key=$key", $break);
        my $of = $place eq 'quota-limit' ? 'limit' : 'total';
        uses($of, $key, $passed, "$how, $place: the cluster has counted those that passed");
        if ($place eq 'quota') {
            is $passed, 4000, '... which are all';
        } elsif ($place eq 'login') {
            cmp_ok $passed, '>=', 1000, '... which are those before';
            cmp_ok $passed, '<', 4000, '... and not those after that';
            my $r = $nginx[0]->get("/login?key=$key");
            is $r->{status} . ' ' . header($r, 'X-Zone') . ' ' . header($r, 'X-Source'),
                '429 login fallback', '... by its policy';
        } elsif ($place eq 'here') {
            cmp_ok $passed, '>=', 50, '... which are those of the limit';
            cmp_ok $passed, '<=', 3 * 50, '... and of the limit of each node';
        } else {
            is $passed, $LIMIT, '... exactly as many as it allows';
        }
        is sum0(map { used('memory', $key, $_) } @nginx), $passed,
            '... as has the memory of the nodes' if $place ne 'quota-limit';
        if ($place ne 'quota-limit') {
            my $total = used('total', $key);
            is $nginx[1]->get("/quota-login?key=$key")->{status}, 429,
                '... and an open quota beside a closed login';
            is used('total', $key), $total, '... takes nothing of the cluster';
        }
        $heal->();
    }
}


# The same of two slots of a cluster, where a master goes away

my ($away) = $cluster->masters;

# Returns a key that is in the slots of this master, or not.
sub key_of($is_away, $name) {
    return first {
        ($cluster->master_of($cluster->slot(digest($_))) == $away) == $is_away
    } map { "$name$_" } 1 .. 99;
}

serve(http => blocks('', 'timeout 300ms; connect_timeout 300ms;') . <<'HTTP',
    limit_sliding_zone $arg_key zone=kept:1m rate=3 window=30d redis=many;
    limit_sliding_zone $arg_lost zone=open:1m rate=1 window=30d redis=many on_error=allow;
    limit_sliding_zone $arg_lost zone=closed:1m rate=10 window=30d redis=many on_error=deny;
    limit_sliding_zone $arg_lost zone=local:1m rate=2 window=30d redis=many on_error=local;
HTTP
    server => join('', place('/kept', 'kept'),
        map { place("/$_", $_, 'kept') } qw(open closed local)));
my %lost = map { $_ => key_of(1, $_) } qw(open closed local both);
my %kept = map { $_ => key_of(0, $_) } qw(open closed local both);
is $nginx[0]->statuses(2, "/open?key=$kept{both}&lost=$lost{both}"), '200 429',
    'two slots: all or nothing';
uses('kept', $kept{both}, 1, '... one passed');
$away->freeze;
my %passes = (open => 3, closed => 0, local => 2);
for my $place (sort keys %passes) {
    my $path = "/$place?key=$kept{$place}&lost=$lost{$place}";
    is $nginx[0]->statuses(5, $path),
        join(' ', (200) x $passes{$place}, (429) x (5 - $passes{$place})),
        "a master stands still, $place: the zone's policy, and what the other master says";
    uses('kept', $kept{$place}, $passes{$place}, '... which has counted those that passed');
}
$away->thaw;


# The longest of the timeouts is the longest wait.

my @TIMES = ('timeout 900ms; connect_timeout 900ms;', 'timeout 600ms; connect_timeout 600ms;');

# Starts both anew, whose workers are connected.
sub start_connected(@times) {
    start_policies(@times);
    $_->get('/quota?key=warm') for (@nginx) x 8;
}

start_connected(@TIMES);
$_->freeze for $redis, $cluster->alive;
$r = $nginx[0]->get('/quota?key=wait');
is $r->{status}, 200, 'both stand still: both policies allow';
my $seconds = header($r, 'X-Seconds');
cmp_ok $seconds, '>=', 0.89, '... after the longer of both timeouts';
cmp_ok $seconds, '<', 1.5, '... not after their sum';
$_->thaw for $redis, $cluster->alive;


# What one has answered holds while the other is away.

start_connected(@TIMES);
$nginx[1]->load(connections => 8, requests => [ ('/limit?key=shut') x (2 * $LIMIT) ]);
my $passed = api($nginx[0])->{zones}{quota}{passed};
$redis->freeze;
is $nginx[0]->get('/quota-limit?key=shut')->{status}, 429, 'one stands still, the other rejects';
is api($nginx[0])->{zones}{quota}{passed}, $passed, '... and there is nothing to decide';
is $nginx[0]->get('/quota-limit?key=kept')->{status}, 200, '... or admits';
$_->freeze for $cluster->alive;
$r = $nginx[0]->get('/quota-limit?key=kept');
is header($r, 'X-Zone') . ' ' . header($r, 'X-Remaining') . ' ' . header($r, 'X-Source'),
    'limit ' . ($LIMIT - 2) . ' fallback', '... which is known when it is away, too';
$_->thaw for $redis, $cluster->alive;


# A client that goes away while one block has answered

ok wait_for(sub {
    2 == grep { header($_->get('/total?key=gone'), 'X-Source') eq 'redis' } @nginx
}), 'Redis answers again';
start_connected('timeout 1s; connect_timeout 1s;', $PATIENT);
$redis->freeze;
close $nginx[0]->send_request('/quota-limit?key=left') for 1 .. 4;
uses('limit', 'left', 4, 'requests that are gone are counted');
$redis->thaw;
is $nginx[0]->get('/quota-limit?key=left')->{status}, 200, '... others go on';

$nginx[0]->finish_one;
$nginx[1]->finish;
