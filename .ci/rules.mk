# Copyright (C) the limit_sliding authors

check: build  ## strict warnings, what the binary needs and shows, layout
	@said=$$($(MAKE) -s build BUILD=$(BUILD)/no-redis WITH_REDIS=no \
	    LIMIT_SLIDING_CFLAGS='-O1 -g0 $(NO_INLINE)' NGX_CONF_OPTS='--with-cc-opt="-Werror -Werror=implicit-function-declaration"' \
	    2>&1 > /dev/null) && [ -z "$$said" ] || { echo "$$said" >&2; exit 1; }
	@failed=0; .ci/check-sources $(BUILD) || failed=1; \
	.ci/check-layers || failed=1; \
	.ci/check-binary $(BUILD) || failed=1; \
	.ci/check-binary $(BUILD)/no-redis $(NGINX) || failed=1; exit $$failed

check-versions:  ## build and demo with gcc and clang: NGX_SRCS="path path"
	@.ci/check-versions $(BUILD)/versions $(NGX_SRCS)

format:  ## format the C++
	clang-format -i $$(find src t -name "*.[ch]pp")

deb:  ## build/deb/libnginx-mod-http-limit-sliding*.deb, for this machine's NGINX
	.ci/make-deb $(BUILD)/deb

cross:  ## the module for aarch64 and for musl, checked by readelf: build/cross
	.ci/cross $(BUILD)/cross

SUITE ?= bookworm
check-packages:  ## install package, source and images in chroots: SUITE=trixie OPENRESTY=source
	.ci/check-packages $(BUILD)/packages $(SUITE) $(OPENRESTY)
