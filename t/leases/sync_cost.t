# What a request costs in a zone with sync=, in instructions of user space, beside one of
# the same zone in shared memory.  Redis is away: what is pending adds up.  The interval
# is longer than the measurement, whatever the machine: each attempt to send costs more.

use v5.36;

use LimitSliding::Clock real => 'callgrind counts instructions';

use Test::More;

use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Redis;
use LimitSliding::Test;

my $reason = uncountable(LimitSliding::Test->new);
plan skip_all => $reason if $reason;

my $away = LimitSliding::Test::reserve_port();
my $server = LimitSliding::Callgrind->nginx(http => <<"CONF",
    limit_sliding_redis away { server 127.0.0.1:$away->{port}; }
    limit_sliding_zone \$uri zone=here:10m rate=1000000r/s;
    limit_sliding_zone \$uri zone=sync:10m rate=1000000r/s redis=away sync=60s;
CONF
    locations => [ 'limit_sliding zone=here;', 'limit_sliding zone=sync;' ]);
my ($here, $sync) = map {
    $server->measure(port => $_, keys => 100, requests => 1000, status => 200)
} 0, 1;
$server->stop;

note sprintf 'here: %.0f, sync: %.0f, %.0f more', $here, $sync, $sync - $here;
cmp_ok $sync, '>', $here, 'what is pending costs something';
cmp_ok $sync - $here, '<=', 900, '... and not much';
cmp_ok $sync / $here, '<=', 1.1, '... of what NGINX takes for a request';

done_testing;
