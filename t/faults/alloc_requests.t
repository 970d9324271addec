# Allocations that fail while requests of all kinds are served. The worker goes
# on, counts stay right, and the next request is answered.
#
# ALLOC_STEP is the distance of those that are tried (11); 1 tries all of them.

use v5.36;

use Test::More;

use LimitSliding::Alloc;
use LimitSliding::AllocRequests;
use LimitSliding::Redis;

plan skip_all => LimitSliding::Alloc::lacking() if LimitSliding::Alloc::lacking();

requests_fail('fail', $ENV{ALLOC_STEP} // 11);

done_testing;
