package Source;

# What the checks of .ci know of the sources in src, whatever their names are:
# which there are, and which of their text is code.
#
#   my @paths = Source::find($root, qw(c h cpp hpp));
#   my ($code, $comments) = Source::split(Source::slurp($path));

use v5.32;
use warnings;
use feature 'signatures';
no warnings 'experimental::signatures';

use File::Find ();

# Returns the paths, relative to $root, of all files in src that have one of
# these extensions, or of all if none is given, in order.
sub find ($root, @extensions) {
    my $ends = join '|', map { quotemeta } @extensions;
    my @paths;

    -d "$root/src" or die "no $root/src\n";
    File::Find::find({ no_chdir => 1, wanted => sub {
        return if !-f || @extensions && !/\.(?:$ends)$/;
        push @paths, substr $_, length "$root/";
    } }, "$root/src");

    return sort @paths;
}

sub slurp ($path) {
    open my $file, '<:raw', $path or die "$path: $!\n";
    local $/;
    return <$file> // '';
}

# Returns the code of C or C++ without its comments and the contents of its
# strings, which become blanks, so that all else stays in its place; and a list
# of the comments, [first line, text], where // lines that follow each other
# make one comment.
sub split ($text) {
    my $code = $text;
    my ($line, $seen, $end, @comments) = (1, 0, -1);

    while ($text =~ m{
            (?<comment> /\*.*?\*/ | //[^\n]* )
          | \b(?:u8|u|U|L)?R"(?<mark>[^()\\\s]{0,16})\(.*?\)\k<mark>"
          | "(?:\\.|[^"\\\n])*"
          | (?<!\w)'(?:\\.|[^'\\\n])+'
        }gsx)
    {
        my ($from, $to) = ($-[0], $+[0]);
        my $what = substr $text, $from, $to - $from;

        if (defined $+{comment}) {
            $line += substr($text, $seen, $from - $seen) =~ tr/\n//;
            $seen = $from;
            if ($what =~ m{^//} && $end >= 0
                && substr($text, $end, $from - $end) =~ /^\n[ \t]*$/)
            {
                $comments[-1][1] .= "\n$what";
            } else {
                push @comments, [ $line, $what ];
            }
            $end = $what =~ m{^//} ? $to : -1;
            substr($code, $from, $to - $from) = $what =~ tr/\n/ /cr;
        } else {
            substr($code, $from + 1, $to - $from - 2)
                = substr($what, 1, -1) =~ tr/\n/ /cr;
        }
    }

    return ($code, \@comments);
}

1;
