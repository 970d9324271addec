/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/facts/fact_table.hpp"
#include "core/policy/calendar.hpp"
#include "core/policy/policy.hpp"

namespace limit_sliding {

/* Times of debts are in parts of a window. */
constexpr uint64_t kDebtParts = 8;

/* Returns the time in ms at which a part begins. */
inline uint64_t debt_part_begin_ms(const Policy &policy, uint64_t part) {
    return policy.calendar == Calendar::kNone
               ? (part * policy.window_ms + kDebtParts - 1) / kDebtParts
               : calendar_begin_ms(policy.calendar, policy.offsets, part / kDebtParts);
}

/* The units that a key owes: charges have used them beyond the limit, and the history has no room
 * for them yet. */
struct Debt {
    uint64_t units; /* 0: the key owes nothing */
    uint64_t since; /* part after which each window pays the units of the limit */
};

/* The moment at which a debt is looked at. */
struct DebtClock {
    uint64_t now_ms; /* of the zone */
    uint64_t part;   /* number of the present part, of the windows of the key */
    uint64_t pace;   /* units that each window pays, 1 or more: the limit in force for the key */
    unsigned digits; /* binary digits of the length of the window in ms */
};

/*
 * The debts of keys.  Each window pays the units of the limit, after the units in the history have
 * left it.  docs/algorithms.md, "Owing", has the rule.
 *
 * The fact of a key is
 *
 *     units 35 | epoch 9 | Debt::since modulo 2^16
 *
 * The epoch tells when the fact was changed last.  It lasts for 1,024 to 2,048 windows, so a debt
 * of three epochs has been paid, and the numbers of parts have not wrapped.  The hash has the
 * digits of the window, which tell sweep() the length of an epoch.  It must see each place within
 * 500,000 windows, before epochs wrap.
 *
 * Without a place for a further debt, the smallest one is lost.
 */
class Debts : public FactTable {
public:
    /* A key owes at most so many units, and so many windows of the limit in force, which may be
     * lowered.  Further units are lost. */
    static constexpr uint64_t kWindowsMax = 1000;
    static constexpr uint64_t kUnitsMax = (uint64_t{1} << 35) - 1;

    /* The most parts from now to Debt::since. */
    static constexpr uint64_t kWaitMax = 512 * kDebtParts;

    /* Makes the table in `memory`: `bytes` >= kBytesMin, zeroed, aligned to 64. */
    static Debts *init(void *memory, size_t bytes);

    /* Returns false if no key has owed anything so far. */
    bool has_any() const { return until_ms() != 0; }

    /* A hash is that of a history: a key with several windows owes separately in each. */

    /* Returns the debt of a key.  Stores the debt if it was paid or exceeds the maximum of the
     * limit in force, as neither may be so under a later limit. */
    Debt find(uint64_t hash, const DebtClock &clock);

    /* Adds units to a debt.  A new debt is paid after the part `since`, and an older one as well
     * if `waits_again`.  Returns the units that are lost: units beyond the maximum, or all units of
     * a key that lost its place. */
    uint64_t add(uint64_t hash, uint64_t units, uint64_t since, bool waits_again,
                 const DebtClock &clock);

    /* Takes up to `units` off a debt, and returns their number.  The rest is paid after the part
     * `since`, if that is later. */
    uint64_t take(uint64_t hash, uint64_t units, uint64_t since, const DebtClock &clock);

    /* Deletes debts that ended long ago, in one part of the places: `part` counts parts of `bytes`
     * each, modulo their number. */
    void sweep(uint64_t now_ms, uint64_t part, size_t bytes);

private:
    template <class Change>
    bool update(uint64_t hash, const DebtClock &clock, const Change &change, uint64_t *evicted);
};

} // namespace limit_sliding
