/* Copyright (C) the limit_sliding authors */

#include "core/facts/debts.hpp"

#include <algorithm>
#include <cassert>

#include "core/policy/tag_epoch.hpp"

namespace limit_sliding {

namespace {

constexpr unsigned kEpochBits = 5;
constexpr unsigned kPartBits = 20;
constexpr unsigned kUnitsShift = kEpochBits + kPartBits;
constexpr uint64_t kEpochMask = (1u << kEpochBits) - 1;
constexpr uint64_t kPartMask = (1u << kPartBits) - 1;

/* An epoch has from 2^n to 2 x 2^n windows. */
constexpr unsigned kEpochDigits = 14;
constexpr uint64_t kEpochWindows = uint64_t{1} << kEpochDigits;

/* Epochs after which a debt has been paid. */
constexpr uint64_t kEpochsMax = 3;

static_assert((Debts::kUnitsMax << kUnitsShift) >> 60 == 0, "a fact has 60 bits");
static_assert(Debts::kWindowsMax * kDebtParts + Debts::kWaitMax
                  < (kEpochsMax - 1) * kEpochWindows * kDebtParts,
              "a debt ends within its epochs");
static_assert(kEpochsMax * 2 * kEpochWindows * kDebtParts + Debts::kWaitMax < kPartMask,
              "numbers do not wrap");

uint64_t epoch_of(uint64_t now_ms, unsigned digits) {
    return now_ms >> (digits + kEpochDigits) & kEpochMask;
}

/* Returns true if a fact was changed so long ago that its debt has been paid.  An age of -1 epoch
 * means that a worker with a faster clock has changed the fact. */
bool is_old(uint64_t fact, uint64_t now_ms, unsigned digits) {
    const uint64_t age = (epoch_of(now_ms, digits) - (fact >> kPartBits)) & kEpochMask;
    return age >= kEpochsMax && age != kEpochMask;
}

Debt debt_of(uint64_t fact, const DebtClock &clock) {
    if (fact == 0 || is_old(fact, clock.now_ms, clock.digits)) { return {0, clock.part}; }

    const uint64_t most = Debts::kWindowsMax * clock.pace;
    const uint64_t units = fact >> kUnitsShift;
    const uint64_t passed = (clock.part - fact) & kPartMask;
    const uint64_t wait = kPartMask + 1 - passed;

    if (wait <= Debts::kWaitMax) { return {std::min(units, most), clock.part + wait}; }

    const uint64_t paid = passed / kDebtParts * clock.pace;
    return {std::min(units - std::min(units, paid), most), clock.part - passed % kDebtParts};
}

uint64_t fact_of(const Debt &debt, const DebtClock &clock) {
    assert(debt.units <= Debts::kUnitsMax);
    assert(debt.since <= clock.part + Debts::kWaitMax && debt.since + kDebtParts > clock.part);

    if (debt.units == 0) { return 0; }

    return debt.units << kUnitsShift | epoch_of(clock.now_ms, clock.digits) << kPartBits
           | (debt.since & kPartMask);
}

} // namespace

Debts *Debts::init(void *memory, size_t bytes) {
    auto *debts = static_cast<Debts *>(memory);
    debts->FactTable::init(bytes, 0);
    return debts;
}

/* Changes the debt of a key as of now by change(debt).  Other debts are worth their units; their
 * limits are unknown, so the limit of this key is used to compute them. */
template <class Change>
bool Debts::update(uint64_t hash, const DebtClock &clock, const Change &change, uint64_t *evicted) {
    return FactTable::update(
        with_window_digits(hash, clock.digits), Worth::kFirst,
        [&](uint64_t other, uint64_t fact) {
            const uint64_t units = window_digits(other) == clock.digits ? debt_of(fact, clock).units
                                                                        : fact >> kUnitsShift;
            return Worth{units == 0 ? int{Worth::kNothing} : int{Worth::kFirst}, units};
        },
        [&](uint64_t &fact) {
            Debt debt = debt_of(fact, clock);

            if (!change(debt)) { return false; }

            fact = fact_of(debt, clock);
            return true;
        },
        evicted);
}

Debt Debts::find(uint64_t hash, const DebtClock &clock) {
    Debt debt = {0, 0};
    const bool has_fact = look(with_window_digits(hash, clock.digits), [&](uint64_t fact) {
        debt = debt_of(fact, clock);
        return fact != 0;
    });

    if (has_fact && (debt.units == 0 || debt.units == kWindowsMax * clock.pace)) {
        update(hash, clock, [](Debt &) { return true; });
    }

    return debt;
}

uint64_t Debts::add(uint64_t hash, uint64_t units, uint64_t since, bool waits_again,
                    const DebtClock &clock) {
    const uint64_t most = std::min(kUnitsMax, kWindowsMax * clock.pace);
    uint64_t evicted = 0;
    uint64_t added = 0;

    raise_until(UINT64_MAX);

    const bool is_added = update(
        hash, clock,
        [&](Debt &debt) {
            if (debt.units == 0) { debt.since = clock.part; }

            if (debt.units == 0 || waits_again) {
                debt.since = std::max(debt.since, std::min(since, clock.part + kWaitMax));
            }

            added = std::min(units, most - std::min(most, debt.units));
            debt.units += added;
            return debt.units != 0;
        },
        &evicted);

    return is_added ? units - added + evicted : units;
}

uint64_t Debts::take(uint64_t hash, uint64_t units, uint64_t since, const DebtClock &clock) {
    uint64_t taken = 0;

    const bool is_taken = update(hash, clock, [&](Debt &debt) {
        taken = std::min(units, debt.units);
        debt.units -= taken;
        debt.since = std::max(debt.since, std::min(since, clock.part + kWaitMax));
        return taken != 0;
    });

    return is_taken ? taken : 0;
}

uint64_t Debts::sweep(uint64_t now_ms, uint64_t part, size_t bytes) {
    const uint64_t lines = std::max<uint64_t>(bytes / 64, 1);

    return FactTable::sweep(part * lines, lines, [&](uint64_t hash, uint64_t fact) {
        return is_old(fact, now_ms, window_digits(hash));
    });
}

} // namespace limit_sliding
