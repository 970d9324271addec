/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/bans.hpp"

namespace limit_sliding {

/* Milliseconds between the times that a node asks for the bans of a zone: with a
 * round trip, a ban holds everywhere within half a second. */
constexpr uint64_t kBanPollMs = 400;

/* The same after a failure, so that a Redis that is back is soon seen to be. */
constexpr uint64_t kBanRetryMs = 250;

/* Other workers ask if the one that asked last is so late. */
constexpr uint64_t kBanTurnMs = 50;

/* Bans that a call tells of at most: Redis is busy with them for a millisecond. */
constexpr size_t kBansPerCall = 250;

/* To bans_script(), the number of doublings of a ban that was lifted. */
constexpr auto kScriptLifted = 31u;

/* Bans in a reply of bans_script() at most, the numbers of each, and before them. */
constexpr auto kScriptBans = 1000;
constexpr auto kScriptBanNumbers = 3;

/* A ban that begins, or is lifted. */
struct ToldBan {
    uint64_t hash;
    uint64_t left_ms; /* of a lift: until all bans that it may have ended are over */
    unsigned doublings;
    bool is_lifted;
    uint32_t place; /* where it waits */
    uint64_t word;  /* of a lift, there */
};

/* The content of a call of bans_script(). */
struct BanCall {
    uint64_t since;    /* of the set that the node was told of; 0: of none */
    uint64_t after;    /* the order up to which it was told */
    uint64_t until_ms; /* by Redis's clock: no ban is taken later; 0: that is not known yet,
                          and none is told */
    size_t n;
    ToldBan bans[kBansPerCall];
};

/* The changes that follow from a reply. */
enum class BanReply {
    kInvalid = 0,
    kDone,
    kMore /* there is more to ask for, at once */
};

/*
 * The bans that nodes exchange for a zone, in memory that the workers of a node share:
 * bans that begin here wait until Redis has them, and the node remembers up to which
 * order it has read the bans of other nodes.
 *
 * Each word is valid by itself.  A hash that waits is 0 or whole.  It stays while a call
 * is under way, so that another worker reports it if the caller dies, and a second ban of
 * the key takes another place, so that the end of the call removes no unreported ban.
 * Reporting a ban twice does no harm.
 *
 * The latest reported bans are kept, too, and the latest lifts that this node has
 * reported or read: if Redis has lost its data, they are reported again.  By then a
 * node that was cut off during a lift may report the ban again.  A ban that began before
 * a known lift is therefore answered by that lift, and a lift that is older than a ban by
 * that ban.
 */
class alignas(64) BanExchange {
public:
    static constexpr size_t kBytesMin = 4096;

    /* Makes it of `memory`: `bytes` long, at least kBytesMin, zeroed, aligned to 64. */
    static BanExchange *init(void *memory, size_t bytes);

    /* Has Redis told of a ban that begins, or that is lifted now.  Returns false if too
     * many wait already. */
    bool tell(uint64_t hash) { return put(waiting_, hash); }
    bool tell_lifted(uint64_t hash, uint64_t now_ms) { return put_lift(hash, now_ms, true); }

    /* Returns true to one worker each kBanPollMs: it is to ask. */
    bool take_turn(uint64_t now_ms);

    /* Returns in how many ms a worker is to look again, which has just asked or not. */
    uint64_t wait_ms(uint64_t now_ms, bool has_asked) const;

    /* Notes that a call has failed. */
    void failed(uint64_t now_ms, uint32_t random);

    /* Sets the content of the next call: the waiting bans that are in force. */
    void fill(BanCall *call, const Bans &bans, const PenaltyRule &rule, uint64_t now_ms);

    /* Reads the reply to the call, which was sent at that time: sets the bans, and
     * removes the reported ones. */
    BanReply read(const BanCall &call, const int64_t *numbers, size_t n, Bans *bans,
                  const PenaltyRule &rule, uint64_t sent_ms);

private:
    /* Words, 0 where nothing is.  The range follows the object. */
    struct Ring {
        uint64_t next;
        uint32_t first;
        uint32_t size;
    };

    /* A lift; it is of no key while the word is 0. */
    struct Lift {
        uint64_t hash;
        uint64_t word; /* when it was, in ms, times 2, and 1 more while it waits */

        bool replace(uint64_t old, uint64_t next_hash, uint64_t next);
    };

    uint64_t *words(const Ring &ring) const;
    bool put(Ring &ring, uint64_t hash);
    Lift *find_lift(uint64_t hash);
    bool put_lift(uint64_t hash, uint64_t at_ms, bool waits);
    void remove(const BanCall &call);
    void remember(uint64_t hash);
    void repeat(const Bans &bans, uint64_t now_ms);
    void take(const int64_t *numbers, Bans *bans, const PenaltyRule &rule, uint64_t sent_ms);

    /* Lifts come from administrators. */
    static constexpr uint32_t kLiftsMax = 64;

    uint64_t since_; /* is stored after the order, and read before it */
    uint64_t order_;
    uint64_t turn_ms_;
    uint64_t ahead_ms_; /* Redis's clock, of the node's; 0: that is not known */
    Ring waiting_;
    Ring told_;
    uint64_t next_lift_;
    Lift lifts_[kLiftsMax];
};

} // namespace limit_sliding
