# A Redis that hangs runs calls long after NGINX has given them up: they must not charge the
# window in which it wakes up. Nor must calls be refused because its clock was set.

use v5.36;

use Test::More;

use LimitSliding::Clock;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my $LIMIT = 20;
my @ZONES = qw(counter log fixed token_bucket settled);

my $clock = LimitSliding::Clock->new;
my $redis = LimitSliding::Redis->new;
$clock->run(sub { $redis->start });
my $nginx = LimitSliding::Test->new;
my %places = places(each => "rate=$LIMIT window=10s redis=shared",
    zones => { map { ($_ => $_ eq 'settled' ? 'algorithm=fixed' : "algorithm=$_") } @ZONES });
$places{server} .= <<'CONF';
    location /settle {
        limit_sliding zone=settled cost=1 settle=$arg_cost;
        empty_gif;
    }
CONF
$nginx->common(http => <<"CONF");
    limit_sliding_log_level off;
    ${\ $redis->block('100ms', 'on_error allow;')}
    add_header X-Source \$limit_sliding_source always;
CONF
$nginx->serve(%places);

# Sends requests at once.
sub load($path, $n) {
    my %sources;
    my $statuses = $nginx->load(connections => $n, requests => [ ($path) x $n ],
        each => sub ($i, $status, $head) { $sources{ $head =~ /^X-Source: (\w+)/m ? $1 : '' }++ });
    return (scalar(grep { $_ == 200 } @$statuses), \%sources);
}

sub answers() {
    return wait_for(sub { header($nginx->get('/counter?key=again'), 'X-Source') ne 'fallback' });
}

for my $zone (@ZONES) {
    my $path = $zone eq 'settled' ? '/settle?cost=2&key' : "/$zone?key";
    ok answers(), "$zone: Redis answers";
    stay_in(10, 2);
    is +(load("$path=$zone", 1))[0], 1, '... and the worker knows its clock';
    $redis->freeze;
    my ($passed, $sources) = load("$path=$zone", 8);
    is "$passed $sources->{fallback}", '8 8', '... until it hangs: on_error decides';
    $nginx->reload;
    ($passed, $sources) = load("$path=$zone", 8);
    is "$passed $sources->{fallback}", '8 8', '... as in workers that know no clock of it';

    # the limit is whole again in the window after the next one
    sleep 20;
    $redis->thaw;
    ok answers(), '... until it has woken up';
    is +(load("/$zone?key=$zone", $LIMIT + 5))[0], $LIMIT, '... and whose limit is whole';
}


# The clock of Redis is set: no request falls to on_error, and no decision is lost.

for my $seconds (-86_400, -3600, -1, 1, 3600, 86_400) {
    is +(load("/counter?key=clock$seconds", 3))[0], 3, "the clock of Redis, set by $seconds s";
    $clock->set(utc => $seconds);
    for my $workers (qw(old new)) {
        my ($passed, $sources) = load("/counter?key=$workers$seconds", $LIMIT + 4);
        is $passed, $LIMIT, "... $workers workers: the limit holds";
        is $sources->{fallback} // 0, 0, '... by Redis';
        $nginx->reload;
    }
    $clock->set(utc => 0);
}

done_testing;
