# Limit L admits exactly L, from any number of connections and workers, also
# while NGINX is reloaded.

use v5.36;

use List::Util qw(min shuffle);
use Test::More;

use LimitSliding::Test qw(:DEFAULT places);

my $nginx = LimitSliding::Test->new;

# reuseport, so that the kernel spreads connections over both workers
$nginx->common(listen => 'reuseport', http => <<'CONF');
    limit_sliding_log_level off;
    add_header X-Worker    $pid                     always;
    add_header X-Remaining $limit_sliding_remaining always;
CONF

my $LIMIT = 100;

srand 1;

# Sends the requests, each a key and possibly a header. Returns for each key
# [passed, rejected, lost], and how many requests each worker answered.
sub run($requests, %options) {
    my (%keys, %workers);

    my $statuses = $nginx->load(%options,
        requests => [ map {
            my ($key, @headers) = @$_;
            [ "/one?key=$key", @headers ];
        } @$requests ],
        each => sub ($i, $status, $head) {
            $workers{$1}++ if $head =~ /^X-Worker: (\d+)/m;
        });

    for my $i (0 .. $#$requests) {
        my $counts = $keys{ $requests->[$i][0] } //= [ 0, 0, 0 ];
        my $status = $statuses->[$i] // 'lost';
        my $kind = { 200 => 0, 429 => 1, lost => 2 }->{$status}
            // die "status $status";
        $counts->[$kind]++;
    }

    return (\%keys, \%workers);
}

# Requests for $n keys, in random order: 4 for the first one, 8 for the
# second, and so on, so that some stay below the limit.
sub many_keys($prefix, $n) {
    return shuffle map { ([ "$prefix$_" ]) x (4 * $_) } 1 .. $n;
}


# One key, and 50 keys at once

my %one = places(zones => { one => 'rate=100r/h' });
$nginx->serve(%one);

for my $pipeline (1, 16) {
    my ($keys, $workers) = run([ ([ "one-$pipeline" ]) x 5000 ],
        pipeline => $pipeline);

    is_deeply $keys, { "one-$pipeline" => [ $LIMIT, 5000 - $LIMIT, 0 ] },
        "5,000 requests over 64 connections, $pipeline at a time";
    is keys %$workers, 2, 'both workers took part';
}

my ($keys, $workers) = run([ many_keys('many-', 50) ]);

is_deeply $keys,
    { map { my $passed = min(4 * $_, $LIMIT);
        ("many-$_" => [ $passed, 4 * $_ - $passed, 0 ]) } 1 .. 50 },
    '50 keys at once';
is keys %$workers, 2, 'both workers took part';


# Many admissions at once, to give races a chance.

$nginx->serve(places(zones => { many => 'rate=20000r/h' }));

my $statuses = $nginx->load(pipeline => 32,
    requests => [ ('/many?key=a') x 30_000 ]);
is scalar grep({ $_ == 200 } @$statuses), 20_000, '20,000 of 30,000';


# Two limits, all or nothing: what a request took from the first, before the
# second rejected it, is given back, however many race. Requests of one user
# follow each other, which takes them to both workers at once.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone all       zone=all:1m  rate=100000r/h;
    limit_sliding_zone $arg_user zone=user:1m rate=3r/h;
HTTP
    location /all { limit_sliding zone=all; empty_gif; }
    location /both {
        limit_sliding zone=all;
        limit_sliding zone=user;
        empty_gif;
    }
SERVER

my @users = map { ("user-$_") x 10 } 1 .. 1000;
$statuses = $nginx->load(requests => [ map { "/both?user=$_" } @users ]);

my %passed;
$passed{ $users[$_] } += $statuses->[$_] == 200 for 0 .. $#users;
is scalar grep({ $_ != 3 } values %passed), 0,
    'two limits: every user gets 3';
is header($nginx->get('/all'), 'X-Remaining'), 100_000 - 3 * 1000 - 1,
    'two limits: the other was charged for that, and no more';


# A reload in the middle. One request in ten closes its connection, so that
# connections come to the new workers while the old ones still serve.
# A request may be lost when it meets an old worker that closes an idle
# connection: NGINX has not read it then, and so it must not be charged.

$nginx->serve(%one);

my @requests = many_keys('reload-', 50);
for my $i (grep { $_ % 10 == 0 } 0 .. $#requests) {
    $requests[$i] = [ @{ $requests[$i] }, 'Connection: close' ];
}

my %old = map { $_ => 1 } $nginx->workers;

($keys, $workers) = run(\@requests, at => {
    1500 => sub {
        $nginx->hup;
        wait_for(sub { grep { !$old{$_} } $nginx->workers });
    },
    3500 => sub {
        wait_for(sub { !grep { $old{$_} } $nginx->workers });
    },
});

is keys %$workers, 4, 'old and new workers took part';

my @wrong;
my $lost = 0;
for my $i (1 .. 50) {
    my $got = $keys->{"reload-$i"};
    my $answered = $got->[0] + $got->[1];
    $lost += $got->[2];
    push @wrong, "reload-$i: @$got" if $got->[0] != min($answered, $LIMIT);
}
is join("\n", @wrong), '', '50 keys at once, reloaded in the middle';
cmp_ok $lost, '<=', 2 * 64, 'lost: at most one a connection and old worker';

$nginx->finish;
