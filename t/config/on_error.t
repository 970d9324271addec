# on_error= of a zone goes before that of its block, and each limit of a place has
# its own: Redis never ran, stands still, is killed.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

my $redis = LimitSliding::Redis->new;      # is not started yet
my $nginx = LimitSliding::Test->new->common(listen => 'reuseport');

# Limits of 5 requests, and `tight` of 3. The blocks' own on_error would be wrong
# for nearly all of them.
my %on_error = (quota => 'allow', login => 'deny', here => 'local', tight => 'local',
    block => '', strict => 'deny');
my $zones = join '', map {
    my $on_error = $on_error{$_} && "on_error=$on_error{$_}";
    my $limit = $_ eq 'tight' ? 3 : 5;
    my $block = $_ eq 'strict' ? 'open' : 'shared';
    "limit_sliding_zone \$arg_key zone=$_:1m rate=$limit window=30d redis=$block $on_error;\n"
} sort keys %on_error;
my $singles = join '', map { "location /$_ { limit_sliding zone=$_; empty_gif; }\n" }
    sort keys %on_error;

sub block($name, $on_error) {
    return "limit_sliding_redis $name { server ${\ $redis->server}; timeout 200ms;"
        . " connect_timeout 200ms; on_error $on_error; }\n";
}

$nginx->write_file('htpasswd', "ann:{PLAIN}secret\n");
$nginx->serve(http => block(shared => 'deny') . block(open => 'allow') . <<"HTTP",
    $zones
    limit_sliding_zone \$arg_key zone=memory:1m rate=3 window=30d;

    limit_sliding_headers retry_after draft;
    auth_basic_user_file %%DIR%%/htpasswd;
    add_header X-Status    \$limit_sliding_status    always;
    add_header X-Zone      \$limit_sliding_zone      always;
    add_header X-Remaining \$limit_sliding_remaining always;
    add_header X-Source    \$limit_sliding_source    always;
HTTP
    server => $singles . <<'SERVER');
    location /limits { limit_sliding_api; }
    location /memory { limit_sliding zone=memory cost=0; empty_gif; }

    location /quota-login  { limit_sliding zone=quota; limit_sliding zone=login; empty_gif; }
    location /login-quota  { limit_sliding zone=login; limit_sliding zone=quota; empty_gif; }
    location /quota-here   { limit_sliding zone=quota; limit_sliding zone=here; empty_gif; }
    location /quota-memory { limit_sliding zone=quota; limit_sliding zone=memory; empty_gif; }
    location /memory-login { limit_sliding zone=memory; limit_sliding zone=login; empty_gif; }
    location /here-tight   { limit_sliding zone=here; limit_sliding zone=tight; empty_gif; }
    location /here-strict  { limit_sliding zone=here; limit_sliding zone=strict; empty_gif; }

    location /watched { limit_sliding zone=login dry_run; empty_gif; }
    location /watched-quota {
        limit_sliding zone=login dry_run;
        limit_sliding zone=quota;
        empty_gif;
    }
    location /auth {
        auth_basic realm;
        limit_sliding zone=quota;
        limit_sliding zone=login after_auth;
        empty_gif;
    }
    location /auth-quota {
        auth_basic realm;
        limit_sliding zone=here;
        limit_sliding zone=quota after_auth;
        empty_gif;
    }

    location /count/quota { limit_sliding zone=quota count_status=404; }
    location /count/login { limit_sliding zone=login count_status=404; }
    location /count/here  { limit_sliding zone=here count_status=404; }
    location /settle/quota { limit_sliding zone=quota cost=0 settle=$arg_cost; empty_gif; }
    location /settle/here  { limit_sliding zone=here cost=0 settle=$arg_cost; empty_gif; }
SERVER

my $DENYING = qr/\[error\].*denying request/;
my @ANN = (headers => [ 'Authorization: Basic YW5uOnNlY3JldA==' ]);

# Sends requests on one connection, where each finds those before it settled.
sub statuses($n, $path, %options) {
    my $socket = $nginx->connect;
    return join ' ', map { $nginx->get($path, %options, socket => $socket)->{status} } 1 .. $n;
}

# Asserts the statuses of requests, those that passed first.
sub passes($passed, $n, $path, $name, $passes = 200, %options) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is statuses($n, $path, %options), join(' ', ($passes) x $passed, (429) x ($n - $passed)),
        $name;
}

sub remaining($zone, $key) {
    return header($nginx->get("/$zone?key=$key"), 'X-Remaining');
}

# Asserts that each zone's own policy decides.
sub policies_apply($name) {
    subtest $name => sub {
        my $k = $name =~ s/\W+/-/gr;
        passes(8, 8, "/quota?key=$k", 'allow');
        passes(0, 8, "/login?key=$k", 'deny');
        passes(5, 8, "/here?key=$k", 'local');
        passes(0, 2, "/block?key=$k", "that of the block, deny");
        passes(0, 2, "/strict?key=$k", 'deny, in a block that allows');

        my $r = $nginx->get("/quota?key=$k");
        is header($r, 'X-Source'), 'fallback', 'allowed: the source';
        $r = $nginx->get("/login?key=$k");
        is header($r, 'X-Source'), 'fallback', 'denied: the source';
        is header($r, 'Retry-After'), 1, '... and when to try again';

        $nginx->new_log_lines($DENYING);
        passes(0, 3, "/quota-login?key=$k", 'a quota that opens, a login that closes: denied');
        my @lines = $nginx->new_log_lines($DENYING);
        is @lines, 3, '... in the log';
        is scalar grep({ !/redis "shared" of zone "login" does not answer/ } @lines), 0,
            '... by the zone that denies';
        passes(0, 3, "/login-quota?key=$k", '... whatever comes first');
        passes(5, 8, "/quota-here?key=$k-both", 'allow and local: local decides');
        $r = $nginx->get("/quota-here?key=$k-both");
        is header($r, 'X-Zone') . ' ' . header($r, 'X-Source'), 'here fallback',
            '... and describes';

        passes(3, 6, "/quota-memory?key=$k", 'allow, and a limit of shared memory');
        passes(0, 6, "/memory-login?key=$k-denied", 'deny, and a limit of shared memory');
        is remaining('memory', "$k-denied"), 3, '... from which nothing is taken';
        passes(3, 6, "/here-tight?key=$k-two", 'two that are local: the tighter one');
        passes(0, 6, "/here-strict?key=$k-two", '... with one that is denied');
        passes(2, 4, "/here?key=$k-two", '... all or nothing');

        passes(6, 6, "/watched?key=$k", 'dry_run: nothing is denied');
        is header($nginx->get("/watched?key=$k"), 'X-Status'), 'REJECTED_DRY_RUN',
            '... but watched';
        passes(6, 6, "/watched-quota?key=$k", '... with a quota');
        passes(0, 2, "/auth?key=$k", 'after_auth: denied', 200, @ANN);
        is statuses(1, "/auth?key=$k"), 401, '... once there is a user';
        passes(5, 6, "/auth-quota?key=$k-auth", '... allowed', 200, @ANN);

        passes(8, 8, "/count/quota?key=$k", 'count_status: allow', 404);
        passes(0, 2, "/count/login?key=$k", '... deny', 404);
        passes(5, 8, "/count/here?key=$k-count", '... local', 404);
        passes(3, 3, "/settle/quota?key=$k&cost=100", 'settle: allow');
        passes(1, 3, "/settle/here?key=$k-settle&cost=100", '... local');
    };
}

# Asserts that Redis decides about all of them.
sub redis_decides($name) {
    my $k = $name =~ s/\W+/-/gr;
    my $n = 0;
    ok wait_for(sub {
        my $decided = 0;
        for (1 .. 8) {
            $n++;
            $decided += grep { header($nginx->get("/$_?key=$k-wait-$n"), 'X-Source') eq 'redis' }
                qw(quota strict);
        }
        return $decided == 16;
    }, 30), "$name: Redis decides";
    passes(5, 7, "/quota?key=$k", '... about a quota');
    passes(5, 7, "/login?key=$k", '... a login');
    passes(5, 7, "/quota-login?key=$k-both", '... and both');
    passes(5, 7, "/count/login?key=$k-count", '... with count_status', 404);
}

# Asserts that policies apply while requests wait, and while the breaker is open.
sub breaks($name) {
    policies_apply($name);

    # A worker that cannot connect does not try again for a while.
    my $n = 0;
    ok wait_for(sub {
        $nginx->get("/$_?key=open-" . $n++) for qw(quota strict);
        return !grep { api($nginx)->{redis}{$_}{breaker} ne 'open' } qw(shared open);
    }, 30), "$name: the breakers open";
    policies_apply("$name, open");
}

breaks('it never ran');

$redis->start;
redis_decides('started');

$redis->freeze;
breaks('frozen');

$redis->thaw;
redis_decides('thawed');

$redis->kill9;
breaks('killed');


# What Redis is asked on the way out denies nothing: it goes away before that.

$redis->start;
redis_decides('restarted');
$redis->kill9;
is statuses(2, '/count/quota?key=late'), '404 404', 'nothing is denied on the way out';

my $zone = api($nginx)->{zones}{login};
is $zone->{on_error}, 'deny', 'the API tells the policy of a zone';
is api($nginx)->{zones}{block}{on_error}, 'deny', '... also that of the block';

$nginx->finish;
