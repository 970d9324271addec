# Calls that fail of the module on files of own limits, one after the other: of
# orders, of their compaction, of a start, a reload and `nginx -t`. An order that was
# answered stays, one that was refused leaves nothing, and once the disk is well
# again, everything is there.
#
# ALLOC_STEP is the distance of those that are tried (2, others with each errno); 1
# tries all of them.

use v5.36;

use Errno qw(EACCES EDEADLK EINTR EIO ENOSPC);
use Test::More;

use LimitSliding::Alloc;
use LimitSliding::Api;
use LimitSliding::Test;

plan skip_all => LimitSliding::Alloc::lacking() if LimitSliding::Alloc::lacking();

my $STEP = $ENV{ALLOC_STEP} // 2;
my $LAST = 100;                   # there are not so many calls
my $BEGINS = "#!limit_sliding: what follows is a copy of the above\n";
my $LONG = 'l' x 1000;

my $nginx = LimitSliding::Alloc->new(worker_processes => 1)->common(
    http => 'limit_sliding_zone $arg_key zone=one:64k rate=5 window=30d'
        . ' limits=limits limits_max=2000;',
    server => 'location /limits { limit_sliding_api write=on; }');
my $dir = $nginx->dir;

# As editors do: in the place of the former.
sub replace_file($content) {
    $nginx->write_file('limits.new', $content);
    rename "$dir/limits.new", "$dir/limits" or die "rename: $!";
}

sub add_to_file($text) {
    open my $file, '>>', "$dir/limits" or die "limits: $!";
    print $file $text;
    close $file or die "limits: $!";
}

# Returns the status of an order, 'none' if the connection was closed.
sub put($key, $rate) {
    my $path = key_path('one', $key, "&rate=$rate");
    return $nginx->read_response($nginx->send_request($path, method => 'PUT'), 'PUT')->{status}
        // 'none';
}

# Returns the own limits of keys, '-' for none.
sub own(@keys) {
    return join ' ', map {
        my $json = api_key($nginx, 'one', $_);
        $json->{own_limit} ? $json->{limit} // 'off' : '-';
    } @keys;
}

# Calls the function with the number of each $step-th call until there are no more,
# and with each errno. It returns what was wrong.
sub each_call($name, $step, $function, @errnos) {
    my ($calls, @found);
    for my $i (0 .. $#errnos) {
        my $errno = $errnos[$i];
        for (my $n = 1 + $i % $step; $n <= $LAST; $n += $step) {
            my @wrong = $function->($n, $errno);
            my $text = $nginx->new_text;
            my $place = LimitSliding::Alloc::place($text);
            push @found, map { "$n, errno $errno: $_, $place" }
                @wrong, $nginx->crashes($text);
            $calls = $n - $step;
            last if $place eq '';
        }
        cmp_ok $calls, '>', 0, "$name, errno $errno: up to call $calls";
    }
    is join("\n", @found), '', "$name: all went well";
}

# Returns what is wrong with own limits of keys, [ key => right ones ].
sub wrong_limits($when, @expected) {
    return map {
        my ($key, @right) = @$_;
        my $got = own($key);
        (grep { $_ eq $got } @right) ? () : "$when, $key is $got, not @right";
    } @expected;
}

# What a new key is to have after an order for 7 with this status: a failure after
# the order was carried out is told, too.
sub after_order($status) {
    return $status eq '200' ? '7' : $status =~ /^50[37]$/ ? '-' : qw(7 -);
}

# The n-th call fails of an order, which goes before another one. Returns what is
# wrong; what is to be is added to @ordered.
my @ordered;

sub order_fails($n, $errno, @others) {
    my $key = "order-$n-$errno";
    $nginx->fail_call($n, $errno);
    my $status = put($key, 7);
    my $also = put("$key-also", 7);
    $nginx->relent;

    my @expected = ([ $key, after_order($status) ], [ "$key-also", after_order($also) ], @others);
    push @ordered, @expected, [ "$key-next", 7 ];
    return wrong_limits('at first', @expected),
        map { "then an order is answered $_" } grep { $_ ne '200' } put("$key-next", 7);
}

$nginx->preloaded(sub { $nginx->serve });


# orders

each_call 'order', 1, \&order_fails, EIO, ENOSPC, EINTR, EDEADLK;

# ... that have to read the file first
each_call 'order, edited', 1, sub ($n, $errno) {
    my $key = "edited-$n-$errno";
    add_to_file("$key-first 5\n$key-last 6");
    return order_fails($n, $errno, [ "$key-first", 5 ], [ "$key-last", 6 ]);
}, EIO, EINTR;

ok $nginx->try_reload, 'a reload';
is join("\n", wrong_limits('after it', @ordered)), '', '... keeps what it has to';


# compaction: the file has much more than what counts

each_call 'compaction', $STEP, sub ($n, $errno) {
    $nginx->write_file('limits', "kept 3\n" . join('', map { "$LONG $_\n" } 1 .. 100));
    $nginx->fail_call($n, $errno);
    my @statuses = map { put("compaction-$_", 7) } 1 .. 2;    # one after the other
    $nginx->relent;

    # Who has failed would try again in a minute, but for the reload
    my @expected = ([ 'kept', 3 ], [ $LONG, 100 ],
        map { [ "compaction-$_", after_order($statuses[ $_ - 1 ]) ] } 1, 2);
    my @wrong = $nginx->try_reload ? () : 'the reload fails';
    return @wrong, wrong_limits('after a reload', @expected);
}, EIO, EINTR;
cmp_ok $nginx->log_count(qr/ were compacted/), '>', 5, 'some succeeded';
cmp_ok $nginx->log_count(qr/cannot be compacted/), '>', 5, 'some failed';


# A reload, of a file with an unfinished line, of one with a copy that has yet to be
# moved in, and of another one than before

my $copy = "gone 1\n$BEGINS";
$copy .= "kept 3\nother 4\n" . sprintf "#!limit_sliding: end of the copy that began at byte %020d\n",
    length $copy;

for (
    [ 'unfinished', sub { add_to_file("kept 3\nother 4\n unfinished 5") } ],
    [ 'copy',       sub { replace_file($copy) } ],
) {
    my ($name, $change) = @$_;
    each_call "reload, $name", $STEP, sub ($n, $errno) {
        $change->();
        $nginx->fail_call($n, $errno);
        my @wrong = $nginx->try_reload ? () : 'the master is gone';
        $nginx->relent;
        push @wrong, 'the next reload fails' if !$nginx->try_reload;
        return @wrong, wrong_limits('then', [ 'kept', 3 ], [ 'other', 4 ], [ 'gone', '-' ],
            [ 'unfinished', '-' ]);
    }, EIO, EINTR;
}


# a start, and nginx -t

each_call 'start', 1, sub ($n, $errno) {
    my @wrong = $nginx->stop ? () : 'does not stop';
    replace_file("kept 3\n");
    $nginx->fail_call($n, $errno);
    my $said = $nginx->log_count(qr/\[emerg\]/);
    my $serves = $nginx->try_start($nginx->template);
    $nginx->relent;
    if (!$serves) {
        push @wrong, 'ended without a word' if $nginx->log_count(qr/\[emerg\]/) == $said;
        $nginx->preloaded(sub { $nginx->start($nginx->template) });
    }
    push @wrong, 'the reload fails' if !$nginx->try_reload;
    return @wrong, wrong_limits('then', [ 'kept', 3 ]);
}, EIO;

for my $there (1, 0) {
    unlink "$dir/limits" or die "limits: $!" if !$there;
    each_call 'test ' . ($there ? 'of a file' : 'of none'), 1, sub ($n, $errno) {
        $nginx->fail_call($n, $errno);
        my ($status, $output) = $nginx->try_config($nginx->template);
        $nginx->relent;
        $nginx->{text} .= $output;
        return $status && $output !~ /\[emerg\]/ ? 'ended without a word' : ();
    }, EIO, EACCES;
}


# a file without a name

each_call 'unnamed', 1, sub ($n, $errno) {
    my @wrong = $nginx->stop ? () : 'does not stop';
    my $template = $nginx->template =~ s/limits=limits//r;
    $nginx->fail_call($n, $errno);
    my $serves = $nginx->try_start($template);
    $nginx->relent;
    $nginx->preloaded(sub { $nginx->start($template) }) if !$serves;
    push @wrong, "an order is answered $_" for grep { $_ ne '200' } put('a', 7);

    $nginx->fail_call($n, $errno);
    push @wrong, 'the master is gone' if !$nginx->try_reload;
    $nginx->relent;
    push @wrong, 'the next reload fails' if !$nginx->try_reload;
    return @wrong, wrong_limits('then', [ 'a', 7 ]);
}, EIO;

ok $nginx->stop, 'NGINX stops';
is join("\n", $nginx->crashes($nginx->new_text)), '', '... cleanly';

done_testing;
