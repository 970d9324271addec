# Copyright (C) the limit_sliding authors

# A flavour of the core and its unit tests, built in a directory of its own.
# Linked by the C compiler, as the module is, but for clang's UBSan of C++.
CORE_FLAGS = -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics
UNIT_FLAGS = -g1 -Wall -Wextra -Wno-missing-field-initializers -Isrc -MMD -MP \
    -DTRACE_PATH='"$(TRACE)"'

# A day of real traffic, unpacked.
TRACE := $(BUILD)/nasa-http-1995-08-01.tsv

$(TRACE): t/data/$(notdir $(TRACE)).gz
	@mkdir -p $(@D)
	@gzip -dc $< > $@

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
	@$(say) CXX $$<
	$$($(1)_CXX) $$($(1)_CXXFLAGS) -I$(BUILD)/$(1) -c -o $$@ $$<

$(BUILD)/$(1)/src/redis/protocol/scripts.o: $(BUILD)/$(1)/limit_sliding_lua.inc

$(BUILD)/$(1)/limit_sliding_lua.inc: src/embed.sh $(LUA) $(BUILD)/settings
	@mkdir -p $$(@D)
	@sh src/embed.sh $$@ -f $(LUA)

$(BUILD)/$(1)/%.o: t/unit/%.cpp $(BUILD)/settings
	@mkdir -p $$(@D)
	@$(say) CXX $$<
	$$($(1)_CXX) $$($(1)_CXXFLAGS) -c -o $$@ $$<

$$($(1)_TESTS): %: %.o $$($(1)_OBJS) | $(TRACE)
	@$(say) LINK $$(@F)
	$$($(1)_LINK) $$($(1)_FLAGS) -o $$@ $$^ -lcmocka -lhiredis -lm -pthread

-include $$($(1)_OBJS:.o=.d) $$($(1)_TESTS:=.d)
endef

$(foreach f,unit fast tsan asan arm coverage,$(eval $(call flavour,$f)))

# Where there is one thread, TSan has nothing to find.
tsan_TESTS := $(patsubst t/unit/%.cpp,$(BUILD)/tsan/%,$(shell grep -lE \
    'pthread_create|"(rounds|zone_memory).hpp"' t/unit/*_test.cpp))

unit-programs: $(unit_TESTS)

unit: $(unit_TESTS)  ## the unit tests of the core alone
	@LIMIT_SLIDING_ALL=1 $(PROVE) $(unit_TESTS)
