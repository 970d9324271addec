# topology cluster: a master dies under load, and its replica takes over. What
# that did not have yet is admitted once more, and no more than that.

use v5.36;

use Digest::SHA qw(sha1_hex);
use List::Util qw(uniq);
use Test::More;

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
    return $cluster->slot(sha1_hex($key));
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
$nginx[1]->finish;
