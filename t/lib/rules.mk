# The clock of black-box tests: t/lib/clock/page.hpp.
CLOCK := $(BUILD)/clock/keeper $(BUILD)/clock/clock.so

$(BUILD)/clock/keeper: t/lib/clock/keeper.cpp t/lib/clock/page.hpp
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -Wall -Wextra -o $@ $<

# Preloaded into programs with and without C++: it needs libc only.
$(BUILD)/clock/clock.so: t/lib/clock/preload.cpp t/lib/clock/page.hpp
	@mkdir -p $(@D)
	$(CXX) $(CORE_FLAGS) -O2 -Wall -Wextra -shared -fPIC -o $@ $< -ldl
