# leaky_bucket as a queue: requests wait, and workers don't.

use v5.36;

use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

use LimitSliding::Clock ();
use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

$nginx->common(listen => 'reuseport', http => <<'HTTP');
    add_header X-Status    $limit_sliding_status    always;
    add_header X-Limit     $limit_sliding_limit     always;
    add_header X-Remaining $limit_sliding_remaining always;
    add_header X-Worker    $pid                     always;
    add_header X-Time      $msec                    always;
    add_header X-Seconds   $request_time            always;
HTTP

# Returns the milliseconds that a request waited.
sub waited($r) {
    return 1000 * header($r, 'X-Seconds');
}

# Returns when a response left, in milliseconds.
sub left_at($r) {
    return header($r, 'X-Time') =~ tr/.//dr;
}

# Returns the headers of a response in the form of get().
sub headers_of($head) {
    my %headers = $head =~ /^([^:\r\n]+): ([^\r\n]*)/mg;
    return { map { lc $_ => [ $headers{$_} ] } keys %headers };
}


# 100 at once leave evenly, and nobody else is held up

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=even:1m rate=50r/s
        algorithm=leaky_bucket burst=100;
HTTP
    location /even { limit_sliding zone=even; empty_gif; }
    location /free { empty_gif; }
SERVER

my ($N, $GAP) = (100, 20);
{
    my (@answers, @free, %statuses, %said, %workers);
    my $came = 1000 * Time::HiRes::time();
    $nginx->load(
        requests    => [ ('/even?key=a') x $N ],
        connections => $N,
        each => sub ($i, $status, $head) {
            push @answers, { status => $status, headers => headers_of($head) };
            push @free, $nginx->get('/free');
        });

    for my $r (@answers) {
        $statuses{ $r->{status} }++;
        $said{ header($r, 'X-Status') }++;
        $workers{ header($r, 'X-Worker') }++;
    }
    is_deeply \%statuses, { 200 => $N }, 'even: all pass';
    is_deeply \%said, { PASSED => 1, DELAYED => $N - 1 },
        'even: all but one wait';
    is keys %workers, 2, 'even: in both workers';

    my @due = map { $GAP * $_ } 0 .. $N - 1;
    is_deeply [ map { waited($_) } @answers ], \@due, "even: $GAP ms apart";
    is_deeply [ map { sprintf '%.0f', left_at($_) - $came } @answers ], \@due,
        'even: each leaves when it is due';
    is LimitSliding::Clock::strays($nginx->workers), 0, 'even: no worker is blocked';
    is_deeply [ map { left_at($_) } @free ], [ map { left_at($_) } @answers ],
        'even: others are served meanwhile, at once';
}


# a queue that is full

my $QUEUES = <<'CONF';
    limit_sliding_zone $arg_key zone=slow:1m rate=1r/h
        algorithm=leaky_bucket burst=2;
    limit_sliding_zone $arg_key zone=quick:1m rate=5r/s
        algorithm=leaky_bucket burst=5;
CONF

$nginx->serve(http => $QUEUES, server => <<'SERVER');
    http2_listen 127.0.0.1:%%PORT1%%;

    location /slow  { limit_sliding zone=slow;        empty_gif; }
    location /look  { limit_sliding zone=slow cost=0; empty_gif; }
    location /dear  { limit_sliding zone=slow cost=4; empty_gif; }
    location /quick { limit_sliding zone=quick;       empty_gif; }
    location /stub  { stub_status; }
SERVER

# Returns how many connections NGINX has, without the one that asks, once it knows of those
# that were closed.
sub connections() {
    sleep 0;
    my ($active) = $nginx->get('/stub')->{body} =~ /^Active connections: (\d+)/;
    return $active - 1;
}

is $nginx->statuses(1, '/slow?key=full'), '200', 'full: one passes';
my @waiting = map { $nginx->send_request('/slow?key=full') } 1 .. 2;
sleep 0;                  # until NGINX has them

my $r = $nginx->get('/slow?key=full');
is $r->{status}, 429, 'full: the fourth is rejected';
is header($r, 'X-Status'), 'REJECTED', 'full: status';
is header($r, 'X-Remaining'), 0, 'full: remaining';
is header($r, 'X-Limit'), 1, 'full: limit';
is header($r, 'Retry-After'), 3600, 'full: Retry-After';
is_deeply [ map { header($nginx->get($_), 'Retry-After') } ('/slow?key=full') x 2 ],
    [ 3600, 3600 ], '... which rejections do not change';

my @delayed = $nginx->log_lines(qr/delaying request.*key=full/);
like $delayed[0], qr/\[warn\] \d+#\d+: \*\d+ delaying request, excess: /,
    'delays are logged one level lower';
like $delayed[0], qr/ 1\.000, by zone "slow", client: 127\.0\.0\.1, server: /,
    "in limit_req's words";
like $delayed[1], qr/ excess: 2\.000, by zone "slow"/,
    'with an excess of two for the second';
my @rejected = $nginx->log_lines(qr/limiting requests.*key=full/);
is @rejected, 3, 'rejections are logged';
like $rejected[0], qr/\[error\] .* excess: 3\.000 by zone "slow", client/,
    'at their level';


is $nginx->statuses(1, '/look?key=full'), '200', 'full: a look does not wait';
$r = $nginx->get('/dear?key=new');
is $r->{status}, 429, 'a cost above burst and one';
is header($r, 'Retry-After'), '', 'for good';


# clients that go away leave nothing behind

my $before = connections();
close $_ for @waiting;
is connections(), $before - 2, 'gone: connections are closed';
is $nginx->statuses(1, '/slow?key=full'), '429', 'gone: but they did count';

my @gone;
for my $i (1 .. 40) {
    my $key = "gone-$i";
    $nginx->get("/slow?key=$key");
    push @gone, map { $nginx->send_request("/slow?key=$key") } 1 .. 2;
}
is connections(), 80, '80 are connected';
is scalar $nginx->log_lines(qr/delaying request.*key=gone/), 80, 'and wait';
setsockopt $_, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)
    for @gone[0 .. 39];             # these are reset
close $_ for @gone;
is connections(), 0, 'then they are gone';

# an HTTP/2 stream, and its connection

my $QUICK = 200;          # ms between two of the queue of 5r/s

SKIP: {
    skip 'no nghttp', 1 unless $nginx->has_http2;

    my @r = $nginx->http2('/quick?key=h2', times => 4, port => 1);
    is join(' ', map { $_->{status} } @r), '200 200 200 200',
        'HTTP/2: streams wait';
    is join(' ', map { header($_, 'X-Status') } @r),
        'PASSED DELAYED DELAYED DELAYED', 'HTTP/2: all but the first';
    is_deeply [ map { waited($_) } @r ], [ map { $_ * $QUICK } 0 .. 3 ], '... each its time';

    $nginx->get('/slow?key=h2');
    my $pid = open my $pipe, '-|', 'nghttp', '-n', '-m', 2,
        'http://127.0.0.1:' . $nginx->port(1) . '/slow?key=h2';
    ok wait_for(sub {
        2 == $nginx->log_lines(qr{delaying request.*/slow\?key=h2}) }),
        'HTTP/2: two wait';
    $before = connections();
    kill 'KILL', $pid;
    close $pipe;
    is connections(), $before - 1, 'HTTP/2: they are gone';
}


# all or nothing

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $QUEUES
    limit_sliding_zone \$arg_key zone=one:1m rate=1 window=30d;
HTTP
    location /look { limit_sliding zone=slow cost=0; empty_gif; }
    location /full { limit_sliding zone=one;         empty_gif; }

    location /all-or-nothing {
        limit_sliding zone=slow;
        limit_sliding zone=one;
        empty_gif;
    }
SERVER

is $nginx->statuses(1, '/full?key=all'), '200', 'another zone is full';
is $nginx->statuses(3, '/all-or-nothing?key=all'), '429 429 429',
    'all or nothing: rejected, not delayed';
is header($nginx->get('/look?key=all'), 'X-Remaining'), 3,
    'all or nothing: the queue is as it was';
is scalar $nginx->log_lines(qr/delaying.*all-or-nothing/), 0,
    'all or nothing: no delay is logged';


# where a request goes after it waited

$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");
my @login = (headers => [ 'Authorization: Basic dXNlcjpzZWNyZXQ=' ]);

$nginx->serve(http => <<"HTTP", server => <<'SERVER');
    $QUEUES
    limit_sliding_zone \$arg_key zone=quicker:1m rate=100r/s
        algorithm=leaky_bucket burst=50;

    auth_basic_user_file %%DIR%%/htpasswd;

    server {
        listen 127.0.0.1:%%PORT2%%;
        location / { return 200 posted; }
    }
HTTP
    location /quick { limit_sliding zone=quick; empty_gif; }
    location /stub  { stub_status; }

    location /two {
        limit_sliding zone=quicker;
        limit_sliding zone=quick;
        empty_gif;
    }

    location /auth {
        auth_basic closed;
        limit_sliding zone=quick;
        empty_gif;
    }

    location /any {
        satisfy any;
        deny all;
        auth_basic closed;
        limit_sliding zone=quick;
        empty_gif;
    }

    location /after-auth {
        auth_basic closed;
        limit_sliding zone=quick after_auth;
        empty_gif;
    }

    location /upload {
        limit_sliding zone=quick;
        proxy_pass http://127.0.0.1:%%PORT2%%;
        proxy_hide_header X-Time;
        proxy_hide_header X-Seconds;
    }

    location /page {
        limit_sliding zone=quick;
        error_page 404 = @quick;
    }
    location @quick { limit_sliding zone=quick; empty_gif; }
SERVER

# Sends two requests of one key, the second of which waits. Returns both responses.
sub twice($path, @options) {
    return map { $nginx->get($path, @options) } 1, 2;
}

{
    my (undef, $second) = twice('/two?key=two');
    is header($second, 'X-Status'), 'DELAYED', 'two queues: delayed';
    is waited($second), $QUICK, 'two queues: by the slower';
}

my $connection = $nginx->connect;
for my $case (
    [ '/quick?key=1',  200, 'content' ],
    [ '/quick?key=2',  200, 'keepalive', socket => $connection ],
    [ '/quick?key=3',  200, 'HTTP/1.0', version => '1.0' ],
    [ '/quick?key=4',  200, 'HEAD', method => 'HEAD' ],
    [ '/page?key=5',   200, 'error_page, once' ],
    [ '/auth?key=6',   401, 'authentication' ],
    [ '/auth?key=7',   200, 'authentication that succeeds', @login ],
    [ '/any?key=a',    401, 'satisfy any' ],
    [ '/any?key=b',    200, 'satisfy any, a user', @login ],
    [ '/after-auth?key=8', 200, 'content, after_auth', @login ],
    [ '/upload?key=9', 200, 'proxy', method => 'POST', body => 'b' x 300_000 ],
) {
    my ($path, $status, $name, @options) = @$case;

    my ($first, $second) = twice($path, @options);
    is $first->{status}, $status, "$name: passed";
    is $second->{status}, $status, "$name: delayed";
    is header($second, 'X-Status'), 'DELAYED', "$name: status";
    is waited($second), $QUICK, "$name: until it was due";
    is header($second, 'X-Remaining'), 4, "$name: counted once";
}

# A second request that arrives while the first one waits waits for it.
$nginx->get('/quick?key=pair');
print {$connection} map { "GET /$_ HTTP/1.1\r\nHost: localhost\r\n\r\n" }
    'quick?key=pair', 'stub';
$connection->flush;
my $answers = '';
while ((my @status = $answers =~ m{HTTP/1\.1 (\d+)}g) < 2) {
    sysread $connection, $answers, 65536, length $answers or last;
}
like $answers, qr{^HTTP/1\.1 200 .*DELAYED.*HTTP/1\.1 200 .*Active}s,
    'two requests at once on a connection';

is $nginx->statuses(2, '/after-auth?key=10'), '401 401',
    'after_auth: who is not let in';
is header($nginx->get('/after-auth?key=10', @login), 'X-Status'), 'PASSED',
    'after_auth: does not queue';


# dry run

$nginx->serve(http => $QUEUES, server => <<'SERVER');
    location /dry {
        limit_sliding zone=slow;
        limit_sliding_dry_run on;
        empty_gif;
    }

    location /watched {
        limit_sliding zone=slow dry_run;
        empty_gif;
    }
SERVER

my $quick = now;
for my $place (qw(dry watched)) {
    is join(' ', map { header($nginx->get("/$place?key=$place"), 'X-Status') }
        1 .. 5), 'PASSED DELAYED_DRY_RUN DELAYED_DRY_RUN'
        . ' REJECTED_DRY_RUN REJECTED_DRY_RUN', "$place: says what it would do";

    my @lines = $nginx->log_lines(qr/delaying request.*key=$place/);
    is @lines, 2, "$place: logs what it would do";
    like $lines[0], qr/\[warn\] .* delaying request, dry run, excess: /,
        "$place: in these words";
}
is now, $quick, 'dry run: nobody waits';


# levels

$nginx->serve(http => $QUEUES, server => <<'SERVER');
    limit_sliding zone=quick;

    location /quick { empty_gif; }
    location /info  { limit_sliding_log_level info; empty_gif; }
    location /warn  { limit_sliding_log_level warn; empty_gif; }
    location /off   { limit_sliding_log_level off;  empty_gif; }
SERVER

for my $case ([ info => 'info' ], [ warn => 'notice' ], [ quick => 'warn' ],
    [ off => '' ])
{
    my ($place, $level) = @$case;
    my $request = "/$place?key=level-$place";
    twice($request);
    my @lines = $nginx->log_lines(qr{delaying.*\Q$request\E });
    is join(' ', map { /\[(\w+)\]/ } @lines), $level,
        "limit_sliding_log_level of /$place";
}


# A reload drops none of those that wait, not even one that empties the zone.

# Returns the directives of a section where this many requests may wait.
sub waiting($burst) {
    return places(each => 'algorithm=leaky_bucket', zones => {
        long => "rate=20r/s burst=$burst",
        end  => 'rate=2r/s burst=50',
    });
}
$nginx->serve(waiting(50));

for my $burst (50, 51) {
    my $statuses = $nginx->load(
        requests    => [ ("/long?key=$burst") x 20 ],
        connections => 20,
        at          => { 3 => sub {
            $nginx->hup($nginx->template(waiting($burst))) } },
    );
    is scalar grep({ ($_ // '') eq '200' } @$statuses), 20,
        'reload while 20 wait: all pass';
}
like +($nginx->log_lines(qr/\[notice\].*"long".*burst/))[0], qr/starts empty/,
    'the second emptied the zone';
is scalar $nginx->log_lines(qr/\[notice\].*"long".*burst/), 1, '... once';

# The end of NGINX drops none, either.
wait_for(sub { $nginx->workers == 2 && $nginx->children == 2 })
    or die 'the reload does not end';
@waiting = map { $nginx->send_request('/end?key=end') } 1 .. 6;
sleep 0;                  # until NGINX has them
is scalar $nginx->log_lines(qr/delaying request.*key=end/), 5, 'five wait';
my $quit = 1000 * Time::HiRes::time();
ok $nginx->stop, 'stopped while they wait';
my @rest = map { $nginx->read_response($_) } @waiting;
is join(' ', map { $_->{status} // 'none' } @rest), '200 200 200 200 200 200',
    'all pass';
is_deeply [ sort { $a <=> $b } map { sprintf '%.0f', left_at($_) - $quit } @rest ],
    [ map { 500 * $_ } 0 .. 5 ], '... each when it was due, though NGINX was told to stop';

$nginx->finish;
