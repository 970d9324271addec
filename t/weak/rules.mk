# Copyright (C) the limit_sliding authors

# What processors do that order memory less than an x86 does.

# The core with atomics of its own, which play what C++'s memory model allows.
weak_OBJS := $(patsubst t/weak/%.cpp,$(BUILD)/weak/%.o,$(wildcard t/weak/*.cpp)) \
    $(patsubst src/%.cpp,$(BUILD)/weak/src/%.o,$(filter-out \
    src/redis/protocol/scripts.cpp,$(PURE_SRCS)))
weak_CXX = $(CXX) $(CORE_FLAGS) $(UNIT_FLAGS) -O2 \
    -DLIMIT_SLIDING_ATOMICS='"../t/weak/atomic.hpp"'

$(BUILD)/weak/weak: $(weak_OBJS)
	@$(say) LINK $(@F)
	$(CXX) -o $@ $^

$(BUILD)/weak/src/%.o: src/%.cpp $(BUILD)/settings
	@mkdir -p $(@D)
	@$(say) CXX $<
	$(weak_CXX) -c -o $@ $<

$(BUILD)/weak/%.o: t/weak/%.cpp $(BUILD)/settings
	@mkdir -p $(@D)
	@$(say) CXX $<
	$(weak_CXX) -c -o $@ $<

# The headers of relacy throw, and have warnings.
$(BUILD)/weak/checker.o: weak_CXX = $(CXX) -std=c++17 -O2 -w -MMD -MP

-include $(weak_OBJS:.o=.d)

.PHONY: $(BUILD)/arm/tests
$(BUILD)/arm/tests: $(arm_TESTS)

WEAK_PERCENT ?= 100
weak: $(BUILD)/weak/weak  ## races under C++'s memory model, by relacy: WEAK_PERCENT=100
	@$< --percent=$(WEAK_PERCENT)

weak-mutations: $(BUILD)/weak/weak  ## whether "make weak" notices orders that are too weak
	@t/weak/mutate $<

# Programs of aarch64, run by qemu.  It keeps the order of an x86: what this finds is
# wrong of alignment, sizes, and how compare-and-swap is compiled.
check-arm:  ## the unit tests on aarch64, by qemu
	@.ci/packages arm64 $(BUILD)/arm64
	@$(MAKE) $(BUILD)/arm/tests > /dev/null
	@QEMU_LD_PREFIX=/usr/$(ARM) \
	    QEMU_SET_ENV=LD_LIBRARY_PATH=$(BUILD)/arm64/usr/lib/$(ARM) \
	    CMOCKA_MESSAGE_OUTPUT=TAP prove --timer -j$(JOBS) -e qemu-aarch64 $(arm_TESTS)
