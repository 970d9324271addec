package LimitSliding::Parallel;

# Runs the parts of a test at once, each in a process of its own, because the parts wait for
# most of their time.
#
#   parallel(
#       frozen  => sub { ok ...; is ... },
#       refused => sub { ... },
#   );
#   done_testing;
#
# Each part is a subtest, whose output appears once the part and those before it have ended.
# A part stops what it has started itself. It has its own copies of variables, and may use an
# NGINX that runs already, and a Redis after $redis->reconnect.

use v5.36;

use Exporter qw(import);
use Test::More ();

use LimitSliding::Clock ();

our @EXPORT = qw(parallel);

my %running;              # pid => the process that waits for it

sub parallel(@parts) {
    my @begun;
    while (my ($name, $code) = splice @parts, 0, 2) {
        open my $output, '+>', undef or die "open: $!";
        STDOUT->flush;
        my $pid = fork() // die "fork: $!";
        exit _run($output, $code) if !$pid;
        $running{$pid} = $$;
        push @begun, [ $name, $pid, $output ];
    }

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    for (@begun) {
        my ($name, $pid, $output) = @$_;
        waitpid $pid, 0;
        my $status = $?;
        delete $running{$pid};
        seek $output, 0, 0;
        my $builder = Test::More->builder;
        for my $line ("# Subtest: $name\n", <$output>) {
            my $to = $status && $line =~ /^ *#/ ? 'failure_output' : 'output';
            print { $builder->$to } "    $line";
        }
        Test::More::is($status, 0, $name);
    }
}

# Returns the exit code of the process.
sub _run($output, $code) {
    LimitSliding::Clock::is_test();
    srand;                # or all parts would try the same ports
    $output->autoflush;
    my $builder = Test::More->builder;
    $builder->reset;
    $builder->$_($output) for qw(output failure_output todo_output);
    my $ends = eval { $code->(); 1 };
    $builder->diag("the part died: $@") if !$ends;
    $builder->done_testing if $ends;
    return $ends && $builder->is_passing ? 0 : 1;
}

END {
    local $?;
    my @pids = grep { $running{$_} == $$ } keys %running;
    kill 'TERM', @pids;
    waitpid $_, 0 for @pids;
}

1;
