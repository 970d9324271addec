package LimitSliding::Test;

# A small harness for black-box tests of limit_sliding on a real NGINX.
# It needs Linux (/proc), Perl 5.36 and nothing but Perl's core modules.
#
#   my $nginx = LimitSliding::Test->new;
#   $nginx->start(<<'CONF');
#   %%GLOBALS%%
#   http {
#       %%HTTP_GLOBALS%%
#       limit_sliding_zone $arg_key zone=one:1m rate=2r/h;
#       server {
#           listen 127.0.0.1:%%PORT%%;
#           location / { limit_sliding zone=one; empty_gif; }
#       }
#   }
#   CONF
#   is $nginx->get('/?key=a')->{status}, 200;
#   $nginx->finish;
#
# In a configuration, %%GLOBALS%% stands for all that is outside of http{}
# (load_module, two workers, logs, events), %%HTTP_GLOBALS%% for temporary
# paths, `root DIR/html` and no access log, %%DIR%% for the temporary prefix
# and %%PORT%%, %%PORT1%%, ... for free ports on 127.0.0.1. `http2_listen` is
# a `listen` for HTTP/2, in the form that this NGINX does not warn about.
#
# A test of many places has sections instead, each of which begins with the
# configuration that its assertions need:
#
#   my $nginx = LimitSliding::Test->new;
#   $nginx->common(http => <<'CONF');
#       limit_sliding_zone $http_x_key zone=two:1m rate=2 window=30d;
#   CONF
#
#   $nginx->serve(server => <<'CONF');
#       location /two { limit_sliding zone=two; empty_gif; }
#   CONF
#   is $nginx->statuses(3, '/two', key()), '200 200 429', 'limit 2';
#
#   $nginx->serve(http => '...', server => '...');
#   is ...
#
# common() is what all sections after it share. serve() starts an NGINX of that
# and of its own directives, in place of the one before: zones of shared memory
# are empty again, the log goes on, and finish() tells of all of them.
#
# Requests are methods too: LimitSliding::Client tells which.
#
# Environment: LIMIT_SLIDING_NGINX, the binary (default /usr/sbin/nginx);
# LIMIT_SLIDING_MODULE, the .so (default: that in build/; empty: compiled in);
# LIMIT_SLIDING_KEEP=1 leaves the temporary directory; with LIMIT_SLIDING_SLOW=1, the
# module is built for something else than speed.
#
# All times are seconds.

use v5.36;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use List::Util ();
use POSIX qw(WNOHANG);
use Test::More ();
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

use LimitSliding::Clock;
use LimitSliding::Client qw(header);
use LimitSliding::Process;
use parent -norequire, 'LimitSliding::Client', 'LimitSliding::Process';

our @EXPORT = qw(header left_of now sleep stay_in subtests wait_for);
our @EXPORT_OK = qw(key places);

our $PATIENCE = 30;       # for whatever should take a moment

my $ROOT   = abs_path(dirname(__FILE__) . '/../../..');
my $NGINX  = $ENV{LIMIT_SLIDING_NGINX} // '/usr/sbin/nginx';
my $MODULE = $ENV{LIMIT_SLIDING_MODULE}
    // "$ROOT/build/ngx_http_limit_sliding_module.so";

delete $ENV{NGINX};       # to NGINX, a list of sockets to inherit


# ---- functions (and Time::HiRes's sleep, and header() of a response) ----

# Monotonic clock, the same that NGINX and its workers read.
sub now :prototype() () {
    return clock_gettime(CLOCK_MONOTONIC);
}

# Returns the seconds to the end of a window of this many, which begin with
# those of UTC.
sub left_of($window) {
    my $time = Time::HiRes::time();
    return $window - ($time - $window * int($time / $window));
}

# Waits for the next window if less than these seconds are left of this one.
sub stay_in($window, $seconds) {
    my $left = left_of($window);
    sleep $left + 0.1 if $left < $seconds;
}

# Calls $condition, every $step seconds, until it yields true, and returns that; false
# in the end.
sub wait_for($condition, $seconds = $PATIENCE, $step = 0.05) {
    my $deadline = now() + $seconds;
    while (1) {
        my $value = $condition->();
        return $value if $value || now() > $deadline;
        sleep $step;
    }
}

# Runs subtests, name => sub, one after the other.
sub subtests(@parts) {
    while (my ($name, $code) = splice @parts, 0, 2) {
        Test::More::subtest($name, $code);
    }
}

# Returns the options of a request with a key of its own, in X-Key, and with
# more headers.
sub key(@headers) {
    state $unique = 0;
    return (headers => [ 'X-Key: k' . ++$unique, @headers ]);
}

# Returns the directives of a section, as serve() takes them: zones of these
# names, and for each a location of its name that it limits. Options:
#   key     of the zones, $arg_key
#   each    settings of all zones
#   zones   { name => more settings }
#   limit   more parameters of limit_sliding in the locations
sub places(%opt) {
    my $key = $opt{key} // '$arg_key';
    my $each = $opt{each} // '';
    my $limit = $opt{limit} // '';
    my @names = sort keys %{ $opt{zones} };

    return (http => join('', map { <<"ZONE" } @names),
    limit_sliding_zone $key zone=$_:1m $each $opt{zones}{$_};
ZONE
        server => join('', map { <<"LOCATION" } @names));
    location /$_ { limit_sliding zone=$_ $limit; empty_gif; }
LOCATION
}


# ---- life of an NGINX ----

# Makes the temporary prefix. Nothing runs yet. Options: worker_connections,
# worker_processes; thread_pool, 0 for NGINX's own; before and after, lists of modules to
# load beside ours.
sub new($class, %opt) {
    my $dir = tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1,
        CLEANUP => !$ENV{LIMIT_SLIDING_KEEP});

    Test::More::BAIL_OUT("no NGINX at $NGINX") unless -x $NGINX;
    Test::More::BAIL_OUT("no module at $MODULE: run make")
        unless $MODULE eq '' || -r $MODULE;

    mkdir "$dir/$_" or die "$dir/$_: $!" for qw(html logs temp);
    Test::More::note("in $dir") if $ENV{LIMIT_SLIDING_KEEP};

    return bless { worker_connections => 1024, worker_processes => 2, %opt,
        dir => $dir, ports => [], killed => {}, dying => {} },
        $class;
}

# Starts NGINX and waits until its workers are there. Dies with NGINX's words if
# it doesn't start.
sub start($self, $template) {
    $self->spawn($template);

    my $ready = wait_for(sub {
        $self->_reap or $self->workers == $self->{worker_processes}
            && -s "$self->{dir}/nginx.pid";
    }, $PATIENCE, 0.01);
    die "NGINX did not start:\n", $self->log
        unless $ready && $self->{pid};

    return $self;
}

# The first half of start(): starts the master, in the foreground as a child of
# ours, and returns at once.
sub spawn($self, $template) {
    $self->write_file('nginx.conf', $self->expand($template));
    $self->adopt(LimitSliding::Process::program("$self->{dir}/nginx.out", $NGINX,
        '-p', "$self->{dir}/", '-c', "$self->{dir}/nginx.conf"), 'stop');
}

# Starts NGINX with the directives of a section: see template(). Stops the one
# that runs, and has finish() fail if that one did not end well.
sub serve($self, %directives) {
    if (!$self->stop) {
        my (undef, $file, $line) = caller;
        Test::More::diag("NGINX did not stop cleanly: $file line $line");
        $self->{unclean} = 1;
    }
    return $self->start($self->template(%directives));
}

# Returns the pids of the workers that serve, without those that shut down, and
# those that were killed, which may live on until the kernel lets them run.
sub workers($self) {
    # Angie adds the number of the configuration
    return grep { _title($_) =~ /^(?:nginx|angie): worker process(?: #\d+)?$/
        && !$self->{dying}{$_} } $self->children;
}

# Returns the pids of all the master's children. The kernel's list leaves out
# living ones while another child exits, so a child that was seen once counts
# until its own entry in /proc says that it is gone.
sub children($self) {
    my $pid = $self->{pid} // return;
    open my $file, '<', "/proc/$pid/task/$pid/children" or return;

    my %seen = map { $_ => 1 } split(' ', <$file> // ''),
        @{ $self->{children} // [] };
    my @children = grep { _parent($_) == $pid } sort { $a <=> $b } keys %seen;
    $self->{children} = \@children;

    my %lives = map { $_ => 1 } @children;
    delete @{ $self->{dying} }{ grep { !$lives{$_} } keys %{ $self->{dying} } };
    return @children;
}

sub master($self) {
    return $self->{pid};
}

# Sends SIGHUP and returns at once; with a template, rewrites nginx.conf first.
sub hup($self, $template = undef) {
    $self->write_file('nginx.conf', $self->expand($template))
        if defined $template;
    kill 'HUP', $self->{pid} or die "SIGHUP: $!";
}

# Reloads and waits until new workers serve and the old ones are gone.
sub reload($self, $template = undef) {
    my %old = map { $_ => 1 } $self->children;

    $self->hup($template);

    wait_for(sub {
        my @serving = $self->workers;
        @serving == $self->{worker_processes}
            && !grep { $old{$_} } @serving, $self->children;
    }) or die "NGINX did not reload:\n", $self->log;
}

# Kills a worker with SIGKILL and returns at once.
sub kill_worker($self, $pid) {
    kill 'KILL', $pid or die "SIGKILL: $!";
    $self->{killed}{$pid}++;        # a later worker may have the same number
    $self->{dying}{$pid} = 1;
}

# Stops NGINX gracefully, by force if it takes longer than $PATIENCE.
# True if it went by itself and with exit code 0.
sub stop($self) {
    return 1 unless $self->{pid};

    kill 'QUIT', $self->{pid};
    return $self->{status} == 0 if wait_for(sub { $self->_reap });

    kill 'KILL', $self->children, $self->{pid};
    wait_for(sub { $self->_reap });
    return 0;
}

# Kills the master and all workers with SIGKILL, in any order, and waits until they
# are gone. start() may follow.
sub crash($self) {
    kill 'STOP', $self->{pid};      # it would start others
    my @children = $self->children;
    kill 'KILL', $_ for List::Util::shuffle(@children, $self->{pid});

    wait_for(sub { $self->_reap && !grep { _has_files($_) } @children })
        or die "NGINX did not go\n";
    unlink "$self->{dir}/nginx.pid";
}

# True until the kernel has closed what the process had open, its ports included. It
# takes the memory, with the title, before that.
sub _has_files($pid) {
    open my $file, '<', "/proc/$pid/stat" or return 0;
    return (readline($file) // '') =~ /\) [^ZX] /;
}

# Ends a test: the last NGINX of it.
sub finish($self, %opt) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $self->finish_one(%opt);
    Test::More::done_testing();
}

# Stops NGINX and asserts that it went well, that the error log is clean, and
# that each of its lines is NGINX's own (none was forged by what a client
# sent). Lines that match one of the regular expressions in `allow` are let
# pass, and so is what the master says of each worker that kill_worker()
# killed.
sub finish_one($self, %opt) {
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $clean = $self->stop && !$self->{unclean};
    Test::More::ok($clean, 'NGINX stopped cleanly');

    my @bad;
    for my $line (split /\n/, $self->log) {
        next if $line =~ m{^\d{4}/\d\d/\d\d [\d:]{8} \[(?!alert|emerg)}
            && $line !~ /Sanitizer|runtime error:/;
        next if $line =~ /worker process (\d+) exited on signal 9$/
            && ($self->{killed}{$1} // 0) > 0 && $self->{killed}{$1}--;
        next if grep { $line =~ $_ } @{ $opt{allow} // [] };
        push @bad, substr $line, 0, 500 if @bad < 20;
    }

    Test::More::is(join("\n", @bad), '', 'error log is clean');
}

# True once the master is gone; its exit status is kept.
sub _reap($self) {
    return 1 unless $self->{pid};
    return 0 unless waitpid($self->{pid}, WNOHANG) == $self->{pid};

    $self->{status} = $?;
    $self->released;
    return 1;
}

# 0 if there is no such process.
sub _parent($pid) {
    open my $file, '<', "/proc/$pid/stat" or return 0;
    return (split ' ', (<$file> // '') =~ s/.*\) //r)[1] // 0;
}

sub _title($pid) {
    open my $file, '<', "/proc/$pid/cmdline" or return '';
    return (<$file> // '') =~ s/[\0 ]+$//r;
}

# NGINX must not outlive the test, whatever ends that.
$SIG{HUP} = $SIG{INT} = $SIG{PIPE} = $SIG{TERM} = sub ($name) {
    die "SIG$name\n";
};


# ---- configuration, files, log ----

sub dir($self) {
    return $self->{dir};
}

# Writes a file below the prefix.
sub write_file($self, $name, $content) {
    open my $file, '>:raw', "$self->{dir}/$name" or die "$name: $!";
    print $file $content;
    close $file or die "$name: $!";
}

# Returns what NGINX wrote so far to its error log and to the terminal.
sub log($self) {
    my $text = '';
    for my $name (qw(nginx.out error.log)) {
        open my $file, '<:raw', "$self->{dir}/$name" or next;
        local $/;
        $text .= <$file> // '';
    }
    return $text;
}

# Returns the lines of the log that match, in NGINX's form.
sub log_lines($self, $regexp) {
    my @lines = split /\n/, $self->log;
    if ($self->has_log_properties) {
        for (@lines) {
            s/, client: "([^"]*)"/, client: $1/;
            s/, server: "([^"]*)"/, server: $1/;
            s/, request_line: "/, request: "/;
        }
    }
    return grep { $_ =~ $regexp } @lines;
}

# Returns those of log_lines() that came since the last call with this regular
# expression.
sub new_log_lines($self, $regexp) {
    my @lines = $self->log_lines($regexp);
    my $seen = $self->{seen}{$regexp} // 0;
    $self->{seen}{$regexp} = @lines;
    return @lines[$seen .. $#lines];
}

# Returns the lines at level error that came since the last call, without those
# about limiting.
sub new_errors($self) {
    return grep { !/limiting requests/ } $self->new_log_lines(qr/\[error\]/);
}

# Runs `nginx -t` of a configuration, or of the running one if none is given.
# Returns its exit code, its output, and the text it has read.
sub test_config($self, $template = undef) {
    my $name = defined $template ? 'test.conf' : 'nginx.conf';
    my $text;

    if (defined $template) {
        $text = $self->expand($template);
        $self->write_file($name, $text);
    }

    my ($status, $output) = LimitSliding::Process::output_of($NGINX, '-t',
        '-p', "$self->{dir}/", '-c', "$self->{dir}/$name");
    return ($status >> 8 || $status & 127, $output, $text);
}

# Runs `nginx -s` of a configuration, for the master that runs. Returns its exit
# code.
sub signal($self, $signal, $template) {
    $self->write_file('signal.conf', $self->expand($template));
    return system("'$NGINX' -s $signal -p '$self->{dir}/' -c '$self->{dir}/signal.conf'"
        . " </dev/null >/dev/null 2>&1") >> 8;
}

# Returns the options by which a program is told what runs.
sub binaries($self) {
    return ('--nginx', $NGINX, $MODULE eq '' ? () : ('--module', $MODULE));
}

# True if the module is not a part of NGINX itself.
sub is_dynamic($self) {
    return $MODULE ne '';
}

# True if NGINX has Lua built in, as OpenResty has.
sub has_lua($self) {
    my ($failed) = $self->test_config(
        "%%GLOBALS%%\nhttp { lua_shared_dict dict 1m; }");
    return !$failed;
}

# True if NGINX was configured with this option.
sub is_configured($self, $option) {
    return _version() =~ / \Q$option\E(?: |$)/m;
}

sub has_ssl($self) {
    return $self->is_configured('--with-http_ssl_module');
}

# Returns what `nginx -V` prints: names and versions of NGINX and of its fork, and options.
sub _version() {
    state $text = `'$NGINX' -V 2>&1`;
    return $text;
}

sub _names() {
    return _version() =~ s/^configure arguments.*//msr;
}

sub _is_angie_1_12() {
    return _names() =~ m{Angie/(\d+)\.(\d+)} && $1 * 1000 + $2 >= 1012;
}

# True if the log has names of its own for what follows a message, and quotes
# around every text there.
sub has_log_properties($self) {
    return _is_angie_1_12();
}

# True if there is a resolver, by /etc/resolv.conf, where none is configured.
sub always_resolves($self) {
    return _is_angie_1_12() || _names() =~ /tengine/i;
}

# True if NGINX takes this configuration, without the module.
sub _takes($self, $config) {
    state %takes;
    return $takes{$config} //= do {
        my $dir = $self->{dir};
        $self->write_file('takes.conf', _user() . "pid $dir/takes.pid;\n"
            . $self->expand($config));
        system("'$NGINX' -t -p '$dir/' -c '$dir/takes.conf'"
            . ' >/dev/null 2>&1 </dev/null') ? 0 : 1;
    };
}

# Returns parameters of error_log that keep all lines: freenginx and Angie write
# 1000 a second by default, and the rest is lost.
sub _log_all($self) {
    return '' if _names() !~ /freenginx|angie/i;
    return $self->_takes(<<'CONF') ? ' rate=0' : '';
error_log %%DIR%%/takes.log info rate=0;
events { }
CONF
}

# Tengine's own variables nearly fill the hash of the default size.
sub _hash_size() {
    return _names() =~ /tengine/i ? 'variables_hash_max_size 2048;' : ();
}

# NGINX 1.25 has a directive for what was a parameter of `listen`.
sub _http2_listen($self, $parameters) {
    return $self->_takes(<<'CONF')
error_log %%DIR%%/takes.log;
events { }
http {
    %%HTTP_GLOBALS%%
    server { listen unix:%%DIR%%/takes.sock; http2 on; }
}
CONF
        ? "http2 on; listen $parameters;" : "listen $parameters http2;";
}

# Workers run as the user of the test, so that they may use its files.
sub _user() {
    return $> == 0 ? "user root root;\n" : '';
}

sub _globals($self) {
    my $dir = $self->{dir};

    # NGINX sends its stderr, and so a sanitizer's report, to this error_log
    return _user() . join "\n",
        map({ "load_module $_;" } @{ $self->{before} // [] },
            $MODULE eq '' ? () : $MODULE, @{ $self->{after} // [] }),
        'daemon off;',
        # of 32 by default, each of which the clock would look at
        ($self->{thread_pool} // 1) && $self->is_configured('--with-threads')
            ? 'thread_pool default threads=1;' : (),
        "worker_processes $self->{worker_processes};",
        "pid $dir/nginx.pid;",
        "error_log $dir/error.log info" . $self->_log_all . ';',
        "events { worker_connections $self->{worker_connections}; "
            . ($self->{event_method} ? "use $self->{event_method}; }" : '}');
}

sub _http_globals($self) {
    return join "\n",
        "root $self->{dir}/html;",
        'access_log off;',
        'keepalive_requests 10000000;',
        'keepalive_timeout 1h;',
        _hash_size(),
        map { "${_}_temp_path $self->{dir}/temp/$_;" }
            qw(client_body proxy fastcgi uwsgi scgi);
}

# Adds to what every template() has before its own directives.
sub common($self, %directives) {
    $self->{common}{$_} .= $directives{$_} for keys %directives;
    return $self;
}

# Returns a configuration of these directives, { context => text }: `http`
# stands in http{}, `server` in its server on %%PORT%%, `later` in http{} behind
# that, and `listen` is more parameters of that server's `listen`.
sub template($self, %directives) {
    my ($http, $server, $listen, $later) = map {
        join "\n", $self->{common}{$_} // (), $directives{$_} // ()
    } qw(http server listen later);

    return <<"CONF";
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
$http
    server {
        listen 127.0.0.1:%%PORT%% $listen;
$server
    }
$later
}
CONF
}

# Returns a template with values in its places.
sub expand($self, $template) {
    return $template =~ s/%%GLOBALS%%/$self->_globals/er
        =~ s/%%HTTP_GLOBALS%%/$self->_http_globals/er
        =~ s/%%DIR%%/$self->{dir}/gr
        =~ s/\bhttp2_listen ([^;]+);/$self->_http2_listen($1)/ger
        =~ s/%%PORT(\d*)%%/$self->port($1 || 0)/ger;
}

# Returns the n-th free port on 127.0.0.1.
sub port($self, $n = 0) {
    my $reserved = $self->{ports}[$n] //= reserve_port();
    return $reserved->{port};
}

# Returns a free port, { port, lock }, below those that the kernel gives
# clients. `lock` is a UDP socket on the same number, which reserves it against
# tests that run beside this one for as long as it is kept.
sub reserve_port() {
    for (1 .. 1000) {
        my $port = 10000 + int rand 20000;
        my $lock = IO::Socket::INET->new(Proto => 'udp',
            LocalAddr => '127.0.0.1', LocalPort => $port) or next;
        IO::Socket::INET->new(Proto => 'tcp', Listen => 1, ReuseAddr => 1,
            LocalAddr => '127.0.0.1', LocalPort => $port) or next;

        return { port => $port, lock => $lock };
    }
    die "no free port\n";
}

1;
