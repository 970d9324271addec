# Copyright (C) the limit_sliding authors

# Everything is made under $(BUILD), which is NGINX's --builddir as well.
# Variables to set: NGX_SRC NGX_CONF_OPTS NGINX CC CXX BUILD JOBS DESTDIR,
# WITH_REDIS=no for a build without hiredis, and V=1 to see all commands.

SHELL = /bin/bash
.SHELLFLAGS = -ec
MAKEFLAGS += --no-print-directory
# NGINX's makefile has a CFLAGS of its own, which one given to us must not undo.
MAKEOVERRIDES =
.DELETE_ON_ERROR:

# One line a file, unless V=1 asks for the commands or -s for silence.  Of NGINX's makefile
# only warnings and errors are shown.
say = :
ifneq ($(V),1)
.SILENT:
NGINX_MAKE = -s
ifeq ($(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
say = printf '  %-5s %s\n'
endif
endif

DEBIAN_SRC    = /usr/share/nginx/src
NGX_SRC       ?= $(DEBIAN_SRC)
NGX_CONF_OPTS ?=
NGINX         ?= /usr/sbin/nginx
BUILD         ?= build
JOBS          ?= 2
WITH_REDIS    ?= yes
export WITH_REDIS

# To nginx itself, NGINX in the environment is a list of sockets to inherit.
unexport NGINX

override BUILD := $(abspath $(BUILD))
MODULE := $(BUILD)/ngx_http_limit_sliding_module.so
FLEET := $(BUILD)/bench/fleet_figures
# Debian's nginx-dev has headers only.
NGINX_SOURCE := $(BUILD)/nginx-source/src/core/nginx.c
ALLOC := $(BUILD)/faults/alloc.so
STEPS := $(BUILD)/bench/steps.so

# What knows no NGINX.
PURE_SRCS := $(sort $(wildcard $(addsuffix /*.cpp,src/core/* src/redis/protocol \
    src/redis/shared)))
# The scripts for Redis, and before them what shortens them.
LUA := src/redis/protocol/lua/strip.sed $(sort $(wildcard src/redis/protocol/lua/*.lua))

all: build  ## the same as build


build: $(BUILD)/Makefile  ## the module, build/ngx_http_limit_sliding_module.so
	@$(say) BUILD $(notdir $(MODULE))
	@$(MAKE) $(NGINX_MAKE) -C $(BUILD)/tree -f $(BUILD)/Makefile modules

static: $(BUILD)/static/Makefile  ## build/static/nginx, the module linked in
	@$(say) BUILD nginx
	@$(MAKE) $(NGINX_MAKE) -C $(BUILD)/static/tree -f $(BUILD)/static/Makefile binary

$(BUILD)/Makefile: link = --add-dynamic-module
$(BUILD)/static/Makefile: link = --add-module

# NGINX's configure writes a Makefile where it stands: let that be a directory
# of links, so that the source stays clean and may be read-only.  The name of --builddir is
# relative: NGINX replaces ".c" and ".S" anywhere in the paths of its objects.
$(BUILD)/Makefile $(BUILD)/static/Makefile: config config.make $(BUILD)/settings
	@test -d '$(NGX_SRC)/auto' || { echo 'no NGINX source in $(NGX_SRC):' \
	    'install nginx-dev, or make NGX_SRC=path' >&2; exit 1; }
	@echo 'configuring for $(NGX_SRC)'
	@rm -rf $(@D)/tree $(@D)/addon && mkdir -p $(@D)/tree
	@ln -s '$(abspath $(NGX_SRC))'/* $(@D)/tree
	@cd $(@D)/tree && rm -f Makefile objs; \
	flags=(--with-compat); configure=./configure; \
	if [ -f conf_flags ]; then \
	    . ./conf_flags; flags=("$${NGX_CONF_FLAGS[@]}"); fi; \
	if [ ! -f $$configure ]; then configure=auto/configure; fi; \
	$$configure "$${flags[@]}" --with-cc='$(CC)' $(NGX_CONF_OPTS) \
	    --builddir=.. $(link)=$(CURDIR) > $(@D)/configure.log 2>&1 \
	|| { tail -n 20 $(@D)/configure.log >&2; exit 1; }

# Changes when a setting does, and so makes NGINX configure again.  Several runs of make
# may write this file at once.
$(BUILD)/settings: export settings = CC='$(CC)' CXX='$(CXX)' SRC='$(NGX_SRC)' \
    OPTS=$(NGX_CONF_OPTS) DIR=$(CURDIR) REDIS=$(WITH_REDIS) \
    FILES='$(shell find src -type f | sort | cksum)'
$(BUILD)/settings: FORCE | deps
	@mkdir -p $(@D); new=$$(mktemp $@.XXXXXX); \
	{ echo "$$settings"; \
	    grep -hs VERSION $(NGX_SRC)/src/core/{nginx,angie}.h || :; } > $$new; \
	cmp -s $$new $@ && rm $$new || mv $$new $@

clean:  ## remove all that was built
	rm -rf $(BUILD)


MODULES_DIR ?= $(or $(shell $(NGINX) -V 2>&1 \
    | sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p'),/usr/lib/nginx/modules)
INSTALLED = $(MODULES_DIR)/$(notdir $(MODULE))
LOAD_CONF = debian/mod-http-limit-sliding.conf
AVAILABLE = /usr/share/nginx/modules-available/$(notdir $(LOAD_CONF))
# Last of all modules, so that limits run ahead of what grants access.
ENABLED   = /etc/nginx/modules-enabled/99-$(notdir $(LOAD_CONF))

# $(DESTDIR) is filled for a package, whose scripts enable the module.
install: build  ## into NGINX's modules, enabled where Debian does that
	install -D -s -m 644 $(MODULE) $(DESTDIR)$(INSTALLED)
ifneq ($(DESTDIR),)
	install -D -m 644 $(LOAD_CONF) $(DESTDIR)$(AVAILABLE)
else
	if [ ! -d $(dir $(ENABLED)) ]; then \
	    echo 'installed; now add to nginx.conf, at its top:'; \
	    echo '    load_module $(INSTALLED);'; exit 0; fi; \
	install -D -m 644 $(LOAD_CONF) $(AVAILABLE); \
	ln -sf $(AVAILABLE) $(ENABLED); \
	$(NGINX) -q -t || { echo 'nginx refuses its configuration, as it says above:' \
	    'mend that, or take the module away by make uninstall' >&2; exit 1; }; \
	echo 'installed, and enabled by $(ENABLED)'
	echo 'Next: write a limit_sliding_zone and a limit_sliding, as README shows,'
	echo 'then: nginx -t && nginx -s reload'
endif

# Where the Lua of Debian's and OpenResty's NGINX finds libraries.
LUA_DIR ?= $(firstword $(wildcard /usr/local/openresty/site/lualib) /usr/local/share/lua/5.1)
LUA_FILES := $(patsubst lua/%,%,$(wildcard lua/*.lua lua/*/*/*.lua))

install-lua:  ## the library for ngx_lua, into LUA_DIR
	for file in $(LUA_FILES); do \
	    install -D -m 644 lua/$$file $(DESTDIR)$(LUA_DIR)/$$file; done

uninstall:  ## remove what install and install-lua put there
	rm -f $(DESTDIR)$(INSTALLED) $(DESTDIR)$(AVAILABLE) $(DESTDIR)$(ENABLED)
	rm -f $(LUA_FILES:%=$(DESTDIR)$(LUA_DIR)/%)
	-rmdir -p --ignore-fail-on-non-empty $(DESTDIR)$(LUA_DIR)/limit_sliding/resty 2> /dev/null
	-rmdir --ignore-fail-on-non-empty $(dir $(DESTDIR)$(AVAILABLE)) 2> /dev/null


# The order matters: a file may use the variables of those before it.
include $(addprefix t/,$(addsuffix /rules.mk,lib unit sim fuzz weak faults torture bench coverage \
    model prove demo)) t/rules.mk .ci/rules.mk

RULES = $(filter Makefile %rules.mk,$(MAKEFILE_LIST))
COMMON_GOALS = build test prove check bench fuzz install demo

help:  ## the goals that most people need
	@awk -F ':.*  ## ' -v goals='$(COMMON_GOALS)' '/^[a-z-]+:.*  ## / { text[$$1] = $$2 } \
	    END { n = split(goals, goal, " "); for (i = 1; i <= n; i++) \
	        printf "  %-9s %s\n", goal[i], text[goal[i]] }' $(RULES)
	@echo '"make help-all" lists the others.'

help-all:  ## all goals
	@awk -F ':.*  ## ' 'FNR == 1 { heading = "\n" FILENAME "\n" } /^[a-z-]+:.*  ## / { \
	    printf "%s  %-19s %s\n", heading, $$1, $$2; heading = "" }' $(RULES)


# The goals that were asked for install what .ci/packages lists for them before they run.
PACKAGES = NGX_SRC='$(NGX_SRC)' LIMIT_SLIDING_NGINX='$(NGINX)' .ci/packages
GOALS    := $(filter $(shell .ci/packages list),$(MAKECMDGOALS))

$(GOALS): | deps

deps:
	@$(if $(GOALS),$(PACKAGES) install $(GOALS))

FORCE:

.PHONY: all build static clean install install-lua uninstall help help-all deps FORCE \
    demo demo-redis run screenshot test test-slow test-real test-tools tools unit unit-programs \
    prove prove-changed mutants sanitize sanitized sanitize-programs coverage model allocations \
    torture soak simulation simulation-asan fuzz replay replay-asan weak weak-mutations check-arm \
    bench bench-smoke bench-quick bench-figures plots fleet \
    check check-versions format deb cross check-packages
