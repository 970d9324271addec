# Copyright (C) the limit_sliding authors

demo: build  ## watch a limit bite and its window slide back open
	@perl t/demo/demo.pl --nginx $(NGINX) --module $(MODULE)

demo-redis: build  ## one limit over two NGINXs; Redis dies and comes back
	@perl t/demo/redis.pl --nginx $(NGINX) --module $(MODULE)

LIVE = perl -It/lib t/demo/live.pl --nginx $(NGINX) --module $(MODULE)

run: build  ## the dashboard with a Redis and made-up traffic, until Ctrl-C
	@$(LIVE)

screenshot: build  ## draw docs/dashboard*.png anew, in eleven minutes
	@$(LIVE) --draw docs
