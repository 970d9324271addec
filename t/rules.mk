# Copyright (C) the limit_sliding authors

# Unit tests print TAP, as t/*/*.t do, so that one prove runs all.
PROVE = CMOCKA_MESSAGE_OUTPUT=TAP LIMIT_SLIDING_NGINX=$(NGINX) \
        LIMIT_SLIDING_MODULE=$(MODULE) \
        LIMIT_SLIDING_FLEET=$(FLEET) LIMIT_SLIDING_CLOCK_BUILD=$(BUILD)/clock \
        LIMIT_SLIDING_FAULTS=$(BUILD)/faults prove --timer -j$(JOBS) -It/lib

BLACK_BOX  := $(filter-out t/tools/%,$(sort $(wildcard t/*/*.t)))
# These say in their first lines why they do not run on virtual time.
REAL_TESTS := $(shell grep -l '^use LimitSliding::Clock real' $(BLACK_BOX))
# This one builds an NGINX for each of its cases.
DRIFT_TEST := t/config/drift.t
# These take longer than a few seconds of a processor.
LONG_TESTS := $(patsubst %,t/%.t,faults/alloc faults/alloc_module faults/alloc_requests \
    faults/in_flight_long docs/fleet outages/replies redis/clock_failover redis/in_flight_losses)
TEST_FILES := $(filter-out $(REAL_TESTS) $(LONG_TESTS),$(BLACK_BOX))
# These run on builds for something else than speed, too.
PATIENT_TESTS := $(filter-out $(REAL_TESTS) t/docs/docs.t t/config/upgrade.t,$(BLACK_BOX))

test: build tools $(ALLOC) $(unit_TESTS)  ## units, and t/*/*.t on a real NGINX: 2 to 5 minutes after the compilers
	@set -o pipefail; $(PROVE) $(unit_TESTS) $(TEST_FILES) \
	    | tee $(BUILD)/test.log
	@echo 'the slowest, in ms:'; sed -nE 's/^(\[[0-9:]+\] )?(\S+) \.+ ok +([0-9]+) ms.*/\3 \2/p' \
	    $(BUILD)/test.log | sort -rn | head -n 10

test-slow: build tools $(FLEET) $(ALLOC)  ## the files that take longer
	@$(PROVE) $(filter-out $(REAL_TESTS),$(LONG_TESTS))

test-real: build tools $(FLEET) $(ALLOC) $(STEPS)  ## files on real time: kills under load, instructions, a real browser
	@$(PACKAGES) install BROWSER || echo 'going on without a browser'
	@$(PROVE) $(filter-out $(DRIFT_TEST),$(REAL_TESTS))

drift: build $(NGINX_SOURCE)  ## an NGINX with other structures is refused: DRIFTS=3 builds three
	@LIMIT_SLIDING_DRIFTS=$(DRIFTS) LIMIT_SLIDING_BUILD=$(BUILD) $(PROVE) $(DRIFT_TEST)

test-tools: build $(STEPS)  ## our own checks and tools
	@$(PROVE) $(wildcard t/tools/*.t)

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
SANITIZED_TESTS ?= $(PATIENT_TESTS)

$(NGINX_SOURCE): | deps
	@.ci/packages source $(BUILD)/nginx-source

sanitize-programs: $(tsan_TESTS) $(asan_TESTS)

# The NGINX, and prove with it.
sanitized: $(NGINX_SOURCE)
	@LIMIT_SLIDING_CFLAGS='-fsanitize=undefined -UNDEBUG -g1 $(NO_INLINE)' $(MAKE) static \
	    BUILD=$(SANITIZED) NGX_SRC=$(BUILD)/nginx-source \
	    NGX_CONF_OPTS='$(SANITIZED_OPTS)' > /dev/null

# The clock is loaded before ASan, and calls none of its functions.
SANITIZED_PROVE = ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
    LIMIT_SLIDING_CLOCK_BUILD=$(BUILD)/clock LIMIT_SLIDING_NGINX=$(SANITIZED)/static/nginx \
    LIMIT_SLIDING_MODULE= prove --timer -It/lib

sanitize: sanitized sanitize-programs  ## units under TSan, ASan, UBSan; t/*/*.t on an NGINX under ASan
	@$(PROVE) $(tsan_TESTS) $(asan_TESTS)
	@LIMIT_SLIDING_SLOW=1 $(SANITIZED_PROVE) -j$(JOBS) $(SANITIZED_TESTS)
