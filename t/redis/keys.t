# Scripts touch the keys that their calls declare, and no others but the states and
# the debts of keys' own windows: some servers refuse what was not declared.

use v5.36;

use IO::Select;
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my @ALGORITHMS = qw(counter log fixed token_bucket leaky_bucket);
my @LEASED = qw(counter fixed token_bucket);

my $redis = LimitSliding::Redis->new->start;
my $nginx = LimitSliding::Test->new;
$nginx->common(http => <<"CONF");
    ${\ $redis->block('5s')}
    limit_sliding_log_level off;
CONF

my $monitor = $redis->connect;
LimitSliding::Redis::send_command($monitor, 'MONITOR');
LimitSliding::Redis::receive_reply($monitor);

# Returns the commands since last time: who called each, and its words.
sub told() {
    state $text = '';
    my $end = 'told-' . rand;
    $redis->command('ECHO', $end);
    my $length;
    until (($length = index $text, $end) >= 0) {
        IO::Select->new($monitor)->can_read(30) or die "MONITOR is silent\n";
        sysread $monitor, $text, 65536, length $text or die "closed\n";
    }
    return map { [ /^\+\S+ \[\d+ (\S+)\]/, /"((?:[^"\\]|\\.)*)"/g ] }
        grep { /^\+.*"\r$/ } split /\n/, substr $text, 0, $length, '';
}

# Returns the keys that a command of a script touches.
sub keys_of($name, @words) {
    return $name eq 'TIME' ? () : $name =~ /^(?:MGET|DEL)$/ ? @words : $words[0];
}

my $marks = 0;            # that were read

# Checks the calls since last time. Returns the states of own windows that were
# touched.
sub check($what) {
    my ($calls, $touched, %declared, %others) = (0, 0);
    for (told()) {
        my ($client, $name, @words) = @$_;
        if ($client eq 'lua') {
            my @keys = keys_of(uc $name, @words);
            $touched += @keys;
            $marks += grep { /:forgotten$/ } @keys;
            $others{$_} = 1 for grep { !$declared{$_} } @keys;
        } elsif ($name =~ /^EVAL/) {
            $calls++;
            %declared = map { $_ => 1 } @words[2 .. 1 + $words[1]];
        }
    }
    cmp_ok $calls, '>', 0, "$what: there are calls";
    cmp_ok $touched, '>', $calls, '... which touch keys';
    my @own = grep { /\}:\w(?:172800|1728000)s$/ } keys %others;
    delete @others{@own, map { ("$_:debt", "$_:totals") } @own};
    is join(' ', sort keys %others), '', '... that were declared';
    return @own;
}

sub set_limit($zone, $key, $value) {
    $redis->command('SET', "limit_sliding:$zone:{" . digest($key) . '}:limit',
        $value);
}

# Checks limits of all kinds, in scripts with or without what settles costs.
sub check_all($prefix, $more) {
    my %places = places(
        each  => 'window=1h redis=shared',
        zones => { (map { ($_ => "rate=5 algorithm=$_") } @ALGORITHMS),
            synced => 'rate=5 sync=20ms',
            map { ("leased-$_" => "rate=900 lease=3 algorithm=$_") } @LEASED });
    $places{server} .= join "\n", $more, (map {
        "location /rate-$_ { limit_sliding zone=$_ rate=\$arg_rate; empty_gif; }"
    } @ALGORITHMS), <<'CONF';
    location /several {
        limit_sliding zone=counter;
        limit_sliding zone=log;
        limit_sliding zone=leased-fixed;
        empty_gif;
    }
CONF
    $nginx->serve(%places);
    told();

    for my $algorithm (@ALGORITHMS) {
        my $what = "$prefix, $algorithm";
        $nginx->get("/$algorithm?key=a") for 1 .. 7;
        $nginx->get("/rate-$algorithm?key=r&rate=7r/h") for 1 .. 3;
        set_limit($algorithm, l => '3r/h');
        $nginx->get("/$algorithm?key=l") for 1 .. 4;
        is scalar(check($what)), 0, '... all of them';

        set_limit($algorithm, w => '3/2d');
        $nginx->get("/$algorithm?key=w") for 1 .. 4;
        $nginx->get("/rate-$algorithm?key=r&rate=7/20d") for 1 .. 3;
        is scalar(check("$what, own windows")), 2,
            '... but for the states of own windows';
    }

    $nginx->get('/several?key=b') for 1 .. 7;
    is scalar(check("$prefix, several limits")), 0, '... all of them';

    for my $algorithm (@LEASED) {
        $marks = 0;
        for my $second (0 .. 1) {
            sleep 1.1 if $second;
            $nginx->get("/leased-$algorithm?key=c") for 1 .. 7;
        }
        is scalar(check("$prefix, $algorithm, leased")), 0, '... all of them';
        cmp_ok $marks, '>', 0, '... and marks of what was forgotten';
    }

    for my $own ([ s => '3r/h', 0 ], [ o => '3/2d', 1 ]) {
        my ($key, $limit, $others) = @$own;
        set_limit('synced', $key, $limit);
        $nginx->get("/synced?key=$key") for 1 .. 5;
        sleep 0.1;
        is scalar(check("$prefix, sync=, $limit")), $others, '... all of them';
    }
    sleep 2;               # until nothing of it is told any more
    told();
}

check_all(plain => '');
check_all(settling => <<'CONF');
    location /limits { limit_sliding_api write=on; }
    location /settled { limit_sliding zone=counter settle=$arg_to; empty_gif; }
CONF

for my $cost (0, 3, 20) {
    my $calls = $redis->calls;
    $nginx->get("/settled?key=s$cost&to=$cost");
    ok wait_for(sub { $redis->calls >= $calls + 2 }), "settled: $cost";
}
is scalar(check('settled')), 0, '... all of them';

for my $zone (@ALGORITHMS, 'leased-fixed') {
    for ([ 'GET' ], [ PUT => '&rate=9' ], [ POST => '&cost=2' ],
        [ POST => '&cost=-1' ], [ 'DELETE' ]) {
        my ($method, $more) = (@$_, '');
        like $nginx->get("/limits/zones/$zone/key?key=a$more",
            method => $method)->{status}, qr/^20/, "$zone: $method$more";
    }
    is scalar(check("$zone: API")), 0, '... all of them';
}

$nginx->finish;
