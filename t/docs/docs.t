# Whatever the documentation shows works as it stands: every block of code in
# README.md, docs/ and contrib/ is run, or checked if running it would change
# this machine, or has a mark that says why it cannot be (LimitSliding::Docs).

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Peers qw(lua_modules);
use LimitSliding::Redis;
use LimitSliding::Test;

my @PAGES = ('README.md', 'CONTRIBUTING.md', glob 'docs/*.md');
my @ALL = map { blocks($_) } @PAGES,
    grep { -f && !/\.md$/ && content($_) =~ /^ *```/m } glob 'contrib/*';

# The program by its name, from build/ or the system; undef if there is none.
sub program($name) {
    my ($found) = grep { -x } "build/$name", map { "$_/$name" }
        split(/:/, $ENV{PATH}), '/usr/sbin';
    return $found;
}

# The text of the block that has this tag and matches; from then on the block
# counts as run. Dies if there is none, or several.
sub block($page, $tag, $regexp) {
    my @found = grep { $_->{page} eq $page && $_->{tag} eq $tag
        && $_->{text} =~ $regexp } @ALL;
    die "$page: its $tag blocks with $regexp are not one\n" if @found != 1;
    $found[0]{run} = 1;
    return $found[0]{text};
}

# Runs it in a shell, and returns what it says.
sub shell($script) {
    open my $pipe, '-|', 'bash', '-euo', 'pipefail', '-c', "exec 2>&1; $script"
        or die "bash: $!";
    my $said = do { local $/; <$pipe> // '' };
    close $pipe;
    is $?, 0, 'it runs: ' . $script =~ s/\n.*//sr or diag $said;
    return $said;
}


# Tags, and marks of what is not run

my %TAGS = map { $_ => 1 } qw(cpp indented ini json logrotate nginx redis sh text yaml);
is join(' ', map { "$_->{name}: $_->{tag}" } grep { !$TAGS{ $_->{tag} } } @ALL),
    '', 'fences have tags that this test knows';

my @marked = grep { defined $_->{reason} } @ALL;
note "not run: $_->{name}, $_->{reason}" for @marked;
cmp_ok @marked, '<=', 5, 'few blocks are not run';
is join(' ', map { $_->{name} } grep { $_->{reason} !~ /\w+ \w+/ } @marked), '',
    'each says why';

my %MEANT = map { $_ => 1 } qw(curl docker fail2ban-regex nginx redis-cli
    systemctl);
is join(' ', map { $_->{name} } grep { $_->{tag} eq 'indented'
    && ($_->{text} =~ /[;{]$/m || $MEANT{ $_->{text} =~ s/\s.*//sr }) } @ALL),
    '', 'no configuration, and no command but make, is without a tag';


# Configurations, read by NGINX

my $reader = LimitSliding::Test->new;
LimitSliding::Redis::certificates($reader->dir);

my @LUA = $reader->has_lua ? () : lua_modules();
my $HAS_LUA = @LUA || $reader->has_lua;
my $NO_LUA = 'no ngx_lua: libnginx-mod-http-lua';

# The configuration, with Lua loaded first if it has any.
sub lua($text) {
    return $text if $text !~ /_by_lua/;
    return join '', map({ "load_module $_;\n" } @LUA), $text;
}

# Exit code and output of `nginx -t`.
sub read_config($text) {
    for my $wanted (standing_files($text)) {
        my ($directive, $name) = @$wanted;
        $reader->write_file($name, $directive eq 'include' ? '' : "secret\n")
            if !-e $reader->dir . "/$name";
        chmod 0600, $reader->dir . "/$name";
    }
    return $reader->test_config(lua(configuration($reader, $text)));
}

my $right = "limit_sliding zone=api;\n";
my $frame = "# inside server { }, beside zone=api\n";
is((read_config("$frame$right"))[0], 0, 'what is right is read');
isnt((read_config($_))[0], 0, '... and what is not') for $frame . $right =~ s/;//r, $right,
    $frame =~ s/, .*//r . $right;

for my $block (grep { $_->{tag} eq 'nginx' && !defined $_->{reason} } @ALL) {
    $block->{run} = 1;
    SKIP: {
        skip $NO_LUA, 1 if $block->{text} =~ /_by_lua/ && !$HAS_LUA;
        my ($code, $output, $text) = read_config($block->{text});
        is $code, 0, "$block->{name}: nginx -t"
            or diag $output, $text;
        unlike $output, qr/\[warn\](?!.* no "limit_sliding" uses the zone)/,
            '... without a warning, but for zones whose places the text leaves out';
    }
}

# A file of limits: no line of it is wrong.
$reader->write_file('limits', block('docs/directives.md', 'text', qr/^customer-7 /m));
my ($invalid, $told) = read_config('limit_sliding_zone $uri zone=a:1m rate=1r/s limits='
    . $reader->dir . '/limits;');
is $invalid, 0, 'the file of limits in docs/directives.md is read';
unlike $told, qr/ignored in/, '... and has no wrong line';

# Changed here: logs and pid are those of the test.
my ($written) = content('contrib/nginx.Dockerfile') =~ /(printf .*?) > /s;
my $image = shell($written) =~ s/^error_log .*; (?=events)//mr;
is((read_config($image))[0], 0, 'contrib/nginx.Dockerfile: the nginx.conf of its test');


# README.md's first example, as a new user tries it

my $first = block('README.md', 'nginx', qr/^ *listen 8000;/m);
is $first =~ tr/\n//, 9, 'README.md: nine lines';
my $nginx = LimitSliding::Test->new;
$nginx->write_file('html/index.html', 'a page');
$nginx->start(configuration($nginx, $first));

# Changed here: the port.
my $port = $nginx->port;
my $commands = block('README.md', 'sh', qr/^curl/) =~ s/:8000\b/:$port/gr;
my $answer = shell($commands);
my ($status, $least, $most) = $commands =~ /# (HTTP.*), Retry-After of (\d+) to (\d+) s$/m;
like $answer, qr/^\Q$status\E\r$/m, 'README.md: the answer';
my ($after) = $answer =~ /^Retry-After: (\d+)\r$/m;
cmp_ok $after, '>=', $least, '... after which the requests leave the window';
cmp_ok $after, '<=', $most, '... which is a minute';
is "$least $most", '48 60', '... as README.md says';

# How many of so many requests, by a client of its own, had each status. It has one
# connection, on which each request finds the one before it counted.
sub client($n, $from) {
    my $socket = $nginx->connect(from => $from);
    my %count;
    $count{ $nginx->get('/', socket => $socket)->{status} // 'none' }++ for 1 .. $n;
    return \%count;
}
is_deeply client(102, '127.0.0.2'), { 200 => 100, 429 => 2 }, 'README.md: each client has 100';
$nginx->finish_one;

my $redis = LimitSliding::Redis->new->start;
{
    # Changed here: where Redis is.
    my $shared = block('README.md', 'nginx', qr/redis=shared/)
        =~ s/10\.0\.0\.1:6379;/$redis->server . '; timeout 5s; connect_timeout 5s;'/er;
    my $both = $first =~ s/^limit_sliding_zone .*\n/$shared/mr;
    my @nodes = map { LimitSliding::Test->new } 1 .. 2;
    for (@nodes) {
        $_->write_file('html/index.html', 'a page');
        $_->start(configuration($_, $both));
    }
    my %count;
    for my $node (@nodes) {
        $count{ $_ // 'none' }++ for @{ $node->load(requests => [ ('/') x 60 ]) };
    }
    is_deeply \%count, { 200 => 100, 429 => 20 }, 'README.md: two nodes share a limit';
    $redis->kill9;
    for my $node (@nodes) {
        ok wait_for(sub { $node->get('/')->{status} == 200 }), '... and go on by themselves';
    }
    $_->finish_one for @nodes;
}


# docs/operations.md: the API, asked by an administrator and by Prometheus

my $api = block('docs/operations.md', 'nginx', qr/limit_sliding_api/);
my $scrape = block('docs/operations.md', 'yaml', qr/scrape_configs/);

# Changed here: write=on, where the text asks for it.
$nginx = LimitSliding::Test->new;
$nginx->start(<<"CONF" =~ s/limit_sliding_api;/limit_sliding_api write=on;/r);
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    limit_sliding_zone \$binary_remote_addr zone=api:1m rate=2r/m;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { limit_sliding zone=api; empty_gif; }
        $api
    }
}
CONF
$redis->start;

# Runs a block as it stands, but for where NGINX and Redis are. Returns what it
# says, undef where a program is lacking.
sub run($page, $regexp) {
    my ($address, $path) = ('127.0.0.1:' . $nginx->port, $redis->path);
    my $script = block($page, 'sh', $regexp);

    for my $name (map { $_->[0] } commands($script)) {
        next if system("command -v $name > /dev/null") == 0;
        note "no $name";
        return;
    }
    return shell($script =~ s{127\.0\.0\.1/}{$address/}gr
        =~ s/\bredis-cli\b/redis-cli -s $path/gr);
}

$nginx->statuses(3, '/', headers => ['X-Real-IP: 192.0.2.7']);
my ($path) = $scrape =~ /^ *metrics_path: (\S+)$/m;
my ($prometheus) = content('docs/operations.md')
    =~ /a Prometheus at ([\d.]+), which the API above allows/;
for ([ $prometheus, 200 ], [ '10.0.0.2', 403 ]) {
    my ($from, $status) = @$_;
    my $answer = $nginx->get($path, headers => ["X-Real-IP: $from"]);
    is $answer->{status}, $status, "Prometheus at $from: $status";
    is $answer->{body} =~ /^limit_sliding_requests_total\{/m ? 200 : 403,
        $status, '... with metrics, or without';
}

my $said = run('docs/operations.md', qr/jq/);
is decode_json($said)->[0]{key}, '192.0.2.7', 'the keys rejected most'
    if defined $said;
$said = run('docs/operations.md', qr/^curl -s '/);
is decode_json($said)->{used}, 2, 'one key' if defined $said;
$said = run('docs/operations.md', qr/-X DELETE/);
is_deeply [ map { @{ decode_json($_) }{qw(used limit)} }
    split /\n(?=\{)/, $said ], [ 0, 2, 0, 1000 ],
    'a key forgotten, and given a limit of its own' if defined $said;
$nginx->finish_one;

SKIP: {
    my $promtool = $ENV{PROMTOOL} // program('promtool');
    skip 'no promtool: .ci/packages unpack build', 1 if !$promtool;

    my ($rules) = $scrape =~ /^rule_files:\n *- (\S+)$/m;
    $nginx->write_file($rules, content('contrib/prometheus-rules.yml'));
    $nginx->write_file('prometheus.yml', $scrape);
    like shell("'$promtool' check config " . $nginx->dir . '/prometheus.yml'),
        qr/SUCCESS: \d\d rules found/, 'Prometheus: its configuration';
}


# docs/openresty.md: Lua that finds keys and rates, and writes to the log

my $application = LimitSliding::Test->new(worker_processes => 1);
$application->serve(server => 'location / { empty_gif; }');

SKIP: {
    my $rate = block('docs/openresty.md', 'nginx', qr/access_by_lua_block/);
    my $log = block('docs/openresty.md', 'nginx', qr/^log_by_lua_block/m);
    skip $NO_LUA, 4 if !$HAS_LUA;

    # Changed here: both are in one http{}, and where the application is.
    my $backend = '127.0.0.1:' . $application->port;
    $rate =~ s{127\.0\.0\.1:8080}{$backend} or die 'no application';
    $rate =~ s/^(?=server \{)/$log/m;

    $nginx = LimitSliding::Test->new;
    $nginx->write_file('users.lua', <<'LUA');
return { find = function(token) return token, token and '2r/m' or '' end }
LUA
    $nginx->start(lua(configuration($nginx,
        "lua_package_path '%%DIR%%/?.lua;;';\n$rate")));
    is $nginx->statuses(3, '/api/', headers => ['Authorization: a']),
        '200 200 429', 'Lua: a user, and a rate';
    ok wait_for(sub {
        $nginx->log_lines(qr/\[lua\].*peruser is at its limit/) == 1;
    }), '... in the log, too';
    $nginx->finish_one;
}


# docs/redis.md: a user with these rights is enough for the set-up

sub redis_cli($commands) {
    $nginx->write_file('commands', $commands);
    my $said = shell('redis-cli -s ' . $redis->path . ' < ' . $nginx->dir
        . '/commands');
    my $lines = () = $commands =~ /\n/g;
    is $said, "OK\n" x $lines, '... and each line is a command';
}

$nginx = LimitSliding::Test->new;
redis_cli(block('docs/redis.md', 'redis', qr/-\@all/));

# Changed here: where servers are, the user, patience, and the key, which is a text to look
# up in Redis.
my $setup = block('docs/redis.md', 'nginx', qr/\Alimit_sliding_redis shared.*zone=api/s);
my $server = 'server ' . $redis->server . '; user limiter; password password;'
    . ' timeout 5s; connect_timeout 5s; on_error deny;';
$setup =~ s/server  10\.0\.0\.1:6379;/$server/ or die 'no server';
$setup =~ s/\$limit_sliding_client/\$http_x_api_key/ or die 'no key';
$setup =~ s{127\.0\.0\.1:8080}{'127.0.0.1:' . $application->port}e or die 'no application';
$setup =~ s/^server \{/$&\nlocation \/limits { limit_sliding_api; }/m or die 'no server';
$setup = "add_header X-Limit \$limit_sliding_limit always;\n$setup";
$nginx->start(configuration($nginx, $setup));

my %count;
$count{ $_ // 'none' }++ for @{ $nginx->load(pipeline => 16,
    requests => [ (['/api/', 'X-API-Key: many']) x 1003 ]) };
is_deeply \%count, { 200 => 1000, 429 => 3 }, 'the set-up limits';

my @HELLO = ('/api/', headers => ['X-API-Key: hello']);
is header($nginx->get(@HELLO), 'X-Limit'), 1000, 'a key with its zone\'s limit';
my ($state) = content('docs/redis.md') =~ /^ {4}(limit_sliding:api:\S+)$/m;
is scalar(grep { $_ eq $state } $redis->keys), 1, '... is where the page says';
run('docs/operations.md', qr/redis-cli del/);
is scalar(grep { $_ eq $state } $redis->keys), 0, '... until it is deleted';
run('docs/redis.md', qr/redis-cli set/);
is header($nginx->get(@HELLO), 'X-Limit'), 5000, '... and has its own limit';

redis_cli(block('docs/redis.md', 'redis', qr/\+info/));
ok wait_for(sub { $nginx->get('/limits')->{body} =~ /"memory":\{"bytes":\d/ }),
    '... and tells its memory';
redis_cli(block('docs/redis.md', 'redis', qr/limiter \+pttl$/m));
my ($digest) = $state =~ /\{(.*)\}/;
like $nginx->get('/limits/zones/api/key?key=hello')->{body}, qr/"own_limit":true,"ttl":null,"window"/,
    '... and when a limit expires';
redis_cli(block('docs/redis.md', 'redis', qr/\+scan/));
is $nginx->get('/limits/zones/api/limits')->{body}, <<"JSON", '... as is listed';
{"zone":"api","digest":true,"limits":[
{"key":"$digest","rate":"5000r/h","ttl":null}],"next":null}
JSON

is_deeply $redis->command(qw(ACL LOG)), [], 'Redis has refused nothing';
is scalar($nginx->log_lines(qr/limit_sliding redis|NOPERM/)), 0,
    '... as the log says';
redis_cli(block('docs/redis.md', 'redis', qr/cluster/));
redis_cli(block('docs/redis.md', 'redis', qr/zscore/));
redis_cli(block('docs/redis.md', 'redis', qr/psetex/));
$nginx->finish_one;


# docs/operations.md: logs of an attack, rotated each hour, are kept for days

my $rotation = block('docs/operations.md', 'logrotate', qr/maxsize/);
SKIP: {
    my $logrotate = program('logrotate/usr/sbin/logrotate')
        // program('logrotate');
    skip 'no logrotate: .ci/packages unpack build', 10 if !$logrotate;
    skip 'needs root, www-data and adm', 10
        if $> != 0 || !getpwnam 'www-data' || !getgrnam 'adm';

    my $dir = $nginx->dir;
    local $ENV{LD_LIBRARY_PATH} = join ':', glob 'build/popt/usr/lib/*';
    chmod 0755, "$dir/logs";

    # Changed here: where logs are, and who is told.
    $rotation =~ s{/var/log/nginx/}{$dir/logs/};
    $rotation =~ s{invoke-rc.d nginx rotate}{sh $dir/tell};
    $nginx->write_file('tell', "echo told >> $dir/told\n");
    $nginx->write_file('rotate', $rotation);
    unlike shell("'$logrotate' -d $dir/rotate"), qr/error:/, 'logrotate -d';

    # As many logs as are kept: access.log has been rotated each hour, and has
    # grown again; error.log was rotated daily; other.log was, in this hour.
    my ($n) = $rotation =~ /^ *rotate (\d+)$/m;
    rotated($dir, 'access.log', 1, $n);
    rotated($dir, 'error.log', 24, $n < 20 ? $n : 20);
    $nginx->write_file("logs/$_.log", "a line\n") for qw(access error other);
    truncate "$dir/logs/access.log", 501 << 20 or die "truncate: $!";
    $nginx->write_file('state', join "\n", 'logrotate state -- version 2',
        map({ rotation("$dir/logs/$_->[0]", $_->[1]) } [ 'access.log', 0 ],
            [ 'error.log', 25 ], [ 'other.log', 0 ]), '');
    shell("'$logrotate' -s $dir/state $dir/rotate");

    is -s "$dir/logs/access.log.1", 501 << 20, 'a large log is rotated';
    ok -e "$dir/logs/error.log.1", '... and one of yesterday';
    ok !-e "$dir/logs/other.log.1", '... and no other';
    is content("$dir/told"), "told\n", '... and NGINX is told, once';
    cmp_ok oldest($dir, 'access.log'), '>=', 13.9,
        'of each hour, logs are kept for 14 days';
    cmp_ok oldest($dir, 'error.log'), '>=', 13.9, '... and of each day';
    cmp_ok oldest($dir, 'error.log'), '<', 14, '... and no longer';
}

# Makes as many rotated logs, so many hours from one to the next. The first is
# ten minutes younger than that, so that none is of an age in whole days.
sub rotated($dir, $name, $hours, $n) {
    for (1 .. $n) {
        my $file = "logs/$name.$_" . ($_ > 1 ? '.gz' : '');
        $nginx->write_file($file, "$_\n");
        utime((time - 3600 * $hours * $_ + 600) x 2, "$dir/$file");
    }
}

# logrotate's words for a rotation so many hours ago
sub rotation($path, $hours) {
    my @time = localtime(time - 3600 * $hours);
    return sprintf '"%s" %d-%d-%d-%d:%d:0', $path, $time[5] + 1900,
        $time[4] + 1, @time[3, 2, 1];
}

# The age in days of the oldest rotated log.
sub oldest($dir, $name) {
    my @ages = sort { $a <=> $b } map { -M $_ } glob "$dir/logs/$name.*";
    return $ages[-1];
}

SKIP: {
    my ($when) = block('docs/operations.md', 'ini', qr/^\[Timer\]/)
        =~ /^OnCalendar=(\S+)$/m;
    is $when, 'hourly', 'logrotate runs each hour';
    skip 'no systemd-analyze', 1 if !program('systemd-analyze');
    shell("systemd-analyze calendar $when");
}
like content('t/docs/fail2ban.t'), qr/```ini.*nginx-limit-req/,
    't/docs/fail2ban.t runs its jail';
block('docs/operations.md', 'ini', qr/^\[nginx-limit-req\]/);

for my $block (grep { $_->{tag} eq 'json' } @ALL) {
    ok eval { decode_json($block->{text}) }, "$block->{name}: JSON" or diag $@;
    $block->{run} = 1;
}


# docs/algorithms.md: the parts of windows, and what README.md says of a limit

my %table = content('docs/algorithms.md')
    =~ /^\| (L up to|parts n|admitted at most) \| (.*) \|$/mg;
my ($limits, $parts, $bounds) = map { [ split / \| /, $table{$_} ] }
    'L up to', 'parts n', 'admitted at most';
my @kinds = content('src/core/rules/counter_kinds.hpp')
    =~ /\{(\d+), (\d+), \d+, \d+\}/g;
my (@largest, @n);
while (my ($largest, $n) = splice @kinds, 0, 2) {
    push @largest, $largest if $n > 1;
    push @n, $n if $n > 1 || $n[-1] > 1;
}
is "@$limits", "@largest above", 'the limits for each number of parts';
is "@$parts", "@n", '... and the numbers';
is join(', ', @$bounds), join(', ', map({ $n[$_] > $largest[$_] ? 'L'
    : "L + L/$n[$_]" } 0 .. $#largest), '2 L - 1'),
    '... and what is admitted';

my ($worst, $limit) = content('README.md')
    =~ /worst case,\s+(\d+)\s+requests pass in a minute under a limit of (\d+)/;
my ($kind) = grep { $largest[$_] >= $limit } 0 .. $#largest;
is $worst, $limit + int($limit / $n[$kind]), 'README.md: the worst case';


# Commands: goals and variables of the Makefile, and files

my $makefile = join '', map { content($_) } 'Makefile', glob '{t,t/*,.ci}/rules.mk';
my $table = content('.ci/packages') =~ s/\n\s+\S+://gr;
my %GOALS = map { $_ => 1 } map { split } $makefile =~ /^([a-z -]+):/mg;

# The packages of `apt install` that .ci/packages does not name.  A file is what
# `make deb` makes of debian/control.
sub packages(@arguments) {
    my ($name) = content('debian/control') =~ /^Package: (\S+)/m;
    return grep { m{^\./} ? $_ ne "./build/deb/${name}_*.deb"
        : !/^(?:install|make|nginx)$/ && $table !~ /[ ?]\Q$_\E[ ?\n]/ } @arguments;
}

# What is wrong with a command, '' if nothing.
sub wrong(@words) {
    my ($program, @arguments) = @words;
    my @wrong = grep { m{^(?:contrib|docs|t|\.ci|src)/[\w./*-]+$}
        && !grep { -e } glob } @words;
    push @wrong, "$program is not executable"
        if $program =~ m{^(?:contrib|\.ci)/[a-z-]+$} && !-x $program;
    push @wrong, packages(@arguments) if $program eq 'apt';
    return @wrong if $program ne 'make';

    my $unquoted = join(' ', @arguments) =~ s/"[^"]*"//gr;
    for (split ' ', $unquoted) {
        push @wrong, $_ if /^(\w+)=/ ? $makefile !~ /\b$1\b/ : !$GOALS{$_};
    }
    return @wrong;
}

for my $block (grep { $_->{tag} =~ /^(?:sh|indented)$/ } @ALL) {
    next if $block->{tag} eq 'indented' && $block->{text} !~ /^make\b/;
    my @commands = commands($block->{text});

    is system('bash', '-nc', $block->{text}), 0, "$block->{name}: syntax";
    is join(' ', map { wrong(@$_) } @commands), '',
        "$block->{name}: goals and files";
    $block->{run} = 1 if !grep { $_->[0] !~ /^(?:apt|make|prove|build\b.*)$/ }
        @commands;
}

for my $page (@PAGES) {
    is join(' ', map { wrong(split ' ') } grep { m{^(?:make |[\w.-]+/\S+$)} }
        inline($page)), '', "$page: goals and files in its text";
}


# The alert of a recipe is one of contrib/, which t/docs/monitoring.t tests
for my $text (block('docs/recipes.md', 'yaml', qr/LimitSlidingDrift/)) {
    my ($alert) = $text =~ /^( *- alert:.*)/ms;
    cmp_ok index(content('contrib/prometheus-rules.yml'), $alert), '>', 0,
        'docs/recipes.md: the alert is in contrib/prometheus-rules.yml';
}

# t/docs/plans.t runs these
$_->{run} = 1 for grep { $_->{page} eq 'docs/plans.md' && $_->{tag} =~ /^(?:sh|text)$/ } @ALL;

# t/docs/kubernetes.t reads and runs these
$_->{run} = 1 for grep { $_->{page} eq 'docs/kubernetes.md' && $_->{tag} eq 'yaml' } @ALL;

# t/docs/migrate.t runs what can run of other limiters, and reads the rest
$_->{run} = 1 for grep { $_->{page} eq 'docs/migrate.md' && $_->{tag} =~ /^(?:text|yaml)$/ } @ALL;

# t/docs/fail2ban.t uses it where the log needs it
for my $block (grep { $_->{tag} eq 'ini' && $_->{text} =~ /failregex/ } @ALL) {
    like $block->{text}, qr/^\[Definition\]\nfailregex = \^.*<HOST>/,
        "$block->{name}: a filter of fail2ban";
    $block->{run} = 1;
}

# `make check` needs clang-format, too
for my $block (grep { $_->{tag} eq 'cpp' } @ALL) {
    SKIP: {
        skip 'no clang-format', 1 if !program('clang-format');
        my $file = "@{[ $reader->dir ]}/example.cpp";
        open my $out, '>', $file or die "$file: $!";
        print $out $block->{text};
        close $out or die "$file: $!";
        is `clang-format --style=file:.clang-format '$file'`, $block->{text},
            "$block->{name}: is formatted";
    }
    $block->{run} = 1;
}

is join(' ', map { $_->{name} } grep { $_->{tag} ne 'indented'
    && !$_->{run} && !defined $_->{reason} } @ALL), '',
    'every block was run or checked, or says why not';

$application->finish;
