package LimitSliding::Faults;

# A frame for tests that break Redis, which asserts what must hold then.
#
#   my $nginx = LimitSliding::Faults->new(server => $redis->server);
#   $nginx->fault('refused', sub { $redis->stop }, sub { $redis->start });
#   $nginx->finish;
#
# Is an NGINX (LimitSliding::Test) with three limits of 5 in 30 days, /local,
# /allow and /deny, each with a block of the Redis and an on_error of that name,
# all three by $arg_key, through a map, so that `nginx -t` has nothing to warn
# of. /big is as /allow, with a limit of a million; /count is as that and not
# found, which is what it counts; /free has no limit, and /limits is the API.
# Port 1 is for HTTP/2.
#
# Times are exact on the virtual clock, to the millisecond.

use v5.36;

use List::Util qw(max);
use Test::More;

use LimitSliding::Api qw(api);
use LimitSliding::Clock ();
use LimitSliding::Test;
use parent -norequire, 'LimitSliding::Test';

our @POLICIES = qw(local allow deny);
our $LIMIT    = 5;
our $WORKERS  = 2;
our $FAILURES = 5;       # in a row, that open the breaker
my $STEP = 0.05;         # seconds between two looks

# Options:
#   server           as of the directive
#   timeout          of connecting, and of a decision, in seconds (0.25)
#   connect_timeout  if it is another
#   block            more directives of the blocks
#   http             more directives of http{}
#   start            0: not yet
#   and those of LimitSliding::Test->new.
sub new($class, %opt) {
    my $self = $class->SUPER::new(%opt);
    $self->{timeout} //= 0.25;
    $self->{connect_timeout} //= $self->{timeout};
    $self->start($self->config) if $opt{start} // 1;
    return $self;
}

# Returns the configuration, with changes to the options.
sub config($self, %change) {
    my %is = (http => '', block => '', %$self, %change);
    my ($timeout, $connect) = map { int(1000 * $_) . 'ms' }
        @is{qw(timeout connect_timeout)};

    my $limits = join "\n", map { <<"LIMIT" } @POLICIES;
    limit_sliding_redis $_ {
        server $is{server};
        timeout $timeout;
        connect_timeout $connect;
        on_error $_;
        $is{block}
    }
    limit_sliding_zone \$key zone=$_:1m rate=$LIMIT window=30d redis=$_;
LIMIT
    my $locations = join "\n",
        map { "location /$_ { limit_sliding zone=$_; empty_gif; }" } @POLICIES;

    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    map \$arg_key \$key { default \$arg_key; }
    $is{http}
    $limits
    limit_sliding_zone \$key zone=big:1m rate=1000000 window=30d
        redis=allow;
    limit_sliding_log_level off;

    add_header X-Worker    \$pid                     always;
    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Source    \$limit_sliding_source    always;
    add_header X-Time      \$msec                    always;
    add_header X-Seconds   \$request_time            always;

    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        http2_listen 127.0.0.1:%%PORT1%% reuseport;
        $locations
        location /big   { limit_sliding zone=big; empty_gif; }
        location /count { limit_sliding zone=big count_status=404; }
        location /free  { empty_gif; }
        location /limits { limit_sliding_api; }
    }
}
CONF
}

# One request to each of these paths, all under way at once. Returns for each
# what answer() does.
sub ask($self, @paths) {
    my @sockets = map { $self->send_request($_) } @paths;
    return map { answer($self->read_response($_)) } @sockets;
}

# { status, source, remaining, worker, left, seconds } of a response: when it
# left its worker, and how long it had been there.
sub answer($r) {
    return { status => $r->{status} // 'none',
        source    => header($r, 'X-Source'),
        remaining => header($r, 'X-Remaining'),
        worker    => header($r, 'X-Worker'),
        left      => header($r, 'X-Time') || 0,
        seconds   => header($r, 'X-Seconds') || 0 };
}

# Returns the JSON of a block of the API.
sub redis($self, $name) {
    return api($self)->{redis}{$name};
}

# Rounds of one request to each policy, or to some of them, for one key:
# { policy => [answers] }
sub rounds($self, $n, $key, @policies) {
    my %answers;
    @policies = @POLICIES if !@policies;
    for (1 .. $n) {
        my @got = $self->ask(map { "/$_?key=$key" } @policies);
        push @{ $answers{ $policies[$_] } }, $got[$_] for 0 .. $#policies;
    }
    return \%answers;
}

# Waits until all workers decide by Redis for all policies, and returns how
# long that took, to a step; nothing if it takes too long.
sub wait_healthy($self, $seconds = 120) {
    my $start = now;
    return wait_for(sub { $self->_is_healthy }, $seconds, $STEP) ? now() - $start : ();
}

sub _is_healthy($self) {
    my %seen;
    while (keys %seen < $WORKERS * @POLICIES) {
        my $key = 'healthy-' . ++$self->{unique};
        for my $policy (@POLICIES) {
            my $r = $self->get("/$policy?key=$key");
            return 0 if header($r, 'X-Source') ne 'redis';
            $seen{ $policy . header($r, 'X-Worker') } = 1;
        }
    }
    return 1;
}

# A subtest: breaks Redis by $inject, sees that policies apply, restores it by
# $heal, and sees that decisions are exact again. In between nothing but limits'
# and policies' statuses, no more connections than workers and blocks, and no
# dead worker. Options:
#   during      a sub that is called while it is broken, with the answers
#   port        where connections go, to be counted
#   recovery    seconds until Redis decides again, at most (a second and the
#               timeout: the interval of probes, and a probe that just began)
#   opens       0 if the breaker need not open
#   rounds      how many requests of each policy (12)
sub fault($self, $name, $inject, $heal, %opt) {
    subtest $name => sub {
        my $key = $name =~ s/\W+/-/gr;
        my @workers = sort $self->workers;

        ok defined $self->wait_healthy, 'at first Redis decides';

        $inject->();
        my $answers = $self->rounds($opt{rounds} // 12, "$key-broken");
        $self->_policies_apply($answers);
        $self->in_time($answers, $opt{opens} // 1);
        is join(' ', map { $_->{status} } $self->ask(
            map { "/count?key=$key-$_" } 1 .. 4)), '404 404 404 404',
            'what counts on its way out';
        $self->_connections_bounded($opt{port});
        $opt{during}->($answers) if $opt{during};

        $heal->();
        my $seconds = $self->wait_healthy;
        ok defined $seconds, 'Redis decides again' or return;
        cmp_ok $seconds, '<=', $opt{recovery} // 1 + $self->{timeout} + $STEP, 'soon';
        note sprintf 'after %.3f s', $seconds;

        $self->exact("$key-healed");
        $self->_connections_bounded($opt{port});
        is join(' ', sort $self->workers), "@workers", 'no worker died';
    };
}

# Limits are exact, by both workers together.
sub exact($self, $key) {
    for my $policy (@POLICIES) {
        my %got;
        $got{ $_ // 'none' }++ for @{ $self->load(connections => 8,
            requests => [ ("/$policy?key=$key") x (4 * $LIMIT) ]) };
        is_deeply \%got, { 200 => $LIMIT, 429 => 3 * $LIMIT },
            "exact: $policy";
    }
}

# Statuses, in order: what the policy says, and nothing else.
sub _policies_apply($self, $answers) {
    my %statuses = map {
        $_ => join ' ', map { $_->{status} } @{ $answers->{$_} }
    } @POLICIES;
    my $n = @{ $answers->{local} };

    is $statuses{local}, join(' ', (200) x $LIMIT, (429) x ($n - $LIMIT)),
        'local: by this instance alone';
    is $statuses{allow}, join(' ', (200) x $n), 'allow';
    is $statuses{deny}, join(' ', (429) x $n), 'deny';

    my @others = grep { $_ ne 'fallback' }
        map { $_->{source} } map { @$_ } values %$answers;
    is "@others", '', '$limit_sliding_source is fallback';
}

# Policies apply when the timeout is over, and at once when the breaker is open:
# it opens after 5 failures, and every answer that waited is one.
sub in_time($self, $answers, $opens) {
    is join(', ', map { "$_->{seconds} s" } grep { $_->{seconds} > $self->{timeout} }
        map { @$_ } values %$answers), '', 'within the timeout';
    is LimitSliding::Clock::strays($self->workers), 0, 'no worker was blocked';
    return if !$opens;

    my @waited = map { scalar grep { $_->{seconds} > 0 } @$_ } values %$answers;
    cmp_ok max(@waited), '<=', $FAILURES, 'no more wait than open the breaker';
    $self->open_breakers;
    my $later = $self->rounds(4, 'in-time');
    is_deeply [ map { "$_->{source} $_->{seconds}" } map { @$_ } values %$later ],
        [ ('fallback 0.000') x (4 * @POLICIES) ], 'at once, once the breaker is open';
}

# Asks until the breakers of all blocks are open. Workers space their attempts.
sub open_breakers($self) {
    return wait_for(sub {
        $self->rounds(1, 'opens-' . ++$self->{unique});
        my $open = () = $self->get('/limits')->{body} =~ /"breaker":\s*"open"/g;
        return $open == @POLICIES;
    }, 5, $STEP);
}

sub _connections_bounded($self, $port) {
    my ($default) = $self->{server} =~ /:(\d+)$/;
    my $n = $self->connections_to($port // $default);
    cmp_ok $n, '<=', $WORKERS * @POLICIES,
        'no more connections than workers and blocks';
}

# Returns how many connections the workers have to a port: established, about to
# be, or not yet closed by them.
sub connections_to($self, $port) {
    my %own;
    for my $pid ($self->workers) {
        /^socket:\[(\d+)\]$/ && $own{$1}++
            for map { readlink // '' } glob "/proc/$pid/fd/*";
    }

    # A socket may be listed twice, if others come and go meanwhile.
    my $hex = sprintf '%04X', $port;
    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    return scalar grep {
        my (undef, undef, $remote, $state, @rest) = split;
        ($remote // '') =~ /:$hex$/ && $state =~ /^0[128]$/
            && delete $own{ $rest[5] };
    } <$file>;
}

# Returns the clients' ports of the connections that workers have accepted on
# the n-th port, and not closed.
sub accepted($self, $n = 0) {
    my $hex = sprintf '%04X', $self->port($n);
    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    my %ports;
    readline $file;           # the head of the table
    local $_;
    while (<$file>) {
        # those that nobody has accepted yet, or that are closed, have no inode
        my ($local, $remote, $inode) = (split)[1, 2, 9];
        my $port = hex $remote =~ s/.*://r;
        $ports{$port} = 1 if $local =~ /:$hex$/ && $port && $inode;
    }
    return keys %ports;
}

# Returns the most memory that each worker ever had: { pid => bytes }
sub peaks($self) {
    my %peaks;
    for my $pid ($self->workers) {
        open my $file, '<', "/proc/$pid/status" or next;
        my ($kb) = join('', <$file>) =~ /^VmPeak:\s*(\d+) kB/m;
        $peaks{$pid} = 1024 * $kb;
    }
    return \%peaks;
}

1;
