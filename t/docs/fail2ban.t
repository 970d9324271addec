# Fail2ban's own nginx-limit-req bans those whom a limit rejects, and nobody
# else, whatever they send: its filter on lines of a real NGINX, and then the
# jail of docs/operations.md in a real fail2ban.

use v5.36;

use IO::Socket::IP;
use POSIX ();
use Test::More;

use LimitSliding::Clock real => 'fail2ban has threads that wait';

use LimitSliding::Docs ();
use LimitSliding::Test;

my ($ROOT) = grep { -x "$_/usr/bin/fail2ban-regex" } '', 'build/fail2ban';
plan skip_all => 'no fail2ban: .ci/packages unpack build' if !defined $ROOT;

# /usr/bin/python3 by its path: the packages are for that one.
my @FAIL2BAN = ('env', '-u', 'PYTHONHOME', 'LC_ALL=C.UTF-8',
    "PYTHONPATH=$ROOT/usr/lib/python3/dist-packages", '/usr/bin/python3');

my $nginx = LimitSliding::Test->new(worker_processes => 1);

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=one:1m rate=1 window=30d;
    limit_sliding_zone $arg_key "zone=it is:1m" rate=1 window=30d;

    set_real_ip_from 127.0.0.1;
    real_ip_header   X-Real-IP;
HTTP
    limit_sliding zone=one;

    location / { }
    location /gif   { empty_gif; }
    location /space { limit_sliding "zone=it is"; empty_gif; }
    location /free  { limit_sliding off; }
SERVER

# Fail2ban's configuration, with what the documentation adds for Angie.
my $config = $nginx->dir . '/fail2ban';
system('cp', '-r', "$ROOT/etc/fail2ban", $config) == 0 or die 'cp';
unlink glob "$config/jail.d/*";

my $operations = LimitSliding::Docs::content('docs/operations.md');
my ($filter) = $operations =~ /```ini\n(\[Definition\].*?)```/s;
like $filter, qr/^failregex\s*=/m, 'the documentation has a filter for Angie';
$nginx->write_file('fail2ban/filter.d/nginx-limit-req.local', $filter)
    if $nginx->has_log_properties;

# Returns the addresses that the filter finds in what was logged since the last
# call, in the order of the lines.
my $seen = 0;
sub found() {
    my $log = do {       # without the warnings of each start, which are elsewhere
        open my $file, '<:raw', $nginx->dir . '/error.log' or die "error.log: $!";
        local $/;
        <$file>;
    };
    $nginx->write_file('part.log', substr $log, $seen);
    $seen = length $log;

    open my $pipe, '-|', @FAIL2BAN, "$ROOT/usr/bin/fail2ban-regex",
        '-c', $config, '--out', 'ip', $nginx->dir . '/part.log',
        "$config/filter.d/nginx-limit-req.conf"
        or die "fail2ban-regex: $!";
    chomp(my @found = <$pipe>);
    close $pipe or $? == 256 && !@found or diag "fail2ban-regex: $?";
    return join ' ', @found;
}

sub rejected($path, %request) {
    my $status = $nginx->get($path, %request)->{status};
    is $status, 429, "$path: rejected";
}


# who is found

my $ipv6 = IO::Socket::IP->new(Listen => 1, LocalHost => '::1',
    LocalPort => $nginx->port(1)) ? 'listen [::1]:%%PORT1%%;' : '';

$nginx->serve(server => <<"CONF");
    listen unix:%%DIR%%/nginx.sock;
    $ipv6

    location /every {
        limit_sliding_log_level error every=1s;
        empty_gif;
    }
    location /warn {
        limit_sliding_log_level warn;
        empty_gif;
    }
CONF

$nginx->get("/gif?key=$_", headers => ["X-Real-IP: $_"])
    for qw(192.0.2.1 2001:db8::1);
is found(), '', 'nobody, as nobody was rejected';

rejected("/gif?key=192.0.2.1", headers => ["X-Real-IP: $_"])
    for qw(192.0.2.1 2001:db8::1 192.0.2.1 ::ffff:192.0.2.7);
is found(), '192.0.2.1 2001:db8::1 192.0.2.1 192.0.2.7',
    'clients: both families, one of IPv4 in IPv6\'s form';

$nginx->get('/space?key=192.0.2.1');
rejected("/$_?key=192.0.2.1", headers => ['X-Real-IP: 192.0.2.2'])
    for qw(space warn);
is found(), '192.0.2.2 192.0.2.2', 'other levels, and a zone with a space';

rejected('/gif?key=192.0.2.1');
is found(), '127.0.0.1', 'its own address where no other is given';

SKIP: {
    skip 'no IPv6 here', 2 if !$ipv6;

    my $socket = IO::Socket::IP->new(PeerHost => '::1',
        PeerPort => $nginx->port(1)) or die "connect: $@";
    rejected('/gif?key=192.0.2.1', socket => $socket);
    is found(), '::1', 'a connection by IPv6';
}

rejected('/gif?key=192.0.2.1', unix => $nginx->dir . '/nginx.sock');
is found(), '', 'nobody, where the client is a unix socket';

# A rejection that every= leaves out has no line, and so no address.
for my $n (1 .. 3) {
    my $host = "X-Real-IP: 192.0.2.1$n";
    rejected('/every?key=192.0.2.1', headers => [$host]) for 1 .. 3;
    sleep 1.1;
}
is found(), '192.0.2.11 192.0.2.12 192.0.2.13', 'one a second with every=1s';


# A banned client is found as often as it is rejected: its second line is no match.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=bans:1m rate=1 window=30d penalty=1h;
HTTP
    location /bans { limit_sliding zone=bans; empty_gif; }
SERVER

$nginx->get('/bans?key=a');
rejected('/bans?key=a', headers => ['X-Real-IP: 192.0.2.20']) for 1 .. 3;
is $nginx->log_lines(qr/limiting requests, banned for \d+s by zone "bans"/), 3,
    'each has a line about its ban';
is found(), '192.0.2.20 192.0.2.20 192.0.2.20', 'banned requests are found once each';


# who is not

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=full:32k rate=1 window=30d full=deny;
    limit_sliding_zone $arg_key zone=queue:1m rate=1r/h burst=9
        algorithm=leaky_bucket;
HTTP
    location /dry   { limit_sliding_dry_run on; empty_gif; }
    location /delay { limit_sliding zone=queue dry_run; empty_gif; }
    location /full {
        limit_sliding zone=full;
        limit_sliding_log_level error every=1s;
        empty_gif;
    }
SERVER

my @hostile = (headers => ['X-Real-IP: 192.0.2.3']);
is $nginx->statuses(3, '/dry?key=a', @hostile), '200 200 200', 'dry run';
is $nginx->statuses(3, '/delay?key=a', @hostile), '200 200 200', 'delays';
$nginx->load(pipeline => 16, requests => [
    map { [ "/full?key=$_", 'X-Real-IP: 192.0.2.3' ] } 1 .. 4000 ]);
ok $nginx->log_lines(qr/refusing new keys, zone "full" is full/), 'a full zone';
is $nginx->get('/free/none', @hostile)->{status}, 404, 'no such file';
is found(), '', 'nobody, of those whom no limit has rejected';


# Whatever a client sends, and wherever NGINX writes it: the only address that
# is found is its own, once a rejection.

$nginx->serve(server => <<'CONF');
    location /rate  { limit_sliding zone=one rate=$http_x_rate; empty_gif; }
    location /quiet { limit_sliding off; log_not_found off; }
CONF

my $forged = 'limiting requests, excess: 1.000 by zone "one"'
    . ', client: 198.51.100.1, server: x';
my $line = POSIX::strftime('%Y/%m/%d %H:%M:%S', localtime)
    . " [error] 1#1: *1 $forged";
my $compact = $line =~ tr/ /+/r;

my @texts = ($forged, $line, ", client: 198.51.100.1, ", "a\r $line",
    map { "a$_$line" } "\t", "\x0b", "\x0c", "\x1c", "\x1e", "\x85",
    "\xc2\x85", "\xe2\x80\xa8", "\xff", '\n', '\x0a', '%0a', '"', "\e[2K");

for my $text (@texts) {
    for my $header ('Referer', 'Host', 'X-Rate', 'User-Agent', 'X-Key') {
        for my $place ('gif', 'rate', 'free/none') {
            my $socket = $nginx->send_request("/$place?key=192.0.2.1",
                headers => [ 'X-Real-IP: 192.0.2.4', "$header: $text" ]);
            $nginx->read_response($socket);
        }
    }
}

# Where no limit rejects, NGINX itself writes the decoded path of a file that is
# not there: not under /quiet, as the documentation has it.
my @uris = map { s/([\x00-\x20"])/sprintf '%%%02x', ord $1/ger } @texts;
for my $uri (map { s/#/%23/gr } @uris, $compact, map { s/ /\t/gr } @texts) {
    for my $path ("/$uri?key=192.0.2.1", "/gif/$uri?key=192.0.2.1",
        "/quiet/$uri", "/gif?key=192.0.2.1&$uri",
        "/gif?key=192.0.2.1 HTTP/1.1, $uri")
    {
        $nginx->get($path, headers => ['X-Real-IP: 192.0.2.4']);
    }
}

my $limiting = grep { /client: 192\.0\.2\.4/ } $nginx->log_lines(
    qr/^\S+ \S+ \[\w+\] \d+#\d+: \*\d+ limiting requests, /);
cmp_ok $limiting, '>', 100, 'requests rejected, with hostile texts in them';
my @addresses = split / /, found();
is_deeply [ grep { $_ ne '192.0.2.4' } @addresses ], [],
    'none of these texts injects another address';
is @addresses, $limiting, 'nor hides the client\'s';

my ($forgeries) = scalar(() = $nginx->log =~ /198\.51\.100\.1/g);
cmp_ok $forgeries, '>', 200, 'which were in the log';


# The jail of the documentation, by a fail2ban that runs.

my $dir = $nginx->dir;
my ($jail) = $operations =~ /```ini\n(\[nginx-limit-req\].*?)```/s;
like $jail, qr/^enabled\s*=\s*true$/m, 'the documentation has a jail';
my ($zones) = $jail =~ /ngx_limit_req_zones="([^"]+)"/;
is $zones, 'login|api', '... for two zones';
my ($maxretry) = $jail =~ /^maxretry\s*=\s*(\d+)$/m;

# The test has another log, another zone and another action of a ban.
$nginx->write_file('jail.log', '');
$nginx->write_file('fail2ban/jail.d/test.conf', ($jail
    =~ s{^logpath\s*=.*}{logpath = $dir/jail.log}mr
    =~ s{login\|api}{login|one}r) . <<"JAIL");
banaction = write
banaction_allports = write
backend = polling
JAIL
$nginx->write_file('fail2ban/action.d/write.conf', <<"ACTION");
[Definition]
actionban = echo <ip> >> $dir/banned
ACTION

my @options = ('-c', $config, '-s', "$dir/f2b.sock", '-p', "$dir/f2b.pid",
    '--logtarget', "$dir/f2b.log");
$nginx->write_file('fail2ban/fail2ban.local',
    "[Definition]\ndbfile = :memory:\n");

my $pid = LimitSliding::Process::program("$dir/f2b.out", @FAIL2BAN,
    "$ROOT/usr/bin/fail2ban-server", @options, '-f', 'start');
END { local $?; kill 'KILL', $pid if $pid }

sub content($name) {
    open my $file, '<', "$dir/$name" or return '';
    local $/;
    return <$file> // '';
}

ok wait_for(sub { content('f2b.log') =~ /Jail 'nginx-limit-req' started/ }),
    'fail2ban runs with it' or diag content('f2b.out'), content('f2b.log');

# Both zones reject this key from now on, and fail2ban reads these rejections.
$nginx->get("/$_?key=192.0.2.1") for qw(gif space);
my $before = length content('error.log');
$nginx->get("/gif?key=192.0.2.1", headers => ["X-Real-IP: 192.0.2.5"])
    for 1 .. $maxretry - 1;
$nginx->get("/gif?key=192.0.2.1", headers => ["X-Real-IP: $_",
    "Referer: $line"]) for ('192.0.2.6', '2001:db8::6') x $maxretry;
$nginx->get('/space?key=192.0.2.1', headers => ['X-Real-IP: 192.0.2.7'])
    for 1 .. $maxretry;
$nginx->write_file('jail.log', substr content('error.log'), $before);

ok wait_for(sub { 2 <= split /\n/, content('banned') }), 'it bans';
sleep 1.5;                # and would do so to others by now
is join(' ', sort split /\n/, content('banned')), '192.0.2.6 2001:db8::6',
    'those with too many rejections by these zones, and nobody else'
    or diag content('f2b.log');

kill 'TERM', $pid;
ok wait_for(sub { waitpid($pid, POSIX::WNOHANG()) == $pid }),
    'fail2ban has ended';
undef $pid;

$nginx->finish;
