# A response has one field of each name.  A field that the configuration adds by itself stays, and
# ours replaces the field of an upstream.

use v5.36;

use Test::More;

use LimitSliding::Test qw(:DEFAULT key);

my $nginx = LimitSliding::Test->new;

my @ALL = qw(Retry-After RateLimit RateLimit-Policy X-RateLimit-Limit X-RateLimit-Remaining
    X-RateLimit-Reset);

# Directives that set all these fields, to what no limit says.
sub add($parameter = '') {
    return join '', map { "add_header $_ theirs$parameter;\n" } @ALL;
}

# Returns the values of all fields, in the order of @ALL: "ours", or as they are.
sub told($r) {
    return join ' | ', map {
        my $field = $_;
        join ', ', map { /^(?:theirs|upstream)/ ? $_ : 'ours' } @{ $r->{headers}{ lc $field } // [] }
    } @ALL;
}

sub all($value) { return join ' | ', ($value) x @ALL }

my $OURS = all('ours');
my $THEIRS = all('theirs');

# Asserts what a passed and a rejected request are told.
sub is_told($path, $passed, $rejected, $name, $status = 429) {
    my @key = key();
    is told($nginx->get($path, @key)), $passed, "$name: passed";
    my $r = $nginx->get($path, @key);
    is $r->{status}, $status, "$name: the status of a rejection";
    is told($r), $rejected, "$name: rejected";
}

$nginx->common(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $http_x_key zone=one:1m rate=1 window=30d;
HTTP
    limit_sliding_headers retry_after ratelimit x_ratelimit;
SERVER


# add_header

$nginx->serve(http => <<'HTTP', server => <<"SERVER");
    map $http_x_key $empty { default ""; }
HTTP
    location /never  { limit_sliding zone=one; empty_gif; }
    location /always {
        limit_sliding zone=one;
        @{[ add(' always') ]}
        empty_gif;
    }
    location /passed {
        limit_sliding zone=one;
        @{[ add() ]}
        empty_gif;
    }
    location /empty {
        limit_sliding zone=one;
        add_header Retry-After \$empty always;
        add_header X-RateLimit-Limit \$empty always;
        empty_gif;
    }
    location /case {
        limit_sliding zone=one;
        add_header retry-after theirs always;
        add_header RATELIMIT theirs always;
        empty_gif;
    }
    location /twice {
        limit_sliding zone=one;
        add_header Retry-After theirs1 always;
        add_header Retry-After theirs2 always;
        empty_gif;
    }
    location /other {
        limit_sliding zone=one;
        add_header X-RateLimit-Limits theirs always;
        empty_gif;
    }
    location /watched {
        limit_sliding zone=one dry_run;
        @{[ add(' always') ]}
        empty_gif;
    }
    location /page {
        limit_sliding zone=one;
        error_page 429 \@page;
        empty_gif;
    }
    location \@page {
        limit_sliding off;
        @{[ add(' always') ]}
        return 503;
    }
    location /elsewhere { limit_sliding zone=one; try_files /none /unlimited; }
    location /unlimited {
        limit_sliding off;
        @{[ add(' always') ]}
        empty_gif;
    }
    location /range {
        limit_sliding zone=one;
        @{[ add(' always') ]}
        root html;
    }
SERVER

my $PASSED = $OURS =~ s/^ours//r;

is_told('/never',  $PASSED, $OURS,   'no fields of the configuration');
is_told('/always', $THEIRS, $THEIRS, 'always');
is_told('/passed', $THEIRS, $OURS,   'only some statuses');
is_told('/empty',  $PASSED, $OURS,   'empty values');
is_told('/case',  ('theirs | theirs' . ' | ours' x 4) x 2, 'other letters');
is_told('/twice', ('theirs1, theirs2' . ' | ours' x 5) x 2, 'two of the configuration');
is_told('/other',   $PASSED, $OURS,   'another name');
is_told('/watched', $THEIRS, $THEIRS, 'dry run', 200);
is_told('/page',    $PASSED, $THEIRS, 'the page of an error', 503);

my @key = key();
is told($nginx->get('/elsewhere', @key)), $THEIRS, 'another location answers';
is told($nginx->get('/elsewhere', @key)), $OURS, '... and the limit rejects';


# Only Retry-After, which is the default.

for my $place (qw(http server location)) {
    my %level = (http => '', server => '', location => '');
    $level{$place} = 'add_header Retry-After theirs always;';
    $nginx->serve(http => $level{http}, server => <<"SERVER");
        $level{server}
        location / {
            limit_sliding_headers retry_after;
            limit_sliding zone=one;
            $level{location}
            empty_gif;
        }
SERVER
    is_told('/', ('theirs' . ' | ' x 5) x 2, "in $place\{}");
}


# Reloads: the filters are registered anew, or no longer.

for my $value ('', 'theirs', '', 'theirs') {
    my $add = $value && "add_header Retry-After $value always;";
    $nginx->reload($nginx->template(http => '',
        server => "location / { limit_sliding zone=one; $add empty_gif; }"));
    my $told = ($value || 'ours') . ' | ours' x 5;
    is_told('/', $value ? $told : $PASSED, $told, 'reload, ' . ($value || 'without a field'));
}


# an upstream: ours replace its fields, and the configuration's replace ours

$nginx->serve(http => <<"HTTP", server => <<"SERVER");
    server {
        listen 127.0.0.1:%%PORT1%%;
        @{[ add(' always') =~ s/theirs/upstream/gr ]}
        location / { return 200 page; }
    }
HTTP
    location /plain {
        limit_sliding zone=one;
        error_page 429 /page;
        proxy_pass http://127.0.0.1:%%PORT1%%;
    }
    location /page { limit_sliding off; proxy_pass http://127.0.0.1:%%PORT1%%; }
    location /hidden {
        limit_sliding zone=one;
        error_page 429 /silent;
        proxy_pass http://127.0.0.1:%%PORT1%%;
        proxy_hide_header Retry-After;
    }
    location /silent {
        limit_sliding off;
        proxy_pass http://127.0.0.1:%%PORT1%%;
        proxy_hide_header Retry-After;
        add_header Retry-After theirs always;
    }
    location /added {
        limit_sliding zone=one;
        error_page 429 /own;
        proxy_pass http://127.0.0.1:%%PORT1%%;
        add_header X-RateLimit-Limit theirs always;
    }
    location /own {
        limit_sliding off;
        proxy_pass http://127.0.0.1:%%PORT1%%;
        @{[ add(' always') ]}
    }
SERVER

is_told('/plain', 'upstream' . ' | ours' x 5, $OURS, 'an upstream');
is_told('/hidden', $PASSED, 'theirs' . ' | ours' x 5, 'an upstream whose field is hidden');
is_told('/added', 'upstream | ours | ours | theirs | ours | ours', $THEIRS,
    'an upstream, and the configuration');


# the API, which sends Retry-After without a limit of the request

$nginx->serve(http => '', server => <<'SERVER');
    add_header Retry-After theirs always;
    location /limits { limit_sliding_api write=on; }
    location /limited { limit_sliding zone=one; limit_sliding_api write=on; }
SERVER

for my $path (qw(/limits /limited)) {
    my ($name, @key) = ('take-of-' . substr($path, 1), key());
    my $uri = "$path/zones/one/key?key=$name&cost=1&take=1";
    my @got = map { $nginx->get($uri, method => 'POST', @key) } 1, 2;
    is told($_), ($path eq '/limits' ? 'theirs' . ' | ' x 5 : 'theirs' . ' | ours' x 5),
        "$path: $_->{status}" for @got;
    is $got[1]{status}, 429, "$path: rejected";
}

$nginx->finish;
