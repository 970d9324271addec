# The API's list of own limits in a cluster: of all masters, while slots move,
# and when a master is lost or replaced. The same by sentinels.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test;

$ENV{MALLOC_PERTURB_} = 165;      # what is freed is not there any more

my $N = 3000;

# Starts an NGINX whose worker knows these servers by name only.
sub start($servers, $block = 'topology cluster;') {
    my $nginx = LimitSliding::Test->new(worker_processes => 1);
    $nginx->serve(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_redis shared {
        server $servers;
        timeout 2s;
        connect_timeout 2s;
        key_format plain;
        $block
    }
    limit_sliding_zone \$arg_key zone=one:1m rate=5r/d redis=shared;
HTTP
    location /limits { limit_sliding_api; }
SERVER
    return $nginx;
}

sub name($key) {
    return "limit_sliding:one:{$key}:limit";
}

# Returns the keys that are listed, each once, and how many were told.
sub listed($nginx, $n) {
    my ($limits) = all_limits($nginx, 'one', $n);
    my %keys = map { (ref ? "$_->{key}=$_->{rate}" : $_ => 1) } @$limits;
    return (join(' ', sort keys %keys), scalar @$limits);
}


my $cluster = LimitSliding::Cluster->new(masters => 3, replicas => 1)->start;
my @masters = $cluster->masters;
my $nginx = start($masters[1]->server);

my %node;                 # key => its master, which takes it
for my $master (@masters) {
    my @replies = $master->commands(map { [ 'SET', name($_), "$_/1h" ] } 1 .. $N);
    $replies[ $_ - 1 ] eq 'OK' and $node{$_} = $master for 1 .. $N;
}
my $all = join ' ', sort map { "$_=$_/1h" } 1 .. $N;

my ($keys, $told) = listed($nginx, 1000);
is $keys, $all, 'the first request of a worker: the limits of all masters';
cmp_ok $told, '<=', 1.05 * $N, '... hardly one of them twice';
is((listed($nginx, 70))[0], $all, '... also in small pages');


# slots that move

my ($from, $to) = @masters;
my ($key) = grep { $node{$_} == $from } 1 .. $N;
$cluster->move_slot($cluster->slot(name($key)), $from, $to, sub ($state) {
    is((listed($nginx, 1000))[0], $all, "a slot moves, its keys are $state");
});
is((listed($nginx, 1000))[0], $all, 'a slot has moved');


# a master that is replaced, of which the worker does not know yet

my ($replica) = grep {
    my $info = $_->info('replication');
    $info->{role} eq 'slave' && $info->{master_port} == $from->port
} $cluster->alive;
my $page = limits_page($nginx, 'one', 'n=1');
my @places;
while ($page->{next}) {
    push @places, $page->{next};
    $page = limits_page($nginx, 'one', "n=1000&after=$places[-1]");
}

$replica->command(qw(CLUSTER FAILOVER));
ok wait_for(sub { $from->info('replication')->{role} eq 'slave' }),
    'a replica takes over';
$cluster->wait_agreed;
my ($listed) = listed($nginx, 1000);
like $listed, qr/redis does not answer/,
    '... of what the old one says, no list is made';
ok wait_for(sub { ($listed) = listed($nginx, 1000); $listed eq $all }),
    '... soon there is a list of all';
my %places = map { ($_->{http} => 1) }
    map { limits_page($nginx, 'one', "after=$_") } @places;
is join(' ', sort keys %places), '200 409',
    '... and pages cannot go on at the old master';


# a master that dies

my $second = (grep { $_ != $replica && $_ != $from } $cluster->masters)[0];
$second->kill9;
like((listed($nginx, 1000))[0], qr/redis does not answer/, 'a master dies');
ok wait_for(sub { (listed($nginx, 1000))[0] eq $all }, 30, 0.25),
    '... its replica has its limits';


# a master that is lost

$_->stop for $replica, $from;
like((listed($nginx, 1000))[0], qr/redis does not answer/,
    'a master is lost: an error, rather than a part of the list');
$nginx->finish_one;


# a cluster that knows of no slots for now

my $bare = LimitSliding::Redis->new(config => { 'cluster-enabled' => 'yes' })->start;
$nginx = start($bare->server);
is((listed($nginx, 10))[0], 'redis does not answer', 'no slots: there is no list')
    for 1 .. 3;
$bare->command(qw(CLUSTER ADDSLOTSRANGE 0 16383));
ok wait_for(sub { (listed($nginx, 10))[0] eq '' }), '... until there are some';
$nginx->finish_one;


# sentinels

my $redis = LimitSliding::Redis->new->start;
my $sentinel = $redis->sentinel;
$nginx = start($sentinel->server,
    'topology sentinel; sentinel_master mymaster;');
$redis->command('SET', name($_), "$_/1h") for 1 .. 30;
is((listed($nginx, 10))[0], join(' ', sort map { "$_=$_/1h" } 1 .. 30),
    'by a sentinel: the limits of the master');
is $redis->count('scan') > 0, 1, '... by SCAN';
$nginx->finish;
