# limits=file: own limits of keys that outlive NGINX. The file is read at start
# and reload, and orders of the API are appended to it.

use v5.36;

use Test::More;

use LimitSliding::Api;
use LimitSliding::Test;

my $nginx = LimitSliding::Test->new(worker_processes => 1);
my $dir = $nginx->dir;
my $root = $> == 0;

# Own limits, as the API tells them: a number, "off" or "-" for none.
sub own($zone, @keys) {
    return join ' ', map {
        my $json = api_key($nginx, $zone, $_);
        my $own = $json->{own_limit} // $json->{error};
        $own eq 'off' ? 'off' : !$own ? '-' : $json->{limit} // $own;
    } @keys;
}

sub put($zone, $key, $rate) {
    return api_key($nginx, $zone, $key, 'PUT', "&rate=$rate")->{http};
}

sub file($name = 'limits') {
    open my $file, '<:raw', "$dir/$name" or return undef;
    local $/;
    return <$file> // '';
}

sub add_to_file($text, $name = 'limits') {
    open my $file, '>>:raw', "$dir/$name" or die "$name: $!";
    print $file $text;
    close $file or die "$name: $!";
}

# Replaces the file as editors do, by another one.
sub replace_file($text, $name = 'limits') {
    $nginx->write_file("$name.other", $text);
    rename "$dir/$name.other", "$dir/$name" or die "$name: $!";
}

sub zone($name, $more = 'limits=limits', $key = '$arg_key') {
    return "limit_sliding_zone $key zone=$name:1m rate=5 window=30d $more;\n";
}

# Returns the number of lines of the log that match, since the last time, without
# what a start has repeated on the terminal.
sub logged($regexp) {
    return scalar grep { !/^nginx:/ } $nginx->new_log_lines($regexp);
}

$nginx->common(server => <<'CONF');
    location /limits { limit_sliding_api write=on; }
    location / { limit_sliding zone=one; empty_gif; }
CONF


# start

$nginx->serve(http => zone('one'));
is file(), '', 'a missing file is made';
is((stat "$dir/limits")[2] & 0777, 0600, '... for its owner alone');
is own('one', 'a'), '-', '... and has no limits';

$nginx->write_file('limits', <<'FILE');
# plans
a 10
b   20/1h   # with a comment
  c off
d%20%23%25%c3%a4 30
e 40 until=2099-12-31T23:59:59Z
f 50 until=1600000000
g 1
g 60

h 70
h default
FILE

$nginx->serve(http => zone('one'));
is own('one', qw(a b c d%20%23%25%C3%A4 e g)), '10 20 off 30 40 60', 'limits are read';
is own('one', qw(f h x)), '- - -', '... but for what has ended, or was taken away';
is $nginx->statuses(11, '/?key=a'), join(' ', (200) x 10, 429), 'they are in force';
is api($nginx)->{zones}{one}{own_limits}, 6, '... and are counted';

my $before = file();
is $nginx->stop, 1, 'NGINX stops';
$nginx->serve(http => zone('one'));
is file(), $before, 'a start changes nothing in the file';


# orders

is put('one', 'n%20%ff', '7'), 200, 'an order';
is file(), "$before n%20%FF 7\n", '... is a line, with a blank before it';
is put('one', 'a', 'off'), 200, 'another one, for a key of the file';
is put('one', 'b', 'default'), 200, '... and one that takes away';
is file(), "$before n%20%FF 7\n a off\n b default\n", '... are lines, too';
is own('one', qw(a b n%20%FF)), 'off - 7', 'they are in force';

$nginx->reload;
is own('one', qw(a b c n%20%FF)), 'off - off 7', 'they stay over a reload';
$nginx->serve(http => zone('one'));
is own('one', qw(a b c n%20%FF)), 'off - off 7', '... and a restart';


# reload of an edited file

replace_file("a 11\nnew 12\n");
is put('one', 'c', '9'), 503, 'an order is refused while the file is another one';
is own('one', qw(a c new)), 'off off -', '... and what was read stays';
is file(), "a 11\nnew 12\n", '... and nothing is written';
$nginx->reload;
is own('one', qw(a c new n%20%FF)), '11 - 12 -', 'a reload reads it';
is put('one', 'c', '9'), 200, '... and orders are taken again';

unlink "$dir/limits" or die $!;
is put('one', 'c', '9'), 503, 'an order is refused while there is no file';
$nginx->write_file('limits', '');
is put('one', 'c', '9'), 503, '... and while there is another one in its place';
$nginx->reload;
is own('one', qw(a c)), '- -', 'a reload reads that';

add_to_file("x 13");
is put('one', 'y', '14'), 200, 'an order after lines of another hand';
is file(), "x 13\n y 14\n", '... whose last one had no end';
is own('one', qw(x y)), '13 14', '... finds them';


# torn lines

add_to_file(" z 15");
$nginx->reload;
is file(), "x 13\n y 14\n", 'an unfinished order is removed';
is own('one', qw(x y z)), '13 14 -', '... and only that';
is logged(qr/\[notice\].* removed an unfinished line/), 1,
    '... with a notice';
add_to_file(" z 15");
is put('one', 'y', '16'), 200, 'another one';
is file(), "x 13\n y 14\n y 16\n", '... is removed by the next order';

# A program that writes the file in place is in the middle of a line when a worker reads it.
open my $writer, '>:raw', "$dir/limits" or die "limits: $!";
$writer->autoflush(1);
print $writer " x 18\n z 1";
ok wait_for(sub { own('one', 'x') eq '18' }), 'a file that is written in place is read';
is own('one', 'z'), '-', '... but for the line that is not complete';
is file(), " x 18\n z 1", '... which stays';
print $writer "9\n y 20\n";
close $writer;
ok wait_for(sub { own('one', qw(x y z)) eq '18 20 19' }), '... until all is there';
add_to_file(" z 1");
ok wait_for(sub { own('one', qw(x y z)) eq '18 20 19' }), 'a line that never gets complete';
sleep 1.5;
is put('one', 'y', '21'), 200, '... and was seen';
is file(), " x 18\n z 19\n y 20\n y 21\n", '... is removed by the next order';
add_to_file("z 17");
$nginx->reload;
is own('one', 'z'), '17', 'a last line of the operator counts without its end';


# wrong lines

my @WRONG = ('w', 'w 5x', 'w -1', 'w 1/1ms', 'w 5/month', 'w 5 6', 'w 5 until=x', 'w%4 5',
    "w\xc3\xa4 5", 'w#5 6', 'w 5 until=6 7', 'w ' . '9' x 40, '=' x 70000 . ' 5',
    'x' x 600_000 . ' 5');
replace_file("first 5\n" . join('', map { "$_\n" } @WRONG) . "last 6\n");
my ($failed, $output) = $nginx->test_config;
is $failed, 0, 'wrong lines are no wrong configuration';
$nginx->reload;
for my $i (0 .. $#WRONG) {
    my $line = $i + 2;
    my $where = qr/ zone "one": .*, ignored in \Q$dir\E\/limits:$line$/m;
    like $output, $where, 'a test reports line ' . substr $WRONG[$i], 0, 20;
    is logged(qr/\[error\].*$where/), 2, '... and so does a reload';
}
unlike $output, qr/limits:(?:1|16)\b/, '... and right ones are not reported';
is own('one', qw(first last w)), '5 6 -', 'right lines count';

logged(my $invalid = qr/the limit is invalid, ignored in/);
replace_file(join '', map { "w$_ x\n" } 1 .. 1000);
$nginx->reload;
is logged($invalid), 20,
    'of many wrong lines, 20 are logged';
is logged(qr/1000 lines were ignored/), 1, '... and their number';


# nginx -t

unlink "$dir/limits" or die $!;
is(($nginx->test_config)[0], 0, 'a test needs no file');
is file(), undef, '... and makes none';
$nginx->write_file('limits', "a 1\n b 2");
is(($nginx->test_config)[0], 0, 'a test of an unfinished line');
is file(), "a 1\n b 2", '... changes nothing';

for ([ 'no/limits', qr/\[emerg\] .*open\(\) "\Q$dir\E\/no\/limits" failed, .* zone "one" in .*:\d+ \(2: / ],
     [ 'temp', qr/\[emerg\] .*"limits=\S+\/temp" is not a regular file in /]) {
    my ($name, $message) = @$_;
    ($failed, $output) = $nginx->test_config($nginx->template(http => zone('one', "limits=$name")));
    is $failed, 1, "a test of $name fails";
    like $output, $message, '... with a message';
}

for ([ zone('one') . zone('two'), qr/"limits=\S+limits" is the file of zone "one", too, in / ],
     [ zone('one', 'limits='), qr/invalid parameter "limits="/ ],
     [ zone('one', 'limits=a limits=b'), qr/duplicate parameter "limits=b"/ ],
     [ zone('one', 'limits_max=0'), qr/invalid number "limits_max=0", it must be between 1 and / ],
     [ zone('one', 'limits_max=x'), qr/invalid number "limits_max=x"/ ]) {
    ($failed, $output) = $nginx->test_config($nginx->template(http => $_->[0]));
    is $failed, 1, 'a wrong configuration';
    like $output, $_->[1], '... has its message';
}

($failed, $output) = $nginx->test_config($nginx->template(
    http => zone('one', 'limits=missing') . zone('two', 'limits=missing')));
is $failed, 1, 'two zones of a file that is not there yet';
like $output, qr/"limits=\S+missing" is the file of zone "one", too, in /, '... are refused, too';

my $signal = $nginx->signal('reopen', $nginx->template(
    http => zone('one', 'limits=unmade') . zone('two', 'limits=no/limits')));
is $signal, 0, 'a signal is sent whatever the files';
is file('unmade'), undef, '... and none is made';

$nginx->write_file('limits', "a 1\n");
$nginx->reload;
$nginx->hup($nginx->template(http => zone('one', 'limits=no/limits')));
ok wait_for(sub { $nginx->new_log_lines(qr{\[emerg\].*no/limits}) }), 'a reload fails as well';
is own('one', 'a'), '1', '... and nothing changes';


# limits_max

$nginx->write_file('limits', join '', map { "k$_ 1$_\n" } 1 .. 5);
$nginx->serve(http => zone('one', 'limits=limits limits_max=3'));
is own('one', map { "k$_" } 1 .. 5), '11 12 13 - -', 'the first limits of a file have room';
like join("\n", $nginx->new_log_lines(qr/limits_max/)),
    qr{limits_max=3 is too small, 2 more lines were ignored, the first one in \S+/limits:4$},
    '... and the others are reported';
is put('one', 'k4', 5), 507, 'there is no room for another one';
is put('one', 'k2', 5), 200, '... but to change one';
is put('one', 'k1', 'default'), 200, '... or to take one away';
is put('one', 'k6', 6), 200, '... and then for another one';
$nginx->reload($nginx->template(http => zone('one', 'limits=limits limits_max=9')));
is own('one', map { "k$_" } 1 .. 6), '- 5 13 14 15 6', 'a reload with more room has all';
is logged(qr/starts empty: its limits_max was 3, now 9/), 1,
    '... and the zone starts empty';

$nginx->write_file('limits', join '', map { "k$_ 1$_ until=2000000000\n" } 1 .. 3);
my $soon = time + 2;
$nginx->write_file('limits', "a 1 until=$soon\nb 2\n");
$nginx->serve(http => zone('one', 'limits=limits limits_max=2'));
is own('one', 'a', 'b'), '1 2', 'a limit that is to end';
wait_for(sub { time > $soon });
is own('one', 'a', 'b'), '- 2', '... ends';
is put('one', 'c', 3), 200, '... and makes room';


# addresses

$nginx->write_file('limits', "192.0.2.7 6\n2001:db8::5 7\nunix: 8\nx 9\n" . '1' x 50 . " 5\n");
$nginx->serve(http => zone('one', 'limits=limits', '$limit_sliding_client'));
is own('one', qw(192.0.2.7 192.0.2.8)), '6 -', 'an IPv4 address';
is own('one', qw(2001:db8::5 2001:db8::6 2001:db8:0:1::)), '7 7 -', 'an IPv6 address is masked';
is logged(qr{the key is no address, ignored in \S+limits:[45]$}), 2,
    'what is no address is wrong';
is put('one', '2001:db8:1:2::3', '8'), 200, 'an order';
like file(), qr/^ 2001:db8:1:2:: 8$/m, '... is written as text';
$nginx->reload;
is own('one', '2001:db8:1:2::4'), '8', '... and read';


# long keys

my %long = (server => 'large_client_header_buffers 4 256k;');
my $longest = 'x' x 65535;
$nginx->write_file('limits', join '', map { sprintf "%s%04d 5\n", 'k' x 600, $_ } 1 .. 1000);
$nginx->serve(http => zone('one', 'limits=limits limits_max=2000'), %long);
logged(qr/ignored in/);
is put('one', $longest, 7), 200, 'an order for the longest key';
is put('one', "x$longest", 7), 400, '... and for a longer one, which is no key';
$nginx->reload;
is own('one', $longest), '7', '... which stays';
is logged(qr/ignored in/), 0, '... and makes no wrong line';
my $peak = sub {
    open my $status, '<', '/proc/' . ($nginx->workers)[0] . '/status' or die $!;
    return join('', <$status>) =~ /^VmHWM:\s*(\d+) kB/m ? $1 : die 'no VmHWM';
};
my $peak_before = $peak->();
is scalar @{ limits_page($nginx, 'one', 'n=1000')->{limits} }, 1000, 'a list of long keys';
cmp_ok $peak->() - $peak_before, '<', 60_000, '... takes little memory';


# compaction

my $long = 'l' x 400;
$nginx->write_file('limits', "# one\na 1\nb 2\n\n# two\nwrong\nc 3 # three\nd 4\n");
$nginx->serve(http => zone('one'));
put('one', 'b', 'default');
put('one', $long, $_ % 100 + 1) for 1 .. 400;
ok wait_for(sub { logged(qr/\[info\].* zone "one" were compacted/) }), 'the file is compacted';
like file(), qr/\A# one\na 1\n\n# two\nwrong\nc 3 # three\nd 4\n(?: l+ \d+\n)+\z/,
    '... and keeps what is of use, comments and wrong lines, in its order';
cmp_ok -s "$dir/limits", '<', 200_000, '... and is smaller';
is own('one', 'a', 'b', 'c', 'd', $long), '1 - 3 4 1', '... and all limits are in force';
$nginx->reload;
is own('one', 'a', 'b', 'c', 'd', $long), '1 - 3 4 1', '... also after a reload';

# A copy that is complete is moved in, and another one is removed.
my $lines = file();
my $begins = "#!limit_sliding: what follows is a copy of the above\n";
add_to_file($begins . "a 9\n");
$nginx->reload;
is file(), $lines, 'an unfinished copy is removed';
is own('one', 'a'), '1', '... and does not count';
add_to_file($begins);
my $begin = -s "$dir/limits";
add_to_file("a 9\n# end\n" . sprintf "#!limit_sliding: end of the copy that began at byte %020d\n",
    $begin);
my $whole = file();
is(($nginx->test_config)[0], 0, 'a test of a copy');
is file(), $whole, '... leaves it';
$nginx->reload;
is file(), "a 9\n# end\n", 'a complete copy is moved in';
is own('one', 'a', 'c'), '9 -', '... and counts';


# zones without a file

$nginx->serve(http => zone('one', ''));
is put('one', 'a', 7), 200, 'an order without a file';
$nginx->reload;
is own('one', 'a'), '7', '... stays over a reload';
$nginx->write_file('limits', "b 8\n");
$nginx->reload($nginx->template(http => zone('one')));
is own('one', 'a', 'b'), '- 8', '... but not if there is a file then';
$nginx->reload($nginx->template(http => zone('one', '')));
is own('one', 'a', 'b'), '- -', 'limits of a file end with it';

# Reloads the zone with another API, or with none.
sub reload_api($more, $api) {
    $nginx->reload($nginx->template(http => zone('one', $more))
        =~ s/limit_sliding_api write=on;/$api/r);
}

my %apis = ('an API that only reads' => 'limit_sliding_api;', 'no API' => '');
for my $which (sort keys %apis) {
    my $api = $apis{$which};
    $nginx->write_file('limits', "blocked 0\n");
    reload_api('limits=limits', $api);
    is $nginx->statuses(1, '/?key=blocked'), 429, "$which: limits of a file";
    reload_api('', $api);
    is $nginx->statuses(1, '/?key=blocked'), 200, '... end with it, too';

    reload_api('', 'limit_sliding_api write=on;');
    put('one', 'c', 0);
    reload_api('', $api) for 1 .. 2;
    is $nginx->statuses(1, '/?key=c'), 429, "$which: limits without a file stay";
    reload_api('', 'limit_sliding_api write=on;');
    is own('one', 'c'), '0', '... and stay once they can be changed again';
    is put('one', 'c', 'default'), 200, '... which they are';
}


# rights

SKIP: {
    skip 'needs root', 6 unless $root;

    mkdir "$dir/secret", 0700 or die $!;
    my $config = $nginx->expand($nginx->template(http => zone('one', 'limits=secret/limits')));
    $nginx->stop;
    $nginx->start($config =~ s/user root root/user nobody nogroup/r);
    my ($worker) = $nginx->workers;
    isnt((stat "/proc/$worker")[4], 0, 'a worker of another user');
    is put('one', 'a', 7), 200, '... takes orders';
    is file('secret/limits'), " a 7\n", '... and writes the file';
    is own('one', 'a'), '7', '... in a folder that it may not enter';

    unlink "$dir/secret/limits" or die $!;
    is put('one', 'a', 8), 503, 'it knows when the file is gone';
    $nginx->reload;
    is put('one', 'a', 8), 200, '... and has the next one after a reload';
}


# a full disk

SKIP: {
    mkdir "$dir/small" or die $!;
    my $mounted = $root
        && system("mount -t tmpfs -o size=64k tmpfs $dir/small 2>/dev/null") == 0;
    skip 'cannot mount', 16 unless $mounted;

    $nginx->serve(http => zone('one', 'limits=small/limits'));
    is put('one', 'a', 7), 200, 'an order on a disk with room';
    my $size = -s "$dir/small/limits";

    open my $file, '>', "$dir/small/filler" or die $!;
    syswrite $file, 'x' x 4096 while -s "$dir/small/filler" < 60 * 1024;
    close $file;

    # the page of the file's beginning is there
    my $status;
    for (1 .. 100) {
        $status = put('one', 'b' x 500 . $_, 8);
        last if $status != 200;
        $size = -s "$dir/small/limits";
    }
    is $status, 507, 'an order on a full disk is refused';
    is -s "$dir/small/limits", $size, '... and leaves nothing behind';
    is own('one', 'a'), '7', '... and others stay';
    is put('one', 'b' x 500 . 1, 'default'), 507, 'a removal is refused as well';
    is own('one', 'b' x 500 . 1), '8', '... and the limit stays';
    ok logged(qr/pwrite\(\) "\S+" failed \(28:/), '... with a reason in the log';

    unlink "$dir/small/filler" or die $!;
    is put('one', 'c', 9), 200, 'with room again, orders are taken';
    $nginx->reload;
    is own('one', 'a', 'c'), '7 9', '... and all are there';
    is logged(qr/ignored in \S*small/), 0, '... with no wrong line';
    $nginx->stop;

    $nginx->write_file('small/limits', "blocked 0\n");
    system("mount -o remount,ro $dir/small") == 0 or diag 'remount failed';
    my $text = $nginx->template(http => zone('one', 'limits=small/limits'))
        =~ s/ write=on//r;
    $nginx->start($text);
    is $nginx->statuses(1, '/?key=blocked'), 429, 'a read-only disk, without write=on';
    $nginx->reload($text);
    is $nginx->statuses(1, '/?key=blocked'), 429, '... over a reload';
    $nginx->stop;

    # Whether nginx -t succeeds, and a start does.
    my $tried = sub ($text) {
        my ($failed, $output) = $nginx->test_config($text);
        my ($told) = $output =~ m{open\(\) "\S+" failed, .* zone "one" .*\((\d+): };
        my $starts = eval { $nginx->start($text); 1 };
        $nginx->stop if $starts;
        return join ' ', $failed ? "fails $told" : 'ok', $starts ? 'starts' : 'starts not';
    };
    my $writing = $nginx->template(http => zone('one', 'limits=small/limits'));
    is $tried->($text), 'ok starts', 'nginx -t: it may stay read-only without write=on';
    is $tried->($writing), 'fails 30 starts not', '... but not with it';
    is $tried->($_ =~ s{small/limits}{small/missing}r), 'fails 30 starts not',
        '... nor if the file is missing' for $text, $writing;
    system("umount $dir/small") == 0 or diag 'umount failed';
}


# a zone that no place uses, while clients of the API have longer prefixes than by default

my %idle = (http => zone('one', '') . zone('idle', 'limits=idle', '$limit_sliding_client'));
my %prefixes = (
    'of a server' => $nginx->template(%idle, server => 'limit_sliding_client ipv6=128;'),
    'of the API'  => $nginx->template(%idle)
        =~ s/limit_sliding_api/limit_sliding_client ipv6=128; $&/r,
);
for my $whose (sort keys %prefixes) {
    $nginx->stop;
    unlink "$dir/idle";
    $nginx->start($prefixes{$whose});
    is put('idle', '2001:db8::7', 3), 200, "a zone that no place uses, with prefixes $whose";
    is own('idle', '2001:db8::7', '2001:db8::8'), '3 -', '... for one address';
    $nginx->reload;
    is own('idle', '2001:db8::7', '2001:db8::8'), '3 -', '... has its limits after a reload';
}

# Old workers after a reload that has emptied the memory: they and the new ones share the
# file, which each of them reads once another has written.

# Returns a connection with the head of a request, of which the last line end is to come,
# so that its worker goes on.
sub begin($key, $method = 'GET', $more = '') {
    my $socket = $nginx->connect;
    syswrite $socket, "$method " . key_path('one', $key, $more)
        . " HTTP/1.1\r\nHost: localhost\r\n";
    return $socket;
}

sub end($socket) {
    syswrite $socket, "\r\n";
    return read_key($nginx->read_response($socket, 'GET'));
}

$nginx->write_file('limits', "a 7\n");
$nginx->serve(http => zone('one'));
is own('one', 'a'), '7', 'a worker that is to be an old one';
my @old = $nginx->workers;
my $order = begin('a', 'PUT', '&rate=8');
my $look = begin('b');
sleep 0.5;
$nginx->hup($nginx->template(http => zone('one') =~ s/:1m/:2m/r));
ok wait_for(sub { my @new = $nginx->workers; @new == 1 && $new[0] != $old[0] }),
    '... as the size of the zone has changed';
is put('one', 'b', 9), 200, 'an order of a new worker';
is own('one', 'a', 'b'), '7 9', '... is in force there';
sleep 2;
is end($look)->{limit}, 9, '... and in an old one, soon';
is end($order)->{http}, 200, 'an order of an old worker';
ok wait_for(sub { own('one', 'a') eq '8' }, 3), '... is in force in a new one, soon';
is own('one', 'b'), '9', '... with others';
ok wait_for(sub { $nginx->children == 1 }), 'the old worker exits';

$nginx->finish(allow => [ qr{\[emerg\].*(?:no/limits|small/)}, qr/^nginx: \[error\]/ ]);
