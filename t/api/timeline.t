# The last ten minutes in the API: requests of the present period, over all workers
# and a reload, and the keys by their used share of the limit.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Api qw(api);
use LimitSliding::Redis;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;
my $REDIS = LimitSliding::Redis::supported();

my ($redis, $far) = $REDIS ? (<<'HTTP', <<'SERVER') : ('', '');
    limit_sliding_redis dead { server 127.0.0.1:1; }
    limit_sliding_zone $arg_key zone=far:1m rate=1000r/d redis=dead;
HTTP
    location /far { limit_sliding zone=far; empty_gif; }
SERVER

$nginx->common(listen => 'reuseport', http => <<"HTTP", server => <<"SERVER");
    limit_sliding_log_level off;
    $redis
HTTP
    location /limits { limit_sliding_api; }
    $far
SERVER

sub conf($rate) {
    return $nginx->template(http => <<"HTTP", server => <<'SERVER');
    limit_sliding_zone \$arg_key zone=one:64k rate=$rate;
    limit_sliding_zone \$arg_key zone=varies:32k rate=\$arg_rate window=1m;
HTTP
    location /one { limit_sliding zone=one; empty_gif; }
SERVER
}

# Returns the sum of a counter of a zone or a Redis over all periods.
sub timeline($of, $name) {
    return sum0 @{ $of->{timeline}{$name} // [] };
}

$nginx->start(conf('10r/d'));
my $one = api($nginx)->{zones}{one};
is_deeply [ sort keys %{ $one->{timeline} } ], [ qw(age_ms period_ms periods) ],
    'counters that have not risen are left out';
is $one->{timeline}{period_ms}, 10_000, 'a period';
cmp_ok $one->{timeline}{age_ms}, '<', 10_500, '... and how long the present one lasts';

$nginx->get("/one?key=$_") for map { ($_) x $_ } 1 .. 12;
$one = api($nginx)->{zones}{one};
is timeline($one, 'passed'), sum0(1 .. 10) + 20, 'requests of both workers';
is timeline($one, 'rejected'), 1 + 2, '... rejected ones as well';
is @{ $one->{timeline}{passed} }, $one->{timeline}{periods}, '... by period';
is $one->{timeline}{evicted}, undef, '... and nothing else';
is join(' ', map { $one->{shares}{$_} } qw(0 20 40 60 80 100)), '1 2 2 2 2 3',
    'keys by share of the limit';
is_deeply api($nginx)->{zones}{varies}{shares}, {}, '... not if the limit varies';
like $nginx->get('/limits/metrics')->{body},
    qr/^limit_sliding_keys_by_share\{zone="one",percent="100"\} 3$/m, '... in the metrics';

$nginx->reload(conf('20r/d'));
$nginx->get('/one?key=1');
$one = api($nginx)->{zones}{one};
is timeline($one, 'passed'), sum0(1 .. 10) + 20 + 1, 'a reload keeps them';
is $one->{shares}{100}, 0, '... and shares are of the new limit';

# A timer ends periods, as in a night in which nobody looks: a late request in a
# period belongs to it, although the next report is of the next one.
ok wait_for(sub {
    my $age = api($nginx)->{zones}{one}{timeline}{age_ms};
    return $age >= 8000 && $age < 9500;
}, 30), 'the end of a period';
$nginx->get("/one?key=late$_") for 1 .. 7;
sleep 6;
$one = api($nginx)->{zones}{one};
is $one->{timeline}{passed}[-1], 0, '... has its last requests';
is timeline($one, 'passed'), sum0(1 .. 10) + 20 + 8, '... and none is lost';

if ($REDIS) {
    my $json;
    ok wait_for(sub {
        $nginx->get('/far?key=a');
        $json = api($nginx);
        return $json->{redis}{dead}{breaker} eq 'open';
    }), 'the breaker opens';
    sleep 1;
    my $later = api($nginx)->{redis}{dead}{open_ms};
    cmp_ok $later, '>=', $json->{redis}{dead}{open_ms} + 900, '... and how long it is open';
    cmp_ok timeline($json->{redis}{dead}, 'failed_calls'), '>', 0, '... after failed calls';
    cmp_ok timeline($json->{zones}{far}, 'fallback'), '>', 0, '... decided without Redis';
}

chomp(my $host = `hostname`);
is api($nginx)->{host}, lc $host, 'the name of the host';

# An operator adds the API by a reload: requests before it are no peak of now.
$nginx->stop;
my $config = conf('10r/d');
$nginx->start($config =~ s/limit_sliding_api;/empty_gif;/r);
$nginx->get('/one?key=1') for 1 .. 12;
$nginx->reload($config);
$one = api($nginx)->{zones}{one};
is "$one->{passed} $one->{rejected}", '10 2', 'the API is added later';
is_deeply [ timeline($one, 'passed'), timeline($one, 'rejected') ], [ 0, 0 ],
    '... and knows no period of former requests';
$nginx->get('/one?key=1');
is timeline(api($nginx)->{zones}{one}, 'rejected'), 1, '... only of later ones';

$nginx->finish;
