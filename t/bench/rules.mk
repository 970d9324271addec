# Copyright (C) the limit_sliding authors

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
	@$(say) LINK $(@F)
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
	@$(say) CXX $<
	$(CXX) $(CORE_FLAGS) $(fast_FLAGS) $(UNIT_FLAGS) -It/unit -c -o $@ $<

$(BUILD)/bench/core: $(addprefix $(BUILD)/bench/,peer.o draw.o table.o)
$(BUILD)/bench/accuracy: $(addprefix $(BUILD)/bench/,accuracy_measure.o \
    accuracy_plot.o accuracy_promises.o table.o)
$(FLEET): $(addprefix $(BUILD)/bench/,zipf.o fleet.o fleet_redis.o fleet_sync.o)
$(BENCHES): %: %.o $(fast_OBJS) | $(TRACE)
	@$(say) LINK $(@F)
	$(CC) -o $@ $^ -lhiredis -lm

-include $(bench_OBJS:.o=.d)
