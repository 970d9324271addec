# An NGINX whose structures are others than those that the module was compiled for, though version
# and signature are the same: `nginx -t` refuses the module, and names a structure. Each binary is
# built from the source with one field more, in a structure that the module uses, and before a field
# that it uses. LIMIT_SLIDING_DRIFTS says how many of them are built, from the first one on.

use v5.36;

use File::Temp qw(tempdir);
use Test::More;

use LimitSliding::Clock real => 'compilers take no part in time';
use LimitSliding::Process;

my $BUILD  = $ENV{LIMIT_SLIDING_BUILD} // 'build';
my $MODULE = $ENV{LIMIT_SLIDING_MODULE} // 'build/ngx_http_limit_sliding_module.so';
my $SOURCE = "$BUILD/nginx-source";
plan skip_all => 'the module is linked into NGINX' if $MODULE eq '';
plan skip_all => "no source in $SOURCE" if !-f "$SOURCE/src/core/nginx.c";

# Structures, and what of them a field comes after.
my @DRIFTS = (
    'ngx_http_headers_in_t headers', 'ngx_http_core_srv_conf_t server_names',
    'ngx_http_request_t internal:1', 'ngx_http_request_t loc_conf', 'ngx_http_request_t schema',
    'ngx_http_request_t log_handler', 'ngx_http_headers_in_t authorization',
    'ngx_http_headers_out_t headers', 'ngx_http_headers_out_t etag', 'ngx_connection_t fd',
    'ngx_connection_t pool', 'ngx_event_t handler', 'ngx_event_t log', 'ngx_http_upstream_t peer',
    'ngx_http_core_main_conf_t variables_hash', 'ngx_http_core_main_conf_t variables_keys',
    'ngx_http_core_loc_conf_t name', 'ngx_http_core_loc_conf_t error_pages', 'ngx_cycle_t pool',
    'ngx_cycle_t open_files', 'ngx_shm_zone_t tag', 'ngx_pool_t max', 'ngx_conf_t cycle',
    'ngx_log_t file', 'ngx_buf_t last', 'ngx_buf_t mmap:1', 'ngx_array_t size', 'ngx_list_t size',
    'ngx_table_elt_t key', 'ngx_core_conf_t master', 'ngx_url_t default_port',
    'ngx_resolver_ctx_t naddrs', 'ngx_listening_t addr_text', 'ngx_open_file_t name',
    'ngx_slab_pool_t pages', 'ngx_slab_pool_t pfree', 'ngx_slab_pool_t log_ctx',
    'ngx_slab_pool_t data',
);
splice @DRIFTS, $ENV{LIMIT_SLIDING_DRIFTS} if $ENV{LIMIT_SLIDING_DRIFTS};

my $dir = tempdir('limit-sliding-XXXXXXXX', TMPDIR => 1, CLEANUP => 1);
mkdir "$dir/$_" for qw(prefix prefix/logs);
spew("$dir/nginx.conf", <<"CONF");
load_module $MODULE;
pid $dir/pid;
error_log $dir/prefix/logs/error.log;
events {}
http {
    limit_sliding_zone \$limit_sliding_client zone=one:1m rate=1r/s;
    server { listen unix:$dir/socket; location / { limit_sliding zone=one; } }
}
CONF

sub spew($path, $text) {
    open my $file, '>', $path or die "$path: $!";
    print $file $text;
    close $file or die "$path: $!";
}

sub slurp($path) {
    open my $file, '<', $path or die "$path: $!";
    local $/;
    return <$file>;
}

sub run($command) {
    my ($status, $said) = LimitSliding::Process::output_of('sh', '-ec', $command);
    BAIL_OUT("$command: $said") if $status;
}

# Adds a field to the one header that defines the structure.
sub drift($tree, $type, $field) {
    my $struct = $type =~ s/_t$/_s/r;
    my $word = $field =~ /:/ ? 'unsigned drift:1;' : 'void *drift;';
    my @changed = grep {
        my $text = slurp($_);
        $text =~ s/(^struct $struct \{(?:(?!^\}).)*?\b$field\b;[^\n]*\n)/$1$word\n/ms
            || $text =~ s/(^typedef struct \{(?:(?!^\}).)*?\b$field\b;[^\n]*\n)(?=(?:(?!^\}).)*^\} $type;)/$1$word\n/ms
            and do { spew($_, $text); 1 };
    } glob "$tree/src/*/*.h $tree/src/os/unix/*.h";
    is @changed, 1, "$type has another field after $field";
}

# Builds the binary, and returns what `nginx -t` says; a hang is a failure.
sub verdict($tree) {
    run("cd '$tree' && make -s -j2 -f objs/Makefile binary 2>&1");
    return LimitSliding::Process::output_of('timeout', 20, "$tree/objs/nginx", '-t',
        '-p', "$dir/prefix/", '-c', "$dir/nginx.conf");
}

# Without the modules that can be left out, it is built in a third of the time.
run("cp -r '$SOURCE' '$dir/stock' && cd '$dir/stock' && ./configure --with-compat --with-threads"
    . " --with-http_ssl_module --with-http_stub_status_module --with-cc-opt='-O0 -w'"
    . ' $(./configure --help | grep -o -e "--without-http_[a-z_]*_module" | grep -v rewrite) 2>&1');
run("cp -r '$dir/stock' '$dir/tree'");
my ($status, $said) = verdict("$dir/stock");
is $status, 0, 'the source as it is: the module is taken' or diag $said;

for (@DRIFTS) {
    my ($type, $field) = split;
    run("rm -rf '$dir/drifted' && cp -r '$dir/tree' '$dir/drifted'");
    drift("$dir/drifted", $type, $field);
    ($status, $said) = verdict("$dir/drifted");
    is $status >> 8, 1, '... and the module is refused' or diag $said;
    like $said, qr/\[emerg\] limit_sliding was built for another $type than this NGINX has: build/,
        '... by a message, which names it';
    is scalar(() = $said =~ /\[emerg\]/g), 1, '... and no other' or diag $said;
}

done_testing;
