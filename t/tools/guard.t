# What `make bench-quick` says of figures that are not as they were.

use v5.36;

use File::Temp qw(tempfile);
use Test::More;

use LimitSliding::Bench;

my (undef, $file) = tempfile(UNLINK => 1);

sub compare($section, $figures, %opt) {
    return join '', guard($file, $section, $figures, percent => 5, %opt);
}

is compare('instructions', { counter => 400, fixed => 500 }, renew => 1), '',
    'written';
is compare('keys', { counter => 60_000 }, renew => 1), '',
    'another section is written';

is compare('instructions', { counter => 400, fixed => 500 }), '', 'as it was';
is compare('instructions', { counter => 420, fixed => 475 }), '',
    '5% more of one, less of the other';
is compare('instructions', { counter => 421, fixed => 500 }),
    "instructions: counter: 421, was 400\n", 'more than 5% more';
is compare('instructions', { counter => 404, fixed => 500 }, percent => 1), '',
    '1% more where that is allowed';
is compare('instructions', { counter => 405, fixed => 500 }, percent => 1),
    "instructions: counter: 405, was 400\n", 'more than 1% more';
is compare('keys', { counter => 57_143 }, more => 1), '', '5% less of what more'
    . ' is better of';
is compare('keys', { counter => 57_142 }, more => 1),
    "keys: counter: 57,142, was 60,000\n", 'more than 5% less';
is compare('keys', { counter => 99_000 }, more => 1), '', 'more of it';

is compare('instructions', { counter => 400 }),
    "instructions: fixed: in $file only\n", 'a figure that is not taken';
is compare('instructions', { counter => 400, fixed => 500, log => 1 }),
    "instructions: log: not in $file\n", 'a figure that is new';

is compare('instructions', { log => 700 }, renew => 1), '', 'written anew';
is compare('instructions', { log => 700 }), '', 'the old ones are gone';
is compare('keys', { counter => 60_000 }, more => 1), '',
    'the other section is still there';

done_testing;
