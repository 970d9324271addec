package LimitSliding::AllocRequests;

# Requests of all kinds to an NGINX (LimitSliding::Alloc) with all that there is. In
# each, one allocation fails.
#
#   requests_fail('fail_memory', 1);

use v5.36;

use Exporter qw(import);
use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Alloc;
use LimitSliding::Api;
use LimitSliding::Cluster;
use LimitSliding::Dns;
use LimitSliding::Redis;
use LimitSliding::Test;

our @EXPORT = qw(requests_fail);

my $LAST = 1000;

# A request has a path, with KEY for a key of its own; the zone that counts it,
# what it costs there, and options, those of get() and
#   cold      connections to Redis are closed first
#   after     seconds that it goes on in the background
#   taken     units that are taken in advance at most
#   late      seconds after which the next request has told what nobody told
my @REQUESTS = (
    [ '/one?key=KEY', one => 1 ],
    [ '/log?key=KEY', log => 1 ],
    [ '/leaky?key=KEY' ],
    [ '/plan?key=KEY&plan=big', plan => 1 ],
    [ '/status?key=KEY', one => 1 ],
    [ '/settle?key=KEY&cost=3', one => 3 ],
    [ '/usage?key=KEY', one => 1 ],
    [ '/remote?key=KEY', remote => 1 ],
    [ '/remote?key=KEY', remote => 1, cold => 1 ],
    [ '/events?key=KEY', events => 1 ],
    [ '/lease?key=KEY', lease => 1, taken => 2 ],
    [ '/sync?key=KEY', sync => 1, after => 0.1, late => 1.2 ],
    [ '/several?key=KEY', one => 1, cold => 1 ],
    [ '/clustered?key=KEY', clustered => 1, cold => 1 ],
    [ '/watched?key=KEY', watched => 1, cold => 1 ],
    [ '/named?key=KEY', named => 1, cold => 1 ],
    [ '/secret?key=KEY', secret => 1, cold => 1 ],
    [ '/paid?key=KEY&cost=3', remote => 3, after => 0.05 ],
    [ '/paid?key=KEY&cost=3', remote => 3, after => 0.05, cold => 1 ],
    [ '/limits' ],
    [ '/limits/metrics' ],
    [ '/limits/dashboard' ],
    [ '/limits/zones/one/limits' ],
    [ '/limits/zones/remote/limits' ],
    [ '/limits/zones/one/key?key=KEY' ],
    [ '/limits/zones/one/key?key=KEY&rate=7r/d', undef, 0, method => 'PUT' ],
    [ '/limits/zones/one/key?key=KEY&cost=2', one => 2, method => 'POST' ],
    [ '/limits/zones/one/key?key=KEY', undef, 0, method => 'DELETE' ],
    [ '/limits/zones/remote/key?key=KEY' ],
    [ '/limits/zones/remote/key?key=KEY&rate=7r/d', undef, 0, method => 'PUT', cold => 1 ],
    [ '/limits/zones/remote/key?key=KEY&cost=2', remote => 2, method => 'POST' ],
    [ '/limits/zones/remote/key?key=KEY', undef, 0, method => 'DELETE' ],
);

# What NGINX may answer when it has no memory. 502: an upstream had none.
my $SHORT = qr/^(?:200|404|500|502|503)$/;

my (@redis, @others, %ways, $nginx);       # servers end with their objects
my $unique = 0;

sub _start() {
    @redis = map { LimitSliding::Redis->new->start } 1 .. 2;
    $nginx = LimitSliding::Alloc->new(worker_processes => 1)
        ->common(LimitSliding::Alloc::everything(map { $_->server } @redis));
    $nginx->write_file('limits.one', "own 7r/d\n");

    # The other ways to a Redis: a cluster, a sentinel, a name, and TLS
    my $tls = LimitSliding::Redis::certificates(tempdir(CLEANUP => 1));
    my $secret = LimitSliding::Redis->new(tls => $tls)->start;
    my $cluster = LimitSliding::Cluster->new(masters => 1, replicas => 0)->start;
    my $sentinel = $redis[0]->sentinel;
    my $dns = LimitSliding::Dns->new(ttl => 1)->start;
    $dns->set('redis.test', '127.0.0.1');
    push @redis, $secret, $cluster->{nodes}[0];
    @others = ($cluster, $sentinel, $dns);

    %ways = (
        clustered => 'topology cluster; server ' . $cluster->servers,
        watched   => 'topology sentinel; sentinel_master mymaster; server ' . $sentinel->server,
        named     => 'server redis.test:' . $redis[0]->port,
        secret    => 'server 127.0.0.1:' . $secret->tls_port
            . "; ssl on; ssl_name redis.test; ssl_trusted_certificate $tls->{ca}",
    );
    for my $name (sort keys %ways) {
        $nginx->common(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis $name { $ways{$name}; timeout 5s; connect_timeout 5s; }
    limit_sliding_zone \$arg_key zone=$name:64k rate=4 window=30d redis=$name;
HTTP
    location /$name { limit_sliding zone=$name; empty_gif; }
SERVER
    }
    $nginx->common(http => 'resolver 127.0.0.1:' . $dns->port . ' valid=1s ipv6=off;');
    $nginx->preloaded(sub { $nginx->serve });
}

# Waits until requests are decided by Redis again. Returns what was wrong, if
# anything.
sub recovers() {
    wait_for(sub {
        my $key = 'probe-' . ++$unique;
        return !grep { header($nginx->get("/$_?key=$key"), 'X-Source') ne 'redis' }
            qw(remote several), keys %ways;
    }) or return 'Redis does not decide';
    return $nginx->wrong_answers;
}

# Sends the request. Returns its status.
sub send_one($path, %opt) {
    my $status = $nginx->read_response($nginx->send_request($path, %opt),
        $opt{method} // 'GET')->{status};
    sleep $opt{after} if $opt{after};
    return $status // 'none';
}

sub used($zone, $key) {
    return api_key($nginx, $zone, $key)->{used} // 'unknown';
}

# Sends a request in which the n-th allocation fails, of all ($fail is fail) or of
# the module's (fail_memory), and then the same again. Returns whether there were
# that many, and what was wrong.
sub request_fails($fail, $n, $path, $zone, $cost, %opt) {
    my $key = 'request-' . ++$unique;
    $path =~ s/KEY/$key/;
    if ($opt{cold}) {
        $_->kill_clients for @redis;
        sleep 0.05;       # until the worker knows, too
    }

    $nginx->$fail($n);
    my $status = send_one($path, %opt);
    my $more = $nginx->relent >= $n;

    my $text = $nginx->new_text;
    my @wrong = $nginx->crashes($text);
    push @wrong, "status $status" if $status ne 'none' && $status !~ $SHORT;
    push @wrong, recovers() if $more;

    if ($zone) {
        my $first = used($zone, $key);
        my $taken = $opt{taken} // 0;
        push @wrong, "used $first"
            if $first !~ ($more ? qr/^[01$cost$taken]$/ : qr/^[$cost$taken]$/);
        if ($opt{late} && $first == 0) {
            sleep $opt{late};
            $first = $cost if $status eq '200';
        }
        send_one($path, %opt);
        my $both = used($zone, $key);
        push @wrong, "used $first, then $both"
            if $both ne $first + $cost && !($taken && $first <= $both && $both <= $first + $taken);
    }

    my $place = LimitSliding::Alloc::place($text);
    return ($more, map { "$_, $place" } @wrong);
}

# Sends requests of all kinds. In each, allocations fail one after the other, every
# $step-th, in the way of a method of LimitSliding::Alloc, fail() or fail_memory().
# The worker goes on, counts stay right, and the next request is answered.
sub requests_fail($fail, $step) {
    _start();
    my ($worker) = $nginx->workers;
    is join(', ', recovers()), '', 'at first all is well';

    my $all = 0;
    for my $i (0 .. $#REQUESTS) {
        my ($path, $zone, $cost, %opt) = @{ $REQUESTS[$i] };
        my $name = join ' ', $opt{method} // 'GET', $path, $opt{cold} ? '(cold)' : ();
        my ($tried, @found) = (0);
        for (my $n = 1 + $i % $step; $n <= $LAST; $n += $step) {
            my ($more, @wrong) = request_fails($fail, $n, $path, $zone, $cost, %opt);
            push @found, map { "$n: $_" } @wrong;
            last if !$more;
            $tried++;
        }
        is join("\n", @found), '', "$name: $tried";
        $all += $tried;
    }
    cmp_ok $all, '>', @REQUESTS / 4, "$all allocations failed";

    is join(' ', $nginx->workers), $worker, 'the same worker as ever';
    ok $nginx->stop, '... stops';
    is join("\n", $nginx->crashes($nginx->new_text)), '', '... cleanly';
}

1;
