# Copyright (C) the limit_sliding authors

model:  ## check models of the table, its rings and leases with spin
	@t/model/run
