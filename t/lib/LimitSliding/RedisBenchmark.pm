package LimitSliding::RedisBenchmark;

# Measures by redis-benchmark how often a Redis runs the module's own command:
# the ceiling of limits in Redis.

use v5.36;

use Exporter qw(import);
use IO::Select;

use LimitSliding::Generator;
use LimitSliding::Redis ();

our @EXPORT = qw(ceilings redis_benchmark);

# Limited keys in a call, connections, and commands that are sent at once on one.
# The last as the module does at most.
my @CEILINGS = (
    { name => 'a key a call, 64 connections', keys => 1,
      arguments => [qw(-c 64 -P 1)] },
    { name => 'a key a call, 64 connections, 16 calls at once', keys => 1,
      arguments => [qw(-c 64 -P 16)] },
    { name => '16 keys a call, 1 connection, 4 calls at once', keys => 16,
      arguments => [qw(-c 1 -P 4)] },
);

# ceilings(nginx => ..., redis => ..., path => where NGINX asks Redis, keys =>
# how many, seconds => of a round): each { name, ... } to be given to
# redis_benchmark().
sub ceilings(%opt) {
    my ($evalsha, $digest, $nkeys, @arguments) = _sent_command(%opt);
    my @keys = splice @arguments, 0, $nkeys;
    my $random = '0' x 28 . '__rand_int__';
    s/\{[0-9a-f]{40}\}/{$random}/ or die "key $_\n" for @keys;

    my @ceilings = map { {
        name    => $_->{name},
        redis   => $opt{redis},
        keys    => $_->{keys},
        command => [ 'redis-benchmark', '--csv', '-s', $opt{redis}->path, '-r',
            $opt{keys}, @{ $_->{arguments} }, '-n' ],
        script  => [ $evalsha, $digest, $nkeys * $_->{keys},
            (@keys) x $_->{keys}, @arguments ],
        calls   => 10_000,
    } } @CEILINGS;

    # how many calls take as long as a round does, once keys are there
    redis_benchmark($ceilings[-1]);
    for (@ceilings) {
        my $rate = redis_benchmark($_)->{rate};
        $_->{calls} = int $rate / $_->{keys} * $opt{seconds};
    }

    return @ceilings;
}

# Returns the words of a command that the module sends for one limited key, for
# which it names as many of Redis's keys as the script reads.  What follows the
# keys is the same for several limited keys as for one.
sub _sent_command(%opt) {
    my $socket = $opt{redis}->connect;
    LimitSliding::Redis::send_command($socket, 'MONITOR');
    LimitSliding::Redis::receive_reply($socket);
    $opt{nginx}->get("$opt{path}?key=monitor");

    my ($text, $words) = ('');
    while (!(($words) = $text =~ /"EVALSHA"( .*)\r\n/)) {
        IO::Select->new($socket)->can_read(10)
            && sysread $socket, $text, 65536, length $text
            or die "MONITOR tells of no call:\n$text";
    }
    return ('EVALSHA', $words =~ /"([^"]*)"/g);
}

# A round of one: { rate, redis }, decisions a second and Redis's us a decision.
sub redis_benchmark($ceiling) {
    my $pid = $ceiling->{redis}->pid;
    my $cpu = cpu_us($pid);
    my $output = output(@{ $ceiling->{command} }, $ceiling->{calls},
        @{ $ceiling->{script} });
    my ($rate) = $output =~ /^"EVALSHA[^\n]*?","([\d.]+)"/m or die $output;

    return {
        rate  => $rate * $ceiling->{keys},
        redis => (cpu_us($pid) - $cpu)
            / $ceiling->{calls} / $ceiling->{keys},
    };
}

1;
