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
