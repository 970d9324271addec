# The rules and the dashboard of contrib/, and what docs/operations.md and
# docs/api.md say of metrics and fields: they name what a real NGINX exposes, and
# all of it. The rules are checked and run by promtool, on histories made up.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs qw(content);
use LimitSliding::Redis;
use LimitSliding::Test;

my ($PROMTOOL) = grep { -x } $ENV{PROMTOOL} // (), 'build/promtool',
    map { "$_/promtool" } split /:/, $ENV{PATH};

my $redis = LimitSliding::Redis->new(config => { maxmemory => '1gb' })->start;
my $nginx = LimitSliding::Test->new(worker_processes => 1);

my $rules     = content('contrib/prometheus-rules.yml');
my $dashboard = content('contrib/grafana-dashboard.json');
my $docs      = content('docs/operations.md');

# The documentation's way to keep a log small is part of this configuration.
my ($logging) = $docs =~ /```nginx\n(limit_sliding_log_level .*?)```/s;
$logging =~ s{/var/log/nginx/}{%%DIR%%/logs/} or die 'no access log';
my ($access) = $logging =~ /^(access_log .*;)$/m;
$logging =~ s/\Q$access\E//;     # beside `off` of %%HTTP_GLOBALS%% it is idle

$nginx->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    $logging
    limit_sliding_redis shared { server ${\ $redis->server}; timeout 5s; }
    limit_sliding_zone \$arg_key zone=one:1m rate=2r/h penalty=1h penalty_after=9;
    limit_sliding_zone \$arg_key zone=far:1m rate=2r/h redis=shared;
    limit_sliding_zone \$arg_key zone=queue:1m rate=1000r/s burst=9
        algorithm=leaky_bucket;
    limit_sliding_zone \$arg_key zone=running:1m inflight=5;
    server {
        listen 127.0.0.1:%%PORT%%;
        $access
        location /one { limit_sliding zone=one; empty_gif; }
        location /far { limit_sliding zone=far; empty_gif; }
        location /queue { limit_sliding zone=queue; empty_gif; }
        location /running { limit_sliding zone=running; empty_gif; }
        location /limits { access_log off; limit_sliding_api; }
    }
}
CONF

is $nginx->statuses(4, '/one?key=a'), '200 200 429 429', 'a limit';
is $nginx->statuses(4, '/far?key=a'), '200 200 429 429', 'a limit in Redis';
is scalar(() = content($nginx->dir . '/logs/access.log') =~ /\n/g), 4,
    'rejections are not in the access log';
is scalar(() = $nginx->log_lines(qr/limiting requests/)), 2,
    'and in the error log, one a second for each zone';


# names, and values of labels

my $metrics;
ok wait_for(sub {
    $metrics = $nginx->get('/limits/metrics')->{body};
    return $metrics =~ /^limit_sliding_redis_memory_bytes\{/m;
}), 'all metrics are known';
my (%exposed, %value);
for (split /\n/, $metrics) {
    $exposed{$1} = 1 if /^(\w+)[{ ]/;
    $value{"$1=$2"} = 1 while /(\w+)="([^"]*)"/g;
}
my %described = map { $_ => 1 } $metrics =~ /^# TYPE (\w+)/mg;
cmp_ok keys %described, '>=', 17, 'metrics';

# Names of metrics in a text.
sub named($text) {
    my %name = map { $_ => 1 } $text =~ /\b(limit_sliding_\w+)/g;
    my @names = sort keys %name;
    return @names;
}

cmp_ok named($rules), '>=', 9, 'the rules: metrics';
is_deeply [ grep { !$exposed{$_} } named($rules) ], [],
    'the rules: metrics exist';

my @queries = sort map { @$_ } _strings(decode_json($dashboard), 'expr');
cmp_ok @queries, '>', 15, 'the dashboard: queries';
is_deeply [ grep { !$exposed{$_} } named("@queries") ], [],
    'the dashboard: metrics exist';
is_deeply [ grep { !$exposed{$_} } map { named($_) }
    map { @$_ } _strings(decode_json($dashboard), 'query') ], [],
    'the dashboard: and those of its choices';
is_deeply [ grep { my $metric = $_; !grep { /^\Q$metric\E/ }
    named("@queries $dashboard") } grep { !/bytes|window|zone_info/ } keys %described ],
    [], 'the dashboard: all metrics that change';

for my $text ($rules, @queries) {
    while ($text =~ /\b(status|source)="(\w+)"/g) {
        ok $value{"$1=$2"}, "$1=$2";
    }
}

my ($table) = $docs =~ /^## What each metric means\n(.*?)^## /ms;
is_deeply [ named($table) ], [ sort keys %described ],
    'the documentation: the metrics, each of them';


# docs/api.md: fields of the JSON, and metrics of the same numbers

my %json = %{ decode_json($nginx->get('/limits')->{body}) };
my ($fields, $same) = content('docs/api.md')
    =~ /^## Everything, as JSON\n(.*?)^## Metrics\n(.*?)^## /ms;
is_deeply [ named($same) ], [ sort keys %described ],
    'docs/api.md: the metrics, each of them';

# Objects of the JSON, [label of their metrics, name, object].
my @objects = map { my ($label, $all) = @$_; map { [ $label, $_, $all->{$_} ] } sort keys %$all }
    [ zone => $json{zones} ], [ redis => $json{redis} ];
is @objects, 5, 'docs/api.md: four zones and a Redis';

my $tables = join ' ', $fields =~ /^\| (`.*?) \|/mg;
is_deeply [ grep { $tables !~ /`$_[`.]/ } map { sort keys %{ $_->[2] } } @objects ], [],
    '... each field is in a table';

my %SETTINGS = map { $_ => 1 } qw(burst inflight timeout_ms window_ms);
is_deeply [ grep { !$SETTINGS{$_} && $same !~ /`$_`/ } map { my $object = $_->[2];
    grep { !ref $object->{$_} && ($object->{$_} // '') =~ /^\d+$/ } sort keys %$object }
    @objects ], [], '... each number has a metric';

# Where the table names a field, the metric has its value.
my @same = ($same =~ /^\| `(\w+)` \| `(\w+)` \| `([\w.]+)`/mg,
    map { ("requests_total.$_", 'zone', $_) } ($same =~ /`status`: (.*?) \|/)[0] =~ /\w+/g);
my $on_page = join ' ', $nginx->get('/limits/dashboard')->{body}
    =~ /^const (?:CHARTED|RARE) = (.*?);/msg;
my ($compared, @wrong, @missing) = (0);
while (my ($metric, $label, $field) = splice @same, 0, 3) {
    my ($name, $status) = split /[.]/, $metric;
    push @missing, $field if "$label $name" =~ /^zone .*_total$/ && $on_page !~ /"$field"/;
    for my $object (grep { $_->[0] eq $label } @objects) {
        my $value = $object->[2];
        next if $field =~ /^ban/ && !$value->{penalty};
        next if $field =~ /^(?:held|in_flight|longest)/ && !defined $value->{inflight};
        $value = $value->{$_} for split /[.]/, $field;
        my $labels = qq($label="$object->[1]") . ($status ? qq(,status="$status") : '');
        push @wrong, "$field of $object->[1]" if $metrics !~ /$name\{$labels\} $value$/m;
        $compared++;
    }
}
is "@wrong", '', '... and the same value';
cmp_ok $compared, '>=', 50, '... of many';
is "@missing", '', 'the page of the API: all counters of a zone';


# alerts

my @alerts = $rules =~ /alert: (\w+)/g;
cmp_ok @alerts, '>=', 8, 'alerts';
my ($documented) = $docs =~ /^## Prometheus and Grafana\n(.*?)^## /ms;
is_deeply [ $documented =~ /^\| `(LimitSliding\w+)`/mg ], \@alerts,
    'the documentation: the alerts, each of them';

my $tests = content('t/data/prometheus-rules.yml');
is_deeply [ grep { $tests !~ /alertname: $_\n\s+exp_alerts/ } @alerts ], [],
    'alerts: each is tested to fire';
is_deeply [ grep { $tests !~ /alertname: $_ }/ } @alerts ], [],
    'alerts: and not to';

SKIP: {
    skip 'no promtool: .ci/packages unpack build', 3 if !$PROMTOOL;

    promtool('check rules', 'contrib/prometheus-rules.yml');
    promtool('test rules', 't/data/prometheus-rules.yml');

    # Queries of the dashboard as rules, for promtool to parse.
    my $n = 0;
    $nginx->write_file('queries.yml', join '', "groups:\n- name: dashboard\n",
        "  rules:\n", map {
            my $query = s/\$__rate_interval/5m/gr =~ s/\$\w+/.*/gr;
            sprintf "  - record: query:%d\n    expr: '%s'\n", $n++, $query;
        } @queries);
    promtool('check rules', $nginx->dir . '/queries.yml');
}

sub promtool($command, $file) {
    my $said = `'$PROMTOOL' $command '$file' 2>&1`;
    is $?, 0, "promtool $command" or diag $said;
}

# Values of all members of this name, each as [value].
sub _strings($json, $name) {
    return map { _strings($_, $name) } @$json if ref $json eq 'ARRAY';
    return if ref $json ne 'HASH';
    return map {
        $_ eq $name && !ref $json->{$_} ? [ $json->{$_} ]
            : _strings($json->{$_}, $name)
    } sort keys %$json;
}

$nginx->finish;
