# lua/limit_sliding.lua and src/http/lua/border.hpp declare the same border, and the version
# is checked.

use v5.36;

use Test::More;

use LimitSliding::Docs qw(content);
use LimitSliding::Lua;

my $lua = content('lua/limit_sliding.lua');
my $header = content('src/http/lua/border.hpp');

# The words of declarations.
sub words($text) {
    return join ' ', $text =~ s{/\*.*?\*/}{}gsr =~ /\w+|[^\w\s]/g;
}

my ($declared) = $lua =~ /ffi\.cdef \[\[(.*?)\]\]/s;
my ($defined) = $header =~ /extern "C" \{\n(.*?)\n\} \/\/ extern "C"/s;
is words($declared), words($defined), 'declarations';

is(($lua =~ /^local VERSION = (\d+)$/m)[0], ($header =~ /kLuaVersion = (\d+);/)[0], 'version');

# Values of an enumeration by their names, kLuaGiveBack as GIVE_BACK.
sub values_of($enum) {
    my ($text) = $header =~ /enum $enum : int \{(.*?)\};/s;
    my $next = 0;
    return { map {
        my ($name, $value) = /^kLua(\w+)(?: = (-?\d+))?$/ or die "no value: $_\n";
        $next = ($value // $next) + 1;
        (uc($name =~ s/\B([A-Z])/_$1/gr) => $next - 1);
    } words($text) =~ s/ - / -/gr =~ s/ , (?=$)//r =~ s/ $//r =~ m/[^ ,][^,]*?(?= ,|$)/g };
}

for ([ LuaCode => 'DONE, WAITS' ], [ LuaOperation => 'TAKE, PEEK, CHARGE, GIVE_BACK, FORGET' ]) {
    my ($enum, $names) = @$_;
    my ($numbers) = $lua =~ /^local $names = ([\d, ]+)$/m;
    my $values = values_of($enum);
    is $numbers, join(', ', map { $values->{$_} } split /, /, $names), $enum;
}

my ($sources) = $lua =~ /^local SOURCES = \{ \[0\] = (.*) \}$/m;
my ($kinds) = content('src/redis/errands/remote_claim.hpp') =~ /enum class Source \{ (.*) \};/;
is $sources =~ s/"//gr, lc $kinds =~ s/k(?=[A-Z])| = 0//gr, 'sources';

# Versions, and the files of packages.
my ($released) = content('src/http/api/state_report.cpp') =~ /kVersion\[\] = "([\d.]+)";/;
my $rock = content("limit_sliding-$released-1.rockspec");
is(($lua =~ /_VERSION = "([\d.]+)"/)[0], $released, 'the version of the library');
is((content('dist.ini') =~ /^version = ([\d.]+)$/m)[0], $released, '... in dist.ini');
is(($rock =~ /^version = "([\d.]+)-1"$/m)[0], $released, '... in the rockspec');
is join(' ', sort $rock =~ m{= "(lua/\S+)",$}mg), join(' ', sort glob 'lua/*.lua lua/*/*/*.lua'),
    'the rockspec has all files';

# What is not the module of this file is refused at once.
my $nginx = lua_nginx();
$nginx->write_file('other.lua', $lua =~ s/^(local VERSION =) \d+$/$1 7/mr);
$nginx->serve;
like $nginx->lua('package.path = "' . $nginx->dir . '/?.lua" say(select(2, pcall(require, "other")))'),
    qr/this file has version 7 of the border, and the module of NGINX has \d+$/,
    'another version is an error of require';

SKIP: {
    skip 'the module is compiled in', 1 if !$nginx->is_dynamic;
    $nginx->stop;
    my $text = $nginx->expand("%%GLOBALS%%\nhttp { $LUA_LIBRARY"
        . ' init_by_lua_block { require "limit_sliding" } }');
    eval { $nginx->start($text =~ s/^load_module \S*limit_sliding\S*\n?//mr) };
    like $@, qr/NGINX has not loaded ngx_http_limit_sliding_module\.so/,
        '... and so is a module that is not loaded';
}
done_testing;
