# Responses without the name of limit_sliding_usage, whose requests stay charged with what they
# have reserved: the zone counts them, and the log names their location, once a minute.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;
use LimitSliding::Upstream;

my $nginx = LimitSliding::Test->new(worker_processes => 1);

my %SAYS = (
    found   => { parts => [ '{"total_tokens": 3}' ] },
    stream  => { parts => [ map({ "data: $_\n\n" } 1 .. 9), '' ], framing => 'chunked' },
    other   => { parts => [ '{"totalTokenCount": 3}' ] },
    bad     => { parts => [ '{"total_tokens": null}' ] },
    nothing => { parts => [] },
    error   => { status => 500, parts => [ '{"error": 1}' ] },
    created => { status => 201, parts => [ '{"tokens": 3}' ] },
    moved   => { status => 302, headers => [ 'Location: /other' ], parts => [ 'moved' ] },
    encoded => { headers => [ 'Content-Encoding: secret' ], parts => [ '{"tokens": 3}' ] },
    aborted => { framing => 'raw',
        parts => [ "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", '{"tokens": 3' ] },
);

my $upstream = LimitSliding::Upstream->new(sub ($request) {
    my ($name) = $request->{path} =~ m{/(\w+)\?};
    return $SAYS{$name};
});
$nginx->write_file('html/rejected', '"total_tokens": 1');

my $proxy = "proxy_pass http://${\ $upstream->server }; proxy_buffering off;";

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    map "$status:$limit_sliding_usage" $tokens { "~:(?<usage>.+)" $usage; default ""; }
    limit_sliding_zone $arg_key zone=tokens:1m rate=1000r/d;
    limit_sliding_zone $arg_key zone=month:1m rate=20000r/d;
    limit_sliding_zone $arg_key zone=requests:1m rate=1000r/d;
    limit_sliding_zone $arg_key zone=none:1m rate=1r/d;
HTTP
    limit_sliding_usage total_tokens;
    location /limits { limit_sliding_api; }
    location /v1/ {
        limit_sliding zone=tokens cost=5 settle=\$tokens;
        limit_sliding zone=month cost=5 settle=\$tokens;
        limit_sliding zone=requests;
        $proxy
    }
    location ~ ^/v2/ {
        limit_sliding_usage eval_count;
        limit_sliding zone=tokens cost=5 settle=\$limit_sliding_usage;
        $proxy
    }
    location /unsettled/ { limit_sliding zone=requests; $proxy }
    location /unlimited/ { $proxy }
    location /off/ {
        limit_sliding_usage off;
        limit_sliding zone=tokens cost=5 settle=\$upstream_http_x_none;
        $proxy
    }
    location /rejected {
        limit_sliding zone=none settle=\$limit_sliding_usage;
        error_page 429 =200 /page;
        root html;
    }
    location = /page { limit_sliding off; return 200 'a page'; }
    location /watched/ {
        limit_sliding zone=none settle=\$limit_sliding_usage dry_run;
        $proxy
    }
SERVER

# Returns the counters of all zones, of those that are not 0.
sub missing() {
    my $zones = api($nginx)->{zones};
    return join ' ', map { "$_ $zones->{$_}{usage_missing}" }
        grep { $zones->{$_}{usage_missing} } sort keys %$zones;
}

sub used() { return api_key($nginx, 'tokens', 'a')->{used} }

# Returns the lines of the log since the last call.
sub lines() {
    return join '; ', map { s/.*(\[\w+\]).*?(?=limit_sliding_usage)/$1 /r =~ s/(?<=\/")[ ,].*//r }
        $nginx->new_log_lines(qr/was not found/);
}

for my $name (qw(found bad nothing error moved encoded aborted)) {
    $nginx->get("/v1/$name?key=a");
}
$nginx->get('/v1/other?key=a', method => 'HEAD');
$nginx->get("/$_/other?key=a") for qw(unsettled unlimited off);
$nginx->get("$_/other?key=") for qw(/v1 /v2);
is missing(), '', 'nothing is missing';
is lines(), '', '... nor logged';

my $before = used();
$nginx->get("/v1/$_?key=a") for qw(stream other created);
is used() - $before, 15, 'missing: what was reserved stays charged';
is missing(), 'month 3 tokens 3', '... and counts in each zone that settles';
is lines(), '[warn] limit_sliding_usage "total_tokens" was not found in 1 response of location "/v1/"',
    '... and the first one is logged';

$nginx->get('/v2/found?key=a') for 1 .. 2;
is missing(), 'month 3 tokens 5', 'a location with another name';
is lines(), '[warn] limit_sliding_usage "eval_count" was not found in 1 response'
    . ' of location "^/v2/"', '... has lines of its own';

sleep 58;
$nginx->get('/v1/other?key=a');
is lines(), '', 'not again within a minute';
sleep 4;
$nginx->get('/v1/other?key=a');
is lines(), '[warn] limit_sliding_usage "total_tokens" was not found in 4 responses'
    . ' of location "/v1/"', 'then one line for all of them';

my $counted = missing();
is $nginx->get('/rejected?key=a')->{status}, 200, 'a request that finds its name';
is $nginx->get('/rejected?key=a')->{body}, 'a page', 'one that is rejected';
is missing(), $counted, '... does not count';
$nginx->get('/watched/other?key=a');
is missing(), $counted, '... nor one over the limit in dry run';
$nginx->get('/watched/other?key=b');
is missing(), $counted =~ s/ tok/ none 1 tok/r, '... but one within it';

like $nginx->get('/limits/metrics')->{body},
    qr/^limit_sliding_usage_missing_total\{zone="tokens"\} 7$/m, 'a metric';

$nginx->finish;
