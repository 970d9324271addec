# Adds the module to an official image of OpenResty, based on Debian, Ubuntu or Alpine:
#
#   docker build -f contrib/openresty.Dockerfile \
#       --build-arg BASE=openresty/openresty:1.29.2.3-bookworm .
#   docker build -f contrib/openresty.Dockerfile \
#       --build-arg BASE=openresty/openresty:1.29.2.3-alpine .
#
# The image keeps the user and the command of BASE.  Its nginx.conf loads the module in
# the first line.

ARG BASE=openresty/openresty:1.29.2.3-bookworm

FROM ${BASE} AS build
USER root
RUN if command -v apk > /dev/null; then \
        apk add --no-cache bash curl g++ hiredis-dev linux-headers make openssl-dev \
            pcre2-dev zlib-dev; \
    else \
        apt-get update && apt-get install -y --no-install-recommends ca-certificates \
            curl g++ libhiredis-dev libpcre2-dev libssl-dev make zlib1g-dev; \
    fi
COPY . /limit_sliding
RUN /limit_sliding/contrib/build-for-nginx openresty /built
RUN cp -p /usr/local/openresty/nginx/conf/nginx.conf /built/nginx.conf \
    && sed -i '1i load_module modules/ngx_http_limit_sliding_module.so;' /built/nginx.conf

FROM ${BASE} AS module
COPY --from=build /built/usr/local/openresty/nginx/modules/ngx_http_limit_sliding_module.so /usr/local/openresty/nginx/modules/
RUN printf '%s\n' 'load_module modules/ngx_http_limit_sliding_module.so;' \
        'error_log stderr; pid /tmp/limit.pid; events {}' \
        'http { limit_sliding_zone $uri zone=a:32k rate=1r/s; }' > /tmp/limit.conf \
    && openresty -t -c /tmp/limit.conf \
    && rm /tmp/limit.conf /tmp/limit.pid

FROM module
COPY --from=build /built/nginx.conf /usr/local/openresty/nginx/conf/nginx.conf
RUN openresty -t && rm -f /usr/local/openresty/nginx/logs/nginx.pid
