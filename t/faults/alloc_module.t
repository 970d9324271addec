# NGINX has no memory for the module, in each place where that asks for some while
# requests of all kinds are served. The worker goes on, counts stay right, and the
# next request is answered.

use v5.36;

use Test::More;

use LimitSliding::Alloc;
use LimitSliding::AllocRequests;
use LimitSliding::Redis;

plan skip_all => LimitSliding::Alloc::lacking() if LimitSliding::Alloc::lacking();

requests_fail('fail_memory', 1);

done_testing;
