/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/fact_table.hpp"

namespace limit_sliding {

/*
 * The units of keys that a node has admitted and not yet reported to Redis, in shared memory.
 * All workers add units.  When they are due, one worker takes all units of a key at once.
 *
 * The worker that adds the first units of a key must send them, with the units that others add.
 * If the sender has died, the next worker that adds to long overdue units sends them.  While
 * units of a key are under way, no other units of the key are taken.
 *
 * The fact of a key has all fields that change at once:
 *
 *     due, ms 22 | look 1 | busy 1 | units 32
 *
 * `busy` is set while units are under way, and `look` if Redis must be asked even without units.
 * A new key takes the place of a key that has neither units nor a call under way; else of a key
 * whose units are long overdue, because their sender has gone and the key may never return.
 *
 * Times are modulo 70 minutes, and none is further ahead than kWaitMaxMs: a time that seems to be
 * is in the past.
 */
class Outbox : public FactTable {
public:
    /* The longest time in ms for which units wait or are under way, apart from a few seconds. */
    static constexpr uint64_t kWaitMaxMs = 130000;

    /* Makes the table in `bytes` >= 192 of zeroed memory, aligned to 64. */
    static Outbox *init(void *memory, size_t bytes);

    enum class Added {
        kDone = 0,
        kSend, /* the caller must take the units when they are due */
        kFull  /* the units were not added */
    };

    /* Adds 1 .. UINT32_MAX units of the key with this hash, which are due an interval after the
     * last ones were taken.  *due_ms is set with kSend.  kFull: all places of the key are in use
     * for other keys, or the sum of units is too large.  Sets *evicted to the units of a key that
     * was evicted, else to 0, if this key was added. */
    Added add(uint64_t hash, uint64_t units, uint64_t now_ms, uint64_t interval_ms,
              uint64_t *due_ms, uint64_t *evicted = nullptr);

    /* Requests a call for the key without units, but not before Rest::look_ms of the last one.
     * Sets *evicted as add() does. */
    Added look(uint64_t hash, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms,
               uint64_t *evicted = nullptr);

    enum class Took {
        kNothing = 0, /* other workers have taken the units */
        kLater,       /* the units are due at *due_ms */
        kTaken
    };

    /* Takes all units of a key, if they are due or `early` is set.  They are under way until
     * done() is called, or for `most_ms` even if the caller dies. */
    Took take(uint64_t hash, uint64_t now_ms, uint64_t most_ms, bool early, uint64_t *units,
              uint64_t *due_ms);

    /* The state of a key after its units were under way. */
    struct Rest {
        uint64_t units;   /* units to be sent again */
        bool look;        /* ask Redis again, even if no units are admitted */
        uint64_t due_ms;  /* time at which units that were added meanwhile are due */
        uint64_t wait_ms; /* ms until `units` are due at least, if no others are */
        uint64_t look_ms; /* time from which look() may ask again */
    };

    /* Ends the sending that take() has begun.  kSend: units or a look are due at *due_ms; kFull:
     * the units to be sent again were not added. */
    Added done(uint64_t hash, uint64_t now_ms, const Rest &rest, uint64_t *due_ms);

    /* Returns the units of the key that no worker has taken. */
    uint64_t units(uint64_t hash) const;

    /* Subtracts up to `units` units that no worker has taken.  Returns their number.  The caller
     * refunds the others.  If units are under way, their reply may not know of this refund, so
     * done() then requests another call. */
    uint64_t subtract(uint64_t hash, uint64_t units);

    /* The last reply about a key. */
    struct Seen {
        uint64_t used;  /* units used on all nodes */
        uint64_t at_ms; /* time of the call in ms; 0: nothing is known */
        uint64_t share; /* share of other nodes in the admitted units, in 1/256 */
        uint64_t pace;  /* peak of the units that all nodes admit in an interval */
    };

    /* Read and replace the last reply, for a worker that has taken the key's units and is not
     * late: until then the key keeps its place. */
    Seen seen(uint64_t hash, uint64_t now_ms) const;

    void set_seen(uint64_t hash, const Seen &seen);

private:
    template <class Change>
    bool update(uint64_t hash, uint64_t now_ms, uint64_t *evicted, const Change &change);
};

} // namespace limit_sliding
