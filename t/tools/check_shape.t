# What .ci/check-shape says of small trees.

use v5.36;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

my $CHECK = abs_path(dirname(__FILE__) . '/../../.ci/check-shape');

my @options;

# Writes files, { path => content }, and returns what fails there.
sub complaints(%files) {
    my $dir = tempdir(CLEANUP => 1);

    for my $path (keys %files) {
        make_path(dirname("$dir/$path"));
        open my $file, '>', "$dir/$path" or die "$path: $!";
        print $file $files{$path};
        close $file or die "$path: $!";
    }

    my $output = `'$CHECK' --root '$dir' @options 2>&1`;
    my $exit = $? >> 8;
    $output =~ s/^ok .*\n//mg;
    is $exit, $output eq '' ? 0 : 1, 'the exit code goes with the output';
    return $output;
}

sub lines($n, $line = 'x;') {
    return "$line\n" x $n;
}

# ---- the share of C ----

is complaints(
    'src/http/module.c'    => lines(3),
    'src/http/api/api.h'   => lines(3),
    'src/http/request/handler.cpp' => lines(90),
    'src/http/page.html'   => lines(4),
), '', '6 of 100 lines are C';
is complaints(
    'src/http/module.c'    => lines(3),
    'src/http/api/api.h'   => lines(4),
    'src/http/request/handler.hpp' => lines(93),
), "FAILED  C is at most 6% of the lines of src: 7 of 100, 7.0%\n", '7 are';

# ---- functions ----

my $parser = 'char *parse(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)';

is complaints('src/core/a.cpp' => join '',
    "namespace x {\nint\none(int a)\n{\n", lines(56), "}\n}\n",
    "extern \"C\" $parser\n{\n", lines(77), "}\n",
    "struct Two {\n    Two(int a) : a_{a}, b_(a)\n    {\n", lines(57), "}\n",
    "    bool operator()(int b) const noexcept {\n", lines(58), "}\n",
    "    int a_, b_;\n};\n",
    # an initializer is no function, and only one branch has the brace
    "static const int table[] = {\n", lines(70, '1,'), "};\n",
    "void three() {\n#if A\nif (a) {\n#else\nif (b) {\n#endif\n}\n",
    lines(52), "}\n",
    # braces in strings and comments
    "void four() {\nput(\"{ \\\" {\", '{');  // {\n/* { */\n", lines(56), "}\n",
), '', '60 lines, and 80 of a directive parser';

is complaints('src/core/a.hpp' => join '',
    "namespace x {\nint\none(int a)\n{\n", lines(57), "}\n}\n",
    "$parser\n{\n", lines(78), "}\n",
    "struct Two {\n    Two(int a) : a_{a}, b_(a)\n    {\n", lines(58), "}\n",
    "    template <class T = int>\n",
    "    bool operator()(const T &b) const noexcept {\n", lines(58), "}\n",
    "};\n",
    "constexpr auto lambda = [](int a) {\n", lines(59), "};\n",
), <<'OUTPUT', 'a line more';
FAILED  functions are of 60 lines or less, parsers of 80
src/core/a.hpp:2: one has 61 lines
src/core/a.hpp:64: parse has 81 lines
src/core/a.hpp:146: Two has 61 lines
src/core/a.hpp:207: operator_x has 61 lines
src/core/a.hpp:269: a lambda has 61 lines
OUTPUT

# ---- structs ----

# Twenty fields in all sorts of ways, and what is none.
my $fields = <<'CODE';
public:
    explicit Wide(int a);
    ~Wide() = default;
    bool operator==(const Wide &other) const { return a == other.a; }
    int call(int (*tell)(int)) const;
    static constexpr int kSize = 3;
    using Word = std::atomic<uint64_t>;
    typedef int Number;
    friend class Other;
    struct Later;
    enum class Kind : uint8_t { one, two };
    enum { three, four };
    struct Inner { int a, b, c, d, e; };
private:
    int a_, *b_, c_[2];
    unsigned d_:1, e_:2;
    struct {
        unsigned f:1;
        unsigned g:1;
    } flags_;
    union { uint64_t h_; void *i_; };
    void (*tell_)(int a, int b);
    std::function<int(int, int)> k_;
    std::map<int, int> l_{};
    Kind m_ = Kind::one;
    struct Inner n_ = { 1, 2 };
    enum ngx_kind o_;
    alignas(64) std::atomic<int> p_{f(1, 2)};
    [[maybe_unused]] int q_ = g(1, 2), r_;
    mutable Word s_;
    const struct Later *t_;
};
CODE

is complaints('src/core/a.hpp' =>
    "class alignas(8) Wide final : Base {\n$fields"), '', '20 fields';
is complaints('src/core/a.hpp' =>
    "class Wide : public Base<int> {\n    int zero_;\n$fields"
        . "typedef struct {\n" . lines(21, 'void *x;') . "} wide_t;\n"
        . "void f() {\n    struct Local {\n" . lines(22, 'int x;') . "};\n}\n"),
    <<'OUTPUT', 'more than 20';
FAILED  structs have 20 fields or less
src/core/a.hpp:1: Wide has 21 fields
src/core/a.hpp:35: wide_t has 21 fields
src/core/a.hpp:59: Local has 22 fields
OUTPUT

# ---- comments ----

my $good = lines(32, "/* Returns the one\n * Of two, or As it was. */\nint x;")
    . <<'CODE';
// Offers
// That of others: a sentence goes on, as By is in "Of two".
const char *text = "/* Of what waits. */ // By two."; // by that
CODE

is complaints('src/core/a.cpp' => $good), '', 'continued lines, and strings';
is complaints('src/core/a.cpp' => $good . lines(66, "// Good.\nint x;"),
    'src/http/page.js' => "// As before.\n", 'src/core/b.hpp' => <<'CODE',
/*
 * Closes it.  Of the calls there
 * nothing is left.
 */
CODE
    'src/redis/one.lua' => "local x = 1\n-- Adds up.\n-- As before.\n"),
    '', '3 of 103 comments';

my $words = '// ' . 'word ' x 997;
is complaints('src/core/a.cpp' => "$words those, what whose thoseness\nint what;\n"), '',
    '3 of 1,000 words';
is complaints('src/core/a.cpp' => "$words those, what whose\nint what;\n// Closes whose\n"),
    <<'OUTPUT', '4 are';
FAILED  comments name the noun: at most 3 of 1,000 words are "what", "those", "who" or "whose": 4.0
src/core                   4.0 of 1002
OUTPUT

@options = '--list';
is complaints('src/core/a.cpp' => $good,
    'src/core/b.hpp' => "/* Sets it:\n *\n * - By default, one. */\n",
    'src/redis/one.lua' => "local x = 1\n-- Adds up.  As before.\n"),
    <<'OUTPUT', '2 of 36';
FAILED  comments put the subject first, all but 3%: 2 of 36, 5.6%
src/core/b.hpp:1: By default, one.
src/redis/one.lua:2: As before.
OUTPUT

done_testing;
