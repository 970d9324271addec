# Copyright (C) the limit_sliding authors

prove:  ## every proof at full length
	@:
