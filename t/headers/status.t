# limit_sliding_status: what NGINX makes of each code, and pages in its place.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone one zone=one:1m rate=1 window=30d;
HTTP
    location = /one { limit_sliding zone=one; empty_gif; }
SERVER


# each code

# These codes are not what a client gets.
my %special = (
    408 => 'none', 444 => 'none', 499 => 'none',
    map { $_ => 400 } 494 .. 497,
);
my @codes = (400 .. 599);

# Requests that are rejected would have had access: NGINX must not take any code
# for the answer of an authentication, which "satisfy any" would then overrule.
my $codes = join "\n", map {
    my $satisfy = $_;
    map {
        "location = /$satisfy/$_ { satisfy $satisfy; allow all;"
        . " limit_sliding zone=one; limit_sliding_status $_; empty_gif; }"
    } @codes;
} qw(all any);

# A limit after_auth rejects in another phase.
my $after = join "\n", map {
    "location = /after/$_ { satisfy any; allow all;"
    . " limit_sliding zone=one after_auth; limit_sliding_status $_;"
    . " empty_gif; }"
} @codes;

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    log_format verdict "$uri|$limit_sliding_status";
HTTP
    access_log %%DIR%%/access.log verdict;

    location = /free-of-limits { empty_gif; }
    $codes
    $after
SERVER

is $nginx->statuses(1, '/one'), '200', 'the only request that passes';


for my $place (qw(all any after)) {
    my (@wrong, @untold);

    for my $code (@codes) {
        my $expected = $special{$code} // $code;
        my $r = $nginx->get("/$place/$code");
        my $status = $r->{status} // 'none';

        push @wrong, "$code: $status" if $status ne $expected;
        push @untold, $code if $status ne 'none'
            && (header($r, 'Retry-After') // '') !~ /^[1-9]\d+$/;
    }
    is "@wrong", '', "$place: each code is what a client gets";
    is "@untold", '', "$place: each with Retry-After";
}

# the last one may be written after its response
sub rejected() {
    open my $log, '<', $nginx->dir . '/access.log' or die "access.log: $!";
    return scalar grep { m{^/\w+/\d+\|REJECTED$} } <$log>;
}
is rejected(), 3 * @codes, 'all of them were rejected';

# A connection goes on to be served after a rejection, whether the module or
# NGINX finalizes its code.
for my $code (401, 403, 404, 407, 429, 503) {
    my $socket = $nginx->connect;
    is join(' ', map { $nginx->get($_, socket => $socket)->{status} }
            "/any/$code", "/all/$code", '/free-of-limits'),
        "$code $code 200", "$code on one connection, and on";
}


# pages by an upstream that has a Retry-After of its own

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    server {
        listen 127.0.0.1:%%PORT1%%;
        add_header retry-after 5;
        return 200 page;
    }
HTTP
    location = /named {
        limit_sliding zone=one;
        error_page 429 = @upstream;
        empty_gif;
    }

    location = /page {
        limit_sliding zone=one;
        error_page 429 /upstream;
        empty_gif;
    }

    location = /off {
        limit_sliding zone=one;
        limit_sliding_headers off;
        error_page 429 /upstream;
        empty_gif;
    }

    location = /never {
        limit_sliding zone=one cost=2;
        error_page 429 /upstream;
        empty_gif;
    }

    location = /free   { error_page 429 /upstream; return 429; }
    location /upstream { proxy_pass http://127.0.0.1:%%PORT1%%; }
    location @upstream { proxy_pass http://127.0.0.1:%%PORT1%%; }
SERVER

$nginx->get('/one');

for my $case (
    [ '/named', 200, qr/^[1-9]\d{2,}$/, 'that of the limit' ],
    [ '/page',  429, qr/^[1-9]\d{2,}$/, 'that of the limit' ],
    [ '/off',   429, qr/^5$/,           'that of the page' ],
    [ '/never', 429, qr/^5$/,           'that of the page' ],
    [ '/free',  429, qr/^5$/,           'that of the page' ],
) {
    my ($path, $status, $retry, $name) = @$case;
    my $r = $nginx->get($path);

    is $r->{status}, $status, "$path: status";
    is $r->{body}, 'page', "$path: the page";
    like header($r, 'Retry-After'), $retry, "$path: one Retry-After, $name";
}

$nginx->finish;
