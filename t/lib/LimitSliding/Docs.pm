package LimitSliding::Docs;

# Finds the code in the pages of the documentation, and makes configurations of
# its snippets.
#
# A block of code is fenced by ``` and has a tag, or is indented by four
# columns and has the tag `indented`. An HTML comment in the line before a
# fence, `<!-- not run: needs OpenResty -->`, says why tests cannot run it.

use v5.36;

use Exporter qw(import);

our @EXPORT = qw(blocks commands configuration content inline standing_files);

sub content($name) {
    open my $file, '<', $name or die "$name: $!";
    local $/;
    return <$file> // '';
}


# ---- pages ----

# The blocks of a page, in order: { name => 'PAGE:LINE', page, tag, text }, and
# `reason` where one is marked as not run. The text has no indentation of the
# block's own. Dies of a mark without a fence below it, and of an open fence.
sub blocks($page) {
    my ($reason, $fence, $indented, @blocks);
    my ($n, $blank) = (0, 1);

    for my $line (split /\n/, content($page)) {
        $n++;
        if ($fence) {
            if ($line =~ /^ *```$/) {
                undef $fence;
            } else {
                $fence->{text} .= $line =~ s/^ {0,$fence->{indent}}//r . "\n";
            }
            next;
        }
        if ($line =~ /^( *)```(.*)$/) {
            $fence = { name => "$page:$n", page => $page, tag => $2,
                indent => length $1, text => '',
                defined $reason ? (reason => $reason) : () };
            push @blocks, $fence;
            undef $reason;
            next;
        }
        die "$page:$n: this mark is of no block\n" if defined $reason;

        ($reason) = $line =~ /<!-- *not run:? *(.*?) *-->$/;
        if ($line =~ /^ {4}(.*)/ && ($indented || $blank)) {
            push @blocks, $indented = { name => "$page:$n", page => $page,
                tag => 'indented', text => '' } if !$indented;
            $indented->{text} .= "$1\n";
        } elsif ($line ne '') {
            undef $indented;
        }
        $blank = $line eq '';
    }

    die "$page: a fence is not closed\n" if $fence;
    die "$page: the mark at its end is of no block\n" if defined $reason;
    return @blocks;
}

# Returns the texts between single backquotes, outside of blocks.
sub inline($page) {
    my $text = content($page) =~ s/^ *```.*?^ *```$//gmsr =~ s/^ {4}.*//gmr;
    return map { s/\s+/ /gr } $text =~ /`([^`]+)`/g;
}


# ---- shell ----

# The commands of a shell's text, each as [word, ...]: comments, assignments
# and substitutions are left out, quotes stay as they are. Good enough for
# finding the names of programs, files and goals.
sub commands($text) {
    my @commands;
    for (split /\n|&&|;|\||\$\(|\)/, $text =~ s/(^|\s)#.*//gmr
        =~ s/\\\n/ /gr)
    {
        my @words = split ' ';
        shift @words while @words && $words[0] =~ /^\w+=/;
        push @commands, \@words if @words;
    }
    return @commands;
}


# ---- configurations ----

# The levels of a fragment and the text around it, the innermost first.
my @FRAMES = (
    [ location => "location / {\n%s\n}" ],
    [ server   => "server {\n%s\n}" ],
    [ http     => "%s" ],
);

# What a fragment names and does not define, by the kind of the name.
my %BESIDE = (
    zone  => 'limit_sliding_zone $uri zone=%s:1m rate=1r/s;',
    redis => 'limit_sliding_redis %s { server 127.0.0.1:9; }',
);

# What a snippet is: a whole file of nginx.conf, or directives of http{}. A
# snippet that needs more around it says so in its first line:
#
#   # inside server { }, beside zone=api, redis=shared and keys.map
#
# Returns the level, and the names. standing_files() makes the files.
sub _needs($text) {
    my ($level, $beside) = $text
        =~ /\A# inside (http|server|location) \{ \}(?:, beside ([^\n]*))?\n/;
    return ($level, split /, | and /, $beside // '') if $level;
    return $text =~ /\A# at the top of nginx\.conf\n/ ? 'main'
        : $text =~ /^http \{/m ? 'whole' : 'http';
}

# Returns a template for LimitSliding::Test that has the snippet in its frame,
# and nothing that neither the snippet nor its first line names.
#
# The path of the module, the directories of logs and of files with limits, and
# the ports 80 and 8000, are changed in a snippet. A server without `listen`
# gets one.
#
# NGINX's module for OpenTelemetry is loaded from LIMIT_SLIDING_OTEL. Without that,
# attributes of spans become fields of the header, and its other directives go.
sub configuration($nginx, $text) {
    my ($level, @beside) = _needs($text);

    # what GLOBALS loads stands in the place of what the snippet loads
    my $globals = $nginx->expand('%%GLOBALS%%');
    $globals =~ s/^events .*\n?//m if $level eq 'whole';
    my $name = 'ngx_http_limit_sliding_module';
    $globals = '' if $text =~ s{^load_module modules/$name\.so;$}{$globals}m;

    if ($text =~ /\botel_/ && $ENV{LIMIT_SLIDING_OTEL}) {
        $globals = "load_module $ENV{LIMIT_SLIDING_OTEL};\n$globals";
    } else {
        $text =~ s/\botel_exporter \{.*?\}//s;
        $text =~ s/\botel_span_attr( [^;]*);/add_header$1 always;/g;
        $text =~ s/\botel_[^;]*;//g;
    }
    $text =~ s{/var/log/nginx/}{%%DIR%%/logs/}g;
    $text =~ s{/var/lib/limit_sliding/}{%%DIR%%/}g;
    return "$globals\n$text\nhttp {\n%%HTTP_GLOBALS%%\n}\n" if $level eq 'main';

    my $inside = 0;
    for (@FRAMES) {
        $inside ||= $_->[0] eq $level;
        $text = sprintf $_->[1], $text if $inside;
    }

    my $listen = 'listen 127.0.0.1:%%PORT%%;';
    $text =~ s/\blisten (?:80|8000);/$listen/g
        or $text =~ s/\blisten 80 http2;/http2_listen 127.0.0.1:%%PORT%%;/g
        or $text =~ s/\bserver \{$/$& $listen/gm;

    # a name of a Redis is asked of nobody while a configuration is tested
    my $http = join "\n", '%%HTTP_GLOBALS%%',
        $text =~ /\bresolver\b/ ? () : 'resolver 127.0.0.1:9;',
        map { /^(\w+)=(\w+)$/ ? sprintf $BESIDE{$1}, $2 : () } @beside;
    if ($level eq 'whole') {
        $text =~ s/^http \{/http {\n$http/m;
    } else {
        $text = "http {\n$http\n$text\n}";
    }
    return "$globals\n$text\n";
}

# Files that the first line of a snippet names, [directive, name].
sub standing_files($text) {
    my (undef, @beside) = _needs($text);
    my @files;
    for my $name (grep { !/=/ } @beside) {
        my ($directive) = $text =~ /^\s*(\w+)\s+\Q$name\E;/m
            or die "no directive has the file $name\n";
        push @files, [ $directive, $name ];
    }
    return @files;
}

1;
