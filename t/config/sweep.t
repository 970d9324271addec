# The timer by which one worker withdraws old states and debts.  A pass over all zones takes
# a minute, so that a zone of many waits for the next one for a moment only.

use v5.36;

use List::Util qw(sum0);
use Test::More;

use LimitSliding::Test;

plan skip_all => 'an NGINX without debug log'
    if `@{[ $ENV{LIMIT_SLIDING_NGINX} // q(/usr/sbin/nginx) ]} -V 2>&1` !~ /--with-debug/;

my $ZONES = 300;          # one each 200 ms
my $SIZE_KB = 4096;       # with settle=, 128 kB of it are for debts
my $DAY = 86_400;

my $nginx = LimitSliding::Test->new;
my $config = <<"CONF";
%%GLOBALS%%
error_log %%DIR%%/debug.log debug;
http {
    %%HTTP_GLOBALS%%
@{[ map { "limit_sliding_zone \$arg_key zone=z$_:${SIZE_KB}k rate=1r/s;\n" }
    0 .. $ZONES - 1 ]}
    server {
        listen 127.0.0.1:%%PORT%%;
        @{[ map { "location /z$_ { limit_sliding zone=z$_ settle=\$arg_cost; }\n" }
            0 .. $ZONES - 1 ]}
    }
}
CONF

# Returns [worker, number of a zone] of each sweep so far.
sub sweeps() {
    open my $log, '<', $nginx->dir . '/debug.log' or return;
    return map { /(\d+)#\d+: limit_sliding sweep of "z(\d+)"/ ? [ $1, $2 ] : () } <$log>;
}

# Returns the kB of zones that a worker has touched.
sub shared_kb($worker) {
    open my $file, '<', "/proc/$worker/status" or die "status of $worker: $!";
    return join('', <$file>) =~ /^RssShmem:\s*(\d+) kB/m ? $1 : die 'no RssShmem';
}

# Asserts that one worker sweeps one zone after the other from now on.
sub sweeps_on($name) {
    my $before = sweeps();
    my $kb = sum0(map { shared_kb($_) } $nginx->workers);
    sleep 1;
    $kb -= sum0(map { shared_kb($_) } $nginx->workers);
    my @sweeps = sweeps();
    @sweeps = @sweeps[$before .. $#sweeps];
    is scalar @sweeps, 5, "$name: zones are swept";
    my %workers = map { $_->[0] => 1 } @sweeps;
    is keys %workers, 1, '... by one worker';
    is scalar(grep { $workers{$_} } $nginx->workers), 1, '... which serves';

    my %zones = map { $_->[1] => 1 } @sweeps;
    is scalar keys %zones, 5, '... in turn';
    cmp_ok -$kb / @sweeps, '<', 64, '... and take no memory while no key has used them';
}

$nginx->start($config);
sweeps_on('at first');
$nginx->reload;
sweeps_on('after a reload');


# old states and debts

my $clock = LimitSliding::Clock->new;
$nginx->stop;
$nginx->{worker_processes} = 1;
my $one = $nginx->template(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=old:1m rate=5 window=1m;
HTTP
    location /old { limit_sliding zone=old settle=$arg_cost; empty_gif; }
SERVER
$clock->run(sub { $nginx->start("error_log %%DIR%%/debug.log debug;\n$one") });

# Returns the numbers of states and debts of the sweeps that a jump brings about.  The worker
# looks at the clock when a request comes.
sub swept($days) {
    state $seen = 0;
    $clock->set(utc => $days * $DAY, mono => $days * $DAY);
    $nginx->get('/');
    my @lines = `cat '@{[ $nginx->dir ]}/debug.log'`
        =~ /sweep of "old" has withdrawn (\d+ states and \d+ debts)/g;
    my @new = @lines[$seen .. $#lines];
    $seen = @lines;
    return join ', ', @new;
}

$nginx->get("/old?key=$_&cost=1") for qw(a b c);
$nginx->get('/old?key=d&cost=1000');
is swept(0.001), '0 states and 0 debts', 'no new state is withdrawn';
is swept(300), '4 states and 1 debts', '... but old states and debts';
is swept(301), '0 states and 0 debts', '... once';
$nginx->finish;
