# Copyright (C) the limit_sliding authors

# The clock of black-box tests: t/lib/clock/page.hpp.
CLOCK := $(BUILD)/clock/keeper $(BUILD)/clock/clock.so

# Goals that run files on virtual time.
test test-slow sanitize coverage allocations torture: $(CLOCK)

$(BUILD)/clock/keeper: t/lib/clock/keeper.cpp t/lib/clock/page.hpp
	@mkdir -p $(@D)
	@$(say) LINK $(@F)
	$(CXX) -std=c++17 -O2 -Wall -Wextra -o $@ $<

# Preloaded into programs with and without C++: it needs libc only.
$(BUILD)/clock/clock.so: t/lib/clock/preload.cpp t/lib/clock/page.hpp
	@mkdir -p $(@D)
	@$(say) LINK $(@F)
	$(CXX) $(CORE_FLAGS) -O2 -Wall -Wextra -shared -fPIC -o $@ $< -ldl
