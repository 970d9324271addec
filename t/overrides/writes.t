# Orders of limits that come together, wait for the file, or for each other.

use v5.36;

use Fcntl qw(F_SETLK F_UNLCK F_WRLCK);
use IO::Socket::INET;
use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $dir = $nginx->dir;

sub zone($name, $more = "limits=$name") {
    return "limit_sliding_zone \$arg_key zone=$name:1m rate=5 window=30d $more;\n";
}

$nginx->common(server => "location /limits { limit_sliding_api write=on; }\n");

# Locks a zone's file as a process does that carries out orders, or frees it.
sub lock_file($file, $type) {
    my $lock = pack 's s x![q] q q l x![q]', $type, 0, 0, 0, 0;
    fcntl $file, F_SETLK, $lock or die "fcntl: $!";
}

# Sends an order, and returns the socket; its response is read by answer().
sub order($zone, $key, $rate) {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $nginx->port)
        // die "connect: $@";
    my $path = key_path($zone, $key, "&rate=$rate");
    syswrite $socket, "PUT $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    return $socket;
}

# Returns the status of a response, or 'none'.
sub answer($socket) {
    local $/;
    my ($status) = (readline($socket) // '') =~ m{^HTTP/1.1 (\d+)};
    return $status // 'none';
}

sub own($zone, @keys) {
    return join ' ', map {
        my $json = api_key($nginx, $zone, $_);
        $json->{own_limit} ? $json->{limit} // 'off' : '-';
    } @keys;
}

# Runs code while orders wait for the file of zone "one".
sub while_locked($code) {
    open my $file, '+<', "$dir/one" or die "one: $!";
    lock_file($file, F_WRLCK);
    my @results = $code->();
    lock_file($file, F_UNLCK);
    return @results;
}


# a batch, into a table that has room of what has ended

my $soon = time + 2;
$nginx->write_file('one', "a 1\nb 2\nended 3 until=$soon\n");
$nginx->serve(http => zone('one', 'limits=one limits_max=3'));
is own('one', qw(a b ended)), '1 2 3', 'a table without room';
wait_for(sub { time > $soon });

# The first order waits for the lock, and the others for that order: one after the other,
# since a worker may accept connections in any order.
my @waiting = while_locked(sub {
    my @orders;
    for (['a', 11], ['ended', 13], ['new', 14]) {
        push @orders, order('one', @$_);
        select undef, undef, undef, 0.2;
    }
    return @orders;
});
is join(' ', map { answer($_) } @waiting), '200 200 507',
    'orders of one batch get the room that there is';
is own('one', qw(a b ended new)), '11 2 13 -', '... and what was answered is in force';

# Two orders of one new key take one place, and a removal makes room for a key after.
$nginx->write_file('one', "a 1\nb 2\n");
$nginx->reload($nginx->template(http => zone('one', 'limits=one limits_max=3')));
@waiting = while_locked(sub {
    my @orders;
    for (['a', 11], ['new', 13], ['new', 14], ['new', 15]) {
        push @orders, order('one', @$_);
        select undef, undef, undef, 0.2;
    }
    return @orders;
});
is join(' ', map { answer($_) } @waiting), '200 200 200 200', 'several orders of a new key';
is own('one', qw(a b new)), '11 2 15', '... of which the last one is in force';
@waiting = while_locked(sub {
    my @orders;
    for (['a', 21], ['new', 'default'], ['next', 23], ['new', 24], ['next', 25]) {
        push @orders, order('one', @$_);
        select undef, undef, undef, 0.2;
    }
    return @orders;
});
is join(' ', map { answer($_) } @waiting), '200 200 200 507 200', 'a removal makes room';
is own('one', qw(a b new next)), '21 2 - 25', '... for the next key';


# a worker that is to exit

($_) = while_locked(sub {
    my ($worker) = $nginx->workers;
    my $order = order('one', 'a', 21);
    select undef, undef, undef, 0.2;
    kill 'QUIT', $worker or die "SIGQUIT: $!";
    select undef, undef, undef, 0.5;
    return $order;
});
is answer($_), '200', 'a worker answers its orders before it exits';
ok wait_for(sub { $nginx->workers == 1 }), '... and then does';
is own('one', 'a'), '21', '... and has carried them out';


# event methods by which threads cannot wake a worker; few NGINXs have them

$nginx->{thread_pool} = 0;
for my $method (qw(poll select)) {
  SKIP: {
        skip "no $method in this NGINX", 1
            if !$nginx->is_configured("--with-${method}_module");

        $nginx->stop;
        $nginx->{event_method} = $method;
        $nginx->serve(http => zone('one'));
        is answer(order('one', 'a', 31)), '200', "an order of a worker that uses $method";
    }
}


# events{} after http{}: the event method is unknown while zones are made, so the worker itself
# carries out orders

sub threads() { return scalar(() = glob '/proc/' . ($nginx->workers)[0] . '/task/*') }

$nginx->stop;
delete $nginx->{event_method};
my $early = $nginx->expand($nginx->template(http => zone('one')));
my ($events) = $early =~ /^(events .*\n)/m;
$nginx->start(($early =~ s/\Q$events\E//r) . $events);
is threads(), 1, 'events{} after http{}: no threads';
is answer(order('one', 'a', 41)), '200', '... an order';
is own('one', 'a'), '41', '... is in force';
$nginx->reload;
is own('one', 'a'), '41', '... also after a reload';
SKIP: {
    skip 'no threads in this NGINX', 1
        if !$nginx->is_configured('--with-threads');
    $nginx->reload($early);
    cmp_ok threads(), '>', 1, '... and events{} before http{}: with threads';
}


# two workers, and two zones

$nginx->write_file($_, '') for qw(one two);
$nginx->stop;
$nginx->{worker_processes} = 2;
delete $nginx->{event_method};
$nginx->serve(http => zone('one') . zone('two'));

my %statuses;
for my $round (1 .. 150) {
    my @orders = map { order($_ % 2 ? 'one' : 'two', "k$_", $round) } 1 .. 16;
    $statuses{ answer($_) }++ for @orders;
}
is join(' ', %statuses), '200 2400', 'workers wait for each other, whatever the zones';


# descriptors: a zone without a name for its file needs none unless the API writes

# Those of sockets are not counted, because the master closes them some time after a worker's end.
sub descriptors() {
    return scalar grep { (readlink // '') !~ /^socket:/ } glob '/proc/' . $nginx->master . '/fd/*';
}

my @many = map { zone("z$_", '') } 1 .. 40;
my $read = $nginx->template(http => join '', zone('one', ''))
    =~ s/ write=on//r;
my $all = $nginx->template(http => join '', zone('one', ''), @many);
$nginx->reload($read);
my $base = descriptors();
$nginx->reload($all =~ s/ write=on//r);
is descriptors(), $base, '40 more zones without write=on have no descriptors';
$nginx->reload($all);
is descriptors(), $base + 41, '... and one each with write=on';
is api_key($nginx, 'z1', 'a', 'PUT', '&rate=9')->{http}, 200, '... for orders';
$nginx->reload($all =~ s/ write=on//r);
is descriptors(), $base + 1, '... or while there are limits';
is own('z1', 'a'), '9', '... which are kept';

$nginx->finish;
