package Demo;

# A real NGINX of a demo, in a directory and on a port of its own.
#
#   my $nginx = Demo->new(nginx => FILE, module => FILE, conf => FILE,
#       values => { NAME => 'what %%NAME%% stands for' })->start;
#   my $response = $nginx->get('/');
#
# %%MODULE%% and %%PORT%% have values by themselves. Without a module the NGINX
# is taken to have it linked in. What was started is stopped when the program
# ends.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp;
use HTTP::Tiny;
use IO::Socket::INET;
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep);

our @EXPORT_OK = qw(free_port run stop);

my %running;              # pid => what has to stay until it ends, or 1

# A signal must pass through END, which stops them.
$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);

END {
    my $status = $?;
    stop($_) for keys %running;
    $? = $status;
}

sub free_port {
    my $socket = IO::Socket::INET->new(
        Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 0)
        or die "no free port: $!\n";
    return $socket->sockport;
}

# Starts a program whose output goes to the file, and waits until it accepts
# connections. Returns its pid.
sub run {
    my ($port, $output, @command) = @_;

    defined(my $pid = fork) or die "fork: $!\n";
    if ($pid == 0) {
        open STDOUT, '>', $output;
        open STDERR, '>&', \*STDOUT;
        exec @command or POSIX::_exit(127);
    }
    $running{$pid} = 1;

    for (1 .. 100) {
        return $pid if IO::Socket::INET->new("127.0.0.1:$port");
        if (waitpid $pid, WNOHANG) {
            delete $running{$pid};
            last;
        }
        sleep 0.05;
    }
    die "$command[0] does not start\n", slurp($output);
}

# Ends what run() has started, by SIGTERM if no other signal is given.
sub stop {
    my ($pid, $signal) = @_;
    my $kept = delete $running{$pid} or return;
    kill $signal // 'TERM', $pid;
    waitpid $pid, 0;
}

sub slurp {
    my ($file) = @_;
    open my $fh, '<', $file or return '';
    local $/;
    return <$fh> // '';
}

sub spew {
    my ($file, $text) = @_;
    open my $fh, '>', $file or die "$file: $!\n";
    print $fh $text;
    close $fh or die "$file: $!\n";
}

# Workers run as another user if we are root, and must be able to read.
sub new {
    my ($class, %self) = @_;

    my $dir = File::Temp->newdir('limit_sliding.XXXXXX', TMPDIR => 1);
    chmod 0755, $dir or die "$dir: $!\n";
    for my $sub (qw(html logs temp)) {
        mkdir "$dir/$sub", 0755 or die "$dir/$sub: $!\n";
        chmod 0755, "$dir/$sub";
    }
    spew("$dir/html/index.html", "Hello.\n");
    chmod 0644, "$dir/html/index.html";

    my $port = free_port();
    my %value = (PORT => $port, %{ $self{values} // {} },
        MODULE => $self{module} ? "load_module $self{module};" : '');
    my $conf = slurp($self{conf});
    $conf =~ s/%%(\w+)%%/$value{$1} \/\/ die "$self{conf}: $1?\n"/ge;
    spew("$dir/nginx.conf", $conf);

    return bless { %self, dir => $dir, port => $port,
        client => HTTP::Tiny->new(timeout => 5) }, $class;
}

sub start {
    my ($self) = @_;
    my $dir = $self->{dir};

    # To nginx itself, NGINX in the environment is a list of sockets
    delete local $ENV{NGINX};
    $self->{pid} = eval {
        run($self->{port}, "$dir/logs/stderr",
            $self->{nginx}, '-p', "$dir/", '-c', "$dir/nginx.conf",
            '-g', 'daemon off;');
    } // die $@, $self->log;
    $running{ $self->{pid} } = $self;     # its directory
    return $self;
}

sub dir  { return $_[0]{dir} }
sub port { return $_[0]{port} }

sub url {
    my ($self, $path) = @_;
    return "http://127.0.0.1:$self->{port}$path";
}

sub get {
    my ($self, $path) = @_;
    return $self->{client}->get($self->url($path));
}

sub log {
    my ($self) = @_;
    return slurp("$self->{dir}/logs/error.log");
}

1;
