# Copyright (C) the limit_sliding authors

# The simulation of what asks Redis: all of the core and the client but what reads the
# configuration or a file and speaks TLS, with those files of NGINX that touch no system.

SIM_CLIENT := $(filter-out %/redis_block.cpp %/tls.cpp %/password_file.cpp \
    $(PURE_SRCS),$(wildcard src/redis/*/*.cpp) src/http/request/sync_claims.cpp)
SIM_NGINX  := $(addprefix src/,$(addsuffix .c,core/ngx_array core/ngx_inet core/ngx_palloc \
    core/ngx_queue core/ngx_rbtree core/ngx_sha1 core/ngx_string event/ngx_event_posted \
    event/ngx_event_timer))
SIM_INCS   := $(addprefix -I$(BUILD)/tree/src/,core event event/modules os/unix http \
    http/modules http/v2) -I$(BUILD)
SIM_LINK   := -Wl,--wrap=free -l:libhiredis.a -l:liblua5.1.a -lcrypt -lm -ldl

# The objects of what knows no NGINX are those of the unit tests.
sim_PURE       = unit
sim-asan_PURE  = asan
sim-fuzz_PURE  = fuzz
sim-coverage_PURE = coverage
sim_FLAGS      = $(unit_FLAGS)
sim-asan_FLAGS = $(asan_FLAGS)
sim-fuzz_FLAGS = $(fuzz_FLAGS)
sim-coverage_FLAGS = $(coverage_FLAGS)
sim_CXX        = $(CXX)
sim-asan_CXX   = $(CXX)
sim-fuzz_CXX   = $(fuzz_CXX)
sim-coverage_CXX = $(CXX)
sim_TOOLS      = $(CC)
sim-asan_TOOLS = $(CC)
sim-fuzz_TOOLS = $(fuzz_TOOLS)
sim-coverage_TOOLS = $(CC)

define sim_flavour
$(1)_OBJS := $$(PURE_SRCS:%.cpp=$(BUILD)/$$($(1)_PURE)/%.o) \
    $$(SIM_CLIENT:%.cpp=$(BUILD)/$(1)/%.o) $$(SIM_NGINX:%.c=$(BUILD)/$(1)/nginx/%.o) \
    $(patsubst %.cpp,$(BUILD)/$(1)/%.o,$(wildcard t/sim/*.cpp))

$(BUILD)/$(1)/%.o: %.cpp $(BUILD)/settings | $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@$(say) CXX $$<
	$$($(1)_CXX) -std=c++17 $(UNIT_FLAGS) $(SIM_INCS) $$($(1)_FLAGS) $$(if $$(findstring \
	    t/sim/,$$<),-I/usr/include/lua5.1 -fno-access-control,$(CORE_FLAGS)) -c -o $$@ $$<

$(BUILD)/$(1)/nginx/%.o: $(BUILD)/settings | $(BUILD)/Makefile $(NGINX_SOURCE)
	@mkdir -p $$(@D)
	@$(say) CC $$*.c
	$$($(1)_TOOLS) -g1 $(SIM_INCS) $$($(1)_FLAGS) -fno-strict-aliasing -c -o $$@ \
	    $(BUILD)/nginx-source/$$*.c

$(BUILD)/$(1)/simulation: $$($(1)_OBJS)
	@$(say) LINK $$(@F)
	$$($(1)_CXX) $$($(1)_FLAGS) -o $$@ $$^ $(SIM_LINK)

-include $$(filter-out $(BUILD)/$(1)/nginx/%,$$($(1)_OBJS:.o=.d))
endef

$(foreach f,sim sim-asan sim-fuzz sim-coverage,$(eval $(call sim_flavour,$f)))

# Each seed is a world of its own; SIM_FIRST=N SIM_SEEDS=1 TRACE=1 shows that of N.
SIM_SEEDS ?= 100000
SIM_FIRST ?= 1
simulation: $(BUILD)/sim/simulation  ## all that asks Redis, over a network of seeds
	@t/sim/run $< $(SIM_FIRST) $(SIM_SEEDS) $(JOBS)

simulation-asan: $(BUILD)/sim-asan/simulation  ## the same under ASan and UBSan
	@t/sim/run $< $(SIM_FIRST) $(SIM_SEEDS) $(JOBS)
