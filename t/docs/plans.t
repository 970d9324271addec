# What docs/plans.md shows does what it says: each of its snippets is run as it
# stands, on two nodes with a real Redis, and on one with a file.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Docs;
use LimitSliding::Redis;
use LimitSliding::Test;

my @blocks = blocks('docs/plans.md');

my $redis = LimitSliding::Redis->new->start;
my @nodes = map { LimitSliding::Test->new } 1 .. 2;
my $application = LimitSliding::Test->new(worker_processes => 1);
$application->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { empty_gif; }
    }
}
CONF

# Returns the text of the one block of a tag that matches and was not run before.
sub block($tag, $regexp) {
    my ($found) = grep { $_->{tag} eq $tag && !$_->{run} && $_->{text} =~ $regexp } @blocks;
    ok $found, "a snippet: $regexp" or return '';
    $found->{run} = 1;
    return $found->{text};
}

# Changed here, beside what LimitSliding::Docs says: where Redis and the application are.
sub start($node, $text) {
    my $server = $redis->server;
    my $port = $application->port;
    $text =~ s/10\.0\.0\.1:6379;/$server; timeout 5s; connect_timeout 5s;/;
    $text = configuration($node, $text);
    $text =~ s{http://127\.0\.0\.1:\K8080}{$port};
    $node->start($text);
}

# Runs the commands of a snippet, on the first node. Returns what each says.
sub run($regexp, $node = $nodes[0]) {
    my $port = $node->port;
    my $script = block('sh', $regexp) =~ s{http://127\.0\.0\.1/}{http://127.0.0.1:$port/}gr;
    my @said;
    for my $command (split /\n/, $script =~ s/\\\n//gr) {
        my $text = `$command -s -S`;
        is $?, 0, "it runs: $command";
        push @said, eval { decode_json($text) } // diag $text;
    }
    return @said;
}

sub get($node, $key) {
    return $node->get('/v1/', headers => $key eq '' ? [] : ["X-Api-Key: $key"]);
}

sub statuses($node, $n, $key) {
    return join ' ', map { get($node, $key)->{status} } 1 .. $n;
}

# Returns what RateLimit says is left of a zone, and the policy.
sub left($node, $key, $zone) {
    my $r = get($node, $key);
    my ($left) = header($r, 'RateLimit') =~ /"$zone";r=(\d+)/;
    my ($limit, $window) = header($r, 'RateLimit-Policy') =~ /"$zone";q=(\d+);w=(\d+)/;
    return { left => $left, limit => $limit, window => $window, status => $r->{status} };
}

# Waits until the node has heard of an order of the other one.
sub heard($node, $key, $zone, $limit) {
    ok wait_for(sub { (left($node, $key, $zone)->{limit} // 0) == $limit }, 5),
        "... and the other node hears of it";
}


my $plans = block('nginx', qr/\$plan_quota/);
my $keys = block('text', qr/k-lee-19c0"/) . qq("k-typo" typo;\n);
my $accounts = block('text', qr/lee   free/) . "typo prp;\n";
for my $node (@nodes) {
    $node->write_file('keys.map', $keys);
    $node->write_file('plans.map', $accounts);
    start($node, $plans);
}

is get($nodes[0], '')->{status}, 401, 'no key';
is get($nodes[0], 'unknown')->{status}, 401, '... or one that is not known';
is join(' ', $redis->keys), '', '... of which nothing is kept';
is statuses($nodes[0], 2, 'k-typo'), '429 429', 'a plan without limits';
is header(get($nodes[0], 'k-typo'), 'Retry-After'), '', '... that is not to come again';

# A map ignores upper and lower case, and the key is the name of the account.
my $first = left($nodes[0], 'k-acme-7f3a', 'rate');
is $first->{limit}, 1000, 'pro: its rate';
is $first->{window}, 60, '... a minute';
is $first->{left}, 999, '... and what is left';
is left($nodes[0], 'K-ACME-83d1', 'rate')->{left}, 998, '... of which another API key has its part';
my $quota = left($nodes[1], 'k-acme-7f3a', 'quota');
is $quota->{limit}, 1_000_000, 'pro: its quota';
ok $quota->{window} >= 28 * 86400 && $quota->{window} <= 31 * 86400, '... of a month';
is $quota->{left}, 1_000_000 - 3, '... which both nodes share';
is left($nodes[0], 'k-lee-19c0', 'rate')->{limit}, 60, 'free: its rate';

my %count;
for my $i (1 .. 40) {
    $count{ get($nodes[$_], 'k-lee-19c0')->{status} }++ for 0, 1;
}
is_deeply \%count, { 200 => 59, 429 => 21 }, 'free: 60 a minute on both nodes';


my ($rate, $month) = run(qr/5000\/1m/);
is $rate->{limit}, 5000, 'a customer: its own rate';
is $month->{limit}, 20_000_000, '... and its own quota';
heard($nodes[1], 'k-acme-7f3a', 'rate', 5000);
heard($nodes[1], 'k-acme-7f3a', 'quota', 20_000_000);
my ($default) = run(qr/rate=default/);
ok !$default->{own_limit}, '... and none';
heard($nodes[1], 'k-acme-7f3a', 'rate', 1000);

my ($trial) = run(qr/ttl=14d/);
is $trial->{limit}, 1000, 'a trial';
cmp_ok $trial->{ttl}, '>', 14 * 86400 - 60, '... ends';
cmp_ok $trial->{ttl}, '<=', 14 * 86400, '... in 14 days';
ok wait_for(sub { get($nodes[1], 'k-lee-19c0')->{status} == 200 }, 5), '... and is served';

run(qr/rate=0/);
for my $node (@nodes) {
    ok wait_for(sub { get($node, 'k-lee-19c0')->{status} == 429 }, 5), 'a blocked key';
}
is header(get($nodes[1], 'k-lee-19c0'), 'Retry-After'), '', '... that is not to come again';

my ($usage) = run(qr/^curl 'http\S+quota\/key/);
cmp_ok $usage->{used}, '>', 2, 'what is used';
is $usage->{used} + $usage->{remaining}, 20_000_000, '... and left';
cmp_ok $usage->{reset}, '<=', 31 * 86400, '... until the month ends';
my @charged = run(qr/cost=-500/);
is $charged[0]{used}, 0, 'units given back';
is $charged[1]{used}, 2000, 'and charged';

my ($list) = run(qr/limits\?n=100/);
is_deeply [ map { "$_->{key} $_->{rate}" } $list->{limits}->@* ], ['lee 0'],
    'the list of limits';
is $list->{next}, undef, '... and no more';


get($_, 'k-acme-7f3a') for @nodes;
my $before = left($nodes[1], 'k-acme-7f3a', 'quota');
$redis->kill9;
for my $node (@nodes) {
    is statuses($node, 2, 'k-lee-19c0'), '429 429', 'Redis is away: the key is blocked';
    is left($node, 'k-acme-7f3a', 'quota')->{limit}, 20_000_000, '... the quota is its own';
}
$_->stop for @nodes;


my $node = LimitSliding::Test->new;
my $limits = block('text', qr/until=/);
my $snippet = block('nginx', qr/limits_max/);
mkdir $node->dir . '/state' or die $!;
my $path = $node->dir . '/state/rate';
$node->write_file('state/rate', $limits);
$node->write_file('keys.map', $keys . join '', map { qq("k-$_" $_;\n) } qw(partner abuser new));
start($node, $snippet =~ s{/var/lib/limit_sliding/rate}{$path}r =~ s/'/"/gr);

sub key($key, $method = 'GET', $more = '') {
    return decode_json($node->get("/limits/zones/rate/key?key=$key$more",
        method => $method)->{body});
}

is key('acme')->{limit}, 5000, 'a file: a limit';
is key('partner')->{own_limit}, 'off', '... none';
is statuses($node, 2, 'k-abuser'), '429 429', '... and a block';
is statuses($node, 2, 'k-partner'), '200 200', '... for accounts';
is statuses($node, 1, 'unknown'), '401', '... and for nobody else';
is key('lee')->{limit}, 1000, '... and a trial';
is key('new', 'PUT', '&rate=7/1m')->{limit}, 7, 'an order';
like content($path), qr{^ *new +7/1m$}m, '... is in the file';
$node->stop;
start($node, $snippet =~ s{/var/lib/limit_sliding/rate}{$path}r);
is key('new')->{limit}, 7, '... and outlasts a restart';

is join(' ', map { $_->{name} } grep { !$_->{run} } @blocks), '', 'all were run';
$application->stop;
$redis->stop;
$nodes[0]->finish_one;
$nodes[1]->finish_one;
$node->finish;
