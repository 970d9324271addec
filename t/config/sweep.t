# The timer by which one worker withdraws old states.  A pass over all zones takes a minute,
# so that a zone of many waits for the next one for a moment only.

use v5.36;

use Test::More;

use LimitSliding::Test;

plan skip_all => 'an NGINX without debug log'
    if `@{[ $ENV{LIMIT_SLIDING_NGINX} // q(/usr/sbin/nginx) ]} -V 2>&1` !~ /--with-debug/;

my $ZONES = 300;          # one each 200 ms

my $nginx = LimitSliding::Test->new;
my $config = <<"CONF";
%%GLOBALS%%
error_log %%DIR%%/debug.log debug;
http {
    %%HTTP_GLOBALS%%
@{[ map { "limit_sliding_zone \$arg_key zone=z$_:32k rate=1r/s;\n" } 0 .. $ZONES - 1 ]}
    server { listen 127.0.0.1:%%PORT%%; }
}
CONF

# Returns [worker, number of a zone] of each sweep so far.
sub sweeps() {
    open my $log, '<', $nginx->dir . '/debug.log' or return;
    return map { /(\d+)#\d+: limit_sliding sweep of "z(\d+)"/ ? [ $1, $2 ] : () } <$log>;
}

# Asserts that one worker sweeps one zone after the other from now on.
sub sweeps_on($name) {
    my $before = sweeps();
    wait_for(sub { sweeps() >= $before + 5 });
    my @sweeps = sweeps();
    @sweeps = @sweeps[$before .. $#sweeps];
    cmp_ok scalar @sweeps, '>=', 5, "$name: zones are swept";
    my %workers = map { $_->[0] => 1 } @sweeps;
    is keys %workers, 1, '... by one worker';
    is scalar(grep { $workers{$_} } $nginx->workers), 1, '... which serves';

    my %zones = map { $_->[1] => 1 } @sweeps;
    cmp_ok scalar keys %zones, '>=', 4, '... in turn';
}

$nginx->start($config);
sweeps_on('at first');
$nginx->reload;
sweeps_on('after a reload');
$nginx->finish;
