/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/bans.hpp"

namespace limit_sliding {

/* Time in ms between two calls of a node for the bans of a zone: with a round trip, a ban holds
 * on all nodes within half a second. */
constexpr uint64_t kBanPollMs = 400;

/* The longest time in ms from a failure to the next call, to notice a recovered Redis soon. */
constexpr uint64_t kBanRetryMs = 250;

/* Time in ms by which the next call may be late before another worker sends it. */
constexpr uint64_t kBanTurnMs = 50;

/* The most bans that a call reports: they keep Redis busy for a millisecond. */
constexpr size_t kBansPerCall = 250;

/* The number of doublings that marks a lifted ban for bans_script(). */
constexpr auto kScriptLifted = 31u;

/* The most bans in a reply of bans_script(), and the numbers of each ban. */
constexpr auto kScriptBans = 1000;
constexpr auto kScriptBanNumbers = 3;

/* The report of a ban that has begun, or was lifted. */
struct ToldBan {
    uint64_t hash;
    uint64_t left_ms; /* ms left; of a lift: until any ban that it may have ended is over */
    unsigned doublings;
    bool is_lifted;
    uint32_t place; /* index in waiting_, or in lifts_ */
    uint64_t word;  /* Lift::word, of a lift */
};

/* The arguments of a call of bans_script(). */
struct BanCall {
    uint64_t since;    /* begin of the set that the node has read, in ms of Redis; 0: none */
    uint64_t after;    /* order up to which the node has read this set */
    uint64_t until_ms; /* ms of Redis until which bans are accepted; 0: unknown, none is reported */
    size_t n;
    ToldBan bans[kBansPerCall];
};

/* The result of a reply. */
enum class BanReply {
    kInvalid = 0,
    kDone,
    kMore /* another call is due at once */
};

/*
 * The bans that nodes exchange for a zone, in memory that the workers of a node share.  Bans that
 * begin on this node wait until Redis has them, and the node remembers the order up to which it
 * has read the bans of other nodes.
 *
 * Each word is valid by itself: a waiting hash is 0 or complete.  A hash stays while a call is
 * under way, so that another worker reports it if the caller dies.  A second ban of the key takes
 * another place, so that the end of the call removes no unreported ban.  Reporting a ban twice
 * does no harm.
 *
 * The latest reported bans, and the latest lifts that this node has reported or read, are kept,
 * and reported again if Redis has lost its data.  By then, a node that was cut off during a lift
 * may have reported the ban again.  So this node reports a lift again when it reads a ban that
 * began before the lift, and a ban when it reads a lift that is older than the ban.
 */
class alignas(64) BanExchange {
public:
    static constexpr size_t kBytesMin = 4096;

    /* Makes the object in `memory`: `bytes` >= kBytesMin, zeroed, aligned to 64. */
    static BanExchange *init(void *memory, size_t bytes);

    /* Add a ban that begins, or is lifted now, to the reports.  Return false if too many wait. */
    bool tell(uint64_t hash) { return put(waiting_, hash); }
    bool tell_lifted(uint64_t hash, uint64_t now_ms) { return put_lift(hash, now_ms, true); }

    /* Returns true to one worker in each kBanPollMs, which must send the next call. */
    bool take_turn(uint64_t now_ms);

    /* Returns the ms until a worker must try to take a turn; `has_asked`: it took the last. */
    uint64_t wait_ms(uint64_t now_ms, bool has_asked) const;

    /* Notes that a call has failed; `random`, any number, spreads the retries of nodes. */
    void failed(uint64_t now_ms, uint32_t random);

    /* Sets the arguments of the next call: waiting lifts, and waiting bans that are in force. */
    void fill(BanCall *call, const Bans &bans, const PenaltyRule &rule, uint64_t now_ms);

    /* Reads the reply to a call that was sent at `sent_ms`: sets the bans of other nodes, and
     * removes the reported bans from the waiting ones. */
    BanReply read(const BanCall &call, const int64_t *numbers, size_t n, Bans *bans,
                  const PenaltyRule &rule, uint64_t sent_ms);

private:
    /* A ring of hashes, behind the object; 0: an empty place. */
    struct Ring {
        uint64_t next;
        uint32_t first;
        uint32_t size;
    };

    /* A lift of a ban; empty while the word is 0. */
    struct Lift {
        uint64_t hash;
        uint64_t word; /* 2 x the time in ms, plus 1 while the lift waits */

        bool replace(uint64_t old, uint64_t next_hash, uint64_t next);
    };

    uint64_t *words(const Ring &ring) const;
    bool put(Ring &ring, uint64_t hash);
    Lift *find_lift(uint64_t hash);
    bool put_lift(uint64_t hash, uint64_t at_ms, bool waits);
    void remove(const BanCall &call);
    void repeat(const Bans &bans, uint64_t now_ms);
    void take(const int64_t *numbers, Bans *bans, const PenaltyRule &rule, uint64_t sent_ms);

    /* Lifts are few, because they come from administrators. */
    static constexpr uint32_t kLiftsMax = 64;

    uint64_t since_; /* BanCall::since; stored after order_, and read before it */
    uint64_t order_;
    uint64_t turn_ms_;
    uint64_t ahead_ms_; /* Redis's clock minus the node's; 0: unknown */
    Ring waiting_;
    Ring reported_;
    uint64_t next_lift_;
    Lift lifts_[kLiftsMax];
};

} // namespace limit_sliding
