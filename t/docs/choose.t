# docs/choose.md: its sizes have room for the clients that they are for, its ladder has the
# bounds of docs/algorithms.md, and its keys are of no use to a client that makes them up.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Test;

my $PAGE = 'docs/choose.md';
my $text = content($PAGE);


# the size of a zone, in each kind of zone that the table has

my @sizes = $text =~ /^\| ([\d,]+) \| (\d+m) \| (\d+m) \|$/mg;
is @sizes, 9, 'sizes of three numbers of clients';
my $nginx = LimitSliding::Test->new(worker_processes => 1);
my (%clients, $zones, $places) = ();
while (my ($clients, $here, $shared) = splice @sizes, 0, 3) {
    for (["here$here", $here, ''], ["shared$shared", $shared, 'redis=shared lease=auto']) {
        my ($name, $size, $more) = @$_;
        $clients{$name} = $clients =~ tr/,//dr;
        $zones .= "limit_sliding_zone \$uri zone=$name:$size rate=100r/m $more;\n";
        $places .= "limit_sliding zone=$name;\n";
    }
}
$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    limit_sliding_redis shared { server 127.0.0.1:9; }
    $zones
HTTP
    location / { $places }
    location /limits { limit_sliding_api; }
SERVER
my $known = decode_json($nginx->get('/limits')->{body})->{zones};
for my $name (sort keys %clients) {
    cmp_ok $clients{$name}, '<=', 0.95 * $known->{$name}{slots}, "$name: has room for its clients";
}
$nginx->finish_one;


# the ladder

my ($low, $high) = $text =~ /^\| the default, `counter` \| (\d+) \| ([\d,]+) \|/m;
my @share = $text =~ /gets (\d+) and ([\d,]+) a minute/g;
my %table = content('docs/algorithms.md') =~ /^\| (L up to|parts n) \| (.*) \|$/mg;
my @up_to = split / \| /, $table{'L up to'};
my @parts = split / \| /, $table{'parts n'};
sub parts_of($limit) {
    my ($i) = grep { $up_to[$_] eq 'above' || $up_to[$_] >= $limit } 0 .. $#up_to;
    return $parts[$i];
}
is $low, 100 + int(100 / parts_of(100)), 'the ladder: the default';
is $high =~ tr/,//dr, 2 * 50_000 - 1, '... with a high limit';
is parts_of(50_000), 1, '... which has one part';
my @expected = map { my $n = $_; map { $_ * ($n || parts_of($_)) / (1 + ($n || parts_of($_))) }
    100, 50_000 } 0, 10;
is join(' ', map { tr/,//dr } @share), join(' ', map { sprintf '%.0f', $_ } @expected),
    '... and what strict costs';


# keys

my $backend = LimitSliding::Test->new(worker_processes => 1);
$backend->serve(http => <<'HTTP', server => <<'SERVER');
    map $http_authorization $user { "Bearer lee" lee; }
HTTP
    location /auth { if ($user = "") { return 401; } add_header X-User $user; empty_gif; }
    location / { empty_gif; }
SERVER

sub start($regexp, %other) {
    my ($found) = map { $_->{text} } grep { $_->{tag} eq 'nginx' && $_->{text} =~ $regexp }
        blocks($PAGE);
    my $port = $backend->port;
    $found = configuration($nginx, $found);
    $found =~ s{http://127\.0\.0\.1:\K808[01]}{$port}g;
    $found =~ s/\Q$_\E/$other{$_}/ or die "no $_" for keys %other;
    $nginx->start($found);
}

sub of($header, $n = 1) { return $nginx->statuses($n, '/', headers => [$header]) }

# Changed here: the limits.
start(qr/zone=customers/, '1000r/h' => '2/1h');
is of('X-API-Key: k-acme-7f3a', 2), '200 200', 'keys: a customer';
is of('X-API-Key: K-ACME-7F3A'), '429', '... whose key may be written otherwise';
is of('X-API-Key: k-lee-19c0'), '200', '... and another';
is of('X-API-Key: invented', 3), '401 401 401', '... and nobody';
is of('X-Other: none'), '401', '... who has no key at all';
$nginx->finish_one;

start(qr/zone=users/, '1000r/h' => '2/1h', '100r/m' => '5/1h');
is of('Authorization: Bearer lee', 3), '200 200 429', 'keys: a user';
is of('Authorization: Bearer guess', 3), '401 401 429', '... and guesses, by address';

$backend->stop;
$nginx->finish;
