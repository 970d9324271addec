# Copyright (C) the limit_sliding authors

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
	@$(say) CXX $<
	$(CXX) -std=c++17 -O2 $(UNIT_FLAGS) $(STEP_FLAGS) -It/unit -c -o $@ $<

$(BUILD)/torture/processes: $(addprefix $(BUILD)/torture/,witness.o workers.o)
$(TORTURE_PARTS): %: %.o $(BUILD)/torture/model.o $(unit_OBJS)
	@$(say) LINK $(@F)
	$(CXX) -o $@ $^ -lhiredis -pthread

-include $(torture_OBJS:.o=.d)
