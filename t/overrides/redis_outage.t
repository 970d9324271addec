# A thousand keys with limits and windows of their own, in Redis, which is killed
# under load: each is still limited by its own, to the unit, as long as Redis is
# away. When it is back, with its data, it decides again within a second.

use v5.36;

use List::Util qw(min shuffle);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $KEYS   = 1000;
my $ZONE   = 5;                 # the limit of keys without one of their own
my @WINDOW = ('', '/20d', '/25d12h', '/2505600s');
my %ZONES  = (counter => 'algorithm=counter', fixed => 'algorithm=fixed');

my $redis = LimitSliding::Redis->new(
    config => { appendonly => 'yes', appendfsync => 'always' })->start;
my %zones = places(each => "rate=$ZONE window=30d redis=shared",
    zones => \%ZONES);

my $nginx = LimitSliding::Test->new;
$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    ${\ $redis->block('20s')}
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
    $zones{http}
HTTP
    location /limits { limit_sliding_api write=on; }
    $zones{server}
SERVER

sub set_limit($zone, $key, $limit) {
    $redis->command('SET',
        "limit_sliding:$zone:{" . digest($key) . '}:limit', $limit);
}

# Returns what a key may use under its own limit, of so many requests.
sub room($limit, $requests) {
    return $limit eq 'off' ? $requests
        : min($requests, $limit eq '' ? $ZONE : $limit =~ s{/.*}{}r);
}

# Sends each key so many requests, in any order. Returns { key => admitted }.
sub ask($zone, $keys, $each, %opt) {
    my @keys = shuffle map { ($_) x $each } @$keys;
    my %passed = map { $_ => 0 } @$keys;
    my $statuses = $nginx->load(connections => 16, pipeline => 4, %opt,
        requests => [ map { "/$zone?key=$_" } @keys ]);
    for my $i (0 .. $#keys) {
        my $status = $statuses->[$i] // 'none';
        $passed{ $keys[$i] }++ if $status eq '200';
        die "a request is answered $status\n" if $status !~ /^(?:200|429)$/;
    }
    return \%passed;
}

# Returns the keys that were admitted another number of times than was expected.
sub wrong($passed, $expected) {
    return [ map { "$_: $passed->{$_}, not $expected->{$_}" }
        grep { $passed->{$_} != $expected->{$_} } sort keys %$expected ];
}

for my $zone (sort keys %ZONES) {
    my %own = map { ("k$_" => $_ % 50 == 7 ? 'off' : $_ % 50 == 9 ? '0'
        : $_ % 50 == 11 ? '' : 1 + $_ % 12 . $WINDOW[$_ % @WINDOW]) } 1 .. $KEYS;
    my @keys = sort keys %own;

    for my $key (@keys) {
        set_limit($zone, $key, $own{$key}) if $own{$key} ne '';
    }

    my $before = ask($zone, \@keys, 3);
    is_deeply wrong($before, { map { $_ => room($own{$_}, 3) } @keys }), [],
        "$zone: three requests a key";

    my $under = ask($zone, \@keys, 5, at => { 1500 => sub { $redis->kill9 } });
    is_deeply wrong({ map { $_ => $before->{$_} + $under->{$_} } @keys },
        { map { $_ => room($own{$_}, 8) } @keys }), [],
        '... Redis is killed under five more';

    my $after = ask($zone, \@keys, 8);
    my %total = map { $_ => $before->{$_} + $under->{$_} + $after->{$_} } @keys;
    is_deeply wrong(\%total, { map { $_ => room($own{$_}, 16) } @keys }), [],
        '... and eight more while it is away';

    my $source = header($nginx->get("/$zone?key=k1001"), 'X-Source');
    is $source, 'fallback', '... which this node decides';

    sleep 3;
    is_deeply wrong(ask($zone, \@keys, 2),
        { map { $_ => $own{$_} eq 'off' ? 2 : 0 } @keys }), [],
        '... later, too';

    # Redis is back with what it has counted

    $redis->start;
    my $since = now;
    my $n = 0;
    ok wait_for(sub {
        header($nginx->get("/$zone?key=new" . $n++), 'X-Source') eq 'redis'
    }), '... Redis is back';
    cmp_ok now - $since, '<', 1.3, '... and decides in about a second';

    my @some = (shuffle @keys)[ 0 .. 199 ];
    my %left;
    for my $key (@some) {
        my $json = api_key($nginx, $zone, $key);
        $left{$key} = $own{$key} eq 'off' ? 14 : $json->{remaining};
        $left{$key} = 0 if $own{$key} eq '0';
        next if $own{$key} eq 'off' || $own{$key} eq '0';

        my $used = $before->{$key};
        cmp_ok $json->{used}, '>=', $used, "... it has not forgotten $key"
            if $json->{used} < $used;
    }
    is_deeply wrong(ask($zone, \@some, 14), \%left), [],
        '... each key has what it has left there';

    # Limits and windows that were changed while it was away, or are now

    sleep 1;
    my %new = map { ($_ => 1 + rand(9) % 9 . '/27d') } @some;
    set_limit($zone, $_, $new{$_}) for @some;
    sleep 1;
    is_deeply wrong(ask($zone, \@some, 12),
        { map { $_ => room($new{$_}, 12) } @some }), [],
        '... others within a second, with histories of their own';
    $redis->command('FLUSHALL');
}

$nginx->finish;
