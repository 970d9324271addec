package LimitSliding::Docs;

# Finds the code in the pages of the documentation, and makes configurations of
# its snippets.
#
# A block of code is fenced by ``` and has a tag, or is indented by four
# columns and has the tag `indented`. An HTML comment in the line before a
# fence, `<!-- not run: needs OpenResty -->`, says why tests cannot run it.

use v5.36;

use Exporter qw(import);
use List::Util qw(uniq);

our @EXPORT = qw(blocks commands configuration content inline standing_files);

# Levels, and the directives by which a snippet is known to belong to each;
# the outermost last.
my @LEVELS = (
    [qw(server  listen location server_name)],
    [qw(http  limit_sliding_redis limit_sliding_zone map server upstream)],
    [qw(main  events http load_module)],
);

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

# Names of the directives at the outermost level of a configuration.
sub _directives($text) {
    my ($depth, $begins, @names) = (0, 1);

    while ($text =~ /\G(?: \s+ | \#.*
            | ([;{}]) | ("(?:\\.|[^"])*"|'(?:\\.|[^'])*'|[^\s;{}]+) )/gx)
    {
        if (defined $1) {
            $depth += { ';' => 0, '{' => 1, '}' => -1 }->{$1};
            $begins = 1;
        } elsif (defined $2) {
            push @names, $2 if $begins && !$depth;
            $begins = 0;
        }
    }
    return uniq(@names);
}

# A template for LimitSliding::Test that has the snippet at the level that its
# directives are of, with what it refers to and does not define: zones, Redis,
# upstreams; standing_files() makes files.
#
# The paths of the module and of logs, and the port 80, are changed in a
# snippet. A server without `listen` gets one. A snippet with both load_module
# and http{} is a whole file, which has to define all that it names. It only
# gets what a test needs to start and end it (`daemon off`, temporary paths).
#
# NGINX's module for OpenTelemetry is loaded from LIMIT_SLIDING_OTEL. Without that,
# attributes of spans become fields of the header, and its other directives go.
sub configuration($nginx, $text) {
    my %has = map { $_ => 1 } _directives($text);
    my $whole = $has{load_module} && $has{http};
    my $level = 'location';
    for (@LEVELS) {
        my ($name, @directives) = @$_;
        $level = $name if grep { $has{$_} } @directives;
    }

    # what GLOBALS loads stands in the place of what the snippet loads
    my $globals = $nginx->expand('%%GLOBALS%%');
    $globals =~ s/^events .*\n?//m if $has{events} || $whole;
    my $name = 'ngx_http_limit_sliding_module';
    $globals = '' if $text =~ s{^load_module modules/$name\.so;$}{$globals}m;

    if ($text =~ /\botel_/ && $ENV{LIMIT_SLIDING_OTEL}) {
        $globals = "load_module $ENV{LIMIT_SLIDING_OTEL};\n$globals";
    } else {
        $text =~ s/\botel_exporter \{.*?\}//s;
        $text =~ s/\botel_span_attr( [^;]*);/add_header$1 always;/g;
        $text =~ s/\botel_[^;]*;//g;
    }

    my $http = join "\n", '%%HTTP_GLOBALS%%', $whole ? () : _references($text);
    my $listen = 'listen 127.0.0.1:%%PORT%%;';

    $text =~ s/\blisten 80;/$listen/g or $text =~ s/\bserver \{/$& $listen/g;
    $text =~ s{/var/log/nginx/}{%%DIR%%/logs/}g;
    $text =~ s{/var/lib/limit_sliding/}{%%DIR%%/}g;

    $text = "location / {\n$text\n}" if $level eq 'location';
    $text = "server {\n$listen\n$text\n}"
        if $level eq 'server' || $level eq 'location';
    if ($level eq 'main') {
        $text =~ s/^http \{/http {\n$http/m;
    } else {
        $text = "http {\n$http\n$text\n}";
    }
    return "$globals\n$text\n";
}

# Definitions of what a snippet names only.
sub _references($text) {
    $text =~ s/#.*//gm;
    my %zone     = map { $_ => 1 } $text =~ /\blimit_sliding zone=(\w+)/g;
    my %redis    = map { $_ => 1 } $text =~ /\bredis=(\w+)/g;
    my %upstream = map { $_ => 1 } $text =~ m{\w+_pass\s+https?://(\w+)[;/]}g;

    delete @zone{ $text =~ /\blimit_sliding_zone [^;]*?zone=(\w+)/g };
    delete @redis{ $text =~ /\blimit_sliding_redis (\w+)/g };
    delete @upstream{ $text =~ /\bupstream (\w+)/g };

    # a name of a Redis is asked of nobody while a configuration is tested
    return $text =~ /\bresolver\b/ ? () : 'resolver 127.0.0.1:9;',
        map({ "limit_sliding_zone \$uri zone=$_:1m rate=1r/s;" }
            sort keys %zone),
        map({ "limit_sliding_redis $_ { server 127.0.0.1:9; }" }
            sort keys %redis),
        map({ "upstream $_ { server 127.0.0.1:9; }" } sort keys %upstream);
}

# Files that a snippet refers to, [directive, name], by relative names.
sub standing_files($text) {
    my @files;
    while ($text =~ /^\s*(include|\w+_file|\w+_(?:certificate|key))\s+
        ([\w.]+);/gmx)
    {
        push @files, [ $1, $2 ];
    }
    return @files;
}

1;
