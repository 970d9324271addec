# Adds the module to an official image of NGINX, based on Debian or on Alpine, that
# runs as root or not:
#
#   docker build -f contrib/nginx.Dockerfile --build-arg BASE=nginx:1.30 .
#   docker build -f contrib/nginx.Dockerfile --build-arg BASE=nginx:1.30-alpine .
#   docker build -f contrib/nginx.Dockerfile \
#       --build-arg BASE=nginxinc/nginx-unprivileged:1.30 .
#
# The image keeps the user and the command of BASE.  Its nginx.conf loads the module in
# the first line.  --target module leaves nginx.conf as it is, for controllers that
# write it themselves.

ARG BASE=nginx:1.30

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
RUN /limit_sliding/contrib/build-for-nginx nginx /built
RUN cp -p /etc/nginx/nginx.conf /built/nginx.conf \
    && sed -i '1i load_module modules/ngx_http_limit_sliding_module.so;' /built/nginx.conf

# The pid file of a test must not stay: in an image without root, it would belong to
# the user of this build.
FROM ${BASE} AS module
COPY --from=build /built/usr/lib/nginx/modules/ngx_http_limit_sliding_module.so /usr/lib/nginx/modules/
RUN printf '%s\n' 'load_module modules/ngx_http_limit_sliding_module.so;' \
        'error_log stderr; pid /tmp/limit.pid; events {}' \
        'http { limit_sliding_zone $uri zone=a:32k rate=1r/s; }' > /tmp/limit.conf \
    && nginx -t -c /tmp/limit.conf \
    && rm /tmp/limit.conf /tmp/limit.pid

FROM module
COPY --from=build /built/nginx.conf /etc/nginx/nginx.conf
RUN nginx -t && rm -f /run/nginx.pid /tmp/nginx.pid
