/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/fact_table.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/* The number of parts of a window.  The times of debts are counted in parts. */
constexpr uint64_t kDebtParts = 8;

/* The units that a key owes: charges have used them beyond the limit, and the history has no room
 * for them yet. */
struct Debt {
    uint64_t units; /* 0: the key owes nothing */
    uint64_t since; /* number of the part after which each window pays the units of the limit */
};

/* The moment of an access to a debt. */
struct DebtClock {
    uint64_t now_ms; /* time of the zone */
    uint64_t part;   /* number of the present part of the key's windows */
    uint64_t pace;   /* units that each window pays, 1 or more: the limit in force for the key */
    unsigned digits; /* binary digits of the length of the window in ms */
};

/*
 * The debts of keys.  Each window pays the units of the limit, after the units in the history have
 * expired.  docs/algorithms.md, "Owing", has the rule.
 *
 * The fact of a key is
 *
 *     units 35 | epoch 5 | Debt::since modulo 2^20
 *
 * The epoch is the time of the last change.  It lasts for 16,384 to 32,768 windows, so a debt of
 * three epochs has been paid, and the numbers of parts have not wrapped.  The hash has the digits
 * of the window, from which sweep() computes the length of an epoch.  Each place must be swept
 * within 450,000 windows, before epochs wrap.
 *
 * If all places of a key are taken, the smallest debt is lost.
 */
class Debts : public FactTable {
public:
    /* A key owes at most kUnitsMax units, and at most kWindowsMax windows of the limit in force,
     * even after the limit was lowered.  Further units are lost. */
    static constexpr uint64_t kWindowsMax = 1000;
    static constexpr uint64_t kUnitsMax = (uint64_t{1} << 35) - 1;

    /* The most parts from now to Debt::since: a bucket that takes longer to drain pays earlier. */
    static constexpr uint64_t kWaitMax = 30000 * kDebtParts;

    /* Makes the table in `bytes` >= kBytesMin of zeroed memory, aligned to 64. */
    static Debts *init(void *memory, size_t bytes);

    /* Returns false if no key has owed anything so far. */
    bool has_any() const { return until_ms() != 0; }

    /* A hash identifies a history: a key with several windows owes separately in each. */

    /* Returns the debt of a key.  If the debt was paid or capped under the limit in force, stores
     * the result, because a later limit might give another one. */
    Debt find(uint64_t hash, const DebtClock &clock);

    /* Adds units to a debt.  A new debt is paid after the part `since`, and an older one as well
     * if `waits_again`.  Returns the lost units: units beyond the maximum, all units if the key
     * gets no place, and the units of an evicted debt. */
    uint64_t add(uint64_t hash, uint64_t units, uint64_t since, bool waits_again,
                 const DebtClock &clock);

    /* Subtracts up to `units` from a debt, and returns their number.  The rest is paid after the
     * part `since`, if that is later than Debt::since. */
    uint64_t take(uint64_t hash, uint64_t units, uint64_t since, const DebtClock &clock);

    /* Deletes debts that were paid long ago, in one part of the places.  A part has `bytes` of
     * places; `part` is its number, modulo the number of parts.  Returns the number of deleted
     * debts. */
    uint64_t sweep(uint64_t now_ms, uint64_t part, size_t bytes);

private:
    template <class Change>
    bool update(uint64_t hash, const DebtClock &clock, const Change &change,
                uint64_t *evicted = nullptr);
};

} // namespace limit_sliding
