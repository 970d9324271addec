# How t/prove/run runs parts, goes on, and finds those that a change calls for.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $ROOT = abs_path(dirname(__FILE__) . '/../..');

# The parts of the project: goals that there are, and places that there are.

open my $file, '<', "$ROOT/t/prove/parts" or die "parts: $!";
my @parts = grep { !/^(?:#|$)/ } <$file>;
cmp_ok @parts, '>', 10, 'parts';
my $goals = `make -s -C '$ROOT' help-all`;
for (@parts) {
    my ($name, $command, $touched, $finds) = split / +\| +/;
    my ($goal) = $command =~ /^make ([a-z-]+)/;
    like $goals, qr/^  \Q$goal\E /m, "$name: make $goal";
    is join(' ', grep { !-e "$ROOT/$_" } split ' ', $touched), '', '... is called for by files that are there';
}

# A project of three parts

my $dir = tempdir(CLEANUP => 1);
make_path("$dir/t/prove", "$dir/docs", "$dir/src");
copy("$ROOT/t/prove/run", "$dir/t/prove/run") or die "copy: $!";
chmod 0755, "$dir/t/prove/run";

sub put($name, $text) {
    open my $file, '>', "$dir/$name" or die "$name: $!";
    print $file $text;
    close $file or die "$name: $!";
}

sub git($words) {
    return `cd '$dir' && git -c user.name=a -c user.email=a\@b.c $words 2>&1`;
}

# Returns the exit code and what is printed, without times.
sub run(@words) {
    my $text = `cd '$dir' && t/prove/run '$dir/build' @words 2>&1`;
    return ($? >> 8) . ' ' . join '; ', map { s/ after \d+ s.*//r } split /\n/, $text;
}

put('t/prove/parts', <<'PARTS');
# name | command | touched by | finds
good  | echo ran >> build/ran | src       | nothing
bad   | false                 | docs t/a  | all
PARTS
put('.gitignore', "build\n");
git('init -q && git add . && git -c user.name=a -c user.email=a@b.c commit -qm one');

is run('good'), '0 good: echo ran >> build/ran; good: pass', 'one part';
is run(), '1 good: has passed at this commit; bad: false; bad: FAILED', 'the rest';
open my $page, '<', "$dir/docs/proofs.md" or die "page: $!";
my @rows = map { /^\| (\w+) \|.*\| (pass|FAILED) \| \d+ \| ([0-9a-f]+) \|/ ? "$1 $2" : () } <$page>;
is "@rows", 'good pass bad FAILED', 'the page tells of both';
like run('ugly'), qr/^[1-9]\d* no part ugly; there are: good bad$/, 'no such part';

git('add . && git -c user.name=a -c user.email=a@b.c commit -qm page');
like run('good'), qr/has passed at this commit/, 'the page itself changes nothing';
put('src/a', 'x');
git('add . && git -c user.name=a -c user.email=a@b.c commit -qm two');
is run('--changed HEAD~1'), '0 changes since HEAD~1 call for: good; good: echo ran >> build/ran; good: pass',
    'what a change calls for';
is run('--changed HEAD'), '0 changes since HEAD call for: ', 'results call for nothing';

done_testing;
