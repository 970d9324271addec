# Allocations that fail, one after the other: of `nginx -t`, of a start, and of a
# reload. Nothing crashes. NGINX goes on, or ends with an error; counts stay
# right, and requests are answered.
#
# ALLOC_STEP is the distance of those that are tried (97); 1 tries all of them. The
# first 2,000 of a start are OpenSSL's.

use v5.36;

use Test::More;

use LimitSliding::Alloc;
use LimitSliding::Api;
use LimitSliding::Redis;
use LimitSliding::Test;

plan skip_all => LimitSliding::Alloc::lacking() if LimitSliding::Alloc::lacking();

my $STEP = $ENV{ALLOC_STEP} // 97;
my $LAST = 10_000;
my $BEYOND = 3;
my $LIMITS = 'own 7r/d';          # a line of limits=

my @redis = map { LimitSliding::Redis->new->start } 1 .. 2;

sub nginx() {
    my $nginx = LimitSliding::Alloc->new
        ->common(LimitSliding::Alloc::everything(map { $_->server } @redis));
    $nginx->write_file('limits.one', "$LIMITS\n");
    return $nginx;
}

# Calls the function for each allocation that is tried, until it says some times
# that there are no more: processes that are on their own have not always as many.
# It returns that, and what was wrong.
sub try_each($name, $step, $function) {
    my ($tried, $beyond, @found) = (0, 0);
    for (my $n = 1; $n <= $LAST; $n += $step) {
        my ($more, @wrong) = $function->($n);
        push @found, map { "$n: $_" } @wrong;
        $tried++ if $more;
        $beyond = $more ? 0 : $beyond + 1;
        last if $beyond == $BEYOND;
    }
    is join("\n", @found), '', "$name: $tried allocations failed";
    cmp_ok $tried, '>', 5, "$name: which are some";
}


# nginx -t: of all, and then of what the module asks of NGINX. This fails where
# NGINX knows nothing of, so nobody says a word.

my $nginx = nginx();

sub test_fails($n, $is_told) {
    my ($status, $output) = $nginx->try_config($nginx->template);
    my $more = $nginx->relent >= $n;
    my @wrong = $nginx->crashes($output);
    push @wrong, $output if $status && !$more;
    push @wrong, 'ended without a word, ' . LimitSliding::Alloc::place($output)
        if $status && $is_told && LimitSliding::Alloc::words($output) !~ /\S/;
    return ($more, @wrong);
}

try_each 'test', $STEP, sub ($n) {
    $nginx->fail($n);
    return test_fails($n, 1);
};

try_each 'test, by the module', $STEP > 1 ? 2 : 1, sub ($n) {
    $nginx->fail_memory($n);
    return test_fails($n, 0);
};


# a start

$nginx = nginx();

try_each 'start', $STEP, sub ($n) {
    $nginx->fail($n);
    my $serves = $nginx->try_start($nginx->template);
    my $more = $nginx->relent >= $n;
    my @wrong;
    if ($serves) {
        push @wrong, $nginx->wrong_answers;
        push @wrong, 'does not stop' if !$nginx->stop;
    }
    my $text = $nginx->new_text;
    push @wrong, $nginx->crashes($text);
    push @wrong, $text if !$serves && !$more;
    push @wrong, 'ended without a word, ' . LimitSliding::Alloc::place($text)
        if !$serves && LimitSliding::Alloc::words($text) !~ /\S/;
    return ($more, @wrong);
};


# A reload: of the master alone, which may fail, and of all processes. What was
# counted stays, and so do limits of keys.

$nginx = nginx();
$nginx->preloaded(sub { $nginx->serve });
$nginx->statuses(2, "/$_?key=kept") for qw(one remote);

sub reload_fails($n, $pid) {
    $nginx->fail($n, $pid);
    my $lives = $nginx->try_reload;
    my $more = $nginx->relent >= $n;
    my $text = $nginx->new_text;
    return (0, 'the master is gone', $nginx->crashes($text)) if !$lives;

    return ($more, $nginx->crashes($text), $nginx->wrong_answers,
        map { my $state = state_of(api_key($nginx, @$_[0, 1]));
            $state eq $_->[2] ? () : "$_->[0], $_->[1]: $state" }
        [ 'one',    'kept', '2 4 2' ],
        [ 'remote', 'kept', '2 4 2' ],
        [ 'one',    'own', '0 210 210' ]);
}

try_each 'reload, master', $STEP > 1 ? 7 : 1, sub ($n) { reload_fails($n, $nginx->master) };
try_each 'reload', $STEP > 1 ? 53 : 1, sub ($n) { reload_fails($n, 0) };

ok $nginx->try_reload, 'then one that nothing disturbs';
is scalar $nginx->workers, 2, '... has two workers';
ok $nginx->stop, '... and stops';
is join("\n", $nginx->crashes($nginx->new_text)), '', '... cleanly';
note LimitSliding::Alloc::known();

done_testing;
