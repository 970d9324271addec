# Copyright (C) the limit_sliding authors

# Preloaded into NGINX, it has allocations and other calls fail.
$(ALLOC): t/faults/alloc.cpp t/faults/calls.cpp t/faults/orders.hpp
	@mkdir -p $(@D)
	@$(say) LINK $(@F)
	$(CXX) $(CORE_FLAGS) -O2 -Wall -Wextra -shared -fPIC -o $@ $(filter %.cpp,$^)

allocations: build $(ALLOC)  ## allocations, and calls of files, that fail: each of them, for minutes
	@ALLOC_STEP=1 $(PROVE) t/faults/alloc*.t t/faults/limits_disk.t

SOAK_S ?= 600
soak: sanitized  ## mixed traffic, reloads, kills and a Redis that flaps, under ASan: SOAK_S=600
	@SOAK_S=$(SOAK_S) $(SANITIZED_PROVE) t/faults/soak.t
