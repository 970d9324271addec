# What docs/redis.md says a user for NGINX needs is enough, and no less is.

use v5.36;

use Test::More;

use LimitSliding::Access;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my @ALGORITHMS = qw(counter log fixed token_bucket leaky_bucket);

my @rules = rights('on');
my @commands = grep { /^\+/ } @rules;
cmp_ok @commands, '>', 5, "the documentation says: @commands";

my $redis = LimitSliding::Redis->new->start;
$redis->command(qw(ACL SETUSER limiter), @rules);

$redis->command('SELECT', 1);

my $nginx = LimitSliding::Test->new;
$nginx->common(http => as_user($redis, 'shared', 'limiter') . <<'CONF');
    limit_sliding_log_level off;
    add_header X-Source $limit_sliding_source always;
CONF
$nginx->serve(places(each => 'rate=2 window=30d redis=shared',
    zones => { map { ($_ => "algorithm=$_") } @ALGORITHMS }));

# Returns the name of a key's log in Redis.
sub log_of($key) {
    return 'limit_sliding:log:{' . digest($key) . '}:l2592000s';
}

# Returns what decides requests of a key. The first one sends the script's text,
# the others its digest. The first one writes a state, the others change it. The
# second one finds an event of 1970 in a log, and so removes it.
sub decided($algorithm, $key) {
    my %sources;
    for (0 .. 2) {
        $sources{ header($nginx->get("/$algorithm?key=$key"), 'X-Source') } = 1;
        $redis->ask('ZADD', log_of($key), 1, "\xff" x 6)
            if $algorithm eq 'log' && !$_;
    }
    return join ' ', sort keys %sources;
}

my %DECIDED = (redis => 1, 'cache redis' => 1);
for my $algorithm (@ALGORITHMS) {
    ok $DECIDED{ decided($algorithm, 'enough') }, "$algorithm: enough";

    # a window of its own has another state
    $redis->command('SET', "limit_sliding:$algorithm:{" . digest('own')
        . '}:limit', '2/20d');
    ok $DECIDED{ decided($algorithm, 'own') }, '... for a window of its own';
}

# One that is missing shows in some algorithm.
my $n = 0;
for my $command (@commands) {
    $redis->command('SCRIPT', 'FLUSH');
    $redis->kill_clients;
    $redis->command(qw(ACL SETUSER limiter), $command =~ s/\+/-/r);

    # a key of another type is deleted
    $n++;
    $redis->command('SADD', log_of("less$n"), 'x');

    my $algorithm = $command =~ /^\+(z|pexpire|del)/ ? 'log' : 'counter';
    ok !$DECIDED{ decided($algorithm, "less$n") }, "$command is needed";

    $redis->command(qw(ACL SETUSER limiter), $command);
    wait_for(sub { $DECIDED{ decided('counter', 'again' . ++$n) } });
}



# bans

my @more = rights('+zscore');
$redis->command(qw(ACL SETUSER limiter), (map { s/\+/-/r }
    grep { /^\+(?:z|pexpire|del)/ } @commands), @more);

my @nodes = ($nginx, LimitSliding::Test->new);
$nodes[1]->common(%{ $nginx->{common} });
for my $node (@nodes) {
    $node->serve(places(zones => { bans => 'penalty=1h' },
        limit => 'cost=$arg_cost', each => 'rate=2 window=30d redis=shared'));
}

# Returns whether a ban of a key is told to the other node within so many seconds.
sub spreads($key, $seconds) {
    $nodes[0]->get("/bans?key=$key&cost=3");
    return wait_for(sub {
        $nodes[1]->get("/bans?key=$key&cost=0")->{status} == 429;
    }, $seconds);
}

ok spreads('enough', 5), "bans: enough: @more";

my $refused = qr/redis "shared": bans of zone "bans": .*(?:NOPERM|can't run)/;

# What is over is to be removed, which needs a right.
$redis->command('ZADD', 'limit_sliding:bans:{bans}:ends', 1, 'over');
for my $command (@more) {
    $redis->command(qw(ACL SETUSER limiter), $command =~ s/\+/-/r);
    $redis->command('SCRIPT', 'FLUSH');
    sleep 1.1;             # until the log has another line
    $_->new_log_lines($refused) for @nodes;
    my $key = 'bans' . ++$n;
    spreads($key, 0.5);
    ok wait_for(sub { grep { $_->new_log_lines($refused) } @nodes }, 5),
        "$command is needed, as the log says";
    $redis->command(qw(ACL SETUSER limiter), $command);
    ok spreads("$key-again", 5), '... with it, the next one spreads';
    $redis->command('ZADD', 'limit_sliding:bans:{bans}:ends', 1, 'over');
}
$nodes[1]->finish_one;
$nginx->finish;
