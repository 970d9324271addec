# A decision about a request outlives what happens to the request after it.

use v5.36;

use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new;

$nginx->common(http => <<'CONF');
    limit_sliding_zone $arg_key zone=tight:1m rate=2 window=30d;

    add_header X-Status    $limit_sliding_status    always;
    add_header X-Zone      $limit_sliding_zone      always;
    add_header X-Remaining $limit_sliding_remaining always;
CONF

sub told($response) {
    return join ' ', $response->{status},
        map { header($response, $_) } qw(X-Status X-Zone X-Remaining);
}


# A filter's error clears the request's contexts.

$nginx->write_file('page', 'page');

$nginx->serve(server => <<'CONF');
    location /static/ {
        limit_sliding zone=tight;
        alias %%DIR%%/;
    }
CONF

is told($nginx->get('/static/page?key=a')), '200 PASSED tight 1', 'a page';
is told($nginx->get('/static/page?key=a',
    headers => ['If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT'])),
    '412 PASSED tight 0', 'a precondition that fails';


# The tightest of all describes the request, wherever it was decided.

$nginx->serve(http => <<'HTTP', server => <<'SERVER');
    limit_sliding_zone $arg_key zone=wide:1m rate=100 window=30d;
HTTP
    location /missing {
        limit_sliding zone=tight;
        error_page 404 = @wide;
    }

    location /watched {
        limit_sliding zone=tight;
        limit_sliding_dry_run on;
        error_page 404 = @wide;
    }

    location @wide {
        limit_sliding zone=wide;
        empty_gif;
    }
SERVER

is told($nginx->get('/missing?key=b')), '200 PASSED tight 1',
    'the limit before the redirect is the tighter one';

# A dry run that rejected is told, whatever the next location decides.
is told($nginx->get('/watched?key=c')), '200 PASSED tight 1', 'watched, passed';
$nginx->get('/watched?key=c');
is told($nginx->get('/watched?key=c')), '200 REJECTED_DRY_RUN tight 0',
    'watched, rejected';


# The line about limiting tells how many requests the log left out, and no other
# line does.

$nginx->serve(server => <<'CONF');
    location /omitted {
        limit_sliding zone=tight;
        limit_sliding_dry_run on;
        limit_sliding_log_level warn every=200ms;
    }
CONF

my $connection = $nginx->connect;       # so that one worker serves them all
$nginx->get('/omitted?key=d', socket => $connection) for 1 .. 6;
sleep 0.2;
$nginx->get('/omitted?key=d', socket => $connection);
my @lines = grep { /, omitted: [1-9]/ } $nginx->log_lines(qr/"GET .omitted/);
is @lines, 1, 'requests were left out of the log';
is grep(!/ limiting requests, dry run,/, @lines), 0,
    'which no other line of the request says';
is scalar $nginx->log_lines(qr/open.. ".*omitted" failed/), 7,
    'though there are such lines';

$nginx->finish;
