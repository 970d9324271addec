# Flags of our own objects.  They cannot go into CFLAGS, which is every
# object's, and C compilers refuse those of C++; hence GNU make's
# target-specific variables.  `override` keeps them under make CFLAGS=...

# NGINX compiles at -O.  A level given with --with-cc-opt stands.  What runs at
# the start, or for the API, is to be small.
case " $NGX_CC_OPT" in
    *" -O"*) limit_sliding_fast= limit_sliding_small= ;;
    *)       limit_sliding_fast=-O2 limit_sliding_small=-Os ;;
esac

# Builds of distributions have flags that C++ compilers refuse.
limit_sliding_flags="\$(filter-out -Werror=implicit-%,\$(CFLAGS))"

# The link is by the C compiler, without libstdc++: nothing here may need it.
limit_sliding_flags="$limit_sliding_flags -I$ngx_addon_dir/src \
    -fvisibility=hidden -std=c++17 -fno-exceptions -fno-rtti \
    -fno-threadsafe-statics"

# Assertions are for tests: LIMIT_SLIDING_CFLAGS=-UNDEBUG has them.
limit_sliding_flags="$limit_sliding_flags -DNDEBUG"

[ $limit_sliding_redis = yes ] || limit_sliding_flags="$limit_sliding_flags \
    -DLIMIT_SLIDING_WITHOUT_REDIS"

# NGINX names an object by the last folder and the stem of its source.
for limit_sliding_file in $limit_sliding_srcs
do
    limit_sliding_dir=${limit_sliding_file%/*}
    limit_sliding_obj=${limit_sliding_dir##*/}/${limit_sliding_file##*/}
    limit_sliding_obj=$NGX_OBJS/addon/${limit_sliding_obj%.c*}.o

    case $limit_sliding_file in
        *.c)
            echo "$limit_sliding_obj: override CFLAGS := \$(CFLAGS)" \
                "-I$ngx_addon_dir/src \$(LIMIT_SLIDING_CFLAGS)" >> $NGX_MAKEFILE
            continue ;;
        */http/api/* | */http/json/* | */http/keys/* | */http/calls/* | \
        */http/lua/lua_hold.* | */http/lua/wait_redis.* | \
        */http/directives/*.cpp | \
        */http/conf/limit_set.* | */http/conf/zone.* | \
        */http/values/parameter.* | */http/values/suggestion.* | \
        */redis/block/redis_block.* | */redis/topology/cluster.* | \
        */redis/topology/sentinel.* | */redis/wire/tls.* | \
        */redis/wire/endpoint.* | */redis/wire/password_file.*)
            limit_sliding_opt=$limit_sliding_small ;;
        *)
            limit_sliding_opt=$limit_sliding_fast ;;
    esac

    echo "$limit_sliding_obj: override CFLAGS := $limit_sliding_flags" \
        "$limit_sliding_opt \$(LIMIT_SLIDING_CFLAGS)" >> $NGX_MAKEFILE
done

# Texts that are compiled in: the dashboard, whose style and scripts come after
# their tags, and the scripts for Redis.  Each is a file that a source includes.

limit_sliding_embed=$ngx_addon_dir/src/embed.sh
limit_sliding_api=$ngx_addon_dir/src/http/api
limit_sliding_inc=$NGX_OBJS/limit_sliding_page.inc
limit_sliding_js=`printf '%s\n' $limit_sliding_page | grep '\.js$'`

# Comments and indentation stay in the sources.
limit_sliding_strip="sed -e '/^ *\/\/ /d' -e 's/^ *//'"

cat << END >> $NGX_MAKEFILE

limit_sliding_page = $limit_sliding_inc

$NGX_OBJS/addon/api/dashboard.o: $limit_sliding_inc $limit_sliding_inc.hashes

$limit_sliding_inc: $limit_sliding_embed `echo $limit_sliding_page`; \\
    $limit_sliding_strip $limit_sliding_api/dashboard.css > \$@.style \\
    && $limit_sliding_strip `echo $limit_sliding_js` > \$@.script \\
    && sh $limit_sliding_embed \$@ -e '/^<style>/r \$@.style' \\
        -e '/^<script>/r \$@.script' $limit_sliding_api/dashboard.html

END

# The page's policy allows its style and its script by their hashes.  Each
# begins with the end of the line of its tag.  A server's charset would change
# what is not ASCII.
cat << 'END' >> $NGX_MAKEFILE
$(limit_sliding_page).hashes: $(limit_sliding_page); \
    if LC_ALL=C grep '[^ -~]' $<.txt; then \
        echo 'the dashboard is not ASCII' >&2; exit 1; fi; \
    for part in style script; do \
        { echo; cat $<.$$part; } > $@.text || exit 1; \
        hex=$$(sha256sum < $@.text | sed 's/ .*//; s/../\\x&/g'); \
        hash=$$(env printf "$$hex" | base64); test $${#hash} = 44 || exit 1; \
        echo "\"$$part-src 'sha256-$$hash'; \""; \
    done > $@.new && mv $@.new $@

END

limit_sliding_inc=$NGX_OBJS/limit_sliding_lua.inc

cat << END >> $NGX_MAKEFILE

$NGX_OBJS/addon/protocol/scripts.o: $limit_sliding_inc

$limit_sliding_inc: $limit_sliding_embed `echo $limit_sliding_lua`; \\
    sh $limit_sliding_embed \$@ -f `echo $limit_sliding_lua`

END
