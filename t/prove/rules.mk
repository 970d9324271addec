# Copyright (C) the limit_sliding authors

prove:  ## all proofs at full length, for hours: PART="model weak"; goes on where it stopped
	@t/prove/run $(BUILD) $(PART)

prove-changed:  ## the proofs that the changes since a revision call for: BASE=revision
	@t/prove/run $(BUILD) --changed $(BASE)

mutants:  ## whether the tests notice one wrong line: MUTANTS="name name"
	@t/mutants/run $(MUTANTS)
