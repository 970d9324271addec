# topology cluster: six real servers, two NGINXs of two workers each. A limit is
# exact, while slots move, too.

use v5.36;

use List::Util qw(shuffle sum0 uniq);
use POSIX ();
use Test::More;

use LimitSliding::Cluster;
use LimitSliding::Exact;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

srand 1;

my $LIMIT       = 1000;
my $REQUESTS    = 5000;
my $CONNECTIONS = 128;
my $WORKERS     = 4;

my $cluster = LimitSliding::Cluster->new->start;
my @nginx = map { LimitSliding::Test->new } 1 .. 2;

$_->common(listen => 'reuseport', http => <<"CONF") for @nginx;
    limit_sliding_log_level off;

    limit_sliding_redis shared {
        topology cluster;
        server ${\ $cluster->servers};
        timeout 5s;
        connect_timeout 5s;
    }

    add_header X-Worker    \$pid                     always;
    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Source    \$limit_sliding_source    always;
CONF

# Starts both with the directives of a section.
sub serve(%directives) {
    $_->serve(%directives) for @nginx;
}

# Sends the requests to both. Returns outcomes, and how many each source
# decided.
sub run($requests, %options) {
    return outcomes(\@nginx, 'X-Source', $requests,
        connections => $CONNECTIONS, %options);
}


# one key

my %zones = zones($LIMIT);
my %places = zone_places(\%zones, "rate=$LIMIT window=30d redis=shared");
my %some = places(zones => { some => 'rate=100 window=30d redis=shared' });
serve(map { ($_ => $places{$_} . $some{$_}) } qw(http server));

for my $name (sort keys %zones) {
    my ($got, $sources) = run([ ("/$name?key=a") x $REQUESTS ]);
    is_deeply $got, { "/$name?key=a" => limited($name, $LIMIT, $REQUESTS) },
        "$name: exactly $LIMIT of $REQUESTS pass";
    ok !$sources->{fallback}, '... by Redis';
    one_call_for_ten([ $cluster->masters ], "/$name?key=few", \&run);
}


# a reload in the middle

{
    my %old = map { $_ => 1 } map { $_->workers } @nginx;
    my ($got, $sources) = run([ ('/counter?key=reload') x $REQUESTS ],
        at => { 300 => sub { $_->hup for @nginx } });
    is $got->{'/counter?key=reload'}{PASSED}, $LIMIT,
        "reloaded in the middle: exactly $LIMIT pass";
    ok !$sources->{fallback}, '... by Redis';
    ok wait_for(sub { !grep { $old{$_} } map { $_->children } @nginx }),
        '... old workers are gone';
}


# keys, and connections to where they are

my ($got) = run([ shuffle map { ("/some?key=k$_") x 3 } 1 .. 300 ]);
is scalar grep({ ($_->{PASSED} // 0) != 3 } values %$got), 0,
    '300 keys at once: all pass';
my @masters = $cluster->masters;
is @masters, 3, 'three masters';
for my $master (@masters) {
    cmp_ok $master->command('DBSIZE'), '>', 50, '... that have keys';
    my $clients = $master->clients;
    cmp_ok $clients, '<=', $WORKERS, '... and one connection a worker';
}
cmp_ok scalar($_->clients), '<=', $WORKERS, '... a replica has no more'
    for grep { my $node = $_; !grep { $_ == $node } @masters } $cluster->alive;


# limits of different keys at one place: what was taken of one before another
# one rejected is given back

my @names = grep { $_ ne 'leaky' } sort keys %zones;

my %all = places(key => 'all', each => 'rate=1000000 window=30d redis=shared',
    zones => { map { ("all-$_" => $zones{$_}) } @names });
my %same = places(key => '$arg_user',
    zones => { same => "rate=$LIMIT window=30d redis=shared" });
my $both = join '', map { <<"LOCATION" } @names;
    location /both-$_ {
        limit_sliding zone=all-$_;
        limit_sliding zone=user;
        limit_sliding zone=same;
        empty_gif;
    }
LOCATION

serve(http => <<"HTTP", server => "$all{server} $same{server} $both");
    limit_sliding_zone \$arg_user zone=user:1m rate=3 window=30d redis=shared;
    $all{http} $same{http}
HTTP

for my $name (@names) {
    my ($got)
        = run([ map { ("/both-$name?user=$name-$_") x 10 } 1 .. 200 ]);
    my $passed = sum0(map { $_->{PASSED} // 0 } values %$got);
    is $passed, 600, "all or nothing, $name: every user gets 3";
    my $used = 0;
    my $reads = 0;
    wait_for(sub {
        my $r = $nginx[0]->get("/all-$name");
        $reads++;
        $used = 1_000_000 - header($r, 'X-Remaining') - $reads;
        $used == 600;
    }, 5);
    # A bucket refills meanwhile, by a unit in 2.6 s.
    cmp_ok abs($used - 600), '<=', $name eq 'tokens' ? 20 : 0,
        "... the other was charged for these ($used)";
    is header($nginx[1]->get("/same?user=$name-1"), 'X-Remaining'),
        $LIMIT - 3 - 1, '... and so was one of the same key';
}
cmp_ok sum0(map { $_->count('zremrangebyrank') } $cluster->alive), '>', 0,
    '... some was given back';


# Slots that move, one of a hot key, and those of many

serve(map { ($_ => $places{$_} . $some{$_}) } qw(http server));

# Runs the code in a process beside this one, and `other` in this one. Returns
# what the code returns, and what `other` does.
sub beside($other, $code) {
    pipe my $read, my $write;
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        $_->reconnect for @{ $cluster->{nodes} };
        my $n = eval { $code->() };
        syswrite $write, defined $n ? $n : "failed: $@";
        POSIX::_exit(0);
    }
    close $write;
    my @result = $other->();
    my $n = do { local $/; readline $read };
    waitpid $pid, 0;
    return ($n, @result);
}

sub slot($key) {
    return $cluster->slot(digest($key));
}

sub maps() {
    return sum0(map { $_->count('cluster|slots') } $cluster->alive);
}

my $hot = slot('hot');
my ($moves, undef);
my @result;
($moves, @result) = beside(sub { run([ map { ('/counter?key=hot',
    '/log?key=hot') } 1 .. $REQUESTS / 2 ]) }, sub {
    my $n = 0;
    for (1 .. 6) {
        my $from = $cluster->master_of($hot);
        my ($to) = grep { $_ != $from } $cluster->masters;
        $cluster->move_slot($hot, $from, $to, sub { sleep 0.05 });
        $n++;
    }
    return $n;
});
is $moves, 6, 'a slot moved';
for my $zone (qw(counter log)) {
    is $result[0]{"/$zone?key=hot"}{PASSED}, $LIMIT,
        "... exactly $LIMIT of its key pass, $zone";
}
ok !$result[1]{fallback}, '... by Redis';

my @keys = map { "moving-$_" } 1 .. 50;
my @slots = uniq map { slot($_) } @keys;
my $maps = maps();
my $start = now;
($moves, @result) = beside(sub {
    run([ shuffle map { ("/some?key=$_") x 150 } @keys ]);
}, sub {
    my $n = 0;
    for my $slot (@slots) {
        my $from = $cluster->master_of($slot);
        my ($to) = shuffle grep { $_ != $from } $cluster->masters;
        $cluster->move_slot($slot, $from, $to);
        $n++;
    }
    return $n;
});
my $seconds = now() - $start;
is $moves, @slots, @slots . ' slots moved';
is scalar grep({ ($_->{PASSED} // 0) != 100 } values %{ $result[0] }), 0,
    '... of each key exactly 100 pass';
ok !$result[1]{fallback}, '... by Redis';
$maps = maps() - $maps - @slots;     # the other process asked, too
cmp_ok $maps, '<=', 2 * $WORKERS * (2 + $seconds),
    '... the map was asked for once a second and worker at most';
note "$maps in $seconds s";

# A key comes when its slot has begun to move, and has a limit of its own.
my $new = slot('new');
$cluster->master_of($new)->command('SET',
    'limit_sliding:some:{' . digest('new') . '}:limit', 7);
my @new;
$cluster->move_slot($new, $cluster->master_of($new),
    (grep { $_ != $cluster->master_of($new) } $cluster->masters)[0],
    sub { push @new, scalar $nginx[0]->get('/some?key=new') });
is join(' ', map { header($_, 'X-Source') } @new), 'redis redis',
    'a new key in a slot that moves';
is header($nginx[1]->get('/some?key=new'), 'X-Remaining'), 7 - 3,
    '... was counted, and has its limit again';


# The API knows keys wherever they are.

serve(%some, server => <<"CONF");
    $some{server}
    location /limits { limit_sliding_api write=on; }
CONF

my $seen = 0;
for my $n (1 .. 12) {
    my $of = "/limits/zones/some/key?key=api-$n";
    $nginx[0]->get("/some?key=api-$n");
    $seen++ if $nginx[0]->get($of)->{body} =~ /"remaining":99\b/
        && $nginx[0]->get("$of&rate=5", method => 'PUT')->{body}
            =~ /"remaining":4\b/
        && $nginx[0]->get($of, method => 'DELETE')->{body}
            =~ /"remaining":5\b/
        && header($nginx[1]->get("/some?key=api-$n"), 'X-Remaining') == 4;
}
is $seen, 12, 'the API shows, limits and forgets keys of all masters';


$nginx[0]->finish_one;
$nginx[1]->finish;
