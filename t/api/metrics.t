# What Prometheus reads: as its own tool would have it, complete, and cheap
# even where many keys are held.

use v5.36;

use List::Util qw(first max);
use Test::More;

use LimitSliding::Generator qw(cpu_us);
use LimitSliding::Api qw(api);
use LimitSliding::Test;

my $KEYS = 100_000;

my ($PROMTOOL) = grep { -x } $ENV{PROMTOOL} // (), 'build/promtool',
    map { "$_/promtool" } split /:/, $ENV{PATH};

my $nginx = LimitSliding::Test->new(worker_processes => 1)->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_key zone=one:1m rate=2r/h;
    limit_sliding_zone $arg_key zone=big:2m rate=2r/h;
    limit_sliding_zone $arg_key zone=short:20m rate=2000 window=1s
        algorithm=fixed;
    limit_sliding_zone $arg_key "zone=odd \"\\\ name:32k" rate=$arg_rate
        window=1500ms algorithm=log;
    limit_sliding_log_level off;
    log_format path $request_uri;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /one { limit_sliding zone=one; empty_gif; }
        location /big { limit_sliding zone=big; empty_gif; }
        location /plain { access_log %%DIR%%/access.log path; empty_gif; }
        location /limits {
            access_log %%DIR%%/access.log path;
            limit_sliding_api;
        }
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
    return api($nginx)->{zones}{$name};
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
is $samples{'limit_sliding_zone_bytes{zone="big"}'}, 2 * 1024 * 1024, 'bytes';

SKIP: {
    skip 'no promtool: .ci/packages unpack build', 1 if !$PROMTOOL;

    $nginx->write_file('metrics', $text);
    my $said = `'$PROMTOOL' check metrics < '${\ $nginx->dir }/metrics' 2>&1`;
    is "$?: $said", '0: ', 'promtool check metrics';
}


# The keys rejected most, in the order of their rejections.  A worker counts 32 rejections a
# millisecond, and a sample of those beyond.

for my $i (1 .. 20) {
    $nginx->get("/one?key=top$i") for 1 .. 2 + $i;
    sleep 0.001;
}
my @top = @{ zone('one')->{top} };
is join(' ', map { "$_->{key}=$_->{rejected}" } @top[ 0 .. 9 ]),
    join(' ', map { "top$_=$_" } reverse 11 .. 20), 'top offenders';

for my $part (1 .. 15) {
    $nginx->load(requests => [ map { ("/one?key=many$part-$_") x 3 } 1 .. 10 ]);
    sleep 0.001;
}
@top = @{ zone('one')->{top} };
is @top, 100, 'no more than 100';

# Of an attack, a sample.
my $before = zone('one');
$nginx->load(pipeline => 64, connections => 64,
    requests => [ ('/one?key=attack') x 50_000 ]);
my ($attack) = grep { $_->{key} eq 'attack' } @{ zone('one')->{top} };
cmp_ok abs($attack->{rejected} - 49_998), '<=', 256,
    "an attacker, but for a sample: $attack->{rejected} of 49,998";
is zone('one')->{rejected} - $before->{rejected}, 49_998, '... counted exactly';


# What a request costs the worker, in milliseconds of the processor, when it has
# nothing else to do.
sub cost_ms($path, $socket) {
    my $TIMES = 101;
    my ($worker) = $nginx->workers;
    my $us = cpu_us($worker);
    for (1 .. $TIMES) {
        my $status = $nginx->get($path, socket => $socket)->{status};
        die "GET $path failed\n" if ($status // '') ne '200';
    }
    return (cpu_us($worker) - $us) / 1000 / $TIMES;
}

my $socket = $nginx->connect;
my %few_keys = map { $_ => cost_ms($_, $socket) } '/limits/metrics', '/limits';


# Many keys.

$nginx->load(pipeline => 64, connections => 16, requests => [ map { "/big?key=$_" } 1 .. $KEYS ]);

my $big = zone('big');
is $big->{passed}, $KEYS, 'many keys';
cmp_ok $big->{evicted}, '<', $KEYS / 100, '... nearly all held';
is $big->{slots_used} + $big->{evicted}, $KEYS, '... each in a slot';
cmp_ok abs($big->{keys} - $big->{slots_used}), '<', $KEYS / 100,
    '... and estimated so';

# A hundred top offenders are told of in either case.
for my $path (sort keys %few_keys) {
    my $ms = cost_ms($path, $socket);
    cmp_ok $ms, '<', 5, "GET $path: in less than 5 ms";
    cmp_ok $ms, '<', 5 * $few_keys{$path}, '... for any number of keys';
    note sprintf '%.3f ms, and %.3f ms with few keys', $ms, $few_keys{$path};
}

# While they are read all the time, by two clients, another's request waits for
# no more than one of each, however many they have sent: all lie in the sockets
# when the worker goes on, and it logs them in its order.

# Reads so many responses of a connection.
sub read_responses($socket, $n) {
    my $text = '';
    while ($n) {
        my ($head, $bytes) = $text
            =~ /\A(.*?^Content-Length: (\d+)\r\n.*?\r\n\r\n)/ms;
        if ($head && length $text >= length($head) + $bytes) {
            substr($text, 0, length($head) + $bytes, '');
            $n--;
        } else {
            sysread $socket, $text, 262144, length $text or die 'cut short';
        }
    }
}

my ($worker) = $nginx->workers;
my @readers = map { $nginx->connect } 1 .. 2;
for my $reader (@readers) {
    $nginx->get('/plain?ready', socket => $reader);
}

my ($EACH, $TIMES) = (10, 20);
my @ahead;
for my $time (1 .. $TIMES) {
    kill 'STOP', $worker;
    for my $reader (@readers) {
        $nginx->send_request("/limits/metrics?$time", socket => $reader)
            for 1 .. $EACH;
    }
    $nginx->send_request("/plain?$time", socket => $socket);
    kill 'CONT', $worker;
    read_responses($socket, 1);
    read_responses($_, $EACH) for @readers;

    # a request is logged once it is answered
    my @logged;
    wait_for(sub {
        open my $log, '<', $nginx->dir . '/access.log' or return 0;
        @logged = grep { /\?$time$/ } <$log>;
        return @logged == 2 * $EACH + 1;
    }) or die 'not all of them are logged';
    push @ahead, first { $logged[$_] =~ /plain/ } 0 .. $#logged;
}
cmp_ok max(@ahead), '<=', 2, 'another request waits for one of each client'
    or diag "@ahead";

$nginx->finish;
