# Copyright (C) the limit_sliding authors

# Units, t/*/*.t but for what measures, and some of the simulation:
# t/coverage/report.pl says of which branches none was taken, and fails below its bounds.
# A few tests fail here, as gcov takes time, files and descriptors; should many fail, the
# bounds are missed.
COVERAGE_TESTS ?= $(PATIENT_TESTS)
COVERAGE_MODULE = $(BUILD)/coverage/module/$(notdir $(MODULE))

coverage: tools $(ALLOC) $(coverage_TESTS) $(BUILD)/sim-coverage/simulation  ## branches that units and t/*/*.t take: COVERAGE_TESTS=
	@find $(BUILD)/coverage $(BUILD)/sim-coverage -name '*.gcda' -delete
	@LIMIT_SLIDING_CFLAGS='$(coverage_FLAGS)' $(MAKE) -j$(JOBS) build \
	    BUILD=$(BUILD)/coverage/module NGX_CONF_OPTS=--with-ld-opt=--coverage > /dev/null
	@LIMIT_SLIDING_ALL=1 $(PROVE) $(coverage_TESTS) || true
	@LIMIT_SLIDING_SLOW=1 $(subst $(MODULE),$(COVERAGE_MODULE),$(PROVE)) $(COVERAGE_TESTS) || true
	@t/sim/run $(BUILD)/sim-coverage/simulation 1 4000 $(JOBS) || true
	@t/coverage/report.pl $(BUILD)/coverage $(BUILD)/sim-coverage
