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

# One line a file, unless V=1 asks for the commands or -s for silence.
ifneq ($(V),1)
.SILENT:
ifeq ($(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
SHELL = $(CURDIR)/.ci/quiet-shell
endif
NGINX_MAKE = -s SHELL=$(SHELL)
endif
export LIMIT_SLIDING_HERE := $(CURDIR)

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


##@ Build

build: $(BUILD)/Makefile  ## the module, build/ngx_http_limit_sliding_module.so
	@$(MAKE) $(NGINX_MAKE) -C $(BUILD)/tree -f $(BUILD)/Makefile modules

static: $(BUILD)/static/Makefile  ## build/static/nginx, the module linked in
	@$(MAKE) $(NGINX_MAKE) -C $(BUILD)/static/tree -f $(BUILD)/static/Makefile binary

$(BUILD)/Makefile: link = --add-dynamic-module
$(BUILD)/static/Makefile: link = --add-module

# NGINX's configure writes a Makefile where it stands: let that be a directory
# of links, so that the source stays clean and may be read-only.
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
	    --builddir=$(@D) $(link)=$(CURDIR) > $(@D)/configure.log 2>&1 \
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


##@ Try

demo: build  ## watch a limit bite and its window slide back open
	@perl t/demo/demo.pl --nginx $(NGINX) --module $(MODULE)

demo-redis: build  ## one limit over two NGINXs; Redis dies and comes back
	@perl t/demo/redis.pl --nginx $(NGINX) --module $(MODULE)

LIVE = perl -It/lib t/demo/live.pl --nginx $(NGINX) --module $(MODULE)

run: build  ## the dashboard with a Redis and made-up traffic, until Ctrl-C
	@$(LIVE)

screenshot: build  ## draw docs/dashboard*.png anew, in eleven minutes
	@$(LIVE) --draw docs


##@ Test

# A flavour of the core and its unit tests, built in a directory of its own.
# Linked by the C compiler, as the module is, but for clang's UBSan of C++.
CORE_FLAGS = -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics
UNIT_FLAGS = -g1 -Wall -Wextra -Wno-missing-field-initializers -Isrc -MMD -MP

unit_LINK = $(CC)
fast_LINK = $(CC)
tsan_LINK = $(CC)
asan_LINK = $(CXX)
arm_LINK  = $(ARM)-gcc
coverage_LINK = $(CC)

# The compiler of another machine; t/weak/rules.mk has the rest.
ARM = aarch64-linux-gnu
unit_CXX = $(CXX)
fast_CXX = $(CXX)
tsan_CXX = $(CXX)
asan_CXX = $(CXX)
arm_CXX  = $(ARM)-g++
coverage_CXX = $(CXX)

# What is inlined by force is compiled and checked once for each use: with sanitizers that
# takes minutes.
NO_INLINE = -Dalways_inline=noinline -Wno-attributes

# Assertions, and accesses at which a test may stop, are in all of them but in what is measured.
STEP_FLAGS = -DLIMIT_SLIDING_ATOMICS='"../t/unit/step_atomic.hpp"'
unit_FLAGS = -O2
fast_FLAGS = -O2 -DNDEBUG
tsan_FLAGS = -O2 -fsanitize=thread
asan_FLAGS = -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
             -fno-omit-frame-pointer $(NO_INLINE)
arm_FLAGS  = -O2 -L$(BUILD)/arm64/usr/lib/$(ARM) -isystem $(BUILD)/arm64/usr/include
# Templates and inlined functions are to be told apart; and not the tests are measured.
coverage_FLAGS = -O0 --coverage -fprofile-update=atomic -fprofile-filter-files=src/.* \
    $(NO_INLINE) -DNDEBUG

define flavour
$(1)_CXXFLAGS = $(CORE_FLAGS) $(UNIT_FLAGS) $(if $(filter-out fast,$(1)),$(STEP_FLAGS)) $$($(1)_FLAGS)
$(1)_TESTS := $(patsubst t/unit/%.cpp,$(BUILD)/$(1)/%,$(wildcard \
    t/unit/*_test.cpp))
$(1)_OBJS := $(PURE_SRCS:src/%.cpp=$(BUILD)/$(1)/src/%.o) \
    $(patsubst t/unit/%.cpp,$(BUILD)/$(1)/%.o,$(filter-out \
    %_test.cpp,$(wildcard t/unit/*.cpp)))

$(BUILD)/$(1)/src/%.o: src/%.cpp $(BUILD)/settings
	@mkdir -p $$(@D)
	$$($(1)_CXX) $$($(1)_CXXFLAGS) -I$(BUILD)/$(1) -c -o $$@ $$<

$(BUILD)/$(1)/src/redis/protocol/scripts.o: $(BUILD)/$(1)/limit_sliding_lua.inc

$(BUILD)/$(1)/limit_sliding_lua.inc: src/embed.sh $(LUA) $(BUILD)/settings
	@mkdir -p $$(@D)
	@sh src/embed.sh $$@ -f $(LUA)

$(BUILD)/$(1)/%.o: t/unit/%.cpp $(BUILD)/settings
	@mkdir -p $$(@D)
	$$($(1)_CXX) $$($(1)_CXXFLAGS) -c -o $$@ $$<

$$($(1)_TESTS): %: %.o $$($(1)_OBJS)
	$$($(1)_LINK) $$($(1)_FLAGS) -o $$@ $$^ -lcmocka -lhiredis -lm -pthread

-include $$($(1)_OBJS:.o=.d) $$($(1)_TESTS:=.d)
endef

$(foreach f,unit fast tsan asan arm coverage,$(eval $(call flavour,$f)))

# Where there is one thread, TSan has nothing to find.
tsan_TESTS := $(patsubst t/unit/%.cpp,$(BUILD)/tsan/%,$(shell grep -lE \
    'pthread_create|"(rounds|zone_memory).hpp"' t/unit/*_test.cpp))

# Unit tests print TAP, as t/*/*.t do, so that one prove runs all.
PROVE = CMOCKA_MESSAGE_OUTPUT=TAP LIMIT_SLIDING_NGINX=$(NGINX) \
        LIMIT_SLIDING_MODULE=$(MODULE) \
        LIMIT_SLIDING_FLEET=$(FLEET) LIMIT_SLIDING_CLOCK_BUILD=$(BUILD)/clock \
        LIMIT_SLIDING_FAULTS=$(BUILD)/faults prove --timer -j$(JOBS) -It/lib

# Where there is none, only t/dashboard/browser.t is skipped.
BROWSER = chromium chromium-driver

include t/lib/rules.mk
include t/sim/rules.mk
include t/fuzz/fuzz.mk

# The tests that take longest, and of these first the tests that take a minute, so that none is left
# alone at the end.  The others touch every file of src.
BLACK_BOX  := $(filter-out t/tools/%,$(sort $(wildcard t/*/*.t)))
SLOW_TESTS := $(patsubst %,t/%.t, \
    docs/images bans/penalty_cost faults/in_flight_long outages/replies leases/sync_load \
    faults/in_flight_redis outages/faults \
    algorithms/calendar api/metrics bans/penalty bans/redis bans/redis_life \
    bans/redis_topology cluster/failover cluster/faults cluster/sentinel \
    cluster/sentinel_in_flight cluster/sentinel_stale config/reload dashboard/browser \
    dashboard/browser_zones docs/fail2ban docs/fleet faults/alloc faults/alloc_module \
    faults/alloc_requests faults/clock faults/limits_disk faults/reload_changes \
    faults/soak leases/sync limits/count_rejected limits/in_flight_cost lua/cost \
    outages/dns outages/errors outages/in_flight outages/probe outages/timing \
    overrides/cost overrides/kill overrides/redis_outage overrides/redis_replies \
    overrides/redis_windows redis/cost redis/exact redis/forget redis/in_flight \
    redis/in_flight_access redis/several settle/cost settle/load settle/usage_cost)
SLOW_UNITS :=

test: build tools $(ALLOC) $(CLOCK) $(unit_TESTS)  ## in 5 minutes: units, and t/*/*.t on a real NGINX but for the slow ones
	@.ci/install-packages $(BROWSER) || echo 'going on without a browser'
	@$(PROVE) $(filter-out $(SLOW_UNITS),$(unit_TESTS)) $(filter-out $(SLOW_TESTS),$(BLACK_BOX))

test-slow: build tools $(FLEET) $(ALLOC) $(CLOCK) $(BUILD)/sim/simulation $(BUILD)/weak/weak $(SLOW_UNITS) $(replay_PROGRAMS) $(BUILD)/tools-tested  ## the slow ones, corpora of the fuzzers, simulated networks, weak memory
	@$(PROVE) $(SLOW_UNITS) $(SLOW_TESTS) $(replay_PROGRAMS)
	@t/sim/run $(BUILD)/sim/simulation 1 4000 $(JOBS)
	@$(BUILD)/weak/weak --percent=5

test-all: test test-slow  ## both

# The tests of our own tools run once these changed.
$(BUILD)/tools-tested: Makefile $(wildcard .ci/* t/bench/*.p[lm] t/lib/*/* t/tools/*.t) | build $(STEPS)
	@$(PROVE) $(wildcard t/tools/*.t)
	@touch $@

# Preloaded into NGINX, it has allocations and other calls fail.
$(ALLOC): t/faults/alloc.cpp t/faults/calls.cpp t/faults/orders.hpp
	@mkdir -p $(@D)
	$(CXX) $(CORE_FLAGS) -O2 -Wall -Wextra -shared -fPIC -o $@ $(filter %.cpp,$^)

allocations: build $(ALLOC)  ## allocations, and calls of files, that fail: each of them, for minutes
	@ALLOC_STEP=1 $(PROVE) t/faults/alloc*.t t/faults/limits_disk.t

# What tests need of packages that are not to be installed.
tools:
	@.ci/get-tools $(BUILD)

unit: $(unit_TESTS)  ## the unit tests of the core alone
	@$(PROVE) $(unit_TESTS)

# An NGINX whose every allocation is one of malloc's, under ASan, with the module
# linked in, under UBSan too.  A report fails a test by its error log.
SANITIZED       = $(BUILD)/sanitized
SANITIZED_FLAGS = -fsanitize=address -fno-omit-frame-pointer
SANITIZED_OPTS  = --error-log-path=stderr --with-compat --with-debug --with-threads --with-pcre-jit \
    --with-http_ssl_module --with-http_v2_module --with-http_realip_module \
    --with-http_auth_request_module --with-http_stub_status_module \
    --with-http_dav_module --with-http_slice_module \
    --with-http_addition_module --with-http_sub_module --with-http_gunzip_module \
    --with-poll_module --with-select_module \
    --with-cc-opt="-DNGX_DEBUG_PALLOC=1 -O1 -g1 $(SANITIZED_FLAGS)" \
    --with-ld-opt="$(SANITIZED_FLAGS) -fsanitize=undefined"
SANITIZED_TESTS ?= $(BLACK_BOX)

# What measures instructions or time says nothing here.
SANITIZED_SKIP  = t/dashboard/browser.t t/docs/docs.t t/config/upgrade.t \
    t/settle/cost.t t/settle/usage_cost.t t/lua/cost.t

$(NGINX_SOURCE): | deps
	@.ci/get-nginx $(BUILD)/nginx-source

sanitize-programs: $(tsan_TESTS) $(asan_TESTS) $(replay-asan_PROGRAMS)

# The NGINX, and prove with it.
sanitized: $(NGINX_SOURCE)
	@LIMIT_SLIDING_CFLAGS='-fsanitize=undefined -UNDEBUG -g1 $(NO_INLINE)' $(MAKE) static \
	    BUILD=$(SANITIZED) NGX_SRC=$(BUILD)/nginx-source \
	    NGX_CONF_OPTS='$(SANITIZED_OPTS)' > /dev/null

SANITIZED_PROVE = ASAN_OPTIONS=detect_leaks=0 LIMIT_SLIDING_NGINX=$(SANITIZED)/static/nginx \
    LIMIT_SLIDING_MODULE= prove --timer -It/lib

SOAK_S ?= 600
soak: sanitized  ## mixed traffic, reloads, kills and a Redis that flaps, under ASan: SOAK_S=600
	@SOAK_S=$(SOAK_S) $(SANITIZED_PROVE) t/faults/soak.t

sanitize: sanitized sanitize-programs  ## units under TSan, ASan, UBSan; t/*/*.t on an NGINX under ASan
	@$(PROVE) $(tsan_TESTS) $(asan_TESTS) $(replay-asan_PROGRAMS)
	@LIMIT_SLIDING_SLOW=1 $(SANITIZED_PROVE) -j$(JOBS) \
	    $(filter-out $(SANITIZED_SKIP),$(SANITIZED_TESTS))

# Units, t/*/*.t but for what measures, and some of the simulation:
# t/coverage/report.pl says of which branches none was taken, and fails below its bounds.
# A few tests fail here, as gcov takes time, files and descriptors; should many fail, the
# bounds are missed.
COVERAGE_TESTS ?= $(filter-out $(SANITIZED_SKIP) $(wildcard t/*/*cost.t),$(BLACK_BOX))
COVERAGE_MODULE = $(BUILD)/coverage/module/$(notdir $(MODULE))

coverage: tools $(ALLOC) $(coverage_TESTS) $(BUILD)/sim-coverage/simulation  ## branches that units and t/*/*.t take: COVERAGE_TESTS=
	@find $(BUILD)/coverage $(BUILD)/sim-coverage -name '*.gcda' -delete
	@LIMIT_SLIDING_CFLAGS='$(coverage_FLAGS)' $(MAKE) -j$(JOBS) build \
	    BUILD=$(BUILD)/coverage/module NGX_CONF_OPTS=--with-ld-opt=--coverage > /dev/null
	@$(PROVE) $(coverage_TESTS) || true
	@LIMIT_SLIDING_SLOW=1 $(subst $(MODULE),$(COVERAGE_MODULE),$(PROVE)) $(COVERAGE_TESTS) || true
	@t/sim/run $(BUILD)/sim-coverage/simulation 1 4000 $(JOBS) || true
	@t/coverage/report.pl $(BUILD)/coverage $(BUILD)/sim-coverage

model:  ## check models of the table, its rings and leases with spin
	@t/model/run

# Each part of the torture is a program of one source, with what they share.
TORTURE_S     ?= 60
TORTURE_SEED  ?= 0
TORTURE_FAULTS   ?= 1000
TORTURE_RELOADS  ?= 10000
TORTURE_REQUESTS ?= 1000000
TORTURE_PARTS := $(addprefix $(BUILD)/torture/,core processes)
torture_OBJS  := $(patsubst t/torture/%.cpp,$(BUILD)/torture/%.o,$(wildcard \
    t/torture/*.cpp))

torture: build $(TORTURE_PARTS)  ## core, killed processes: TORTURE_S=60; then 1,000 faults, 10,000 reloads
	@failed=0; t/torture/run $(BUILD)/torture $(TORTURE_S) $(TORTURE_SEED) || failed=1; \
	export FAULT_REQUESTS=$(TORTURE_REQUESTS) FAULT_ROUNDS=$(TORTURE_FAULTS); \
	$(PROVE) -j1 -v $(addprefix t/faults/,kill.t in_flight.t redis_kill.t memory.t reload_changes.t) || failed=1; \
	FAULT_ROUNDS=$(TORTURE_RELOADS) $(PROVE) -v t/faults/reload.t || failed=1; exit $$failed

$(BUILD)/torture/%.o: t/torture/%.cpp $(BUILD)/settings
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 $(UNIT_FLAGS) $(STEP_FLAGS) -It/unit -c -o $@ $<

$(BUILD)/torture/processes: $(addprefix $(BUILD)/torture/,witness.o workers.o)
$(TORTURE_PARTS): %: %.o $(BUILD)/torture/model.o $(unit_OBJS)
	$(CXX) -o $@ $^ -lhiredis -pthread

-include $(torture_OBJS:.o=.d)

# Each seed is a world of its own; SIM_FIRST=N SIM_SEEDS=1 TRACE=1 shows that of N.
SIM_SEEDS ?= 100000
SIM_FIRST ?= 1
simulation: $(BUILD)/sim/simulation  ## all that asks Redis, over a network of seeds
	@t/sim/run $< $(SIM_FIRST) $(SIM_SEEDS) $(JOBS)

simulation-asan: $(BUILD)/sim-asan/simulation  ## the same under ASan and UBSan
	@t/sim/run $< $(SIM_FIRST) $(SIM_SEEDS) $(JOBS)

WEAK_PERCENT ?= 100
include t/weak/rules.mk

weak: $(BUILD)/weak/weak  ## races under C++'s memory model, by relacy: WEAK_PERCENT=100
	@$< --percent=$(WEAK_PERCENT)

weak-mutations: $(BUILD)/weak/weak  ## whether "make weak" notices orders that are too weak
	@t/weak/mutate $<

# Programs of aarch64, run by qemu.  It keeps the order of an x86: what this finds is
# wrong of alignment, sizes, and how compare-and-swap is compiled.
check-arm:  ## the unit tests on aarch64, by qemu
	@.ci/get-arm64 $(BUILD)/arm64
	@$(MAKE) $(BUILD)/arm/tests > /dev/null
	@QEMU_LD_PREFIX=/usr/$(ARM) \
	    QEMU_SET_ENV=LD_LIBRARY_PATH=$(BUILD)/arm64/usr/lib/$(ARM) \
	    CMOCKA_MESSAGE_OUTPUT=TAP prove --timer -j$(JOBS) -e qemu-aarch64 $(arm_TESTS)

fuzz: $(fuzz_PROGRAMS)  ## libFuzzer on each target: FUZZ_S=60 FUZZ_NAMES="usage rate"
	@t/fuzz/run $(BUILD)/fuzz $(FUZZ_S) $(FUZZ_NAMES)

replay: $(replay_PROGRAMS)  ## the targets of the fuzzers on their corpus, without clang
	@$(PROVE) $(replay_PROGRAMS)


##@ Measure

REPORT = t/bench/report.pl --nginx $(NGINX) --module $(MODULE) \
    --build $(BUILD) --parts '$(PARTS)' $(if $(PEER),--peer $(PEER))
GUARD = --nginx $(NGINX) --module $(MODULE) --guard t/bench/figures.tsv

# PARTS are those of t/bench/report.pl.  PEER may be a build of
# github.com/kjdev/nginx-ratelimit, to be measured too.
bench: build tools $(STEPS) $(BUILD)/bench/core $(BUILD)/bench/accuracy  ## beside peers: writes docs/benchmarks.md
	@$(REPORT)

bench-smoke: build tools $(STEPS) $(BUILD)/bench/core $(BUILD)/bench/accuracy  ## whether all of bench works, in seconds, with figures of no use
	@$(REPORT) --smoke > $(BUILD)/bench/smoke.log 2>&1 \
	    || { cat $(BUILD)/bench/smoke.log; exit 1; }

$(STEPS): t/bench/steps.cpp
	@mkdir -p $(@D)
	$(CXX) -O2 -Wall -Wextra -shared -fPIC -o $@ $<

bench-quick: build $(STEPS)  ## fails if instructions got worse by 1%, memory by 5%, or paths too long
	@failed=0; t/bench/instructions.pl $(GUARD) || failed=1; \
	t/bench/memory.pl $(GUARD) || failed=1; \
	t/bench/path.pl --nginx $(NGINX) --module $(MODULE) || failed=1; \
	exit $$failed

bench-figures: build $(STEPS)  ## what bench-quick is to compare with from now on
	@t/bench/instructions.pl $(GUARD) --renew
	@t/bench/memory.pl $(GUARD) --renew

plots: $(BUILD)/bench/plots  ## draw docs/algorithms.svg anew
	$< > $<.data
	gnuplot -c t/bench/plots.gp $<.data docs/algorithms.svg

fleet: $(FLEET)  ## 1,000 nodes, 1e9 keys: docs/scale.md
	$< docs/scale-figures.md $<.data
	gnuplot -c t/bench/fleet.gp $<.data docs/scale.svg
	gnuplot -c t/bench/fleet_sync.gp $<.data docs/sync.svg

bench_OBJS := $(patsubst t/bench/%.cpp,$(BUILD)/bench/%.o,$(wildcard \
    t/bench/*.cpp))
BENCHES    := $(addprefix $(BUILD)/bench/,core accuracy fleet_figures plots)

$(BUILD)/bench/%.o: t/bench/%.cpp $(BUILD)/settings
	@mkdir -p $(@D)
	$(CXX) $(CORE_FLAGS) $(fast_FLAGS) $(UNIT_FLAGS) -It/unit -c -o $@ $<

$(BUILD)/bench/core: $(addprefix $(BUILD)/bench/,peer.o draw.o table.o)
$(BUILD)/bench/accuracy: $(addprefix $(BUILD)/bench/,accuracy_measure.o \
    accuracy_plot.o accuracy_promises.o table.o)
$(FLEET): $(addprefix $(BUILD)/bench/,zipf.o fleet.o fleet_redis.o fleet_sync.o)
$(BENCHES): %: %.o $(fast_OBJS)
	$(CC) -o $@ $^ -lhiredis -lm

-include $(bench_OBJS:.o=.d)


##@ Check

check: build  ## strict warnings, what the binary needs and shows, layout
	@said=$$($(MAKE) -s build BUILD=$(BUILD)/no-redis WITH_REDIS=no \
	    LIMIT_SLIDING_CFLAGS='-O1 -g0 $(NO_INLINE)' NGX_CONF_OPTS='--with-cc-opt="-Werror -Werror=implicit-function-declaration"' \
	    2>&1 > /dev/null) && [ -z "$$said" ] || { echo "$$said" >&2; exit 1; }
	@failed=0; .ci/check-sources $(BUILD) || failed=1; \
	.ci/check-layers $(BUILD) || failed=1; \
	.ci/check-shape || failed=1; \
	.ci/check-binary $(BUILD) || failed=1; \
	.ci/check-binary $(BUILD)/no-redis || failed=1; \
	.ci/check-no-redis $(BUILD)/no-redis $(NGINX) || failed=1; exit $$failed

check-versions:  ## build and demo with gcc and clang: NGX_SRCS="path path"
	@.ci/check-versions $(BUILD)/versions $(NGX_SRCS)

format:  ## format the C++
	clang-format -i $$(find src t -name "*.[ch]pp")

page:  ## renew the hashes of the dashboard's style and script
	.ci/page-hashes --write


##@ Install

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

deb:  ## build/deb/libnginx-mod-http-limit-sliding*.deb, for this machine's NGINX
	.ci/make-deb $(BUILD)/deb

cross:  ## the module for aarch64 and for musl, checked by readelf: build/cross
	.ci/cross $(BUILD)/cross

SUITE ?= bookworm
check-packages:  ## install package, source and images in chroots: SUITE=trixie OPENRESTY=source
	.ci/check-packages $(BUILD)/packages $(SUITE) $(OPENRESTY)


##@ Help

help:  ## this list
	@awk -F ':.*  ## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*  ## / { printf "  %-19s %s\n", $$1, $$2 }' Makefile


# What each goal needs of Debian; a goal not named here installs nothing.

build_PKGS = g++ $(if $(filter $(DEBIAN_SRC),$(NGX_SRC)),nginx-dev) \
    $(if $(filter yes,$(WITH_REDIS)),libhiredis-dev)
nginx_PKGS = $(if $(wildcard $(NGINX)),,nginx-core)

demo_PKGS     = $(build_PKGS) $(nginx_PKGS) perl
demo-redis_PKGS = $(demo_PKGS) redis-server
run_PKGS      = $(demo-redis_PKGS)
screenshot_PKGS = $(demo-redis_PKGS) $(BROWSER)
unit_PKGS     = g++ libcmocka-dev libhiredis-dev perl redis-server
sanitize_PKGS = $(demo_PKGS) $(unit_PKGS)
sanitize-programs_PKGS = $(sanitize_PKGS)
soak_PKGS     = $(sanitize_PKGS)
test_PKGS     = $(demo_PKGS) $(unit_PKGS) redis-server openssl valgrind faketime nghttp2-client \
    python3-grpcio python3-yaml
test-slow_PKGS = $(test_PKGS) $(simulation_PKGS) $(weak_PKGS)
test-all_PKGS = $(test-slow_PKGS)
bench_PKGS    = $(bench-quick_PKGS) libbsd-dev libhiredis-dev redis-server \
    redis-tools haproxy wrk nghttp2-client gnuplot-nox \
    $(if $(wildcard /usr/share/lua/5.1/resty/core),lua-nginx-redis)
bench-smoke_PKGS = $(bench_PKGS)
bench-quick_PKGS = $(demo_PKGS) valgrind redis-server
bench-figures_PKGS = $(bench-quick_PKGS)
plots_PKGS    = g++ libhiredis-dev gnuplot-nox
fleet_PKGS = $(plots_PKGS)
deb_PKGS      = build-essential debhelper dpkg-dev fakeroot nginx-dev g++ libhiredis-dev lintian
cross_PKGS    = g++ g++-$(ARM) libhiredis-dev musl-tools nginx-dev
check-packages_PKGS = debootstrap $(deb_PKGS)
check_PKGS    = $(build_PKGS) $(nginx_PKGS) libhiredis-dev lua5.1
model_PKGS    = gcc spin
weak_PKGS     = g++ relacy-dev
weak-mutations_PKGS = $(weak_PKGS)
check-arm_PKGS = g++-$(ARM) qemu-user perl redis-server
allocations_PKGS = $(test_PKGS)
simulation_PKGS = $(build_PKGS) liblua5.1-0-dev
simulation-asan_PKGS = $(simulation_PKGS)
coverage_PKGS = $(test-slow_PKGS)
torture_PKGS  = $(demo_PKGS) libhiredis-dev redis-server gdb
fuzz_PKGS     = $(build_PKGS) libcmocka-dev clang
replay_PKGS   = $(build_PKGS) libcmocka-dev perl

PKGS = $(sort $(foreach goal,$(filter-out build nginx lua,$(MAKECMDGOALS)), \
    $($(goal)_PKGS)))

# Each target with packages installs them before it runs.
$(patsubst %_PKGS,%,$(filter %_PKGS,$(.VARIABLES))): | deps

deps:
	@$(if $(PKGS),.ci/install-packages $(PKGS))

FORCE:

.PHONY: all soak sanitized build static clean demo demo-redis run screenshot test test-slow test-all tools unit \
    sanitize sanitize-programs coverage model allocations torture simulation simulation-asan fuzz replay weak \
    weak-mutations check-arm bench \
    bench-smoke bench-quick bench-figures plots fleet check \
    check-versions format page install install-lua uninstall deb cross check-packages \
    help deps FORCE
