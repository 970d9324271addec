# A limit that is only watched, beside others that enforce.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=one:1m rate=1 window=30d;
    limit_sliding_zone $http_x_key zone=two:1m rate=2 window=30d;
    limit_sliding_zone $http_x_key zone=three:1m rate=3 window=30d;

    auth_basic_user_file %%DIR%%/htpasswd;
    limit_sliding_headers retry_after draft x;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Remaining $limit_sliding_remaining always;
HTTP
    location /look-one   { limit_sliding zone=one   cost=0; empty_gif; }
    location /look-two   { limit_sliding zone=two   cost=0; empty_gif; }
    location /look-three { limit_sliding zone=three cost=0; empty_gif; }
SERVER

# Returns "status, verdict, zone, remaining" of a request.
sub ask($path, @options) {
    my $r = $nginx->get($path, @options);
    return join ', ', $r->{status},
        map { header($r, "X-$_") } qw(Status Zone Remaining);
}

sub remaining($zone, @key) {
    return header($nginx->get("/look-$zone", @key), 'X-Remaining');
}

# Returns the lines about limiting that came since the last call, in short:
# 'dry run one, reject three'.
sub lines() {
    return join ', ', map {
        /limiting requests(, dry run)?, excess: \d+\.\d{3} by zone "(\w+)"/
            ? ($1 ? "dry run $2" : "reject $2") : $_
    } $nginx->new_log_lines(qr/limiting requests/);
}

# Returns the names of the headers that tell a client of limits.
sub shown($r) {
    return join ' ', sort grep { /^(?:retry-after|x-?ratelimit|ratelimit)/ }
        keys %{ $r->{headers} };
}


# alone

$nginx->serve(server => <<'CONF');
    location /alone { limit_sliding zone=two dry_run; empty_gif; }
    location /two   { limit_sliding zone=two;         empty_gif; }
CONF

my @key = key();
is ask('/alone', @key), '200, PASSED, two, 1', 'alone: passed';
is ask('/alone', @key), '200, PASSED, two, 0', 'alone: and again';
is lines(), '', 'alone: not logged';
is ask('/alone', @key), '200, REJECTED_DRY_RUN, two, 0', 'alone: over it';
is lines(), 'dry run two', 'alone: logged';
is ask('/two', @key), '429, REJECTED, two, 0', 'alone: what passed is counted';
lines();

my $r = $nginx->get('/alone', @key);
is shown($r), '', 'alone: clients see nothing when over it';
lines();
is shown($nginx->get('/alone', key())), '', 'alone: nor when below';


# beside one that enforces, whichever is named first

$nginx->serve(server => <<'CONF');
    location /first {
        limit_sliding zone=one dry_run;
        limit_sliding zone=three;
        empty_gif;
    }

    location /last {
        limit_sliding zone=three;
        limit_sliding zone=one dry_run;
        empty_gif;
    }
CONF

my $HEADERS = 'ratelimit ratelimit-policy'
    . ' x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset';

for my $place (qw(first last)) {
    @key = key();
    is ask("/$place", @key), '200, PASSED, one, 0', "$place: passed";
    is ask("/$place", @key), '200, REJECTED_DRY_RUN, one, 0',
        "$place: over the watched one";
    is lines(), 'dry run one', "$place: logged";
    is remaining('one', @key), 0, "$place: watched, counted what it admits";
    is remaining('three', @key), 1, "$place: enforced, counted both";

    is ask("/$place", @key), '200, REJECTED_DRY_RUN, one, 0',
        "$place: still over the watched one";
    lines();

    is ask("/$place", @key), '429, REJECTED, three, 0',
        "$place: over the other";
    like lines(), qr/\breject three$|^reject three\b/, "$place: logged";
    is ask("/$place", @key), '429, REJECTED, three, 0', "$place: and again";
    lines();
}

for my $place (qw(first last)) {
    @key = key();
    $r = $nginx->get("/$place", @key);
    is shown($r), $HEADERS, "$place: clients see headers";
    unlike header($r, 'RateLimit'), qr/one/, "$place: of what enforces";
    like header($r, 'RateLimit'), qr/^"three";r=2;t=\d+$/, "$place: alone";
    like header($r, 'RateLimit-Policy'), qr/^"three";q=3;w=2592000$/,
        "$place: and its policy";
    is header($r, 'X-RateLimit-Limit'), 3, "$place: its limit";
    is header($r, 'X-RateLimit-Remaining'), 2, "$place: what remains of it";

    $r = $nginx->get("/$place", @key);
    is shown($r), $HEADERS, "$place: no Retry-After over the watched one";
    is header($r, 'X-RateLimit-Remaining'), 1, "$place: what remains then";
}
lines();


# The other way round: what rejects takes nothing from what watches.

$nginx->serve(server => <<'CONF');
    location /loose {
        limit_sliding zone=three dry_run;
        limit_sliding zone=one;
        empty_gif;
    }
CONF

@key = key();
is ask('/loose', @key), '200, PASSED, one, 0', 'loose: passed';
is ask('/loose', @key), '429, REJECTED, one, 0', 'loose: rejected';
is ask('/loose', @key), '429, REJECTED, one, 0', 'loose: and again';
is lines(), 'reject one, reject one', 'loose: logged';
is remaining('three', @key), 2, 'loose: the watched one counted one';


# two that are watched: each by itself

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_other zone=other:1m rate=10 window=30d;
HTTP
    location /both {
        limit_sliding zone=one dry_run;
        limit_sliding zone=two dry_run;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

@key = key('X-Other: b');
is join(' ', map { (split /, /, ask('/both', @key))[0] } 1 .. 5),
    '200 200 200 200 200', 'two watched: pass';
my %lines;
$lines{$_}++ for split /, /, lines();
cmp_ok $lines{'dry run one'} // 0, '>=', 1, 'two watched: the first logged';
is $lines{'reject other'}, undef, 'two watched: none rejected';
is remaining('one', @key), 0, 'two watched: the first counted one';
is $nginx->statuses(6, '/both', @key), '200 200 200 200 200 429',
    'two watched: the third limits at ten';
lines();


# limit_sliding_dry_run: all of them

$nginx->serve(server => <<'CONF');
    location /watched {
        limit_sliding zone=one dry_run;
        limit_sliding zone=three;
        limit_sliding_dry_run on;
        empty_gif;
    }
CONF

@key = key();
is $nginx->statuses(5, '/watched', @key), '200 200 200 200 200',
    'limit_sliding_dry_run: pass';
like ask('/watched', @key), qr/^200, REJECTED_DRY_RUN, /,
    'limit_sliding_dry_run: status';
unlike lines(), qr/reject/, 'limit_sliding_dry_run: log';
is shown($nginx->get('/watched', @key)), '',
    'limit_sliding_dry_run: clients see nothing';
lines();


# with other parameters

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_other zone=other:1m rate=10 window=30d;
HTTP
    location /costly {
        limit_sliding zone=two cost=3 dry_run;
        limit_sliding zone=three;
        empty_gif;
    }

    location /rated {
        limit_sliding zone=three rate=$http_x_rate dry_run;
        limit_sliding zone=other;
        empty_gif;
    }
SERVER

@key = key();
is ask('/costly', @key), '200, REJECTED_DRY_RUN, two, 2', 'cost: above it';
is lines(), 'dry run two', 'cost: logged';
is remaining('two', @key), 2, 'cost: nothing taken';
is remaining('three', @key), 2, 'cost: the other counts';

@key = key('X-Other: r', 'X-Rate: 1');
is $nginx->statuses(3, '/rated', @key), '200 200 200', 'rate: passes';
is lines(), 'dry run three, dry run three', 'rate: watched at its own rate';
@key = key('X-Other: r', 'X-Rate: off');
is ask('/rated', @key), '200, PASSED, other, 6', 'rate: off';


# with authentication

$nginx->write_file('htpasswd', "user:{PLAIN}secret\n");

$nginx->serve(server => <<'CONF');
    location /auth {
        auth_basic closed;
        limit_sliding zone=one dry_run;
        empty_gif;
    }

    location /after-auth {
        auth_basic closed;
        limit_sliding zone=three;
        limit_sliding zone=one dry_run after_auth;
        empty_gif;
    }

    location /any {
        satisfy any;
        deny all;
        auth_basic closed;
        limit_sliding zone=one dry_run;
        limit_sliding zone=two dry_run after_auth;
        empty_gif;
    }
CONF

sub login(@key) {
    my $secret = 'dXNlcjpzZWNyZXQ=';
    return (headers => [ @{ $key[1] }, "Authorization: Basic $secret" ]);
}

@key = key();
is $nginx->statuses(3, '/auth', @key), '401 401 401',
    'authentication: passed to it';
is $nginx->statuses(2, '/auth', login(@key)), '200 200', 'and by it';
is lines(), 'dry run one, ' x 3 . 'dry run one', 'authentication: logged';

@key = key();
is $nginx->statuses(4, '/after-auth', login(@key)), '200 200 200 429',
    'after_auth: passes, the other stage enforces';
is remaining('one', @key), 0, 'after_auth: counted';
is lines(), 'dry run one, dry run one, reject three', 'after_auth: logged';

@key = key();
is $nginx->statuses(3, '/any', @key), '401 401 401',
    'satisfy any: grants nothing';
is remaining('two', @key), 2, 'satisfy any: nor comes after_auth';
is $nginx->statuses(4, '/any', login(@key)), '200 200 200 200',
    'satisfy any: users pass';
lines();


# logged, inherited

$nginx->serve(server => <<'CONF');
    location /quiet {
        limit_sliding zone=one dry_run;
        limit_sliding_log_level off;
        empty_gif;
    }

    location /nested {
        limit_sliding zone=one dry_run;
        location /nested/as  { empty_gif; }
        location /nested/own { limit_sliding zone=one; empty_gif; }
    }
CONF

@key = key();
is $nginx->statuses(3, '/quiet', @key), '200 200 200', 'no log: passes';
is lines(), '', 'no log: says nothing';

@key = key();
is $nginx->statuses(3, '/nested/as', @key), '200 200 200', 'inherited';
is ask('/nested/as', @key), '200, REJECTED_DRY_RUN, one, 0',
    'inherited: status';
is $nginx->statuses(2, '/nested/own', @key), '429 429', 'not beside one own';

$nginx->finish;
