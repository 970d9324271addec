package LimitSliding::RedisBenchmark;

# Measures how often a Redis runs the module's own command, the ceiling of limits
# in Redis, and native commands that write a key.  redis-benchmark cannot send
# arguments with zeros, so this one sends what was made before, on one connection.

use v5.36;

use Exporter qw(import);
use IO::Select;
use Time::HiRes qw(time);

use LimitSliding::Generator;
use LimitSliding::Redis ();

our @EXPORT = qw(ceilings hold_blocks redis_benchmark send_blocks);

my $CALLS  = 20_000;
my $AT_ONCE = 16;
my $VALUE  = 'x' x 14;
my $MARK   = 'end of a block';

# The limited keys in a call, and native commands.  The first is the unit of the
# others.
my @CEILINGS = (
    { name => '`SET key value PX ms`', keys => 1,
      native => sub ($key) { 'SET', $key, $VALUE, 'PX', 60_000 } },
    { name => '`INCRBY key 1`', keys => 1,
      native => sub ($key) { 'INCRBY', "$key:number", 1 } },
    map { +{ name => "the script, $_ keys a call" =~ s/ 1 keys/ a key/r, keys => $_ } }
        1, 12, 16,
);

# ceilings(nginx => ..., redis => ..., path => where NGINX asks Redis, keys =>
# how many, seconds => of a round): each { name, keys, blocks, ... } to be given to
# redis_benchmark().
sub ceilings(%opt) {
    my ($evalsha, $digest, $nkeys, @keys) = _sent_command(%opt, names => qr/\{/);
    my ($head) = splice @keys, $nkeys;
    substr($head, 38, 7) = "\x1f" . "\xff" x 6;    # it is never late
    my $name = sub ($text) {
        my $random = sprintf '%022d', rand $opt{keys};
        return $text =~ s/\{[\w-]{22}\}/{$random}/r;
    };
    $name->($_) ne $_ or die "key $_\n" for @keys;

    return map {
        my $ceiling = $_;
        my @blocks;
        for (1 .. $CALLS / $AT_ONCE / $ceiling->{keys}) {
            my $block = '';
            for (1 .. $AT_ONCE) {
                my @names = map {
                    my ($base) = $name->($keys[0]) =~ /^(.*\})/;
                    map { $base . s/^.*\}//r } @keys;
                } 1 .. $ceiling->{keys};
                $block .= _command($ceiling->{native} ? $ceiling->{native}->("$names[0]:native")
                    : ($evalsha, $digest, scalar @names, @names, $head));
            }
            push @blocks, $block . _command('ECHO', $MARK);
        }
        +{ %$ceiling, blocks => \@blocks, seconds => $opt{seconds},
            redis => $opt{redis} };
    } @CEILINGS;
}

# hold_blocks(nginx => ..., redis => ..., path => where NGINX holds units, keys => in
# a call): blocks of calls that take a unit of each key, and give it back. NGINX must
# go on, because Redis counts only holders that live.
sub hold_blocks(%opt) {
    my ($evalsha, $digest, $nkeys, $holder, $grace, $state, $limit, @numbers)
        = _sent_command(%opt, names => qr/:\{/);
    $state =~ /\{[\w-]{22}\}/ or die "key $state\n";
    my $unique = 0;
    return map {
        my $block = '';
        for (1 .. $AT_ONCE / 2) {
            my @names = map {
                $state =~ s/\{[\w-]{22}\}/sprintf '{%022d}', ++$unique/er
            } 1 .. $opt{keys};
            $block .= _command($evalsha, $digest, 2 + 2 * @names, $holder, $grace,
                map({ ($_, s/\}\K.*/:limit/r) } @names), @numbers[0, 1], '0 1 1000');
            $block .= _command($evalsha, $digest, 2 + @names, $holder, $grace, @names,
                @numbers[0, 1], 0);
        }
        $block . _command('ECHO', $MARK);
    } 1 .. 10;
}

# Sends blocks of calls, one after the other.
sub send_blocks($redis, @blocks) {
    my $socket = $redis->connect;
    for my $block (@blocks) {
        my $rest = '';
        syswrite $socket, $block or die "write: $!\n";
        while ($rest !~ /\Q$MARK\E\r\n/) {
            sysread $socket, $rest, 1 << 20, length $rest or die "read: $!\n";
        }
        $rest =~ /^-(.*)/m and die "Redis says $1\n";
    }
}

sub _command(@words) {
    return join '', '*' . @words . "\r\n", map { '$' . length . "\r\n$_\r\n" } @words;
}

# Returns the words of a command that the module sends for one limited key, with
# such names, for which it names as many of Redis's keys as the script reads.  The head of the key
# follows the keys, and is that of the other keys of a call, too.
sub _sent_command(%opt) {
    my $socket = $opt{redis}->connect;
    LimitSliding::Redis::send_command($socket, 'MONITOR');
    LimitSliding::Redis::receive_reply($socket);
    $opt{nginx}->get("$opt{path}?key=monitor");

    my ($text, $words) = ('');
    while (!(($words) = grep { /$opt{names}/ } $text =~ /"EVALSHA"( .*)\r\n/g)) {
        IO::Select->new($socket)->can_read(10)
            && sysread $socket, $text, 65536, length $text
            or die "MONITOR tells of no call:\n$text";
    }
    my %escapes = (n => "\n", r => "\r", t => "\t", a => "\a", b => "\b");
    return 'EVALSHA', map {
        s{\\(?:x([0-9a-f]{2})|(.))}{defined $1 ? chr hex $1 : $escapes{$2} // $2}ger
    } $words =~ /"((?:[^"\\]|\\.)*)"/g;
}

# A round of one: { rate, redis }, decisions a second and Redis's us a decision.
# Four blocks are under way.
sub redis_benchmark($ceiling) {
    my $pid = $ceiling->{redis}->pid;
    my $socket = $ceiling->{redis}->connect;
    my @blocks = @{ $ceiling->{blocks} };
    my ($sent, $ended, $rest) = (0, 0, '');
    my ($cpu, $begin) = (cpu_us($pid), time);
    while ($ended < $sent || time < $begin + $ceiling->{seconds}) {
        while ($sent < $ended + 4 && time < $begin + $ceiling->{seconds}) {
            my $block = $blocks[$sent++ % @blocks];
            my $at = 0;
            while ($at < length $block) {
                $at += syswrite($socket, $block, length($block) - $at, $at)
                    // die "write: $!\n";
            }
        }
        sysread $socket, $rest, 1 << 20, length $rest or die "read: $!\n";
        $rest =~ /^-(.*)/m and die "Redis says $1\n" if !$ended;
        while ($rest =~ s/^.*?\Q$MARK\E\r\n//s) { $ended++ }
    }
    my $decisions = $sent * $AT_ONCE * $ceiling->{keys};
    return {
        rate  => $decisions / (time - $begin),
        redis => (cpu_us($pid) - $cpu) / $decisions,
    };
}

1;
