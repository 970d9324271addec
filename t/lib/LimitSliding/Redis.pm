package LimitSliding::Redis;

# Real redis-servers for tests, each in a temporary directory, and what an
# administrator asks of them. Needs redis-server, and openssl for certificates;
# LIMIT_SLIDING_REDIS is the path of another server, such as valkey-server.
#
#   my $redis = LimitSliding::Redis->new(config => { requirepass => 'secret' })
#       ->start;
#   $redis->command('SET', 'a', 1);
#   is $redis->calls, 0;
#
# A test that imports this is skipped where the module was built without Redis.
#
# Everything an administrator asks goes through a unix socket and one
# connection, which is counted nowhere: clients() and connections() tell of
# others only.
#
# All times are seconds.

use v5.36;

use Digest::SHA qw(sha1);
use File::Temp qw(tempdir);
use IO::Select;
use IO::Socket::UNIX;
use MIME::Base64 qw(encode_base64url);
use POSIX qw(WNOHANG);
use Test::More ();

use LimitSliding::Clock ();
use LimitSliding::Process;
use LimitSliding::Resp qw(encode decode);
use LimitSliding::Test;
use parent -norequire, 'LimitSliding::Process';

my $PATIENCE = 30;
my ($SERVER) = grep { -f && -x _ } $ENV{LIMIT_SLIDING_REDIS} // (),
    map { "$_/redis-server" } split(/:/, $ENV{PATH}), '/usr/bin', '/usr/local/bin';

sub import($class) {
    Test::More::plan(skip_all => 'built without hiredis') if !supported();
    no strict 'refs';
    *{ caller() . '::digest' } = \&digest;
}

# The digest of a key, which stands between the braces of its names.
sub digest($key) {
    return encode_base64url(substr sha1($key), 0, 16);
}

# True if the module was built with Redis.
sub supported() {
    my (undef, $output) = LimitSliding::Test->new->test_config(
        "%%GLOBALS%%\nhttp { limit_sliding_redis a { server 127.0.0.1; } }");
    return $output !~ /built with hiredis/;
}


# ---- life ----

# Options:
#   config    { directive => value or [values], ... } of redis.conf
#   address   where to listen, 127.0.0.1
#   port      a number (a free one)
#   tls       certificates(), to listen with TLS on tls_port as well
#   password  what the administrator authenticates with
#   sentinel  1: it is a sentinel
#   program   the path of another server
sub new($class, %opt) {
    Test::More::BAIL_OUT('no redis-server') unless $SERVER;

    my $self = bless {
        address => '127.0.0.1',
        program => $SERVER,
        config  => {},
        %opt,
        dir   => tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1,
            CLEANUP => !$ENV{LIMIT_SLIDING_KEEP}),
    }, $class;

    $self->{port} //= $self->_reserve;
    $self->{tls_port} = $self->_reserve if $self->{tls};
    $self->{bus} = $self->_reserve if $self->{config}{'cluster-enabled'};
    Test::More::note("Redis in $self->{dir}") if $ENV{LIMIT_SLIDING_KEEP};

    return $self;
}

sub _reserve($self) {
    my $reserved = LimitSliding::Test::reserve_port();
    push @{ $self->{locks} }, $reserved->{lock};
    return $reserved->{port};
}

# Starts it, and waits until it answers, be it with an error. `config` is
# added to that of new(), and stays.
sub start($self, %config) {
    my $dir = $self->{dir};
    my $config = $self->{config} = { %{ $self->{config} }, %config };
    my %all = (
        bind           => $self->{address},
        port           => $self->{port},
        unixsocket     => "$dir/redis.sock",
        dir            => $dir,
        logfile        => "$dir/redis.log",
        save           => '""',
        appendonly     => 'no',
        'repl-diskless-sync-delay' => 0,
        $self->_tls,
        ($self->{bus} ? ('cluster-port' => $self->{bus}) : ()),
        %$config,
    );

    open my $file, '>', "$dir/redis.conf" or die "$dir/redis.conf: $!";
    for my $name (sort keys %all) {
        print $file "$name $_\n"
            for ref $all{$name} ? @{ $all{$name} } : $all{$name};
    }
    close $file or die "$dir/redis.conf: $!";

    $self->adopt(LimitSliding::Process::program("$dir/redis.out", $self->{program},
        "$dir/redis.conf", $self->{sentinel} ? '--sentinel' : ()), 'kill9');

    wait_for(sub {
        $self->_reap or -S "$dir/redis.sock" && eval { $self->ask('PING') };
    });
    die "Redis did not start:\n", $self->log if !$self->{pid};

    return $self;
}

sub _tls($self) {
    my $tls = $self->{tls} or return;
    return (
        'tls-port'         => $self->{tls_port},
        'tls-cert-file'    => $tls->{server},
        'tls-key-file'     => $tls->{server} =~ s/pem$/key/r,
        'tls-ca-cert-file' => $tls->{ca},
        'tls-auth-clients' => 'no',
    );
}

# Starts a sentinel that watches it as "mymaster". Options:
#   quorum      how many sentinels have to agree (1)
#   down_after  seconds until they take it for dead (60)
#   monitor     more directives about mymaster, [ "NAME mymaster VALUE", ... ]
#   config      directives of redis.conf
#   and those of new().
sub sentinel($self, %opt) {
    my ($quorum, $down_after, $monitor, $config)
        = delete @opt{qw(quorum down_after monitor config)};
    return LimitSliding::Redis->new(sentinel => 1, %opt)->start(%{ $config // {} },
        sentinel => [ "monitor mymaster $self->{address} "
                . ($opt{tls} ? $self->{tls_port} : $self->{port}) . ' ' . ($quorum // 1),
            'down-after-milliseconds mymaster ' . 1000 * ($down_after // 60),
            @{ $monitor // [] } ]);
}

# Starts a replica of it, and three sentinels that take it for dead after so many seconds.
# Returns the replica and the sentinels, once they could fail over.
sub sentinels($self, $down_after) {
    my $replica = LimitSliding::Redis->new->start(replicaof => "$self->{address} $self->{port}");
    wait_for(sub { $replica->info->{master_link_status} eq 'up' });
    my @sentinels = map {
        $self->sentinel(quorum => 2, down_after => $down_after,
            monitor => [ 'failover-timeout mymaster 3000' ]);
    } 1 .. 3;
    wait_watched(@sentinels) or die "sentinels do not find each other\n";
    return ($replica, @sentinels);
}

# Waits until each of these sentinels knows two others, a master that lives and a replica.
sub wait_watched(@sentinels) {
    return wait_for(sub {
        !grep {
            my %state = @{ $_->command(qw(SENTINEL master mymaster)) };
            $state{'num-other-sentinels'} < 2 || $state{'num-slaves'} < 1
                || $state{flags} ne 'master';
        } @sentinels;
    });
}

# Ends it as an administrator would.
sub stop($self) {
    $self->_end('TERM');
}

# Ends it at once.
sub kill9($self) {
    $self->_end('KILL');
}

# Starts it again, on the same port, with nothing in it unless it saved.
sub restart($self, %config) {
    $self->stop;
    return $self->start(%config);
}

# Stops it as a whole: it neither answers nor reads, its kernel accepts.
sub freeze($self) {
    kill 'STOP', $self->{pid} or die "SIGSTOP: $!";
}

sub thaw($self) {
    kill 'CONT', $self->{pid} or die "SIGCONT: $!";
}

sub _end($self, $signal) {
    delete $self->{admin};
    return if !$self->{pid};

    kill $signal, $self->{pid};
    kill 'CONT', $self->{pid};
    if (!wait_for(sub { $self->_reap })) {
        kill 'KILL', $self->{pid};
        wait_for(sub { $self->_reap });
    }
    unlink "$self->{dir}/redis.sock";
}

sub _reap($self) {
    return 1 unless $self->{pid};
    return 0 unless waitpid($self->{pid}, WNOHANG) == $self->{pid};

    $self->released;
    return 1;
}


# ---- what it is ----

sub port($self)     { return $self->{port} }
sub tls_port($self) { return $self->{tls_port} }
sub path($self)     { return "$self->{dir}/redis.sock" }
sub pid($self)      { return $self->{pid} }

# Returns the parameter of NGINX's `server` directive.
sub server($self) {
    return "$self->{address}:$self->{port}";
}

# Returns the block "shared" of this server. NGINX waits so long for a connection, and for a
# reply; `more` has further parameters.
sub block($self, $patience, $more = '') {
    return "limit_sliding_redis shared { server ${\ $self->server};"
        . " timeout $patience; connect_timeout $patience; $more }";
}

sub log($self) {
    my $text = '';
    for my $name (qw(redis.out redis.log)) {
        open my $file, '<', "$self->{dir}/$name" or next;
        local $/;
        $text .= <$file> // '';
    }
    return $text;
}


# ---- what an administrator asks ----

# Returns the reply to a command. Dies if it is an error.
sub command($self, @words) {
    my $reply = $self->ask(@words);
    die "$words[0]: $reply\n" if defined $reply && $reply =~ /^-/;
    return $reply;
}

# Returns the reply to a command. An error is a string that begins with '-'.
sub ask($self, @words) {
    $self->{admin} //= $self->connect;
    send_command($self->{admin}, @words);
    my $reply = eval { receive_reply($self->{admin}) };
    if ($@) {
        delete $self->{admin};
        die $@;
    }
    return $reply;
}

# Returns the replies to many commands, [words], which are sent at once.
sub commands($self, @commands) {
    my $socket = $self->connect;
    syswrite $socket, join '', map { encode(@$_) } @commands;
    return _receive($socket, scalar @commands);
}

# Forgets the administrator's connection, which was closed.
sub reconnect($self) {
    delete $self->{admin};
}

# Returns a new connection, for send_command() and receive_reply().
sub connect($self) {
    my $socket = IO::Socket::UNIX->new(Peer => $self->path)
        // die "connect: $!\n";
    if (defined $self->{password}) {
        send_command($socket, 'AUTH', $self->{password});
        receive_reply($socket);
    }
    return $socket;
}

sub send_command($socket, @words) {
    local $SIG{PIPE} = 'IGNORE';
    syswrite $socket, encode(@words);
}

sub receive_reply($socket) {
    return (_receive($socket, 1))[0];
}

sub _receive($socket, $n) {
    my ($text, $at, @replies) = ('', 0);
    while (1) {
        while (@replies < $n && (my ($reply, $end) = decode(\$text, $at))) {
            push @replies, $reply;
            $at = $end;
        }
        return @replies if @replies == $n;
        IO::Select->new($socket)->can_read($PATIENCE)
            or die "no reply in $PATIENCE s\n";
        sysread $socket, $text, 1 << 20, length $text or die "connection closed\n";
    }
}

# Returns sections of INFO, { name => value }.
sub info($self, @sections) {
    my $text = $self->command('INFO', @sections);
    return { $text =~ /^([^#:\r\n]+):([^\r\n]*)/mg };
}

# Returns how often these commands, or their subcommands, were called.
sub count($self, @commands) {
    my $stats = $self->info('commandstats');
    my $count = 0;
    for my $command (@commands) {
        for (grep { /^cmdstat_\Q$command\E(?:\||$)/ } keys %$stats) {
            $count += $1 if $stats->{$_} =~ /calls=(\d+)/;
        }
    }
    return $count;
}

# Returns how many decisions it was asked for: scripts, or transactions.
sub calls($self) {
    return $self->count(qw(eval evalsha fcall exec));
}

# Returns the clients that are connected, without the administrator and
# replication, as CLIENT LIST tells them: { id => ..., name => ... }
sub clients($self) {
    my $own = $self->command('CLIENT', 'ID');
    my @clients = map { { /(\S+?)=(\S*)/g } }
        split /\n/, $self->command('CLIENT', 'LIST');
    return grep { $_->{id} != $own && $_->{flags} !~ /[SM]/ } @clients;
}

# Returns how many connections there have been since it started, without the
# administrator's if that is the first.
sub connections($self) {
    return $self->info('stats')->{total_connections_received} - 1;
}

# Breaks all connections but the administrator's.
sub kill_clients($self) {
    $self->command(qw(CLIENT KILL TYPE normal SKIPME yes));
}

# Returns the names of all keys, sorted.
sub keys($self) {
    return sort @{ $self->command('KEYS', '*') };
}

# Runs a script that does not end, until end_busy().
sub busy($self) {
    LimitSliding::Clock::spins($self->{pid});
    $self->{busy} = $self->connect;
    send_command($self->{busy}, 'EVAL', 'while true do end', 0);
}

sub end_busy($self) {
    my $script = delete $self->{busy} // return;
    delete $self->{admin};
    wait_for(sub { $self->ask('SCRIPT', 'KILL') eq 'OK' })
        or die "the script does not end\n";
    receive_reply($script);
    LimitSliding::Clock::spins($self->{pid}, 0);
}


# ---- certificates ----

# Makes in the directory two authorities, ca.pem and other.pem; certificates of
# redis.test by the first, one of them expired; and of a client. Returns their
# paths: { ca, other, server, expired, client }, with NAME.key beside NAME.pem.
sub certificates($dir) {
    my $ec = 'ec -pkeyopt ec_paramgen_curve:P-256 -nodes';

    for my $ca (qw(ca other)) {
        _openssl($dir, "req -x509 -newkey $ec -subj /CN=$ca -days 2"
            . " -keyout $ca.key -out $ca.pem");
    }
    my %names = (server => 'DNS:redis.test', expired => 'DNS:redis.test', client => 'DNS:limiter',
        address => 'IP:127.0.0.1,IP:::1', elsewhere => 'IP:127.0.0.2,DNS:127.0.0.1');
    for my $name (sort CORE::keys %names) {
        my $days = $name eq 'expired' ? -1 : 2;
        my $cn = $names{$name} =~ /^DNS:redis/ ? 'redis.test' : 'limiter';
        _openssl($dir, "req -newkey $ec -subj /CN=$cn -keyout $name.key"
            . " -out $name.csr -addext subjectAltName=$names{$name}");
        _openssl($dir, "x509 -req -in $name.csr -CA ca.pem -CAkey ca.key"
            . " -CAcreateserial -copy_extensions copy -days $days"
            . " -out $name.pem");
    }

    return { map { $_ => "$dir/$_.pem" } qw(ca other), CORE::keys %names };
}

sub _openssl($dir, $arguments) {
    my $output = `cd '$dir' && openssl $arguments 2>&1 </dev/null`;
    die "openssl $arguments:\n$output" if $?;
}

1;
