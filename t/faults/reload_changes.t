# Reloads under load of configurations that change a zone, or are wrong, in random
# order: each has its documented result, a zone that stays is exact, and the master
# keeps nothing of what was. FAULT_ROUNDS is how many reloads (24).

use v5.36;

use IO::Socket::INET;
use Test::More;

use LimitSliding::Clock real => 'reloads come at any moment of an endless load';

use LimitSliding::Api;
use LimitSliding::Footprint;
use LimitSliding::Redis;
use LimitSliding::Siege;
use LimitSliding::Test;

my $ROUNDS = $ENV{FAULT_ROUNDS} // 24;
my $WORKERS = 2;

# What the master's heap may vary by, in kB, and its mappings.
my ($DRIFT_KB, $DRIFT_MAPPINGS) = (64, 2);

my $SEED = $ENV{FAULT_SEED} // 1;
srand $SEED;

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new(worker_processes => $WORKERS);
my $taken = IO::Socket::INET->new(Proto => 'tcp', Listen => 1,
    LocalAddr => '127.0.0.1') or die "listen: $@";

# What a zone is made of; another one of these makes it start empty.
my %settings = (
    key       => [ '$arg_key', '$arg_other' ],
    size      => [ '1m', '2m' ],
    window    => [ '20d', '30d' ],
    algorithm => [ 'counter', 'fixed', 'token_bucket' ],
);

# What is wrong, and what NGINX says of it: found before zones are made, and after.
my %wrong = (
    word => [ 'wrong;', qr/unknown directive "wrong"/ ],
    rate => [ 'limit_sliding_zone $arg_key zone=bad:1m rate=0r/s;', qr/\[emerg\].*rate=0r/ ],
    port => [ 'server { listen 127.0.0.1:' . $taken->sockport . '; }',
        qr/still could not bind/ ],
);

sub config($is, $more = '') {
    return $nginx->template(listen => 'reuseport', http => <<"HTTP", server => <<'SERVER');
    ${\ $redis->block('20s', 'on_error deny;')}
    limit_sliding_log_level off;
    limit_sliding_zone $is->{key} zone=one:$is->{size} rate=$is->{rate}
        window=$is->{window} algorithm=$is->{algorithm};
    limit_sliding_zone \$arg_key zone=still:1m rate=1000000 window=30d;
    limit_sliding_zone \$arg_key zone=far:1m rate=1000000 window=30d redis=shared;
    $more
HTTP
    location /one   { limit_sliding zone=one;   empty_gif; }
    location /still { limit_sliding zone=still; empty_gif; }
    location /far   { limit_sliding zone=far;   empty_gif; }
    location /limits { limit_sliding_api; }
SERVER
}

# Another one of these values.
sub other($value, @values) {
    my @others = grep { $_ ne $value } @values;
    return $others[ rand @others ];
}

my %is = (rate => 1000, map { $_ => $settings{$_}[0] } keys %settings);
$nginx->start(config(\%is));

my $siege = LimitSliding::Siege->new($nginx,
    [ map { "/$_?key=load&other=load" } qw(one still far) ])->start;


# the reloads

# Returns [status, used] of so many requests for one key of the zone that changes.
sub ask($n) {
    my %statuses;
    $statuses{ $nginx->get('/one?key=k&other=k')->{status} }++ for 1 .. $n;
    return [ join(' ', sort keys %statuses), api_key($nginx, 'one', 'k')->{used} ];
}

my $master = $nginx->master;
my ($used, $base, @deviations, %done) = (0);

for my $round (1 .. $ROUNDS) {
    my @kinds = (qw(same rate), keys %settings, map { "wrong $_" } keys %wrong);
    my $kind = $kinds[ $round <= @kinds ? $round - 1 : rand @kinds ];
    $done{$kind}++;

    if (my ($what) = $kind =~ /^wrong (\w+)/) {
        # a change beside the error must not be made either
        my $changed = (keys %settings)[ rand keys %settings ];
        my %would = (%is, $changed => other($is{$changed}, @{ $settings{$changed} }));
        my ($more, $error) = @{ $wrong{$what} };
        my @workers = sort $nginx->workers;

        my $before = () = $nginx->log_lines($error);
        $nginx->hup(config(\%would, $more));
        wait_for(sub { (() = $nginx->log_lines($error)) > $before })
            or push @deviations, "round $round, $kind: no error";
        push @deviations, "round $round, $kind: other workers"
            if "@workers" ne join ' ', sort $nginx->workers;
    } else {
        $is{rate} = other($is{rate}, 1000, 2000, 3000) if $kind eq 'rate';
        if ($settings{$kind}) {
            $is{$kind} = other($is{$kind}, @{ $settings{$kind} });
            $used = 0;
        }
        $nginx->reload(config(\%is));
    }

    my ($status, $now) = @{ ask(2) };
    $used += 2;
    push @deviations, "round $round, $kind: status $status, $now used, not $used"
        if $status ne '200' || $now != $used;

    $base = footprint($master) if $round == @kinds;
}
my $got = $siege->stop;

# The same zones as at the base: zones of 2m have as many mappings as others.
my $holds = footprint($master);
note "$ROUNDS reloads: ", join ', ', map { "$done{$_} $_" } sort keys %done;
note explain $got, $base, $holds;

is join("\n", @deviations), '', "$ROUNDS reloads: what each keeps";
my %statuses;
for my $path (sort keys %$got) {
    $statuses{$_} = 1 for keys %{ $got->{$path} };
    my ($zone) = $path =~ m{^/(\w+)};
    is api_key($nginx, $zone, 'load')->{used}, $got->{$path}{200}, "$zone: all are counted"
        if $zone ne 'one';
}
like join(' ', sort keys %statuses), qr/^200(?: 429)?$/, 'no request fails';
is $holds->{descriptors}, $base->{descriptors}, 'no descriptor is left behind';
cmp_ok $holds->{mappings}, '<=', $base->{mappings} + $DRIFT_MAPPINGS, '... no mapping';
cmp_ok $holds->{kb}, '<', $base->{kb} + $DRIFT_KB, '... no memory';
ok wait_for(sub { $redis->clients <= $WORKERS }), '... no connection to Redis';

$nginx->finish(allow => [ map({ $_->[1] } values %wrong),
    qr/\[emerg\] .* bind\(\) to .* failed/ ]);
