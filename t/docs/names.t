# Each file that a page names exists: sources, tests, scripts and folders between
# backquotes, and the targets of links.

use v5.36;

use File::Basename qw(dirname);
use File::Find qw(find);
use Test::More;

use LimitSliding::Docs;

my %exists;               # each path, and each end of it that begins with a name
find({ no_chdir => 1, wanted => sub {
    my $path = s{^\./}{}r;
    $File::Find::prune = 1 if $path =~ m{^(?:\.git|build)$};
    while (1) {
        $exists{$path} = 1;
        $path =~ s{^[^/]+/}{} or last;
    }
} }, '.');

my $ENDS = qr/\.(?:[ch]pp|js|lua|mk|pl|pm|sh|t|tsv)$/;
my $FOLDERS = qr{^(?:src|t|docs|contrib|\.ci)/};

# Returns the names of files and folders in a text between backquotes. A name in capitals, or
# with an asterisk, stands for many.
sub names($text) {
    return grep { !/[A-Z]{3}|[*\$%={}<>]/ && (/$ENDS|^\w+_test$/ || /$FOLDERS/) }
        map { s{^\.\./}{}r =~ s/[,.:;]$//r } split ' ', $text;
}

sub is_there($name) {
    return $exists{ $name =~ s{/$}{}r } || $exists{"$name.cpp"};
}

my ($n, @lost) = 0;
for my $page (glob '*.md src/README.md t/README.md t/*/README.md docs/*.md contrib/*.md') {
    next if !-e $page;
    my @names = map { names($_) } inline($page);
    my @links = content($page) =~ m{\]\((?!https?:|#)([^)\s#]+)}g;
    $n += @names + @links;
    push @lost, map({ "$page: $_" } grep { !is_there($_) } @names),
        map { "$page: the link $_" } grep { !-e dirname($page) . "/$_" } @links;
}
cmp_ok $n, '>', 100, 'pages name files';
is join("\n", @lost), '', '... which exist';

# The walks of a request in src/README.md name functions, few enough to be followed.
my $functions = join "\n", map { content($_) =~ s{/\*.*?\*/}{}gsr } glob 'src/*/*/*.[ch]pp';
my %walks = content('src/README.md') =~ /^## (A request in [\w ]+)\n(.*?)(?=^## |\z)/gms;
my %most = ('A request in shared memory' => 12, 'A request in Redis' => 30);
is join(', ', sort keys %walks), join(', ', sort keys %most), 'two walks';
for my $walk (sort keys %walks) {
    my %names = map { $_ => 1 } $walks{$walk} =~ /`([\w:]+)\(\)`/g;
    my @unknown = grep { my ($name) = /(\w+)$/; $functions !~ /[ *&~:]\Q$name\E\([^;]*\{/ }
        sort keys %names;
    cmp_ok keys %names, '>', 5, "$walk: names functions";
    cmp_ok keys %names, '<=', $most{$walk}, '... few enough';
    is "@unknown", '', '... which exist';
}
done_testing;
