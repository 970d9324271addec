# Limits on requests in flight: how many at once a key may have.

use v5.36;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

# It accepts connections, and never answers.
my $silent = IO::Socket::INET->new(Proto => 'tcp', Listen => 511,
    LocalAddr => '127.0.0.1') // die "listen: $!";
my $SILENT = 'proxy_pass http://127.0.0.1:' . $silent->sockport . ';';

my $nginx = LimitSliding::Test->new;
$nginx->common(http => <<'HTTP', server => <<"SERVER");
    add_header X-Told "$limit_sliding_status $limit_sliding_zone $limit_sliding_limit $limit_sliding_remaining [$limit_sliding_reset]" always;
    map $http_x_plan $plan { default $http_x_plan; }
HTTP
    location /limits { limit_sliding_api write=on; }
    location = /page { empty_gif; }
    location = /silent { internal; $SILENT }
SERVER

# Begins requests of these paths, and waits until they hold so many units.
sub hold($zone, $units, @paths) {
    my @held = map { $nginx->send_request($_->[0], @{$_}[1 .. $#$_]) }
        map { ref $_ ? $_ : [$_] } @paths;
    is held($zone, $units), $units, "$units held in $zone";
    return @held;
}

sub held($zone, $units) {
    my $is;
    wait_for(sub { ($is = api($nginx)->{zones}{$zone}{held}) == $units }, 5);
    return $is;
}

sub told($path, @options) {
    my $r = $nginx->get($path, @options);
    return "$r->{status} " . header($r, 'X-Told');
}


# the limit

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $arg_key zone=two:1m inflight=2;
HTTP
    location /two { limit_sliding zone=two; $SILENT }
    location /quick { limit_sliding zone=two; empty_gif; }
    location /watched { limit_sliding zone=two dry_run; empty_gif; }
    location /tight { limit_sliding zone=two inflight=1; empty_gif; }
    location /fields {
        limit_sliding zone=two;
        limit_sliding_headers retry_after draft x;
        empty_gif;
    }
    location /cost { limit_sliding zone=two cost=\$arg_cost; empty_gif; }
SERVER

is told('/quick?key=a'), '200 PASSED two 2 1 []', 'a request';
is held('two', 0), 0, '... holds nothing afterwards';
my @held = hold('two', 2, ('/two?key=a') x 2);

my $r = $nginx->get('/quick?key=a');
is "$r->{status} " . header($r, 'X-Told'), '429 REJECTED two 2 0 []', 'a third one';
is header($r, 'Retry-After'), '', '... is not told when to retry';
is told('/quick?key=b'), '200 PASSED two 2 1 []', 'another key';
is told('/watched?key=a'), '200 REJECTED_DRY_RUN two 2 0 []', 'a dry run';

my @lines = $nginx->log_lines(qr/limiting requests/);
like $lines[0], qr/\[error\] .* limiting requests in flight, 2 of 2 by zone "two", client: 127/,
    'the log';
like $lines[1], qr/limiting requests in flight, dry run, 2 of 2 by zone "two"/,
    '... of the dry run';

$r = $nginx->get('/fields?key=a');
is join('|', map { header($r, $_) } qw(RateLimit-Policy RateLimit Retry-After
    X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset)),
    '"two";q=2|"two";r=0||2|0|', 'header fields have no window and no reset';
$r = $nginx->get('/fields?key=c');
is join('|', map { header($r, $_) } qw(RateLimit-Policy RateLimit
    X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset)),
    '"two";q=2|"two";r=1|2|1|', '... when a request passes';

close pop @held;
is held('two', 1), 1, 'a client leaves';
is told('/quick?key=a'), '200 PASSED two 2 0 []', '... and another request passes';
is told('/tight?key=a'), '429 REJECTED two 1 0 []', 'a lower limit at a place';

is told('/cost?key=d&cost=3'), '429 REJECTED two 2 2 []', 'a cost above the limit';
is told('/cost?key=d&cost=2'), '200 PASSED two 2 0 []', '... and the limit';
is told('/cost?key=a&cost=0'), '200 PASSED two 2 1 []', 'a cost of 0 holds nothing';
@held = ();
is held('two', 0), 0, 'all leave';


# several limits, all or nothing

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $arg_a zone=a:1m inflight=2;
    limit_sliding_zone $arg_b zone=b:1m inflight=1;
    limit_sliding_zone $arg_r zone=rate:1m rate=2 window=30d;
    limit_sliding_zone $remote_user zone=user:1m inflight=1;
HTTP
    location /both { limit_sliding zone=a; limit_sliding zone=b; $SILENT }
    location /rate { limit_sliding zone=a; limit_sliding zone=rate; empty_gif; }
    location /rate-held { limit_sliding zone=a; limit_sliding zone=rate; $SILENT }
    location /user {
        auth_basic closed;
        auth_basic_user_file %%DIR%%/htpasswd;
        limit_sliding zone=user after_auth;
        $SILENT
    }
SERVER
$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");

@held = hold('a', 1, '/both?a=1&b=1');
is $nginx->get('/both?a=1&b=1')->{status}, 429, 'rejected by one of two';
is api($nginx)->{zones}{a}{held}, 1, '... it holds nothing of the other';
push @held, hold('a', 2, '/both?a=1&b=2');
is told('/both?a=1&b=3'), '429 REJECTED a 2 0 []', 'rejected by the other';
is api($nginx)->{zones}{b}{held}, 2, '... it holds nothing of the first';
is $nginx->statuses(3, '/rate?a=1&r=1'), '429 429 429', 'rejected in flight';
is $nginx->statuses(3, '/rate?a=2&r=1'), '200 200 429', '... it uses nothing of a rate';
is api($nginx)->{zones}{a}{held}, 2, 'rejected by a rate, it holds nothing';
@held = ();
is held('a', 0), 0, 'all leave';

my @login = (headers => ['Authorization: Basic dXNlcjpzZWNyZXQ=']);
@held = hold('user', 1, [ '/user', @login ]);
is $nginx->get('/user', @login)->{status}, 429, 'after_auth: a user has one at once';
is $nginx->get('/user')->{status}, 401, '... and others have to log in';
@held = ();


# limits of keys and of requests

$nginx->write_file('own', "ten 10\nnone off\nblocked 0\n");
$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    limit_sliding_zone $arg_key zone=own:256k inflight=1 limits=own;
    limit_sliding_zone $arg_key zone=plan:1m inflight=$plan;
    limit_sliding_zone $arg_key zone=plans:1m inflight=3;
HTTP
    location /own { limit_sliding zone=own cost=\$arg_cost; empty_gif; }
    location /own-held { limit_sliding zone=own; $SILENT }
    location /plan { limit_sliding zone=plan; empty_gif; }
    location /plans { limit_sliding zone=plans inflight=\$plan; empty_gif; }
SERVER

is told('/own?key=ten&cost=10'), '200 PASSED own 10 0 []', 'an own limit';
is told('/own?key=none&cost=10'), '200 []', '... of off';
is told('/own?key=blocked'), '429 REJECTED own 0 0 []', '... of 0';
is told('/own?key=other&cost=2'), '429 REJECTED own 1 1 []', 'no own limit';
$nginx->new_errors;
is told('/plan?key=a'), '200 []', 'an empty variable';
is told('/plan?key=a', headers => ['X-Plan: 7']), '200 PASSED plan 7 6 []', '... a number';
is told('/plans?key=a', headers => ['X-Plan: 7']), '200 PASSED plans 7 6 []', '... of a place';
is told('/plans?key=a'), '200 PASSED plans 3 2 []', '... else of the zone';
is told('/plans?key=a', headers => ['X-Plan: off']), '200 []', '... off';
is told('/plans?key=a', headers => ['X-Plan: 0']), '429 REJECTED plans 0 0 []', '... 0';
is told('/plans?key=a', headers => ['X-Plan: 5r/s']), '200 PASSED plans 3 2 []', '... a rate';
my @bad = $nginx->new_errors;
is scalar(@bad), 1, 'an error';
like $bad[0], qr/invalid inflight "5r\/s" of a request in zone "plans"/, '... tell of it';


# the API

@held = hold('own', 1, '/own-held?key=x');
sleep 1;
my $zone = api($nginx)->{zones}{own};
is "$zone->{inflight} $zone->{limit} $zone->{algorithm}", '1 1 inflight', 'API: settings';
is $zone->{window_ms}, undef, '... no window';
is "$zone->{held} $zone->{in_flight} $zone->{keys}", '1 1 1', '... what is held';
is $zone->{longest}, 1, '... and for how long';
cmp_ok $zone->{in_flight_max}, '>', 6_000, '... and room';

my $key = api_key($nginx, 'own', 'x');
is join(' ', map { $_ // 'null' } @$key{qw(used limit remaining held in_flight reset)}),
    '1 1 0 1 1 null', '... of a key';
is $key->{longest}, 1, '... the age of its oldest request';
is join(' ', map { $_ // 'null' } @{ api_key($nginx, 'own', 'y') }{qw(held longest)}), '0 0',
    '... of another key';

$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=25');
is "$key->{http} $key->{limit} $key->{remaining}", '200 25 24', 'PUT';
is told('/own?key=x&cost=24'), '200 PASSED own 25 0 []', '... in force';
$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=25r/s');
like "$key->{http} $key->{error}", qr/^400 "inflight" must be an integer from 1 to 4194302, or/,
    'PUT of a rate';
$key = api_key($nginx, 'own', 'x', 'PUT', '&rate=5');
is "$key->{http} $key->{error}", '400 "inflight" must be given', 'PUT without a limit';
for ([ 'DELETE', '' ], [ 'POST', '&cost=1' ], [ 'POST', '&cost=-1' ], [ 'POST', '&cost=1&take=1' ]) {
    my ($method, $arguments) = @$_;
    $key = api_key($nginx, 'own', 'x', $method, $arguments);
    is "$key->{http} $key->{error}",
        "409 $method cannot change units in flight, which are free when their requests end",
        "$method$arguments";
}
my ($listed) = grep { $_->{key} eq 'x' } @{ limits_page($nginx, 'own')->{limits} };
is $listed->{inflight}, 25, 'the list of own limits';

$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=0');
is join(' ', map { $_ // 'null' } @$key{qw(http limit remaining used held own_limit)}),
    '200 0 0 null 1 1', 'PUT of 0';
is told('/own?key=x'), '429 REJECTED own 0 0 []', '... in force';
like(($nginx->log_lines(qr/in flight/))[-1], qr/limiting requests in flight, 1 of 0 by zone "own"/,
    '... and the log has what it still holds');
$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=off');
is join(' ', map { $_ // 'null' } @$key{qw(http limit remaining held own_limit)}),
    '200 null null 1 off', 'PUT of off';
is told('/own?key=x&cost=100'), '200 []', '... in force';
$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=5&ttl=1s');
is join(' ', map { $_ // 'null' } @$key{qw(http limit ttl)}), '200 5 1', 'PUT for a time';
is told('/own?key=x&cost=4'), '200 PASSED own 5 0 []', '... in force';
ok wait_for(sub { api_key($nginx, 'own', 'x')->{limit} == 1 }, 5), '... until its end';
api_key($nginx, 'own', 'x', 'PUT', '&inflight=3');
$key = api_key($nginx, 'own', 'x', 'PUT', '&inflight=default');
is join(' ', map { $_ // 'null' } @$key{qw(http limit remaining own_limit)}), '200 1 0 0',
    'PUT of default';
is told('/own?key=x'), '429 REJECTED own 1 0 []', '... in force';
$key = api_key($nginx, 'own', 'x', 'PUT', "&inflight=$_") and
    like "$key->{http} $key->{error}",
        qr/^400 "inflight" must be an integer from 1 to 4194302, or .*, not "$_"/, "PUT of $_"
    for qw(-1 4194303 1.5 on);
my $metrics = $nginx->get('/limits/metrics')->{body};
like $metrics, qr/^limit_sliding_$_\{zone="own"\} 1$/m, "metric $_"
    for qw(limit held in_flight);
like $metrics, qr/^limit_sliding_longest_seconds\{zone="own"\} [1-9]/m, 'metric longest';
unlike $metrics, qr/^limit_sliding_window_seconds\{zone="own"\}/m, 'no metric of a window';
@held = ();

api_key($nginx, 'own', 'kept', 'PUT', '&inflight=7');
is $nginx->stop, 1, 'stopped';
open my $file, '>>', $nginx->dir . '/own' or die "own: $!";
print $file "customer-7 25\nrate 5r/s\nmany 4194303\ndefault default\n";
close $file;
$nginx->new_errors;
$nginx->serve(http => 'limit_sliding_zone $arg_key zone=own:256k inflight=1 limits=own;',
    server => 'location /own { limit_sliding zone=own; empty_gif; }');
is join(' ', map { api_key($nginx, 'own', $_)->{limit} // 'none' } qw(kept customer-7 none blocked
    rate many default)), '7 25 none 0 1 1 1', 'the file of limits at a start';
is scalar $nginx->log_lines(qr/^\d.* zone "own": the limit is invalid, ignored in \S+own:1[23]$/), 2,
    '... a rate and a limit that is too large are told';


# reloads

my $LOW = "limit_sliding_zone \$arg_key zone=two:1m inflight=1;";
my %place = (server => "location /two { limit_sliding zone=two; $SILENT }"
    . ' location /quick { limit_sliding zone=two; empty_gif; }');

$nginx->serve(%place, http => 'limit_sliding_zone $arg_key zone=two:1m inflight=3;');
@held = hold('two', 2, ('/two?key=a') x 2);

# Reloads, and waits for workers of the new configuration.
sub reload(%directives) {
    my %known = map { $_ => 1 } $nginx->children;
    $nginx->hup($nginx->template(%directives));
    wait_for(sub { my @new = $nginx->workers; @new == 2 && !grep { $known{$_} } @new });
}

reload(%place, http => $LOW);
is told('/quick?key=a'), '429 REJECTED two 1 0 []', 'a lower limit, while old workers hold more';
is held('two', 2), 2, '... what they hold counts';
close pop @held;
is held('two', 1), 1, '... until they release it';
is told('/quick?key=a'), '429 REJECTED two 1 0 []', '... one is left';
close pop @held;
is held('two', 0), 0, '... and none';
is told('/quick?key=a'), '200 PASSED two 1 0 []', '... the next one passes';

@held = hold('two', 1, '/two?key=a');
reload(%place, http => 'limit_sliding_zone $arg_key zone=two:1m rate=1r/d;');
is scalar($nginx->log_lines(qr/"two" starts empty: its algorithm was inflight, now counter/)), 1,
    'a rate instead: the zone starts empty';
like told('/quick?key=a'), qr/^200 PASSED two 1 0 \[\d+\]$/, '... and counts';
@held = ();


# one process, and a worker that is told to end

$nginx->stop;
my $single = LimitSliding::Test->new(worker_processes => 1);
$single->spawn(<<"CONF");
master_process off;
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone \$arg_key zone=two:1m inflight=1;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /limits { limit_sliding_api; }
        $place{server}
    }
}
CONF
ok wait_for(sub { eval { $single->get('/quick?key=a')->{status} == 200 } }),
    'master_process off';
my $one = $single->send_request('/two?key=a');
ok wait_for(sub { $single->get('/quick?key=a')->{status} == 429 }), '... a request is held';
close $one;
ok wait_for(sub { $single->get('/quick?key=a')->{status} == 200 }), '... and ends';
$single->finish_one;

$nginx->finish(allow => [qr/zone "own": the limit is invalid, ignored in/]);
