# What Prometheus reads: as its own tool would have it, complete, and soon
# even where a million keys are held.

use v5.36;

use JSON::PP qw(decode_json);
use List::Util qw(max);
use Test::More;

use LimitSliding::Test;

my $KEYS = 1_000_000;

my ($PROMTOOL) = grep { -x } $ENV{PROMTOOL} // (), 'build/promtool',
    map { "$_/promtool" } split /:/, $ENV{PATH};

my $nginx = LimitSliding::Test->new(worker_processes => 1)->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key zone=one:1m rate=2r/h;
    limit_sliding_zone $arg_key zone=big:20m rate=2r/h;
    limit_sliding_zone $arg_key zone=short:20m rate=2000 window=1s
        algorithm=fixed;
    limit_sliding_zone $arg_key "zone=odd \"\\\ name:32k" rate=$arg_rate
        window=1500ms algorithm=log;
    limit_sliding_log_level off;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /one { limit_sliding zone=one; empty_gif; }
        location /big { limit_sliding zone=big; empty_gif; }
        location /plain { empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF

sub metrics() {
    my $response = $nginx->get('/limits/metrics');
    is header($response, 'Content-Type'), 'text/plain; version=0.0.4',
        'text format';
    my %samples = $response->{body} =~ /^(\w+(?:\{.*\})?) (\S+)$/mg;
    return ($response->{body}, %samples);
}

sub zone($name) {
    return decode_json($nginx->get('/limits')->{body})->{zones}{$name};
}


# the format

$nginx->get("/one?key=$_") for qw(a a a b secret-key);

my ($text, %samples) = metrics();

my (%type, $last, @wrong);
for (split /\n/, $text) {
    if (/^# HELP (limit_sliding_\w+) [A-Z].*\.$/) {
        push @wrong, "again: $_" if $type{$1};
        $last = $1;
    } elsif (/^# TYPE (\w+) (counter|gauge|histogram)$/) {
        push @wrong, "without help: $_" if $1 ne $last;
        $type{$1} = $2;
        push @wrong, "counter's name: $_" if ($2 eq 'counter') ^ /_total /;
    } elsif (/^(\w+)(?:\{(\w+="(?:[^"\\\n]|\\[\\"n])*",?)+\})? [\d.]+$/) {
        push @wrong, "without type: $_" if $1 !~ /^$last(?:_bucket|_sum|_count)?$/;
    } else {
        push @wrong, $_;
    }
}
is join("\n", @wrong), '', 'every line is as it should be';
cmp_ok keys %type, '>=', 12, 'metrics';
unlike $text, qr/secret-key/, 'keys are no labels';

is $samples{'limit_sliding_requests_total{zone="one",status="passed"}'}, 4,
    'passed';
is $samples{'limit_sliding_requests_total{zone="one",status="rejected"}'}, 1,
    'rejected';
is $samples{'limit_sliding_keys{zone="one"}'}, 3, 'keys';
is $samples{'limit_sliding_limit{zone="one"}'}, 2, 'a limit';
ok !exists $samples{'limit_sliding_limit{zone="odd \"\\\\\\\\ name"}'},
    'none where it varies';
is $samples{'limit_sliding_window_seconds{zone="odd \"\\\\\\\\ name"}'}, '1.500',
    'a window, of a zone with an odd name' or diag $text;
is $samples{'limit_sliding_zone_bytes{zone="big"}'}, 20 * 1024 * 1024, 'bytes';

SKIP: {
    skip 'no promtool: .ci/get-tools build', 1 if !$PROMTOOL;

    $nginx->write_file('metrics', $text);
    my $said = `'$PROMTOOL' check metrics < '${\ $nginx->dir }/metrics' 2>&1`;
    is "$?: $said", '0: ', 'promtool check metrics';
}


# The keys rejected most, in the order of their rejections.

for my $i (1 .. 20) {
    $nginx->get("/one?key=top$i") for 1 .. 2 + $i;
}
my @top = @{ zone('one')->{top} };
is join(' ', map { "$_->{key}=$_->{rejected}" } @top[ 0 .. 9 ]),
    join(' ', map { "top$_=$_" } reverse 11 .. 20), 'top offenders';

$nginx->load(pipeline => 8,
    requests => [ map { '/one?key=many' . $_ % 1000 } 1 .. 10_000 ]);
@top = @{ zone('one')->{top} };
is @top, 100, 'no more than 100';

# Of an attack, a sample.
my $before = zone('one');
$nginx->load(pipeline => 64, connections => 64,
    requests => [ ('/one?key=attack') x 50_000 ]);
my ($attack) = grep { $_->{key} eq 'attack' } @{ zone('one')->{top} };
cmp_ok abs($attack->{rejected} - 50_000), '<', 2_000,
    "an attacker, roughly: $attack->{rejected} of 50,000";
is zone('one')->{rejected} - $before->{rejected}, 49_998, '... counted exactly';


# A million keys.

for my $part (0 .. 9) {
    my $first = $part * $KEYS / 10;
    $nginx->load(pipeline => 64, connections => 16, requests => [
        map { "/big?key=$_" } $first + 1 .. $first + $KEYS / 10 ]);
}

my $big = zone('big');
is $big->{passed}, $KEYS, 'a million keys';
cmp_ok $big->{evicted}, '<', $KEYS / 100, '... nearly all held';
is $big->{slots_used} + $big->{evicted}, $KEYS, '... each in a slot';
cmp_ok abs($big->{keys} - $big->{slots_used}), '<', $KEYS / 100,
    '... and estimated so';

sub median(@times) {
    return (sort { $a <=> $b } @times)[ @times / 2 ];
}

sub timed($path, $socket) {
    my $start = now();
    $nginx->get($path, socket => $socket);
    return now() - $start;
}

my $socket = $nginx->connect;
for my $path ('/limits/metrics', '/limits') {
    my $time = median(map { timed($path, $socket) } 1 .. 101);
    cmp_ok $time, '<', 0.005, "GET $path: in less than 5 ms";
    note sprintf '%.3f ms', $time * 1000;
}

# While they are read all the time, by two clients, another's request takes no
# longer than two of theirs.
my $pid = fork() // die "fork: $!";
if (!$pid) {
    $nginx->load(connections => 2, requests => [ ('/limits/metrics') x 1000 ]);
    POSIX::_exit(0);
}
my @times = map { timed('/plain', $socket) } 1 .. 200;
is waitpid($pid, POSIX::WNOHANG()), 0, 'metrics were read meanwhile';
waitpid $pid, 0;
cmp_ok median(@times), '<', 0.005, 'another request is not delayed';
note sprintf 'median %.3f ms, longest %.3f ms', median(@times) * 1000,
    max(@times) * 1000;

$nginx->finish;
