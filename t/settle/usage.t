# What limit_sliding_usage reads from responses of all kinds, which pass as they
# are.

use v5.36;

use IO::Compress::Gzip qw(gzip);
use IO::Uncompress::Gunzip qw(gunzip);
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;
use LimitSliding::Upstream;

my $nginx = LimitSliding::Test->new;
my $dir = $nginx->dir;

my $FILLER = '"filler": "' . join(' ', 1 .. 20_000) . '",';
my $GZIPPED;
gzip \'{"total_tokens": 5}', \$GZIPPED or die 'gzip';

# What the upstream says at each path.
my %SAYS = (
    map({ ($_ => { parts => [ '{"total_tokens": 11}' ] }) }
        qw(plain addition sub)),
    chunked  => { parts => [ '{"total_to', 'kens": 1', '2}' ],
        framing => 'chunked' },
    closed   => { parts => [ '{"total_tokens": ', '13' ], framing => 'close' },
    large    => { parts => [
        "{ $FILLER \"total_tokens\": 14, $FILLER \"\": 0 }" ] },
    bytes    => { parts => [ split //, 'data: {"total_tokens" : 15}' . "\n\n" ],
        framing => 'chunked' },
    nothing  => { parts => [] },
    none     => { parts => [ '{"tokens": 1}' ] },
    string   => { parts => [ '{"content": "\"total_tokens\": 1"}' ] },
    error    => { status => 500, parts => [ '{"total_tokens": 16}' ] },
    no_body  => { status => 204, framing => 'raw',
        parts => [ "HTTP/1.1 204 No Content\r\n\r\n" ] },
    aborted  => { framing => 'raw', parts => [ "HTTP/1.1 200 OK\r\n"
        . "Content-Length: 100\r\n\r\n"
        . '{"total_tokens": 17, "total_tokens":18' ] },
    gzipped  => { headers => [ 'Content-Encoding: gzip' ],
        parts => [ $GZIPPED ] },
    encoded  => { headers => [ 'Content-Encoding: secret' ],
        parts => [ '{"total_tokens": 18}' ] },
    identity => { headers => [ 'Content-Encoding: identity' ],
        parts => [ '{"total_tokens": 23}' ] },
    ssi      => { headers => [ 'Content-Type: text/html' ], parts => [
        'with <!--#include virtual="/part" --> "total_tokens": 19 '
            . '<!--#include virtual="/bad_null" -->' ] },
    part     => { parts => [ '{"total_tokens": 20}' ] },
    elsewhere => { headers => [ 'X-Accel-Redirect: /file' ],
        parts => [ '{"total_tokens": 21}' ] },
    upgraded => { framing => 'raw', parts => [ "HTTP/1.1 101 Switching"
        . " Protocols\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\n",
        '{"total_tokens": 22}' ] },
    map({ ("bad_$_->[0]" => { parts => [
        qq({"total_tokens": 8, "total_tokens": $_->[1],)
            . ' "total_tokens": null}' ] })
    } ([ null => 'null' ], [ negative => '-5' ], [ float => '1.5' ],
        [ exponent => '1e3' ], [ string => '"12"' ],
        [ large => '9007199254740993' ], [ long => '1' x 500 ],
        [ forged => qq("a\nb\x{7f}\xc3") ])),
);

my $upstream = LimitSliding::Upstream->new(sub ($request) {
    my ($name) = $request->{path} =~ m{^(?:/o\w+)*/(\w+)};
    return $SAYS{$name} // { status => 404 };
});

my $FILE = "{ $FILLER \"total_tokens\": 31 }";
mkdir "$dir/html/on" or die "html/on: $!";
symlink 'on', "$dir/html/off" or die "html/off: $!";
$nginx->write_file('html/on/file', $FILE);
$nginx->write_file('html/on/empty', '');
$nginx->write_file('html/file', $FILE);

# Locations where it is on, and the same where it is off.
my $proxy = 'proxy_pass http://' . $upstream->server . ';';
sub places() {
    return join '', map { <<"CONF" } qw(on off);
    location /$_/ {
        limit_sliding_usage @{[ $_ eq 'on' ? 'total_tokens' : 'off' ]};
        $proxy
        location /$_/file  { }
        location /$_/empty { }
    }
CONF
}

my $http = <<'CONF';
    log_format usage '$request_uri $status $limit_sliding_usage';
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    proxy_cache_path %%DIR%%/cache keys_zone=cache:1m;
    proxy_cache_key $uri;
CONF

my $unique = 0;
sub usage_in_log($uri) {
    open my $log, '<', "$dir/usage.log" or die "usage.log: $!";
    return (map { /^\Q$uri\E \d+ (.*)/ } <$log>)[0];
}

sub usage_of($path, %opt) {
    my $uri = "$path?" . ++$unique;
    my $response = $nginx->get($uri, %opt);
    return (usage_in_log($uri), $response);
}

sub serve(%directives) {
    $nginx->serve(http => $http . ($directives{http} // ''), server =>
        "    access_log %%DIR%%/usage.log usage;\n$directives{server}",
        listen => $directives{listen} // '');
}

sub usage_is($path, $expected, $name, %opt) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($usage, $response) = usage_of($path, %opt);
    is $usage, $expected, $name;
    return $response;
}


# a "post_action", which runs before a request is logged and settled, and whose own
# response nobody gets

serve(http => "limit_sliding_zone all zone=tokens:1m rate=1000 window=30d;\n",
    server => <<"CONF");
    limit_sliding_usage total_tokens;
    location / {
        limit_sliding zone=tokens settle=\$limit_sliding_usage;
        $proxy
        post_action /after;
    }
    location /after { rewrite ^ /chunked break; $proxy }
    location /limits { limit_sliding_api; }
CONF
usage_is('/plain', 11, 'post_action: the usage is that of the response');
is api_key($nginx, 'tokens', 'all')->{used}, 11, '... which is settled';
usage_is('/none', '-', 'post_action: no usage');


# all kinds of responses, the same with it and without, under all that changes
# how they come

my %KINDS = (
    'buffered'          => '',
    'as it comes'       => 'proxy_buffering off;',
    'in a file'         => 'proxy_buffers 2 4k; proxy_buffer_size 4k;'
        . 'proxy_busy_buffers_size 4k; limit_rate 2m; sendfile on;',
    'from a cache'      => 'proxy_cache cache; proxy_cache_valid any 1h;'
        . 'sendfile on;',
    'by sendfile'       => 'sendfile on; tcp_nopush on;',
    'in threads'        => 'sendfile on; aio threads;',
    'gzip'              => 'gzip on; gzip_types *; gzip_min_length 1;',
);
my %USAGE = (plain => 11, chunked => 12, closed => 13, large => 14, bytes => 15,
    nothing => '-', none => '-', string => '-', no_body => '-',
    gzipped => '-', encoded => '-', identity => 23, file => 31, empty => '-', part => 20);

for my $kind (sort keys %KINDS) {
    serve(server => "    $KINDS{$kind}\n" . places());
    my @headers = $kind eq 'gzip' ? ('Accept-Encoding: gzip') : ();

    for my $name (sort keys %USAGE) {
        for my $try (1 .. ($kind =~ /cache/ ? 2 : 1)) {
            my ($off, $without) = usage_of("/off/$name", headers => \@headers);
            my ($on, $with) = usage_of("/on/$name", headers => \@headers);
            is $on, $USAGE{$name}, "$kind: $name";
            is $off, '-', "$kind: $name, off";

            $_->{body} = plain_body($_) for $with, $without;
            delete $_->{headers}{date} for $with, $without;
            ok eq_hash($with, $without), "$kind: $name passes as it is"
                or diag explain [ map { $_->{headers} } $with, $without ];
        }
    }

    # the body was compressed after it was read
    if ($kind eq 'gzip') {
        my (undef, $response) = usage_of('/on/large', headers => \@headers);
        is header($response, 'Content-Encoding'), 'gzip', 'gzip: compressed';
        my $body = plain_body($response);
        gunzip \$body, \my $plain;
        is $plain, $SAYS{large}{parts}[0], 'gzip: the same';
    }
}


# methods, ranges, HTTP/2

serve(listen => '', server => places());

for my $name (qw(plain chunked file)) {
    my $head = usage_is("/on/$name", '-', "HEAD of $name", method => 'HEAD');
    is $head->{body}, '', '... has no body';
}

for my $range ('0-9', '100-200', '5-6,20-40', '-20', '999999999-') {
    my @headers = (headers => [ "Range: bytes=$range" ]);
    my (undef, $without) = usage_of('/off/file', @headers);
    my ($on, $with) = usage_of('/on/file', @headers);
    is $on, $range eq '-20' ? 31 : '-', "bytes $range";
    s/\d{20}/boundary/g for $with->{body}, $without->{body};
    is $with->{body}, $without->{body}, '... are the same';
    is $with->{status}, $without->{status}, '... with the same status';
}

my $since = header($nginx->get('/on/file'), 'Last-Modified');
is usage_is('/on/file', '-', 'not modified',
    headers => [ "If-Modified-Since: $since" ])->{status}, 304, '... 304';

SKIP: {
    skip 'no nghttp', 2 if !$nginx->has_http2;

    $nginx->serve(http => $http, server => places()
        . "access_log $dir/usage.log usage; http2_listen 127.0.0.1:%%PORT1%%;");
    my $url = 'http://127.0.0.1:' . $nginx->port(1);
    for my $name (qw(large file)) {
        # A pipe has no room for it, and its reader waits until nghttp is idle.
        my ($on, $off) = map {
            system "nghttp '$url/$_/$name?h2$name' >$dir/h2";
            open my $file, '<', "$dir/h2" or die "h2: $!";
            local $/;
            scalar <$file>;
        } qw(on off);
        ok $on eq $off && length $on > 90_000,
            "HTTP/2: $name passes as it is";
    }
    open my $log, '<', "$dir/usage.log" or die "usage.log: $!";
    my @lines = grep { m{^/on/.*\?h2} } <$log>;
    is join('', @lines), "/on/large?h2large 200 14\n/on/file?h2file 200 31\n",
        'HTTP/2: usage';
}


# the main response counts, once it is what is sent

serve(http => "    limit_sliding_usage total_tokens;\n", server => <<"CONF");
    location / { $proxy }
    location /file { }
    location /ssi { ssi on; $proxy }
    location /addition { $proxy addition_types *; add_after_body /part; }
    location /caught {
        proxy_pass http://@{[ $upstream->server ]}/error;
        proxy_intercept_errors on;
        error_page 500 =200 /plain;
    }
    location /caught-off {
        proxy_pass http://@{[ $upstream->server ]}/error;
        proxy_intercept_errors on;
        error_page 500 /quiet;
    }
    location /quiet { limit_sliding_usage off; return 200 '"total_tokens": 1'; }
    location /returned { return 200 '"total_tokens": 41'; }
    location /other {
        limit_sliding_usage other;
        return 200 '"total_tokens": 1, "other": 42';
    }
    location /prompt { limit_sliding_usage "prompt tokens: a";
        return 200 '"prompt tokens: a": 43'; }
    location /sub {
        $proxy
        sub_filter_types *; sub_filter total_tokens hidden;
        proxy_set_header Accept-Encoding '';
    }
    location /upgraded {
        $proxy
        proxy_set_header Upgrade test; proxy_set_header Connection upgrade;
    }
    location /gunzip {
        proxy_pass http://@{[ $upstream->server ]}/gzipped;
        gunzip on;
    }
CONF

usage_is('/ssi', 19, 'not of subrequests of SSI');
is_deeply [ $nginx->new_errors ], [], '... whose bad values are not told';
my $added = usage_is('/addition', 11, 'nor of what is added');
like plain_body($added), qr/11.*20/, '... which was there';
my $caught = usage_is('/caught', 11, 'of the page for an error');
unlike $caught->{body}, qr/16/, '... not of the error';
usage_is('/caught-off', '-', 'of no page where it is off');
usage_is('/elsewhere', 31, 'of a file that the upstream named');
usage_is('/error', 16, 'of an error that is passed on');
usage_is('/returned', 41, 'of a text of the configuration');
usage_is('/other', 42, 'of the name of a location');
usage_is('/prompt', 43, 'of a name with blanks and colons');
my $hidden = usage_is('/sub', 11, 'before names are replaced');
like plain_body($hidden), qr/hidden/, '... which they are';
is usage_is('/upgraded', '-', 'not of an upgraded connection',
    headers => [ 'Upgrade: test', 'Connection: Upgrade' ])->{status}, 101,
    '... which it was';
usage_is('/gunzip', '-', 'not of a body that comes compressed');
usage_is('/aborted', 17, 'of a response that breaks off, without a cut number');


# nothing is held back: the rest of a name comes after its beginning has passed

for my $parts ([ '{"total_tok', 'ens": 5', '1}' ],
    [ '"', 'total_tokens":51' ])
{
    my $slow = LimitSliding::Upstream->new(sub ($request) {
        my @waits = map { my $file = "$dir/came-$_"; sub {
            wait_for(sub { -e $file }) or die "held back\n";
        } } 1 .. $#$parts;
        return { framing => 'close', parts => [ $parts->[0],
            map { $waits[$_ - 1], $parts->[$_] } 1 .. $#$parts ] };
    });
    serve(server => 'limit_sliding_usage total_tokens; proxy_buffering off;'
        . 'location / { proxy_pass http://' . $slow->server . '; }');

    my $uri = '/slow?' . ++$unique;
    my $socket = $nginx->send_request($uri, version => '1.0');
    my $got = '';
    for my $i (0 .. $#$parts) {
        my $sent = join '', @$parts[0 .. $i];
        1 while $got !~ /\Q$sent\E/
            && sysread $socket, $got, 65536, length $got;
        like $got, qr/\Q$sent\E/, "came: $sent";
        $nginx->write_file('came-' . ($i + 1), '');
    }
    1 while sysread $socket, $got, 65536, length $got;
    is usage_in_log($uri), 51, '... and is read';
    unlink glob "$dir/came-*";
    $slow->stop;
}


# bad values are told once, and replace nothing

serve(server => "limit_sliding_usage total_tokens; location / { $proxy }");
my %BAD = (null => 'null', negative => '-5', float => '1.5', exponent => '1e3',
    string => '\x2212\x22', large => '9007199254740993',
    long => '1' x 64 . '...', forged => '\x22a\x0Ab\x7F\xC3\x22');

for my $name (sort keys %BAD) {
    $nginx->new_errors;
    usage_is("/bad_$name", 8, "$name: the integer before it counts");
    my @errors = $nginx->new_errors;
    is @errors, 1, '... one line';
    my $words = qq(invalid usage "$BAD{$name}" of a response)
        . ' for name "total_tokens" while sending';
    like $errors[0], qr/\[error\] .* \Q$words\E/, '... with the value';
}

# what upstreams send does not fill the log
$nginx->{worker_processes} = 1;
serve(server => "limit_sliding_log_level error every=1h; limit_sliding_usage total_tokens;\n"
    . "location / { $proxy }");
$nginx->new_errors;
usage_is('/bad_null', 8, 'every=1h: the integer before a bad value counts') for 1 .. 7;
is scalar(() = $nginx->new_errors), 1, '... and one line tells of seven bad values';


# configurations

sub test_config($directives) {
    my ($failed, $output) = $nginx->test_config($nginx->template(
        server => $directives));
    return $failed ? $output : '';
}

# as it is written, and as it is told
for ([ q("") => '' ], [ q('a\b') => 'a\b' ], [ q('a"b') => 'a"b' ],
    [ 'x' x 65 => 'x' x 65 ])
{
    my ($written, $told) = @$_;
    my $words = qq(invalid name "$told", it must have 1 to 64 bytes,)
        . ' without quotes and backslashes in ';
    like test_config("limit_sliding_usage $written;"),
        qr/\[emerg\] .* \Q$words\E/,
        "no name: $written";
}
like test_config('limit_sliding_usage a; limit_sliding_usage b;'),
    qr/"limit_sliding_usage" directive is duplicate/, 'once a place';
like test_config('limit_sliding_usage a; limit_sliding_usage off;'),
    qr/"limit_sliding_usage" directive is duplicate/, '... nor off';
is test_config('limit_sliding_usage ' . 'x' x 64 . ';'), '', '64 bytes';

$upstream->stop;
$nginx->finish(allow => [ qr/prematurely closed/ ]);
