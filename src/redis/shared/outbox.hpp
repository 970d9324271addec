/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/fact_table.hpp"

namespace limit_sliding {

/*
 * The units of keys that a node has admitted and Redis has not acknowledged yet, in shared memory;
 * negative, if more was given back since.  All workers add units.  When they are due, one worker
 * reports them: the total of the key, which is the acknowledged total and these units.  The units
 * stay until Redis has acknowledged the total, so neither a worker that dies nor a lost reply loses
 * any of them.
 *
 * The worker that adds the first units of a key must report them, with the units that others add.
 * If it has died, the next worker that adds to long overdue units reports them.  While a report is
 * under way, there is no other one of the key.
 *
 * The fact of a key has all fields that change at once:
 *
 *     due, ms 22 | look 1 | busy 1 | units 36, signed
 *
 * `busy` is set while a report is under way, and `look` if Redis must be asked even without units.
 * A new key takes the place of a key that has neither units nor a report under way; else of a key
 * whose units are long overdue, because their sender has gone and the key may never return.
 *
 * Times are modulo 70 minutes, and none is further ahead than kWaitMaxMs: a time that seems to be
 * is in the past.
 */
class Outbox : public FactTable {
public:
    /* The longest time in ms for which units wait or are under way, apart from a few seconds. */
    static constexpr uint64_t kWaitMaxMs = 130000;

    /* Makes the table in `bytes` >= 320 of zeroed memory, aligned to 64. */
    static Outbox *init(void *memory, size_t bytes);

    enum class Added {
        kDone = 0,
        kSend, /* the caller must report the units when they are due */
        kFull  /* the units were not added */
    };

    /* Adds units of the key with this hash, UINT32_MAX at most, negative ones if they were given
     * back; they are due an interval after the last report.  *due_ms is set with kSend.  kFull: all
     * places of the key are in use for other keys, or the sum of units is too large.  Sets *evicted
     * to the units of a key that was evicted, else to 0, if this key was added. */
    Added add(uint64_t hash, int64_t units, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms,
              uint64_t *evicted = nullptr);

    /* Requests a call for the key without units, but not before Rest::look_ms of the last one.
     * Sets *evicted as add() does. */
    Added look(uint64_t hash, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms,
               uint64_t *evicted = nullptr);

    enum class Took {
        kNothing = 0, /* another worker reports the units */
        kLater,       /* the units are due at *due_ms */
        kTaken
    };

    /* A report of a key. */
    struct Report {
        uint64_t life; /* number of the key since it took its place, 1 .. 2^48 - 1 */
        int64_t acked; /* acknowledged total since then */
        int64_t units; /* units added since then */
    };

    /* Begins the report of a key, if it is due or `early` is set.  It is under way until done() is
     * called, or for `most_ms` even if the caller dies.  `life` is a random number for a key that
     * has none. */
    Took take(uint64_t hash, uint64_t now_ms, uint64_t most_ms, bool early, uint64_t life,
              Report *report, uint64_t *due_ms);

    /* Notes that Redis has acknowledged another total in the reply to a report.  Returns false if
     * this is known, or if the reply is too late: a later report was acknowledged. */
    bool acknowledge(uint64_t hash, const Report &report, int64_t total);

    /* The state of a key after a report. */
    struct Rest {
        int64_t settled;  /* units that need no report any more */
        bool look;        /* ask Redis again, even if no units are admitted */
        uint64_t due_ms;  /* time at which units that were added meanwhile are due */
        uint64_t wait_ms; /* ms until units are due at least, if no others were added */
        uint64_t look_ms; /* time from which look() may ask again */
        bool leaves;      /* the caller exits: the next worker that adds units reports the rest */
    };

    /* Ends the report that take() has begun.  kSend: units or a look are due at *due_ms. */
    Added done(uint64_t hash, uint64_t now_ms, const Report &report, const Rest &rest,
               uint64_t *due_ms);

    /* Returns the units of the key that Redis has not acknowledged. */
    int64_t units(uint64_t hash) const;

    /* Removes up to `units` units that were not given back.  Returns their number. */
    uint64_t subtract(uint64_t hash, uint64_t units);

    /* The last reply about a key. */
    struct Seen {
        int64_t others;    /* sum of the totals of other nodes */
        uint64_t added;    /* units of other nodes that were added to the count of this node */
        uint64_t reserved; /* units that this node leaves to other nodes until the next reply */
        uint64_t at_ms;    /* time of the call in ms; 0: nothing is known */
        uint64_t share;    /* share of other nodes in the admitted units, in 1/256 */
        uint64_t pace;     /* peak of the units that all nodes admit in an interval */
    };

    /* Read and replace the last reply, for a worker with a report of the key. */
    Seen seen(uint64_t hash, uint64_t now_ms) const;

    void set_seen(uint64_t hash, const Seen &seen);

private:
    uint64_t *known(uint64_t hash) const;

    template <class Change>
    bool update(uint64_t hash, uint64_t now_ms, uint64_t *evicted, const Change &change);
};

} // namespace limit_sliding
