# Flags of our own objects.  They cannot go into CFLAGS, which is every
# object's, and C compilers refuse those of C++; hence GNU make's
# target-specific variables.  `override` keeps them under make CFLAGS=...

limit_sliding_c="-I$ngx_addon_dir/src/core -I$ngx_addon_dir/src/redis"
limit_sliding_c="$limit_sliding_c -fvisibility=hidden"

# NGINX compiles at -O.  A level given with --with-cc-opt stands.
case " $NGX_CC_OPT" in
    *" -O"*) ;;
    *)       limit_sliding_c="$limit_sliding_c -O2" ;;
esac

# The link is by the C compiler, without libstdc++: nothing here may need it.
limit_sliding_cxx="-std=c++17 -fno-exceptions -fno-rtti"
limit_sliding_cxx="$limit_sliding_cxx -fno-threadsafe-statics"

for limit_sliding_src in $limit_sliding_srcs
do
    limit_sliding_obj=${limit_sliding_src#$ngx_addon_dir/src/}
    limit_sliding_obj=$NGX_OBJS/addon/${limit_sliding_obj%.c*}.o

    case $limit_sliding_src in
        *.cpp) limit_sliding_opt="$limit_sliding_c $limit_sliding_cxx" ;;
        *)     limit_sliding_opt=$limit_sliding_c ;;
    esac

    echo "$limit_sliding_obj: override CFLAGS += $limit_sliding_opt" \
        >> $NGX_MAKEFILE
done

# The dashboard, as what stands between the braces of an array in C.  Its style
# and scripts come after the tags of theirs.

limit_sliding_http=$ngx_addon_dir/src/http
limit_sliding_inc=$NGX_OBJS/limit_sliding_dashboard

cat << END >> $NGX_MAKEFILE

$NGX_OBJS/addon/http/ngx_http_limit_sliding_dashboard.o: $limit_sliding_inc.inc

$limit_sliding_inc.inc: `echo $limit_sliding_page`; \\
    sed -e '/^<style>/r $limit_sliding_http/dashboard.css' \\
        -e '/^<script>/r $limit_sliding_http/dashboard_parts.js' \\
        -e '/^<script>/r $limit_sliding_http/dashboard.js' \\
        $limit_sliding_http/dashboard.html > $limit_sliding_inc.html \\
    && od -An -v -tx1 $limit_sliding_inc.html > $limit_sliding_inc.od \\
    && sed 's/[0-9a-f][0-9a-f]/0x&,/g' $limit_sliding_inc.od > \$@

END
