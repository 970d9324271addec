package LimitSliding::Peers;

# Limiters to be measured beside each other, in NGINX and in HAProxy.  To all
# of them the path of a request is its key.
#
#   my ($none, $counter, @peers) = peers(qw(none counter limit_req));
#
# Each is { key, name, http => directives of http{}, pass => directives of a
# location that never rejects, reject => of one that rejects from the second
# request of a key on }.  `reject` is undef where that can't be done.  Those
# that can't be had here, Lua without its module, are left out.

use v5.36;

use Cwd qw(realpath);
use Exporter qw(import);
use FindBin;
use File::Temp qw(tempdir);
use IO::Socket::INET;
use POSIX ();

use LimitSliding::Test qw(wait_for);

our @EXPORT = qw($LUA_PATH haproxy_version lua_modules peers start_haproxy);

# The directive by which Lua finds the limiters of t/bench.
our $LUA_PATH = "lua_package_path '$FindBin::Bin/?.lua;;';";

my %haproxies;            # pid => sub that stops it, at exit

my %PEERS = map { $_->{key} => $_ } (
    {   key  => 'none', name => 'no limiter',
        http => '', pass => '', reject => 'return 429;',
    },
    own('counter'),
    own('counter-10', 'counter precision=10'),
    own('fixed'),
    own('token_bucket'),
    own('leaky_bucket', 'leaky_bucket',
        'rate=4000000r/s burst=1000', 'rate=1r/h'),
    own('log', 'log'),
    # of a hundred requests in the window, if they come every two milliseconds;
    # never full if some come late, and as far from either end of what it tells
    # by a single event
    own('log-busy', 'log', 'rate=150 window=200ms', 'rate=100r/h'),
    # a key has no other request in flight; of two units, one is too much
    {   key  => 'inflight', name => 'inflight',
        http => join('', map {
            "limit_sliding_zone \$uri zone=inflight-$_->[0]:6m inflight=$_->[1];\n"
        } [ 'pass', 1000 ], [ 'reject', 1 ]),
        pass => 'limit_sliding zone=inflight-pass; limit_sliding_log_level off;',
        reject => 'limit_sliding zone=inflight-reject cost=2;'
            . ' limit_sliding_log_level off;',
    },
    {   key  => 'limit_req', name => 'limit_req',
        http => <<'CONF',
limit_req_zone $uri zone=limit_req-pass:32m   rate=1000r/s;
limit_req_zone $uri zone=limit_req-reject:32m rate=1r/m;
limit_req_log_level info;
limit_req_status 429;
CONF
        pass   => 'limit_req zone=limit_req-pass burst=1000000 nodelay;',
        reject => 'limit_req zone=limit_req-reject;',
    },
    # it counts requests in progress, of which a key has had none before
    {   key  => 'limit_conn', name => 'limit_conn',
        http => "limit_conn_zone \$uri zone=limit_conn:32m;\n",
        pass => 'limit_conn limit_conn 1000;',
    },
    {   key  => 'lua', name => 'Lua, shared dict',
        http => "$LUA_PATH\n"
            . "lua_shared_dict dict 64m;\n",
        pass   => "access_by_lua_block { require('dict').limit("
            . "ngx.shared.dict, ngx.var.uri, 3600, 4000000) }",
        reject => "access_by_lua_block { require('dict').limit("
            . "ngx.shared.dict, ngx.var.uri, 3600, 1) }",
    },
);

# A zone of 16 bytes a key is half full of 100,000.
sub own($key, $algorithm = $key, $pass = 'rate=4000000r/h',
    $reject = 'rate=1r/h')
{
    my $size = $algorithm =~ /precision|log/ ? '32m' : '3m';
    return {
        key  => $key,
        name => $algorithm,
        http => join('', map {
            "limit_sliding_zone \$uri zone=$key-$_->[0]:$size $_->[1]"
                . " algorithm=$algorithm;\n"
        } [ 'pass', $pass ], [ 'reject', $reject ]),
        pass   => "limit_sliding zone=$key-pass; limit_sliding_log_level off;",
        reject => "limit_sliding zone=$key-reject; limit_sliding_log_level off;",
    };
}

sub peers(@keys) {
    return map { $PEERS{$_} // die "no peer '$_'\n" }
        grep { $_ ne 'lua' || lua_modules() } @keys;
}

# Returns the modules that Debian's NGINX has to load for Lua, an empty list if
# they are not there: those of the system, or those that .ci/packages has unpacked,
# which are found by the environment.
sub lua_modules() {
    state $modules = do {
        my $nginx = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
        my ($system) = `'$nginx' -V 2>&1` =~ /--modules-path=(\S+)/;
        my @found = map { _both($_) } $system // ();
        @found = _unpacked($nginx) if !@found;
        \@found;
    };
    return @$modules;
}

# Returns both modules if they are in these directories.
sub _both(@directories) {
    my @modules = map { my $name = $_; grep { -r } map { "$_/${name}_module.so" } @directories }
        qw(ndk_http ngx_http_lua);
    return @modules == 2 ? @modules : ();
}

sub _unpacked($nginx) {
    my $root = realpath('build/lua') // return;
    my @modules = _both(glob "$root/*/usr/lib/nginx/modules") or return;
    my %found = (
        LD_LIBRARY_PATH => join(':', glob("$root/*/usr/lib/*-linux-gnu"),
            $ENV{LD_LIBRARY_PATH} // ()),
        LUA_PATH => join(';', map({ "$_/?.lua" } glob "$root/*/usr/share/lua/5.1"), ';'),
    );

    # they are of another NGINX if that has been replaced
    my $dir = tempdir(CLEANUP => 1);
    open my $conf, '>', "$dir/nginx.conf" or die "nginx.conf: $!";
    print $conf map({ "load_module $_;\n" } @modules),
        "pid $dir/pid; error_log stderr; events { }\n";
    close $conf or die "nginx.conf: $!";
    {
        local @ENV{ keys %found } = values %found;
        return if system("'$nginx' -t -q -p '$dir' -c nginx.conf 2> /dev/null") != 0;
    }
    $ENV{$_} = $found{$_} for keys %found;
    return @modules;
}

# Debian's directory of it is not in a user's PATH; .ci/packages unpacks it, with its
# libraries.
my ($HAPROXY) = grep { -x } map { "$_/haproxy" } split(/:/, $ENV{PATH}),
    '/usr/sbin', '/usr/local/sbin', 'build/haproxy/usr/sbin';
my @LIBRARIES = glob 'build/haproxy-libraries/*/usr/lib/*';

# Returns the version of HAProxy, nothing if there is none.
sub haproxy_version() {
    return if !$HAPROXY;
    local $ENV{LD_LIBRARY_PATH} = join ':', @LIBRARIES if @LIBRARIES;
    my ($version) = `'$HAPROXY' -v` =~ /version ([\d.]+)/;
    return $version;
}

# HAProxy, as { port, pid, stop => sub }, with a limit `pass`, `reject` or
# none, of `threads`, for keys of `bytes` at most; or with these `rules` of its frontend,
# and `sections`.  `wrapper` is what it is to be run by.  What it answers is as long as what empty_gif does.
sub start_haproxy(%opt) {
    my $dir = tempdir(CLEANUP => 1);
    my $reserved = LimitSliding::Test::reserve_port();
    my $at_most = ($opt{limit} // '') eq 'reject' ? 1 : 4_000_000;
    my $bytes = ($opt{bytes} // 16) + 1;
    my $limit = $opt{limit} ? <<"CONF" : '';
    stick-table type string len $bytes size 131072 expire 1h store http_req_rate(1h)
    http-request track-sc0 path
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt $at_most }
CONF

    open my $conf, '>', "$dir/haproxy.cfg" or die "haproxy.cfg: $!";
    print $conf <<"CONF";
global
    nbthread @{[ $opt{threads} // 1 ]}
    maxconn  1000
defaults
    mode http
    timeout client  1m
    timeout connect 1m
    timeout server  1m
frontend limited
    bind 127.0.0.1:$reserved->{port}
$limit    @{[ $opt{rules} // '' ]}
    http-request return status 200 content-type image/gif string "@{[ '.' x 43 ]}"
@{[ $opt{sections} // '' ]}
CONF
    close $conf or die "haproxy.cfg: $!";

    local $ENV{LD_LIBRARY_PATH} = join ':', @LIBRARIES, $ENV{LD_LIBRARY_PATH} // ();
    my $pid = LimitSliding::Process::program("$dir/out", @{ $opt{wrapper} // [] }, $HAPROXY,
        '-db', '-f', "$dir/haproxy.cfg");

    my $owner = $$;
    my $stop = $haproxies{$pid} = sub {
        return if $owner != $$ || !delete $haproxies{$pid};
        kill KILL => $pid;
        waitpid $pid, 0;
    };

    my $ended;
    if (!wait_for(sub {
        $ended = waitpid($pid, POSIX::WNOHANG)
            or IO::Socket::INET->new(PeerAddr => "127.0.0.1:$reserved->{port}")
    }) || $ended) {
        $stop->();
        die "HAProxy did not start\n";
    }

    return { port => $reserved->{port}, pid => $pid, stop => $stop,
        lock => $reserved };
}

# HAProxy must not outlive the benchmark, whatever ends that.
END {
    local $?;
    $_->() for values %haproxies;
}

1;
