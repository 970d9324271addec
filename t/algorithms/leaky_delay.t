# delay= and nodelay of a leaky_bucket: which requests wait, what their clients, the
# log and the next configuration know of it; wherever the decision is made.

use v5.36;

use Test::More;

use LimitSliding::Redis ();
use LimitSliding::Test;

# An hour for each request: none leaves a queue within the test.
my $QUEUE = 'rate=1r/h algorithm=leaky_bucket burst=4';

# What becomes of six requests of a key in a dry run, and of four.
my %SAID = (
    ''        => [ ('PASSED') x 1, ('DELAYED_DRY_RUN') x 4, 'REJECTED_DRY_RUN' ],
    'delay=2' => [ ('PASSED') x 3, ('DELAYED_DRY_RUN') x 2, 'REJECTED_DRY_RUN' ],
    'delay=4' => [ ('PASSED') x 5, 'REJECTED_DRY_RUN' ],
    'nodelay' => [ ('PASSED') x 5, 'REJECTED_DRY_RUN' ],
);

# One worker: with sync=, what one of two admits while the other one is told by Redis
# may count a moment later.
my $nginx = LimitSliding::Test->new(worker_processes => 1);

# Returns the directives of a section whose queues have these parameters.
sub queues($backend, $delay, $more = '') {
    return (http => <<"HTTP", server => <<'SERVER');
    $more
    limit_sliding_zone \$arg_key zone=queue:1m $QUEUE $delay $backend;
    limit_sliding_headers retry_after x;
    add_header X-Source \$limit_sliding_source    always;
    add_header X-Status \$limit_sliding_status    always;
HTTP
    location /queue { limit_sliding zone=queue;         empty_gif; }
    location /dry   { limit_sliding zone=queue dry_run; empty_gif; }
SERVER
}

# Returns a field of the responses to so many requests.
sub told($n, $path, $field) {
    return map { header($nginx->get($path), $field) } 1 .. $n;
}

# Returns the excess, in whole requests, in each of the lines about requests of a key that wait.
sub delayed($key) {
    my $line = qr/\[warn\] .* delaying request(?:, dry run)?, excess: ([\d.]+), by zone "queue", c/;
    return map { $_ =~ $line ? sprintf('%.0f', $1) : $_ }
        $nginx->log_lines(qr/delaying request.*key=$key\b/);
}

# Asserts what becomes of requests that a configuration of these parameters decides.
sub decides($name, $source, $backend, $more) {
    for my $delay (sort keys %SAID) {
        my $key = "$name-$delay" =~ tr/a-z0-9//cdr;
        $nginx->serve(queues($backend, $delay, $more));

        is_deeply [ told(6, "/dry?key=dry$key", 'X-Status') ], $SAID{$delay},
            "$name, dry run, $delay";
        my @waits = grep { $SAID{$delay}[$_] =~ /DELAYED/ } 0 .. 5;
        is_deeply [ delayed("dry$key") ], \@waits, '... logged with their excess';

        # Those that do not wait are answered, and what remains does not depend on it.
        my $passes = grep { $_ eq 'PASSED' } $SAID{$delay}->@*;
        is_deeply [ told($passes, "/queue?key=$key", 'X-RateLimit-Remaining') ],
            [ map { 5 - $_ } 1 .. $passes ], "$name, $delay: these pass";
        my @sockets = map { $nginx->send_request("/queue?key=$key") } @waits;
        my $r = $nginx->get("/queue?key=$key");
        is delayed($key), @waits, '... and these wait';
        is_deeply [ sort(delayed($key)) ], \@waits, '... logged with their excess';

        is join(' ', $r->{status}, map { header($r, $_) } qw(X-Status X-Source)),
            "429 REJECTED $source", '... and the next one is rejected';
        is header($r, 'Retry-After'), 3600, '... for an hour';
        is header($nginx->get("/queue?key=$key"), 'Retry-After'), 3600, '... as the one after it';
        close $_ for @sockets;
    }
}

# Asserts that a reload with other parameters decides on the next request of a key
# that has four in its queue.
sub reloaded($name, $backend, $more) {
    $nginx->serve(queues($backend, '', $more));
    my @cases = ([ 'delay=2', 'DELAYED_DRY_RUN' ], [ 'delay=4', 'PASSED' ],
        [ 'delay=3', 'DELAYED_DRY_RUN' ], [ 'nodelay', 'PASSED' ], [ '', 'DELAYED_DRY_RUN' ]);
    told(4, "/dry?key=reload$name$_", 'X-Status') for 0 .. $#cases;

    for my $i (0 .. $#cases) {
        my ($delay, $said) = $cases[$i]->@*;
        $nginx->reload($nginx->template(queues($backend, $delay, $more)));
        is_deeply [ told(2, "/dry?key=reload$name$i", 'X-Status') ],
            [ $said, 'REJECTED_DRY_RUN' ], "$name, reloaded with $delay: at once";
    }
    is_deeply [ $nginx->log_lines(qr/starts empty/) ], [], '... and the queues are kept';
}

decides('here', 'local', '', '');
reloaded('here', '', '');


# A reload lets those wait that do so, as long as they were told to.

my $quick = sub ($delay) {
    return (http => 'limit_sliding_zone $arg_key zone=queue:1m rate=2r/s'
        . " algorithm=leaky_bucket burst=3 $delay;",
        server => 'location /queue { limit_sliding zone=queue; empty_gif; }'
        . 'add_header X-Seconds $request_time;');
};
$nginx->serve($quick->('delay=1'));
my @waiting = map { $nginx->send_request('/queue?key=patient') } 1 .. 4;
sleep 0;                  # until NGINX has them
is delayed('patient'), 2, 'two wait';
$nginx->reload($nginx->template($quick->('nodelay')));
my @passed = map { $nginx->read_response($_) } @waiting;
is join(' ', map { $_->{status} } @passed), '200 200 200 200', '... over a reload, and pass';
is join(' ', sort map { header($_, 'X-Seconds') } @passed), '0.000 0.000 0.500 1.000',
    '... after as long as they were told';


SKIP: {
    skip 'built without hiredis', 1 if !LimitSliding::Redis::supported();

    my $redis = LimitSliding::Redis->new->start;
    my $block = sub ($server, $more) { "limit_sliding_redis shared { server $server; $more }" };
    my $alive = $block->($redis->server, 'timeout 5s; connect_timeout 5s;');

    decides('redis', 'redis', 'redis=shared', $alive);
    reloaded('redis', 'redis=shared', $alive);
    decides('sync', 'cache', 'redis=shared sync=100ms', $alive);
    decides('away', 'fallback', 'redis=shared', $block->('127.0.0.1:1', ''));
}

$nginx->finish;
