# Copyright (C) the limit_sliding authors

# Unit tests print TAP, as t/*/*.t do, so that one prove runs all.
PROVE = CMOCKA_MESSAGE_OUTPUT=TAP LIMIT_SLIDING_NGINX=$(NGINX) \
        LIMIT_SLIDING_MODULE=$(MODULE) \
        LIMIT_SLIDING_FLEET=$(FLEET) LIMIT_SLIDING_CLOCK_BUILD=$(BUILD)/clock \
        LIMIT_SLIDING_FAULTS=$(BUILD)/faults prove --timer -j$(JOBS) -It/lib

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
SLOW_UNITS := $(patsubst %,$(BUILD)/unit/%_test,threads lease_threads)

test: build tools $(ALLOC) $(CLOCK) $(unit_TESTS)  ## in 5 minutes: units, and t/*/*.t on a real NGINX but for the slow ones
	@$(PACKAGES) install BROWSER || echo 'going on without a browser'
	@$(PROVE) $(filter-out $(SLOW_UNITS),$(unit_TESTS)) $(filter-out $(SLOW_TESTS),$(BLACK_BOX))

test-slow: build tools $(FLEET) $(ALLOC) $(CLOCK) $(BUILD)/sim/simulation $(BUILD)/weak/weak $(BUILD)/torture/scripts $(SLOW_UNITS) $(replay_PROGRAMS) $(BUILD)/tools-tested  ## the slow ones, corpora of the fuzzers, simulated networks, weak memory
	@$(PROVE) $(SLOW_UNITS) $(SLOW_TESTS) $(replay_PROGRAMS)
	@t/sim/run $(BUILD)/sim/simulation 1 4000 $(JOBS)
	@$(BUILD)/weak/weak --percent=5
	@$(BUILD)/torture/scripts 3 1

test-all: test test-slow  ## both

# The tests of our own tools run once these changed.
$(BUILD)/tools-tested: Makefile $(wildcard .ci/* t/rules.mk t/*/rules.mk t/bench/*.p[lm] t/lib/*/* t/tools/*.t) | build $(STEPS)
	@$(PROVE) $(wildcard t/tools/*.t)
	@touch $@

# What tests need of packages that are not to be installed.
tools:
	@.ci/packages unpack $(BUILD)

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
	@.ci/packages source $(BUILD)/nginx-source

sanitize-programs: $(tsan_TESTS) $(asan_TESTS) $(replay-asan_PROGRAMS)

# The NGINX, and prove with it.
sanitized: $(NGINX_SOURCE)
	@LIMIT_SLIDING_CFLAGS='-fsanitize=undefined -UNDEBUG -g1 $(NO_INLINE)' $(MAKE) static \
	    BUILD=$(SANITIZED) NGX_SRC=$(BUILD)/nginx-source \
	    NGX_CONF_OPTS='$(SANITIZED_OPTS)' > /dev/null

SANITIZED_PROVE = ASAN_OPTIONS=detect_leaks=0 LIMIT_SLIDING_NGINX=$(SANITIZED)/static/nginx \
    LIMIT_SLIDING_MODULE= prove --timer -It/lib

sanitize: sanitized sanitize-programs  ## units under TSan, ASan, UBSan; t/*/*.t on an NGINX under ASan
	@$(PROVE) $(tsan_TESTS) $(asan_TESTS) $(replay-asan_PROGRAMS)
	@LIMIT_SLIDING_SLOW=1 $(SANITIZED_PROVE) -j$(JOBS) \
	    $(filter-out $(SANITIZED_SKIP),$(SANITIZED_TESTS))
