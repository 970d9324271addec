# docs/kubernetes.md and the YAML of contrib: their configurations run in a real NGINX, without
# root, with one directory to write to, and a name server; what the manifests say of them holds.

use v5.36;

use File::Copy qw(copy);
use JSON::PP qw(decode_json);
use List::Util qw(sum0);
use POSIX ();
use Test::More;

use LimitSliding::Dns;
use LimitSliding::Docs;
use LimitSliding::Redis;
use LimitSliding::Test;

plan skip_all => 'no python3-yaml' if system("python3 -c 'import yaml' 2> /dev/null");

my $PAGE = 'docs/kubernetes.md';
my $NGINX = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
my $MODULE = $ENV{LIMIT_SLIDING_MODULE} // 'build/ngx_http_limit_sliding_module.so';
plan skip_all => 'an NGINX without -e' if `'$NGINX' -h 2>&1` !~ /^ *-e /m;
my $NOBODY = 65534;
my $LOAD = 'load_module modules/ngx_http_limit_sliding_module.so;';

# A node that NGINX serves, by its ports.
package Node {
    our @ISA = 'LimitSliding::Client';
    sub port($self, $n = 0) { return $self->{port} }
}

# The documents of a YAML.
sub yaml($text) {
    my $script = 'import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))';
    my $test = LimitSliding::Test->new;
    $test->write_file('text.yml', $text);
    my $said = `python3 -c '$script' < '@{[ $test->dir ]}/text.yml'`;
    return $? == 0 ? @{ decode_json($said) } : ();
}

my $nginx = LimitSliding::Test->new;
my $dir = $nginx->dir;
my $redis = LimitSliding::Redis->new->start;
my $dns = LimitSliding::Dns->new(ttl => 1)->start;
$dns->set($_, '127.0.0.1') for qw(redis redis.default.svc.cluster.local);
chmod 0755, $dir;
mkdir "$dir/tmp" or die "tmp: $!";
chmod 0777, "$dir/tmp";
copy($MODULE, "$dir/module.so") or die "module: $!" if $MODULE ne '';
copy($NGINX, "$dir/nginx") && chmod 0755, "$dir/nginx" or die "nginx: $!";

# Changed here: where the module, the name server, Redis and the files are, and the ports.
sub adapted($text, %ports) {
    $text =~ s{ /tmp/}{ $dir/tmp/}g;
    my $load = $MODULE eq '' ? '' : "load_module $dir/module.so;";
    $text =~ s/^\s*\Q$LOAD\E/$load/m or die "no load_module:\n$text";
    $text =~ s/resolver \S+ valid=10s;/resolver 127.0.0.1:@{[ $dns->port ]} ipv6=off;/;
    $text =~ s{server (redis[\w.]*):6379;}{"server $1:" . $redis->port
        . '; timeout 5s; connect_timeout 5s;'}e;
    $text =~ s{/usr/share/nginx/html}{$dir/html}g;
    $text =~ s{listen \K(\d+);}{'127.0.0.1:' . ($ports{$1} // die "port $1\n") . ';'}ge;
    return $text;
}

my %masters;
END { kill 'QUIT', keys %masters }

# Starts NGINX as a container without root does. The ports are those of the configuration.
sub start_node($name, $text, @arguments) {
    my %ports = map { $_ => LimitSliding::Test::reserve_port() } $text =~ /listen (\d+);/g;
    my %number = map { $_ => $ports{$_}{port} } keys %ports;
    $nginx->write_file("$name.conf", adapted($text =~ s{/tmp/}{/tmp/$name-}gr, %number));
    open my $log, '>', "$dir/$name.log" or die "log: $!";
    chmod 0666, "$dir/$name.log";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>&', $log;
        open STDERR, '>&', $log;
        if ($> == 0) {
            $) = "$NOBODY $NOBODY";
            POSIX::setgid($NOBODY);
            POSIX::setuid($NOBODY);
        }
        exec "$dir/nginx", '-c', "$dir/$name.conf", @arguments or POSIX::_exit(127);
    }
    $masters{$pid} = 1;
    my %node = map { $_ => bless { port => $number{$_} }, 'Node' } keys %number;
    ok wait_for(sub { grep { eval { $_->connect } } values %node }, 10), "$name: it runs"
        or die content("$dir/$name.log");
    return { %node, pid => $pid, log => "$dir/$name.log" };
}

sub stop_node($node) {
    kill 'QUIT', $node->{pid};
    waitpid $node->{pid}, 0;
    is $?, 0, 'it ends well';
    delete $masters{ $node->{pid} };
    is join('', grep { /\[(?:emerg|alert|crit|error)\]/ && !/ limiting requests, / }
        split /^/, content($node->{log})), '', '... without an error';
}

# How many of so many requests each status had.
sub statuses(@nodes) {
    my %count;
    for my $node (@nodes) {
        $count{ $_ // 'none' }++ for @{ $node->load(requests => [ ('/') x 60 ]) };
    }
    return \%count;
}
$nginx->write_file('html/index.html', 'a page');
chmod 0755, "$dir/html";
chmod 0644, "$dir/html/index.html";


# contrib/kubernetes.yml

my @manifests = yaml(content('contrib/kubernetes.yml'));
my %of = map { ("$_->{kind} $_->{metadata}{name}" => $_) } @manifests;
is scalar(keys %of), 6, 'contrib/kubernetes.yml: its objects';

my $conf = $of{'ConfigMap limited-nginx'}{data}{'nginx.conf'};
my $deployment = $of{'Deployment limited-nginx'}{spec};
my $pod = $deployment->{template}{spec};
my ($container) = @{ $pod->{containers} };
is $deployment->{replicas}, 3, '... three replicas';

for my $name ('limited-nginx', 'redis') {
    my $spec = $of{"Deployment $name"}{spec};
    is_deeply $spec->{template}{metadata}{labels}, $spec->{selector}{matchLabels},
        "$name: the labels of its pods";
    is_deeply $of{"Service $name"}{spec}{selector}, $spec->{selector}{matchLabels},
        '... which the Service selects';
    my ($only) = @{ $spec->{template}{spec}{containers} };
    my %ports = map { $_->{name} => $_->{containerPort} } @{ $only->{ports} };
    is_deeply [ grep { !$ports{ $_->{targetPort} } } @{ $of{"Service $name"}{spec}{ports} } ], [],
        '... and its ports';
    ok $spec->{template}{spec}{securityContext}{runAsNonRoot}
        && $only->{securityContext}{readOnlyRootFilesystem}, '... no root, nothing to write';
    my %mounts = map { $_->{name} => $_ } @{ $only->{volumeMounts} };
    is_deeply [ sort keys %mounts ],
        [ sort map { $_->{name} } @{ $spec->{template}{spec}{volumes} } ], '... its volumes';
    is_deeply [ grep { $_->{subPath} } values %mounts ], [], '... without subPath';
}
is_deeply $of{'NetworkPolicy redis'}{spec}{ingress}[0]{from}[0]{podSelector},
    $deployment->{selector}, 'the nodes reach Redis';

my %path = map { $_->{name} => $_->{mountPath} } @{ $container->{volumeMounts} };
is_deeply [ map { m{^\Q$path{tmp}\E/} ? () : $_ } $conf =~ /^\s*(?:pid|\w+_temp_path)\s+(\S+);/mg ],
    [], 'NGINX writes to the emptyDir only';
my (undef, @arguments) = @{ $container->{command} };
is_deeply [ splice @arguments, 0, 2 ], [ '-c', "$path{conf}/nginx.conf" ],
    '... and reads the ConfigMap';

my %number = map { $_->{name} => $_->{containerPort} } @{ $container->{ports} };
my @nodes = map { start_node("replica$_", $conf, @arguments) } 1 .. $deployment->{replicas};
my ($limit) = $conf =~ /rate=(\d+)r/;
is_deeply statuses(map { $_->{ $number{http} } } @nodes),
    { 200 => $limit, 429 => 60 * @nodes - $limit }, 'all replicas share one limit';

for my $probe (qw(startupProbe readinessProbe livenessProbe)) {
    my $get = $container->{$probe}{httpGet};
    is $nodes[0]{ $number{ $get->{port} } }->get($get->{path})->{status}, 204,
        "$probe: answered at the limit";
}
my $scraped = $deployment->{template}{metadata}{annotations};
like $nodes[0]{ $scraped->{'prometheus.io/port'} }->get($scraped->{'prometheus.io/path'})->{body},
    qr/^limit_sliding_requests_total\{zone="api"/m, 'Prometheus: the metrics';
stop_node($_) for @nodes;


# contrib/compose.yml and its nginx.conf

my ($compose) = yaml(content('contrib/compose.yml'));
my @services = @{ $compose->{services} }{qw(nginx1 nginx2)};
for my $service (@services) {
    my ($file) = $service->{volumes}[0] =~ m{^\./(\S+?):};
    ok -f "contrib/$file", "compose.yml: contrib/$file";
    ok -f $service->{build}{dockerfile}, "... $service->{build}{dockerfile}";
}
$redis->command('FLUSHALL');
@nodes = map { start_node("service$_", content('contrib/nginx.conf'), '-e', 'stderr', '-g',
    'daemon off;') } 1 .. @services;
is_deeply statuses(map { $_->{8080} } @nodes), { 200 => 100, 429 => 20 },
    'both services share one limit';
stop_node($_) for @nodes;


# The snippets of both controllers, where these put them

sub runs_with($name, %snippet) {
    $redis->command('FLUSHALL');
    my $node = start_node($name, <<"CONF", '-e', 'stderr', '-g', 'daemon off;');
        error_log stderr notice;
        pid /tmp/nginx.pid;
        $snippet{main}
        events { worker_connections 512; }
        http {
            access_log off;
            client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;
            uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
            $snippet{http}
            server {
                listen 80;
                location / { $snippet{'http.server.location'} empty_gif; }
            }
        }
CONF
    is_deeply statuses($node->{80}, $node->{80}), { 200 => 100, 429 => 20 }, "$name: it limits";
    stop_node($node);
}

my @blocks = map { [ yaml($_->{text}) ] } grep { $_->{tag} eq 'yaml' } blocks($PAGE);
is scalar(grep { !@$_ } @blocks), 0, "$PAGE: each YAML can be read";
my %object = map { ($_->{kind} // '' => $_) } map { @$_ } @blocks;

my $map = $object{ConfigMap}{data};
runs_with('ingress-controller', main => $map->{'main-snippets'}, http => $map->{'http-snippets'},
    'http.server.location' => $object{VirtualServer}{spec}{routes}[0]{'location-snippets'});

my @snippets = map { @{ $object{$_}{spec}{snippets} } } qw(SnippetsPolicy SnippetsFilter);
runs_with('gateway-fabric', map { $_->{context} => $_->{value} } @snippets);
is $object{HTTPRoute}{spec}{rules}[0]{filters}[0]{extensionRef}{name},
    $object{SnippetsFilter}{metadata}{name}, 'the route names the filter';


# ingress-nginx: what its template makes of limit-rps and limit-connections, beside the page's

my ($before) = map { $_->{metadata}{annotations} } grep { $_->{metadata}{annotations} }
    map { @$_ } @blocks;
my %annotation = map { s{.*/}{}r => $before->{$_} } keys %$before;
my ($after) = map { $_->{text} } grep { $_->{tag} eq 'nginx' } blocks($PAGE);
my ($burst) = map { 5 * $_ } $annotation{'limit-rps'};
like $after, qr/zone=rps:\w+ +rate=$annotation{'limit-rps'}r\/s .* burst=@{[ $burst + 1 ]};/,
    'limit-rps: the rate, and five times as much';
like $after, qr/zone=connections:\w+ inflight=$annotation{'limit-connections'};/,
    'limit-connections';
like $after, qr/zone=global:\w+ +rate=$annotation{'global-rate-limit'}r\/m redis=/,
    'global-rate-limit';

my $both = LimitSliding::Test->new(worker_processes => 1);
my ($zone) = $after =~ /^limit_sliding_zone \$client (zone=rps:.*?;)$/m;
$both->serve(http => <<"HTTP", server => 'location / { limit_req zone=old burst=50 nodelay;'
    limit_req_dry_run on;
    limit_sliding_dry_run on;
    limit_req_zone \$arg_client zone=old:5m rate=10r/s;
    limit_sliding_zone \$arg_client $zone
    add_header X-Both "\$limit_req_status \$limit_sliding_status" always;
HTTP
    . ' limit_sliding zone=rps; empty_gif; }');
my %said;
$both->load(pipeline => 4, connections => 4,
    requests => [ map { '/?client=' . ($_ % 3) } 1 .. 900 ],
    each => sub ($n, $status, $head) { $said{ ($head =~ /^X-Both: (.*?)\r?$/m)[0] // '' }++ });
is join(' ', grep { my @two = split ' '; $two[0] ne $two[1] } sort keys %said), '',
    'limit-rps: the same decisions as ingress-nginx';
cmp_ok $said{'REJECTED_DRY_RUN REJECTED_DRY_RUN'} // 0, '>', 100, '... many of which reject';
cmp_ok sum0(values %said), '==', 900, '... on all requests';
$both->finish;
