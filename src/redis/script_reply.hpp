/*
 * Copyright (C) the limit_sliding authors
 */

/* What the script's replies say. */

#ifndef LIMIT_SLIDING_REDIS_SCRIPT_REPLY_HPP
#define LIMIT_SLIDING_REDIS_SCRIPT_REPLY_HPP

#include "redis/batch.hpp"

namespace limit_sliding {

/* What a reply says of an ask. */
struct Answer {
    int64_t granted;
    RemoteState remotes[kClaimsMax];
    unsigned off[kClaimsMax];
    uint32_t own[kClaimsMax];      /* the key's own limit, or
                                      LIMIT_SLIDING_OWN_* */
    int64_t forgotten[kClaimsMax]; /* ms ago, and 1; 0: not */
    unsigned refused;              /* still, all who ask */
};

ngx_uint_t call_is_answered(AskCall *call, Reply *reply);
int64_t *read_answer(Ask *ask, uint64_t now_ms, int64_t *number,
                     Answer *answer);
void describe_part(Ask *ask, Answer *answer, ngx_uint_t i, uint32_t before,
                   ngx_uint_t admitted, Verdict *verdict);

} // namespace limit_sliding

#endif
