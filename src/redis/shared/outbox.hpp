/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

namespace limit_sliding {

/*
 * The units of keys that a node has admitted and has not yet reported to Redis.  They are
 * in shared memory: all workers add, and one of them takes all units of a key at once,
 * when they are due.
 *
 * The worker that adds the first units of a key is to send them; others add to them, and
 * are done.  If the sender is gone, the next worker that adds to long overdue units sends
 * them.  While a key's units are under way, none are taken.
 *
 * A set of four entries, two cache lines, is where a key may be.  An entry is in use
 * while it has units, waits to be sent, or is under way; an unused entry is given to
 * another key when the set is full.  Its word has all that changes at once:
 *
 *     generation 8 | due, ms 22 | look 1 | busy 1 | units 32
 *
 * `busy` is set while units are under way, `look` where Redis is to be asked even
 * though there are no units; with both, the entry is being given to another key.  The
 * generation is another one after that, so that no units of one key are added to another
 * key's: the tag is read after the word, which must be the same still when it is
 * swapped.  Two processes may give two entries to one key at once; both are taken then.
 *
 * A time is known modulo 70 minutes, and none is further away than kWaitMaxMs: a time
 * that seems to be is in the past.
 */
class alignas(64) Outbox {
public:
    /* The longest time that units wait, or are under way, but for a few seconds. */
    static constexpr uint64_t kWaitMaxMs = 130000;

    /* Makes a table of `memory`, which is `bytes` long, at least 192, zeroed and aligned to
     * 64. */
    static Outbox *init(void *memory, size_t bytes);

    enum class Added {
        kDone = 0,
        kSend, /* the caller is to take them when they are due */
        kFull  /* they were not added */
    };

    /* Adds units of the key of this hash, 1 .. UINT32_MAX, which are due an interval
     * after the last ones were taken: then *due_ms is set if the caller is to send
     * them.  kFull if all entries of the key's set are in use, or the units are too
     * many. */
    Added add(uint64_t hash, uint64_t units, uint64_t now_ms, uint64_t interval_ms,
              uint64_t *due_ms);

    /* Has Redis asked for the key, though nothing was admitted; not before the time
     * that done() was given. */
    Added look(uint64_t hash, uint64_t now_ms, uint64_t interval_ms, uint64_t *due_ms);

    enum class Took {
        kNothing = 0, /* others have taken it */
        kLater,       /* it is due at *due_ms */
        kTaken
    };

    /* Takes all units of a key that is due, or due or not if `early` is set.  They are
     * under way until done() is called, or for `most_ms`, whoever dies. */
    Took take(uint64_t hash, uint64_t now_ms, uint64_t most_ms, bool early, uint64_t *units,
              uint64_t *due_ms);

    /* How the units of a key that were under way go on. */
    struct Rest {
        uint64_t units;   /* that are to be sent again */
        bool look;        /* Redis is to be asked again, whatever is admitted */
        uint64_t due_ms;  /* of units that were added meanwhile */
        uint64_t wait_ms; /* of the rest, at least that */
        uint64_t look_ms; /* when look() may ask again */
    };

    /* Ends the sending that take() has begun.  Returns kSend if something is due, at *due_ms; kFull
     * if the units that are to be sent again found no entry. */
    Added done(uint64_t hash, uint64_t now_ms, const Rest &rest, uint64_t *due_ms);

    /* Returns the units of the key that nobody has taken. */
    uint64_t units(uint64_t hash) const;

    /* Takes off so many units at most; returns how many there were. */
    uint64_t subtract(uint64_t hash, uint64_t units);

    /* The last reply about a key. */
    struct Seen {
        uint64_t used;  /* in all */
        uint64_t at_ms; /* 0: nothing is known */
        uint64_t share; /* that other nodes have of the admitted units, in 1/256 */
        uint64_t pace;  /* the most that all have admitted in an interval */
    };

    /* Both are for whoever has taken the key's units, in time: until then, the entry is
     * given to no other key. */
    Seen seen(uint64_t hash, uint64_t now_ms) const;

    /* Replaces it. */
    void set_seen(uint64_t hash, const Seen &seen);

private:
    struct Entry;
    struct Set;

    Set &set_of(uint64_t hash) const;
    Entry *find(uint64_t hash) const;
    Entry *find_or_insert(uint64_t hash, uint64_t now_ms);

    uint64_t sets_;
};

} // namespace limit_sliding
