# TLS to Redis: with whom it speaks, with whom it does not, and never in plain
# text instead.

use v5.36;

use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::FakeRedis;
use LimitSliding::Faults;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

plan skip_all => 'NGINX has no TLS' if !LimitSliding::Test->has_ssl;

my $tls = LimitSliding::Redis::certificates(tempdir(CLEANUP => 1));
my $client = $tls->{client} =~ s/pem$/key/r;

sub tls_redis($certificate, %config) {
    return LimitSliding::Redis->new(
        tls => { %$tls, server => $tls->{$certificate} },
        config => { %config })->start;
}

my $good    = tls_redis('server');
my $strict  = tls_redis('server', 'tls-auth-clients' => 'yes');
my $expired = tls_redis('expired');
my $literal = tls_redis('address', bind => '127.0.0.1 ::1');
my $elsewhere = tls_redis('elsewhere');
my $mute    = LimitSliding::FakeRedis->new->start;
$mute->mode('mute');
my $talks   = LimitSliding::FakeRedis->new->start;
$talks->mode('greet', '-ERR no TLS here\r\n');

sub address($redis) {
    return '127.0.0.1:' . $redis->tls_port;
}

# Each block has a server, directives, whether Redis decides, and else what the log says.
my $ca    = "ssl on; ssl_trusted_certificate $tls->{ca};";
my $named = "$ca ssl_name redis.test;";
my $certificate = "ssl_certificate $tls->{client};"
    . " ssl_certificate_key $client;";
my $wrong_ca = "ssl on; ssl_name redis.test;"
    . " ssl_trusted_certificate $tls->{other};";

my %blocks = (
    verified  => [ address($good), $named, 1 ],
    client    => [ address($strict), "$named $certificate", 1 ],
    trusting  => [ address($good), 'ssl on; ssl_verify off;', 1 ],
    database  => [ address($good), "$named database 2;", 1 ],
    wrong_ca  => [ address($good), $wrong_ca, 0, qr/certificate verify error: .*self.signed/ ],
    wrong_name => [ address($good), "$ca ssl_name other.test;", 0,
        qr/does not match "other.test"/ ],
    no_name   => [ address($good), $ca, 0 ],   # it is no certificate of an IP
    address   => [ address($literal), $ca, 1 ],
    brackets  => [ '[::1]:' . $literal->tls_port, $ca, 1 ],
    as_name   => [ address($literal), "$ca ssl_name ::1;", 1 ],
    no_address => [ address($literal), $named, 0 ],
    another   => [ address($literal), "$ca ssl_name 127.0.0.2;", 0 ],
    elsewhere => [ address($elsewhere), $ca, 0 ],   # DNS:127.0.0.1 is no address
    expired   => [ address($expired), $named, 0, qr/certificate has expired/ ],
    no_client => [ address($strict), $named, 0,
        qr/"no_client": (?:recv|send)\(\) failed: .*certificate required$/ ],
    plain     => [ $good->server, $named, 0, qr/"plain": .*does the server use TLS\?/ ],
    answers   => [ $talks->server, $named, 0,
        qr/"answers": TLS handshake failed: .*wrong version.*, does the server use TLS\?/ ],
    mute      => [ $mute->server, $named, 0, qr/"mute": no TLS handshake in time, does/ ],
    no_tls    => [ address($good), '', 0,
        qr/"no_tls": it closed the connection before any reply, does it need "ssl on"\?/ ],
);

my $nginx = LimitSliding::Test->new->common(listen => 'reuseport',
    http => <<'CONF' . join '', map { <<"BLOCK" } sort keys %blocks);
    add_header X-Source $limit_sliding_source always;
    limit_sliding_log_level off;
CONF
    limit_sliding_redis $_ {
        server $blocks{$_}[0];
        $blocks{$_}[1]
        timeout 2s;
        connect_timeout @{[ /^(?:mute|plain)$/ ? '200ms' : '2s' ]};
    }
BLOCK

$nginx->serve(places(each => 'rate=3 window=30d',
    zones => { map { ($_ => "redis=$_") } keys %blocks }));

for my $name (sort keys %blocks) {
    my ($server, undef, $decides, $message) = @{ $blocks{$name} };
    my (%sources, @statuses, $longest);

    for my $key (1 .. 4) {
        for (1 .. 4) {
            my $start = now;
            my $r = $nginx->get("/$name?key=$key");
            push @statuses, $r->{status};
            $sources{ header($r, 'X-Source') }++;
            my $seconds = now() - $start;
            $longest = $seconds if $seconds > ($longest // 0);
        }
    }
    is "@statuses", join(' ', ('200 200 200 429') x 4), "$name: limited";
    delete $sources{cache} if $decides;
    is join(' ', keys %sources), $decides ? 'redis' : 'fallback',
        "$name: " . ($decides ? 'by Redis' : 'not by Redis');
    cmp_ok $longest, '<', 1.5, "$name: in time" if $name eq 'mute';

    my @errors = $nginx->log_lines(
        qr/\[(?:error|crit|warn)\](?!.* chosen by clients).*(?:"$name"|\Q$server\E)/);
    cmp_ok scalar(@errors), '>=', 1, "$name: the log tells" if !$decides;
    like join("\n", @errors), qr/$message/m, '... why' if $message;
    is scalar(@errors), 0, "$name: nothing to tell" if $decides;
}

# No server heard a command that NGINX does not trust.
is $_->calls, 0, 'never asked' for $expired, $elsewhere;
is $mute->stats->{commands}{EVALSHA} // 0, 0, 'no plain text';
unlike $mute->stats->{first}, qr/EVAL|AUTH|^\*/, 'but a hello in TLS';
is scalar(grep { !/:(?:verified|client|trusting|database|address|brackets|as_name):/ }
    map { $_->keys } $good, $strict, $literal), 0, 'nothing was written by others';
my @keys = map { $_->keys } $good, $strict;
cmp_ok scalar(@keys), '>=', 3 * 4, 'but by those who may';

# Redis' records: TLS holds data that epoll does not see. Many replies at once.
my $statuses = $nginx->load(connections => 32,
    requests => [ map { "/verified?key=many-$_" } 1 .. 2000 ]);
is scalar(grep { $_ == 200 } @$statuses), 2000, '2,000 keys';
is scalar(grep { /:verified:/ } $good->keys), 2000 + 4, '... all by Redis';

$nginx->finish_one;


# More than the kernel takes, while Redis hangs: what is written later is what
# was to be written.

my $patient = LimitSliding::Faults->new(server => address($good), timeout => 30,
    block => "$named key_format plain;",
    http => 'large_client_header_buffers 4 160k;');
ok defined $patient->wait_healthy, 'a patient NGINX';
$good->freeze;
my @asked = map {
    $patient->send_request('/big?key=' . "long-$_-" . 'x' x 60_000)
} 1 .. 600;
sleep 0.5;
$good->thaw;
my %told;
for my $socket (@asked) {
    my $r = $patient->read_response($socket);
    $told{ ($r->{status} // 'none') . ' ' . header($r, 'X-Source') }++;
}
is_deeply \%told, { '200 redis' => 600 }, '36 MB of keys: all by Redis';
$patient->finish_one;


# A certificate that changes: connections that there are go on, those to come
# are verified.

my $faults = LimitSliding::Faults->new(server => address($good),
    timeout => 0.5, block => $named);
$faults->fault('TLS: refused', sub { $good->stop }, sub { $good->start });
$faults->fault('TLS: frozen', sub { $good->freeze }, sub { $good->thaw });
$faults->fault('TLS: another certificate', sub {
    $good->stop;
    $good->start('tls-cert-file' => $tls->{expired},
        'tls-key-file' => $tls->{expired} =~ s/pem$/key/r);
}, sub {
    $good->stop;
    $good->start('tls-cert-file' => $tls->{server},
        'tls-key-file' => $tls->{server} =~ s/pem$/key/r);
});
$faults->finish;
