# Copyright (C) the limit_sliding authors

# Each NAME_fuzz.cpp is a target for libFuzzer, which "make fuzz" runs, and a program
# that runs it on its corpus, which "make replay" does, and "make replay-asan" under ASan
# and UBSan: t/fuzz/README.md.

FUZZ_S     ?= 60
FUZZ_NAMES ?= $(patsubst t/fuzz/%_fuzz.cpp,%,$(sort $(wildcard \
    t/fuzz/*_fuzz.cpp)))

# What knows NGINX, of the module and of NGINX itself.  The linker takes what a target
# needs from an archive of all.
FUZZ_NGX  := src/redis/wire/reply.cpp src/redis/asks/script_call.cpp \
    src/redis/topology/cluster.cpp src/redis/topology/sentinel.cpp src/redis/wire/endpoint.cpp \
    $(filter-out %_redis.cpp %/dashboard.cpp,$(wildcard $(addprefix src/http/,json/*.cpp \
    keys/*.cpp calls/*.cpp api/*.cpp overrides/*.cpp))) src/http/values/rates_and_costs.cpp \
    $(addprefix src/http/request/,suspend.cpp penalties.cpp) \
    $(addprefix src/http/conf/,written_key.cpp client_address.cpp zone_conf.cpp) \
    src/http/response/headers.cpp
NGX_PARTS := core/ngx_string core/ngx_palloc core/ngx_array core/ngx_buf core/ngx_inet core/ngx_list \
    core/ngx_parse core/ngx_rbtree os/unix/ngx_alloc http/ngx_http_parse
NGX_INCS  := -I$(BUILD) $(addprefix -isystem $(BUILD)/tree/src/,core event \
    event/modules event/quic os/unix http http/modules http/v2 http/v3)
FUZZ_CXX   = -std=c++17 -fno-rtti -g1 -Wall -Isrc -It/unit -It/torture -It/fuzz \
    -MMD -MP -ffunction-sections -fdata-sections -w

fuzz_FLAGS   = -O1 -fsanitize=fuzzer-no-link,address,undefined \
    -fno-sanitize-recover=all -fno-omit-frame-pointer
replay_FLAGS = -O1
replay-asan_FLAGS = $(asan_FLAGS)
# The objects of what knows no NGINX are those of the unit tests, without a fuzzer.
replay_PURE  = unit
replay-asan_PURE = asan
fuzz_PURE    = fuzz
fuzz_SIM     = sim-fuzz
replay_SIM   = sim
replay-asan_SIM = sim-asan
fuzz_TOOLS   = clang
replay_TOOLS = $(CC)
replay-asan_TOOLS = $(CC)
fuzz_CXX     = clang++
replay_CXX   = $(CXX)
replay-asan_CXX = $(CXX)
# A process may die at any byte that it writes, and its memory with it.
comma := ,
%/limits_file_fuzz: WRAPS = $(addprefix -Wl$(comma)--wrap=,pwrite ftruncate fdatasync free \
    ngx_alloc ngx_calloc calloc)
# Functions that nothing calls may call what is not linked.  Their coverage must not keep them.
fuzz_LINK    = -fsanitize=fuzzer,address,undefined -Wl,-z,start-stop-gc
replay_LINK  =

# A flavour of all that is fuzzed, in a directory of its own.
define fuzz_flavour
$(1)_DIR  := $(BUILD)/$(1)
$(1)_OBJS := $$(PURE_SRCS:%.cpp=$(BUILD)/$$($(1)_PURE)/%.o) \
    $(FUZZ_NGX:src/%.cpp=$(BUILD)/$(1)/src/%.o) \
    $(NGX_PARTS:%=$(BUILD)/$(1)/ngx/%.o) \
    $(addprefix $(BUILD)/$(1)/,model.o nginx.o)
$(1)_PROGRAMS := $(FUZZ_NAMES:%=$(BUILD)/$(1)/%_fuzz)

$(BUILD)/$(1)/src/%.o: src/%.cpp $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@$(say) CXX $$<
	@$$($(1)_CXX) $$(FUZZ_CXX) -fno-exceptions -fno-threadsafe-statics -I$(BUILD)/$(1) \
	    $(NGX_INCS) $$($(1)_FLAGS) -c -o $$@ $$<

$(BUILD)/$(1)/src/redis/protocol/scripts.o: $(BUILD)/$(1)/limit_sliding_lua.inc

$(BUILD)/$(1)/limit_sliding_lua.inc: src/embed.sh $(LUA) $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@sh src/embed.sh $$@ -f $(LUA)

$(BUILD)/$(1)/ngx/%.o: | $(NGINX_SOURCE) $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@$(say) CC $$*.c
	@$$($(1)_TOOLS) -g1 -w $(NGX_INCS) -ffunction-sections -fdata-sections \
	    $$(filter-out -fno-sanitize-recover=all,$$($(1)_FLAGS)) -fno-sanitize=undefined \
	    -c -o $$@ $(BUILD)/nginx-source/src/$$*.c

$(BUILD)/$(1)/%.o: t/torture/%.cpp $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@$(say) CXX $$<
	@$$($(1)_CXX) $$(FUZZ_CXX) $$($(1)_FLAGS) -c -o $$@ $$<

$(BUILD)/$(1)/%.o: t/fuzz/%.cpp $(BUILD)/Makefile
	@mkdir -p $$(@D)
	@$(say) CXX $$<
	@$$($(1)_CXX) $$(FUZZ_CXX) $(NGX_INCS) $$($(1)_FLAGS) \
	    -DFUZZ_CORPUS='"$(CURDIR)/t/fuzz/corpus"' -c -o $$@ $$<

$(BUILD)/$(1)/all.a: $$($(1)_OBJS)
	@rm -f $$@ && ar rc $$@ $$^

# This one is of the simulation, whose objects come from t/sim/rules.mk.
$(BUILD)/$(1)/connection_fuzz: $(BUILD)/$(1)/connection_fuzz.o \
    $(if $(filter replay%,$(1)),$(BUILD)/$(1)/replay.o) \
    $$(filter-out %/t/sim/main.o,$$($$($(1)_SIM)_OBJS))
	@$(say) LINK $$(@F)
	@$$($(1)_CXX) $$($(1)_FLAGS) $$($(1)_LINK) -o $$@ $$^ $$(SIM_LINK)

$$(filter-out %/connection_fuzz,$$($(1)_PROGRAMS)): %: %.o $(if $(filter replay%,$(1)),$(BUILD)/$(1)/replay.o) \
    $(BUILD)/$(1)/all.a
	@$(say) LINK $$(@F)
	@$$($(1)_CXX) $$($(1)_FLAGS) $$($(1)_LINK) -Wl,--gc-sections $$(WRAPS) -o $$@ $$^ -lhiredis \
	    -lcmocka

-include $$(wildcard $(addprefix $(BUILD)/$(1)/,*.d src/*/*/*.d))
endef

$(foreach f,fuzz replay replay-asan,$(eval $(call fuzz_flavour,$(f))))

fuzz: $(fuzz_PROGRAMS)  ## libFuzzer on each target: FUZZ_S=60 FUZZ_NAMES="usage rate"
	@t/fuzz/run $(BUILD)/fuzz $(FUZZ_S) $(FUZZ_NAMES)

replay-asan: $(replay-asan_PROGRAMS)  ## the same under ASan and UBSan
	@$(PROVE) $(replay-asan_PROGRAMS)

replay: $(replay_PROGRAMS)  ## the targets of the fuzzers on their corpus, without clang
	@$(PROVE) $(replay_PROGRAMS)
