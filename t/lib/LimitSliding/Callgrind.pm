package LimitSliding::Callgrind;

# Instructions that one process takes for requests, counted by callgrind, and
# the functions that it runs.
#
#   my $server = LimitSliding::Callgrind->nginx(http => '...',
#       locations => ['...', ...], paced => 0);
#   my $server = LimitSliding::Callgrind->haproxy(limit => 'pass');
#   $server->measure(port => 0, keys => 1000, requests => 4000, status => 200)
#   $server->functions(port => 0, keys => 1, requests => 10, status => 200)
#   $server->stop;
#
# Each request has one of so many keys, paths of eight characters.  They are
# counted after each key was used once.  With `paced` they are two milliseconds
# apart, by a clock of t/bench/steps.cpp, else NGINX's clock stands still.
#
# The count leaves out what malloc() does itself, which depends on what the heap
# looks like: for the same requests it can be some hundred instructions more or
# less.

use v5.36;

use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use POSIX ();

use LimitSliding::Peers;
use LimitSliding::Test qw(wait_for);

our @EXPORT_OK = qw(control_callgrind uncountable valgrind);

my $PIPELINE = 100;       # requests sent at once while nothing is counted
my $BEGIN_S  = 300;       # for valgrind to begin, at a low priority beside others

# Returns why instructions of the module cannot be counted here, or "" once it has
# put the programs that are counted into the environment.
sub uncountable($nginx) {
    return 'the module is compiled in' if !$nginx->is_dynamic;
    return 'no valgrind' if !grep { -x "$_/valgrind" } split /:/, $ENV{PATH};

    my %binary = $nginx->binaries;
    @ENV{qw(LIMIT_SLIDING_NGINX LIMIT_SLIDING_MODULE)} = @binary{qw(--nginx --module)};
    return `ldd $binary{'--module'}` =~ /san\.so/ ? 'a sanitizer counts, too' : '';
}

# Returns the words before a command that is to be counted, with a directory for all that
# valgrind writes: its pipes, by default in /tmp, stay there if it is killed.
sub valgrind($dir) {
    return qw(valgrind --tool=callgrind --instr-atstart=no),
        "--callgrind-out-file=$dir/out", "--vgdb-prefix=$dir/vgdb";
}

# Runs callgrind_control for the process that was started with this directory.
sub control_callgrind($dir, $pid, @words) {
    system("callgrind_control --vgdb-prefix=$dir/vgdb @words $pid > /dev/null 2>&1") == 0
        or die "callgrind_control failed\n";
}

# With a server on the n-th port for each of the locations, which are
# directives; what they name is in `http`.  `without_own`: our module is not
# loaded.
sub nginx($class, %opt) {
    my @locations = @{ $opt{locations} };
    my $self = bless {
        dir   => tempdir(CLEANUP => 1),
        ports => [ map { LimitSliding::Test::reserve_port() } @locations ],
    }, $class;
    my @modules = ($opt{without_own} ? () : $ENV{LIMIT_SLIDING_MODULE} || (),
        $opt{http} =~ /lua_/ ? lua_modules() : ());
    my $clock = dirname($ENV{LIMIT_SLIDING_MODULE}) . '/bench/steps.so';
    die "no $clock: make bench-quick builds it\n" if $opt{paced} && !-r $clock;
    # else the clock is read, and costs, as often as the machine is fast
    my $resolution = $opt{paced} ? '' : 'timer_resolution 1h;';

    open my $conf, '>', "$self->{dir}/nginx.conf" or die "nginx.conf: $!";
    print $conf map({ "load_module $_;\n" } @modules),
        $> == 0 ? "user root root;\n" : '', <<"CONF",
daemon         off;
master_process off;
pid            $self->{dir}/pid;
error_log      $self->{dir}/error.log;
$resolution

events {
}

http {
    access_log off;
    keepalive_requests 100000000;
CONF
        map({ "    ${_}_temp_path $self->{dir};\n" }
            qw(client_body proxy fastcgi uwsgi scgi)),
        $opt{http},
        map({ <<"CONF" } 0 .. $#locations), "}\n";
    server {
        listen 127.0.0.1:$self->{ports}[$_]{port};
        location / {
            $locations[$_]
            empty_gif;
        }
    }
CONF
    close $conf or die "nginx.conf: $!";

    local $ENV{LD_PRELOAD} = $opt{paced} ? $clock : $ENV{LD_PRELOAD} // '';
    $self->{pid} = LimitSliding::Process::program("$self->{dir}/log", valgrind($self->{dir}),
        $ENV{LIMIT_SLIDING_NGINX}, '-p', $self->{dir}, '-c', "$self->{dir}/nginx.conf");

    return $self;
}

sub haproxy($class, %opt) {
    my $dir = tempdir(CLEANUP => 1);
    my $haproxy = start_haproxy(%opt, wrapper => [ valgrind($dir) ]);

    return bless {
        dir     => $dir,
        haproxy => $haproxy,
        pid     => $haproxy->{pid},
        ports   => [$haproxy],
    }, $class;
}

sub stop($self) {
    my $pid = delete $self->{pid} or return;
    return $self->{haproxy}{stop}->() if $self->{haproxy};

    kill KILL => $pid;
    waitpid $pid, 0;
}

sub DESTROY($self) {
    local ($?, $!);
    $self->stop;
}

# Returns the instructions of one request, after `uses` of each key, by default
# 1.
sub measure($self, %opt) {
    return $self->_total($self->_run(%opt)) / $opt{requests};
}

# Returns what each of the same requests runs, as executed_in() does, without
# what timers do now and then.
sub functions($self, %opt) {
    my $files = defined_in($ENV{LIMIT_SLIDING_MODULE});
    my @functions = grep { $_->{calls} >= $opt{requests} / 2 }
        executed_in($self->_run(%opt));

    # callgrind names the file of a function's first instruction, which is a
    # header's if the function begins with a call that was inlined
    for my $function (@functions) {
        my @of_name = keys %{ $files->{ $function->{name} } // {} };
        $function->{file} = $of_name[0] if @of_name == 1;
    }
    return @functions;
}

# Returns { name => { file => 1, ... } }, the files that define the functions of
# a module, by its debug information.
sub defined_in($module) {
    my %files;

    open my $nm, '-|', qw(nm -C -l --defined-only), $module or die "nm: $!";
    while (my $line = <$nm>) {
        $files{ plain_name($1) }{$2} = 1
            if $line =~ /^\S+ [tTwW] (.*)\t(.*):\d+$/;
    }
    close $nm or die "nm failed\n";
    return \%files;
}

# Returns the name of a function without what the compiler adds to its copies.
sub plain_name($name) {
    return $name =~ s/'\d+$//r =~ s/ \[clone .*//r
        =~ s/\.(?:isra|part|constprop|cold)\b.*//r;
}

# Returns the file of callgrind's that has what the requests took.
sub _run($self, %opt) {
    my $client = $self->_connect($opt{port} // 0);
    my $next = 0;
    my $key = sub { return $next++ * 7919 % $opt{keys} };

    for (my $left = $opt{keys}; $left > 0; $left -= $PIPELINE) {
        my $n = $left < $PIPELINE ? $left : $PIPELINE;
        _exchange($client, map { $key->() } 1 .. $n);
    }
    _exchange($client, $key->()) for 2 .. $opt{uses} // 1;

    $self->_control('-i', 'on');
    # what is done once, or after a pause
    $self->_requests($client, 3, $key, %opt);
    # -z would leave some of it
    $self->_dump;
    $self->_requests($client, $opt{requests}, $key, %opt);
    my $file = $self->_dump;
    $self->_control('-i', 'off');

    return $file;
}

sub _connect($self, $n) {
    my $port = $self->{ports}[$n]{port};
    my $socket;
    return $socket if wait_for(sub {
        waitpid($self->{pid}, POSIX::WNOHANG) == 0
            or die "no server: $self->{dir}/log\n";
        $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port");
    }, $BEGIN_S);
    die "nobody listens\n";
}

# One after the other.
sub _requests($self, $client, $n, $key, %opt) {
    for (1 .. $n) {
        my ($status) = _exchange($client, $key->());
        die "answered $status, not $opt{status}\n" if $status != $opt{status};
    }
}

# The statuses of answers to requests, sent at once.
sub _exchange($client, @keys) {
    my ($answers, @statuses) = ('');

    syswrite $client, join '', map {
        sprintf "GET /%07u HTTP/1.1\r\nHost: bench\r\n\r\n", $_
    } @keys or die "the connection was closed\n";

    while (@statuses < @keys) {
        sysread $client, $answers, 65536, length $answers
            or die "the connection was closed\n";
        while ($answers
            =~ m{^HTTP/1\.1 (\d+) .*?\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n}is
            && length $answers >= $+[0] + $2)
        {
            push @statuses, $1;
            substr $answers, 0, $+[0] + $2, '';
        }
    }

    return @statuses;
}

sub _control($self, @words) {
    control_callgrind(@$self{qw(dir pid)}, @words);
}

# Writes what was counted since the last time, or since it began, to a file.
sub _dump($self) {
    $self->_control('-d');
    return "$self->{dir}/out." . ++$self->{dumps};
}

sub _total($self, $file) {
    open my $out, '<', $file or die "$file: $!";
    my ($total, $malloc, $is_malloc, $is_call, %names) = (undef, 0);

    # "fl=(number) name" at first, then "fl=(number)"; costs that follow a call
    # are those of whom it calls, who have lines of their own
    while (my $line = <$out>) {
        if ($line =~ /^(c?)f[ile]=\((\d+)\)(?: (.*))?/) {
            $names{$2} = $3 if defined $3;
            $is_malloc = $names{$2} =~ /\bmalloc\.c$/ if !$1;
        } elsif ($line =~ /^calls=/) {
            $is_call = 1;
        } elsif ($line =~ /^[-+*\d]\S* (\d+)$/) {
            $malloc += $1 if $is_malloc && !$is_call;
            $is_call = 0;
        } elsif ($line =~ /^totals: (\d+)/) {
            $total = $1;
        }
    }

    die "no totals in $file\n" if !defined $total;
    die "malloc is not to be told apart: is libc6-dbg there?\n"
        if !$malloc && !$self->{haproxy};
    return $total - $malloc;
}

# Reads from a file of callgrind's which functions ran, a list of { name, file,
# from => { file => 1, ... }, calls }.  `file` defines it; `from` has all files
# whose code it ran itself, and so the headers of functions that the compiler
# put into it.  Copies that the compiler made of a function are the same one.
sub executed_in($path) {
    open my $out, '<', $path or die "$path: $!";
    my ($file, $from, $number, $called, $is_call);
    my (%files, %functions, %calls, %executed);

    # "fl=(number) name" at first, then "fl=(number)", or nothing where it is
    # the same; "fi=" and "fe=" change the file within a function
    while (my $line = <$out>) {
        if ($line =~ /^(c?)f([ile])=\((\d+)\)(?: (.*))?/) {
            $files{$3} = $4 if defined $4;
            $from = $files{$3} if !$1;
            $file = $from if !$1 && $2 eq 'l';
        } elsif ($line =~ /^(c?)fn=\((\d+)\)(?: (.*))?/) {
            $functions{$2} = $3 if defined $3;
            if ($1) {
                $called = $2;
            } else {
                ($number, $from) = ($2, $file);
            }
        } elsif ($line =~ /^calls=(\d+)/) {
            $calls{$called} += $1;
            $is_call = 1;
        } elsif ($line =~ /^[-+*\d]\S* \d+$/) {
            if (!$is_call) {
                $executed{$number}{file} = $file;
                $executed{$number}{from}{$from} = 1;
            }
            $is_call = 0;
        }
    }

    my %found;
    for my $number (keys %executed) {
        my ($file, $from) = @{ $executed{$number} }{qw(file from)};
        my $name = plain_name($functions{$number});
        # static functions of several files may have the same name
        my $function = $found{"$file $name"} //=
            { file => $file, name => $name, calls => 0 };
        $function->{from}{$_} = 1 for keys %$from;
        $function->{calls} += $calls{$number} // 0;
    }
    return values %found;
}

1;
