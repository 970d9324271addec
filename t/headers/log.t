# What limit_sliding writes into the error log: limit_req's words.

use v5.36;

use JSON::PP qw(decode_json);
use List::Util qw(sum);
use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(listen => 'reuseport', http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=one:1m rate=1 window=30d;

    add_header X-Worker $pid always;
HTTP
    limit_sliding zone=one;
SERVER

# Fail2ban's filter nginx-limit-req of Debian 12 has this pattern behind the
# date.
my $fail2ban = '^\s*\[[a-z]+\] \d+#\d+: \*\d+ limiting requests, '
    . 'excess: [\d\.]+ by zone "(?:[^"]+)", client: \S+,';
my $limiting = 'limiting requests, excess: 1.000 by zone "one"'
    . ', client: 127.0.0.1';

# Returns the lines about limiting that came since the last call.
sub new_lines() {
    return $nginx->new_log_lines(qr/limiting/);
}


# words and levels

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=two:1m rate=3 window=30d;
HTTP
    location /default { empty_gif; }
    location /info    { limit_sliding_log_level info;   empty_gif; }
    location /notice  { limit_sliding_log_level notice; empty_gif; }
    location /warn    { limit_sliding_log_level warn;   empty_gif; }
    location /error   { limit_sliding_log_level error;  empty_gif; }
    location /off     { limit_sliding_log_level off;    empty_gif; }

    location /dry {
        limit_sliding_dry_run on;
        limit_sliding_log_level warn;
        empty_gif;
    }

    location /both {
        limit_sliding zone=two;
        limit_sliding zone=one;
        empty_gif;
    }
SERVER

$nginx->get('/default?key=a');
is_deeply [new_lines()], [], 'an admitted request is not logged';

my %level = (default => 'error', map { $_ => $_ } qw(info notice warn error));
for my $place (sort keys %level) {
    is $nginx->get("/$place?key=a")->{status}, 429, "$place: rejected";
    my @lines = new_lines();
    is @lines, 1, "$place: one line";

    my $words = "$limiting, server: "
        . qq(, request: "GET /$place?key=a HTTP/1.1", host: "localhost");
    like $lines[0], qr/^\S+ \S+ \[$level{$place}\] \d+#\d+: \*\d+ \Q$words\E$/,
        "$place: its level and words";
    like $lines[0] =~ s/^\S+ \S+//r, qr/$fail2ban/, "$place: fail2ban takes it";
}

is $nginx->get('/off?key=a')->{status}, 429, 'off: rejected';
is_deeply [new_lines()], [], 'off: no line';

is $nginx->get('/dry?key=a')->{status}, 200, 'dry run: passed';
my @lines = new_lines();
is @lines, 1, 'dry run: one line';
my $dry = $limiting =~ s/, /, dry run, /r;
like $lines[0], qr/\[warn\] \d+#\d+: \*\d+ \Q$dry\E, server: /,
    'dry run: its words';
unlike $lines[0] =~ s/^\S+ \S+//r, qr/$fail2ban/, 'dry run: nobody is banned';

$nginx->get('/both?key=both');
$nginx->get('/both?key=both');
@lines = new_lines();
is @lines, 1, 'two limits: one line';
like $lines[0], qr/by zone "one"/, 'two limits: of that which rejects';


# every=1s

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=two:1m rate=3 window=30d;
HTTP
    location /every {
        limit_sliding_log_level warn every=1s;
        empty_gif;
    }

    location /every-two {
        limit_sliding zone=two;
        limit_sliding_log_level warn every=1s;
        empty_gif;
    }
SERVER

$nginx->get('/every?key=a');

# Sends requests that are all rejected; returns how many each worker answered.
sub flood($path, $n) {
    my (%by_worker, $other);
    $nginx->load(requests => [ ($path) x $n ],
        each => sub ($i, $status, $head) {
            my ($worker) = $head =~ /^X-Worker: (\d+)/m;
            $status == 429 ? $by_worker{$worker}++ : $other++;
        });
    is $other, undef, "$n requests rejected" if $other;
    return %by_worker;
}

my %early;
for (1 .. 25) {
    my %rejected = flood('/every?key=a', 50);
    $early{$_} += $rejected{$_} for keys %rejected;
    sleep 0.1;
}

sleep 1;                  # now each worker owes a line with what it left out
flood('/every?key=a', 200);

is keys %early, 2, 'every: both workers rejected';

my (%told, %seconds);
for (new_lines()) {
    my ($second, $worker, $omitted) = m{
            ^\S+ \s (\S+) \s \[warn\] \s (\d+)\#\d+: \s \*\d+ \s \Q$limiting\E
            (?: ,\ omitted:\ (\d+) )? ,\ server:\ }x
        or do { fail("every: odd line: $_"); next };
    push @{ $told{$worker} }, $omitted // 0;
    $seconds{$worker}{$second} = 1;

    like s/^\S+ \S+//r, qr/$fail2ban/, 'every: fail2ban takes it' if $omitted;
}

for my $worker (sort keys %early) {
    my @omitted = @{ $told{$worker} // [] };
    is @omitted, 4, 'every: a worker writes lines';
    is keys %{ $seconds{$worker} }, 4, '... at most one a second';
    is $omitted[0], 0, '... the first one at once';
    is sum(@omitted) + @omitted, $early{$worker} + 1,
        '... which account for each rejected request';
}


# every zone has its own second

my $connection = $nginx->connect;       # so that one worker serves them all
$nginx->get('/every-two?key=b', socket => $connection) for 1 .. 3;

sleep 1;
new_lines();
$nginx->get($_, socket => $connection) for ('/every?key=a', '/every-two?key=b') x 3;
@lines = new_lines();
is grep(/zone "one"/, @lines), 1, 'one line of one zone';
is grep(/zone "two"/, @lines), 1, 'and one of the other';


# what error_log drops does not use up the line of its time

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=queue:1m rate=1r/h burst=2
        algorithm=leaky_bucket;
    limit_sliding_zone $arg_key zone=paced:1m rate=5r/d;
HTTP
    location /bad-values {
        limit_sliding zone=paced cost=$arg_cost;
        limit_sliding_log_level error every=1h;
        empty_gif;
    }
    # Delays are logged a level lower, which is not written.
    location /quiet-delays {
        limit_sliding zone=queue dry_run;
        limit_sliding_log_level error every=1h;
        error_log %%DIR%%/error.log error;
        empty_gif;
    }
SERVER

$connection = $nginx->connect;
$nginx->get('/quiet-delays?key=q', socket => $connection) for 1 .. 3;
is_deeply [ $nginx->log_lines(qr/delaying/) ], [],
    'delays below the level of error_log';
new_lines();
$nginx->get('/quiet-delays?key=q', socket => $connection) for 1 .. 2;
@lines = new_lines();
is @lines, 1, 'the first rejection is written nevertheless';
like $lines[0], qr/limiting .* "queue", client: 127\.0\.0\.1, server: /,
    'and none was left out';


# a client's values fill no log, and hide no rejection

$connection = $nginx->connect;
new_lines();
my $bad = '"' x 500;
$nginx->get("/bad-values?key=b&cost=$bad", socket => $connection) for 1 .. 7;
my @bad = $nginx->log_lines(qr/invalid cost/);
is @bad, 1, 'one line of seven bad values';
like $bad[0], qr/\[error\] .* invalid cost "(?:\\x22){64}\.\.\." of a request in zone "paced", client: /,
    'has the first 64 bytes of the value';
@lines = new_lines();
is @lines, 1, 'one line of two rejections';
like $lines[0], qr/limiting requests, excess: 1\.000 by zone "paced", client: /,
    'the rejection has a pace of its own';

$nginx->finish_one;


# Angie's log of JSON: the count is a number, among what is said of the request

SKIP: {
    skip 'no log of JSON', 1 if !$nginx->has_log_properties;

    $nginx = LimitSliding::Test->new(worker_processes => 1)->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key zone=one:1m rate=1 window=30d;
    limit_sliding zone=one;
    limit_sliding_log_level warn every=1s;

    server {
        listen 127.0.0.1:%%PORT%%;
        error_log %%DIR%%/error.log warn;
        error_log %%DIR%%/json.log warn format=json;
        location / { empty_gif; }
    }
}
CONF
    for (1 .. 2) {
        $nginx->get('/?key=a') for 1 .. 5;
        sleep 1;
        $nginx->get('/?key=a');
        $nginx->reload;       # which makes the properties of the log anew
    }

    open my $file, '<', $nginx->dir . '/json.log' or die "json.log: $!";
    my @log = map { decode_json($_) } <$file>;
    my @omitted = map { $_->{http}{request}{omitted} // 'none' } @log;
    is_deeply \@omitted, [ 'none', 3, 'none', 4 ], 'omitted, in JSON'
        or diag explain \@log;
    $nginx->finish_one;
}

done_testing;
