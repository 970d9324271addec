# What bans cost a request, in instructions of user space.

use v5.36;

use Test::More;

use LimitSliding::Clock real => 'valgrind counts instructions';
use LimitSliding::Callgrind qw(uncountable);
use LimitSliding::Test;

my $reason = uncountable(LimitSliding::Test->new);
plan skip_all => $reason if $reason;

my $server = LimitSliding::Callgrind->nginx(http => <<'HTTP', locations => [
    limit_req_zone $uri zone=limit_req:10m rate=1r/m;
    limit_req_status 429;
    limit_req_log_level info;
    limit_sliding_log_level off;
    limit_sliding_zone $uri zone=plain:10m rate=1 window=30d;
    limit_sliding_zone $uri zone=bans:10m rate=1 window=30d penalty=1d;
    limit_sliding_zone $uri zone=wide:10m rate=1000000r/s;
    limit_sliding_zone $uri zone=guarded:10m rate=1000000r/s penalty=1d;
HTTP
    'return 429;',
    'limit_req zone=limit_req;',
    'limit_sliding zone=plain;',
    'limit_sliding zone=bans;',
    'limit_sliding zone=bans; limit_sliding_headers off;',
    'limit_sliding zone=wide;',
    'limit_sliding zone=guarded;',
]);

sub measured($port, $keys, $status) {
    return $server->measure(port => $port, keys => $keys, requests => 2 * $keys + 500,
        status => $status, uses => 3);
}

for my $keys (1, 5000) {
    my ($none, $limit_req, $plain, $banned, $silent) = map {
        # the second time each key is banned
        measured($_, $keys, 429) if $keys > 1;
        measured($_, $keys, 429)
    } 0 .. 4;
    $_ -= $none for $limit_req, $plain, $banned, $silent;

    note sprintf '%d keys: limit_req adds %.0f, a rejection %.0f, a ban %.0f, without header %.0f',
        $keys, $limit_req, $plain, $banned, $silent;
    cmp_ok $banned, '<', $plain, "$keys keys: a ban costs less than a rejection";
    cmp_ok $silent, '<=', 0.9 * $limit_req,
        "$keys keys: without Retry-After, which limit_req lacks, 0.9 of what limit_req adds";
}

my ($wide, $guarded) = map { measured($_, 1, 200) } 5, 6;
note sprintf 'a request that passes: %.0f more', $guarded - $wide;
cmp_ok $guarded - $wide, '<=', 75, 'a request that passes: at most 75 instructions more';
$server->stop;

done_testing;
