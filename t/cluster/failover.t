# topology cluster: a master dies under load, and its replica takes over. What
# that did not have yet is admitted once more, and no more than that.

use v5.36;

use List::Util qw(uniq);
use Test::More;
use Time::HiRes qw(sleep time);

use LimitSliding::Cluster;
use LimitSliding::Redis;
use LimitSliding::Test;

my $LIMIT       = 1000;
my $CONNECTIONS = 128;

my $cluster = LimitSliding::Cluster->new(
    config => { 'cluster-require-full-coverage' => 'no' })->start;
my $servers = $cluster->servers;

my @nginx = map { LimitSliding::Test->new->start(<<"CONF") } 1 .. 2;
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_log_level off;

    limit_sliding_redis strict {
        topology cluster;
        server $servers;
        timeout 500ms;
        on_error deny;
    }
    limit_sliding_zone \$arg_key zone=strict:1m rate=$LIMIT window=30d
        redis=strict;
    add_header X-Status \$limit_sliding_status always;
    add_header X-Source \$limit_sliding_source always;

    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location /strict { limit_sliding zone=strict; empty_gif; }
    }
}
CONF

# How many pass.
sub passed($key, $requests, %options) {
    my $passed = 0;
    $nginx[0]->load(connections => $CONNECTIONS, %options,
        requests => [ ("/strict?key=$key") x $requests ],
        beside => [ $nginx[1] ], each => sub ($i, $status, $head) {
            $passed++ if $status == 200;
        });
    return $passed;
}

sub slot($key) {
    return $cluster->slot(digest($key));
}

my $start;
is passed('healthy', 4 * $LIMIT), $LIMIT, 'healthy: exact';

my $dying = $cluster->master_of(slot('dying'));
my @others = grep { $cluster->master_of(slot($_)) != $dying }
    map { "other-$_" } 1 .. 20;
my ($beside) = grep { $cluster->master_of(slot($_)) == $dying }
    map { "beside-$_" } 1 .. 50;
$nginx[0]->get("/strict?key=$_") for @others;
my $kill = sub {
    $dying->kill9;
    $start = now;
};
my $passed = passed('dying', 2000, at => { 600 => $kill });
my @sources
    = map { header($_->get("/strict?key=$beside"), 'X-Source') } @nginx;
note "just after: @sources";
is join(' ', uniq map { my $key = $_;
    map { header($_->get("/strict?key=$key"), 'X-Source') } @nginx } @others),
    'redis', 'a master dies: keys of the others do not suffer';
ok wait_for(sub {
    !grep { header($_->get("/strict?key=$beside"), 'X-Source') !~ /redis|cache/ }
        map { @nginx } 1 .. 8;
}), '... and it is replaced';
note sprintf 'after %.2f s', now() - $start;
$passed += passed('dying', 4 * $LIMIT);
my $extra = $passed - $LIMIT;
note "admitted beyond the limit: $extra";
cmp_ok $extra, '<=', $LIMIT, '... beyond the limit at most another';

is passed('again', 4 * $LIMIT), $LIMIT, '... and it is exact again';

$dying->start;
$cluster->wait_agreed;
is passed('back', 4 * $LIMIT), $LIMIT, '... with the dead one back, too';

$nginx[0]->finish_one;
$nginx[1]->finish_one;


# A master hangs: it can be connected to, and nothing answers. The time is that
# of NGINX, from when the replica calls itself a master to when the last request
# came that Redis did not decide.

my %TIMEOUTS = (short => '50ms', mid => '1s', long => '5s');
my $blocks = join "\n", map { <<"BLOCK" } sort keys %TIMEOUTS;
    limit_sliding_redis $_ {
        topology cluster;
        server $servers;
        timeout $TIMEOUTS{$_};
    }
    limit_sliding_zone \$arg_key zone=$_:1m rate=1000000 window=30d redis=$_;
BLOCK
my $places = join "\n", map { <<"PLACE" } sort keys %TIMEOUTS;
        location /$_ { limit_sliding zone=$_; empty_gif; }
PLACE
my $nginx = LimitSliding::Test->new(worker_processes => 4)->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
$blocks
    add_header X-Source  \$limit_sliding_source always;
    add_header X-Time    \$msec                 always;
    add_header X-Seconds \$request_time         always;

    server {
        listen 127.0.0.1:%%PORT%% reuseport;
$places
    }
}
CONF

my $frozen = $cluster->master_of(slot('frozen'));
my ($replica) = grep {
    my $info = $_->info('replication');
    $info->{role} eq 'slave' && $info->{master_port} == $frozen->port;
} $cluster->alive;

# A call that waits keeps others of its key from being sent, so each request has
# a key of its own.
my ($first, $last) = @{ (grep { $_->[2][1] == $frozen->port }
    @{ $frozen->command(qw(CLUSTER SLOTS)) })[0] }[0, 1];
my @keys = grep { my $slot = slot($_); $first <= $slot && $slot <= $last }
    map { "frozen-$_" } 1 .. 1500;
my (@open, %last);
sub send_some() {
    my $key = shift @keys;
    for my $place (keys %TIMEOUTS) {
        push @open, [ $place, $nginx->send_request("/$place?key=$key") ];
    }
    sleep 0.02;
}

# A machine that is busy may take longer than the short timeout.
ok wait_for(sub {
    my @before = @keys;
    send_some() for 1 .. 30;
    @keys = @before;
    !grep { header($nginx->read_response($_->[1]), 'X-Source') ne 'redis' } splice @open;
}), 'before a master hangs: Redis decides';
$frozen->freeze;
wait_for(sub {
    send_some();
    $replica->info('replication')->{role} eq 'master';
}) or die 'no replica takes over';
my $replaced = time;
send_some() while time < $replaced + 4;

for (@open) {
    my ($place, $socket) = @$_;
    my $r = $nginx->read_response($socket);
    next if header($r, 'X-Source') eq 'redis';

    my $began = header($r, 'X-Time') - header($r, 'X-Seconds') - $replaced;
    $last{$place} = $began if $began > ($last{$place} // -60);
}
for my $place (sort keys %TIMEOUTS) {
    note sprintf 'timeout %s: %.2f s', $TIMEOUTS{$place}, $last{$place};
    cmp_ok $last{$place}, '<', 2, "a master hangs with timeout $TIMEOUTS{$place}:"
        . ' soon after its replica took over Redis decides';
}
$frozen->thaw;
$nginx->finish;
