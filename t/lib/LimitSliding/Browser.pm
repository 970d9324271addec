package LimitSliding::Browser;

# A headless Chromium, driven through chromedriver (WebDriver, by JSON over
# HTTP). Needs Debian's chromium and chromium-driver.
#
#   plan skip_all => LimitSliding::Browser::lacking()
#       if LimitSliding::Browser::lacking();
#   my $browser = LimitSliding::Browser->new;
#   $browser->visit('http://127.0.0.1:8080/');
#   is $browser->run('return document.title'), 'Hello';
#   is_deeply [ $browser->log ], [];
#
# All times are seconds.

use v5.36;

use File::Temp qw(tempdir);
use IO::Socket::INET;
use JSON::PP ();
use MIME::Base64 qw(decode_base64);
use POSIX qw(WNOHANG);

use LimitSliding::Test;
use parent 'LimitSliding::Process';

my $PATIENCE = 60;        # Chromium is slow to start on a busy machine

my ($DRIVER, $CHROMIUM) = map {
    my $name = $_;
    (grep { -x } map { "$_/$name" } split(/:/, $ENV{PATH}), '/usr/bin')[0];
} qw(chromedriver chromium);

# It runs as root in containers, and asks nobody but the page's server.
my @ARGS = qw(--headless=new --no-sandbox --disable-gpu --no-first-run
    --disable-dev-shm-usage --disable-extensions --disable-breakpad
    --disable-background-networking --disable-component-update --disable-sync
    --no-proxy-server);

# Keys without a character, as WebDriver calls them.
my %KEYS = (Tab => "\x{E004}", Enter => "\x{E007}", Escape => "\x{E00C}");

# Returns what is missing to run a browser, undef if nothing is.
sub lacking() {
    return $DRIVER && $CHROMIUM ? undef
        : 'no chromium and chromedriver: apt-get install chromium-driver';
}

# Starts a browser with an empty profile.
sub new($class) {
    my $reserved = LimitSliding::Test::reserve_port();
    my $dir = tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $self = bless { dir => $dir, port => $reserved->{port},
        lock => $reserved->{lock} }, $class;

    local @ENV{qw(HOME TMPDIR)} = ($dir, $dir);
    delete local @ENV{qw(http_proxy https_proxy all_proxy)};
    $self->adopt(LimitSliding::Process::program("$dir/driver.out", $DRIVER,
        "--port=$self->{port}"), 'quit');

    wait_for(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $self->{port}) }, $PATIENCE) or die "no chromedriver\n";

    my $session = $self->_ask('POST', '/session', { capabilities => {
        alwaysMatch => {
            browserName           => 'chrome',
            'goog:loggingPrefs'   => { browser => 'ALL' },
            'goog:chromeOptions'  => { binary => $CHROMIUM, args => [
                @ARGS, "--user-data-dir=$dir/profile" ] },
        } } });
    $self->{session} = "/session/$session->{sessionId}";

    # where Chromium says who it is
    ($self->{chromium}) = (readlink "$dir/profile/SingletonLock" // '')
        =~ /-(\d+)$/;

    return $self;
}

# Loads a page, and returns once that is done.
sub visit($self, $url) {
    $self->_session('/url', { url => $url });
}

# Runs a function's body in the page, and returns what it returns.
sub run($self, $script, @args) {
    return $self->_session('/execute/sync',
        { script => $script, args => \@args });
}

# Presses keys one after the other: characters, or those that %KEYS names.
sub press($self, @keys) {
    my @actions = map { my $key = $_;
        map { { type => $_, value => $KEYS{$key} // $key } } qw(keyDown keyUp) } @keys;
    $self->_session('/actions', { actions => [
        { type => 'key', id => 'keyboard', actions => \@actions } ] });
}

# A command of the Chrome DevTools Protocol.
sub devtools($self, $command, %params) {
    return $self->_session('/goog/cdp/execute',
        { cmd => $command, params => \%params });
}

# Sets the size of the window in CSS pixels, and has it be a phone if it is
# small.
sub resize($self, $width, $height) {
    $self->devtools('Emulation.setDeviceMetricsOverride', width => $width,
        height => $height, deviceScaleFactor => 1,
        mobile => $width < 600 ? JSON::PP::true : JSON::PP::false);
}

# `light` or `dark`.
sub scheme($self, $scheme) {
    $self->devtools('Emulation.setEmulatedMedia', features =>
        [ { name => 'prefers-color-scheme', value => $scheme } ]);
}

# Returns the visible part of the page as a PNG.
sub screenshot($self) {
    return decode_base64($self->_session('/screenshot'));
}

# Returns the lines of the console since the last call: errors, violations of
# policies, loads that failed.
sub log($self) {
    return map { "$_->{level}: $_->{message}" }
        @{ $self->_session('/se/log', { type => 'browser' }) };
}

# Ends the browser.
sub quit($self) {
    my $pid = $self->released // return;

    eval { $self->_ask('DELETE', $self->{session}) } if $self->{session};
    kill 'TERM', $pid;
    wait_for(sub { waitpid($pid, WNOHANG) == $pid }) or kill 'KILL', $pid;

    # of its own accord, or not
    my $chromium = $self->{chromium} // return;
    wait_for(sub { !_is_ours($self, $chromium) }, 5)
        or kill 'KILL', $chromium;
}

sub _is_ours($self, $pid) {
    open my $file, '<', "/proc/$pid/cmdline" or return 0;
    return index(<$file> // '', $self->{dir}) >= 0;
}


# ---- WebDriver ----

# A command of the session: POST with arguments, GET without.
sub _session($self, $path, $args = undef) {
    return $self->_ask($args ? 'POST' : 'GET', "$self->{session}$path",
        $args);
}

# Returns the answer's value; dies of an error.
sub _ask($self, $method, $path, $args = undef) {
    my $body = $args ? JSON::PP->new->utf8->encode($args) : '';
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $self->{port}) // die "chromedriver: $@\n";

    print {$socket} "$method $path HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "Connection: close\r\nContent-Type: application/json\r\n",
        'Content-Length: ', length $body, "\r\n\r\n", $body;
    $socket->flush;

    my $text = _read_all($socket);
    my ($head, $json) = split /\r\n\r\n/, $text, 2;
    my $answer = eval { JSON::PP->new->utf8->decode($json // '') }
        // die "chromedriver: $text\n";
    my $value = $answer->{value};

    die "chromedriver: $value->{error}: $value->{message}\n"
        if ref $value eq 'HASH' && defined $value->{error};
    return $value;
}

# Reads as much as the header says, as the connection may stay open.
sub _read_all($socket) {
    my $text = '';
    local $SIG{ALRM} = sub { die "chromedriver does not answer\n" };
    alarm $PATIENCE;
    while (1) {
        last if $text =~ /\r\n\r\n/
            && $text =~ /^content-length: *(\d+)\r$/mi
            && length $text >= $1 + index($text, "\r\n\r\n") + 4;
        sysread $socket, $text, 65536, length $text or last;
    }
    alarm 0;
    return $text;
}

1;
