# in_flight.t with as many rounds as fit into a minute.

use v5.36;

use FindBin;

$ENV{FAULT_ROUNDS} //= 250;
exec $^X, map({ "-I$_" } @INC), "$FindBin::Bin/in_flight.t" or die "exec: $!";
