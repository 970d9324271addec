/* Copyright (C) the limit_sliding authors */

#include "core/holds/hold.hpp"

#include <algorithm>
#include <cassert>

#include "core/rules/in_flight.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

using Word = Ledger::Word;

/* The step of the table (table.hpp) that takes units. */
struct TakeStep {
    InFlight rule;
    uint64_t cost;
    uint64_t mark;
    const Ledger &ledger;

    /* A slot without units may go to another key, which replaces the state. */
    uint64_t used(const Copy &copy) const {
        const uint64_t held = InFlight::held(copy.bare_state());
        if (held == 0) { ledger.confirm(InFlight::mark(copy.bare_state())); }
        return held;
    }

    /* Returns the state after the change, which replaces a state that admits the cost. */
    uint64_t take(uint64_t state) const {
        ledger.confirm(InFlight::mark(state));
        return InFlight::make(InFlight::held(state) + cost, mark);
    }

    bool admit(uint64_t state, uint64_t *next) const {
        if (!rule.admits(state, cost)) { return false; }
        *next = take(state);
        return true;
    }

    uint64_t expires_ms(const Copy &) const { return kNever; }
    bool clear(Copy *copy) const { return copy->store(0); }
    OtherWindowSlot other_window_slot(const Copy &copy) const { return {true, used(copy), kNever}; }
};

void conclude(Claim *claim, Outcome outcome, uint64_t state) {
    claim->outcome = outcome;
    claim->state = outcome == Outcome::kRefused ? kNever : state;
    claim->rejection.retry_after_ms = outcome == Outcome::kRejected ? kNever : 0;
}

/* Removes the mark of a change that has ended, if the copy still has the state of the change. */
[[gnu::always_inline]] inline void remove_mark(Copy copy, uint64_t state) {
    if (copy.bare_state() == state) { copy.store(InFlight::without_mark(state)); }
}

} // namespace

uint32_t Holdings::add_entry(uint64_t now_ms) {
    if (free_ == 0 && !claim_entries(now_ms)) { return kNone; }

    const uint32_t index = free_ - 1;
    free_ = next_of(index);
    return index;
}

/* Returns false if all entries have owners. */
bool Holdings::claim_entries(uint64_t now_ms) {
    /* the search reads all owners, so it is not repeated at once */
    if (full_ms_ == now_ms && now_ms != 0) { return false; }

    for (unsigned claimed = ledger_->claim(seat_, &line_); claimed != 0; claimed &= claimed - 1) {
        remove_entry(line_ * Ledger::kLine + static_cast<unsigned>(__builtin_ctz(claimed)));
    }

    if (free_ == 0) { full_ms_ = now_ms; }
    return free_ != 0;
}

void Holdings::remove_entry(uint32_t index) {
    ledger_->entry(index).hash.store(free_, std::memory_order_relaxed);
    free_ = index + 1;
}

uint32_t Holdings::next_of(uint32_t index) const {
    return static_cast<uint32_t>(ledger_->entry(index).hash.load(std::memory_order_relaxed));
}

void Holdings::tidy() {
    line_ = 0; /* so that entries at the end of the ledger are used last, and take no memory */
    if (free_ == 0) { return; }

    uint32_t last = free_ - 1;
    uint32_t rest = next_of(last);

    for (unsigned kept = 1; kept < kKept && rest != 0; kept++) {
        last = rest - 1;
        rest = next_of(last);
    }

    ledger_->entry(last).hash.store(0, std::memory_order_relaxed);

    while (rest != 0) {
        const uint32_t index = rest - 1;
        rest = next_of(index);
        ledger_->free_entry(index);
    }
}

void Holdings::recover(uint32_t seat) const {
    ledger_->recover(seat, [this](uint32_t index) { give_back(index); });
}

/* Gives back the units of an entry.  The worker of the entry may have died between any two
 * instructions, and so may an earlier process that ran this function. */
void Holdings::give_back(uint32_t index) const {
    Ledger::Entry &entry = ledger_->entry(index);
    const Table table(WordSlots(zone_), &zone_->counts, entry.hash.load(), TagEpoch{0, 0});

    for (unsigned attempts = 0; attempts < kAttempts; attempts++) {
        Word word = {entry.word.load()};
        Copy copy = table.look();
        const uint64_t state = copy.bare_state();
        const uint64_t mark = Ledger::mark_of(index, word);

        if (InFlight::mark(state) == mark) {
            if (word.is_changing()) {
                ledger_->confirm(mark);
            } else {
                remove_mark(copy, state);
            }
            continue;
        }

        if (word.status() == Ledger::kFree) { return; }

        if (word.status() == Ledger::kHeld) {
            entry.word.compare_exchange_strong(word.bits, word.returning().bits);
            continue;
        }

        /* if the word has changed, another process has confirmed the change */
        if (entry.word.load() != word.bits) { continue; }

        if (word.status() == Ledger::kTaking || copy.slot == nullptr) {
            /* a tag of a zone with inflight= has no age by which others could tell that the worker
             * has died while it claimed a slot */
            table.withdraw_tentative();
            entry.word.compare_exchange_strong(word.bits, word.with(Ledger::kFree).bits);
            continue;
        }

        const uint64_t held = InFlight::held(state);
        ledger_->confirm(InFlight::mark(state));
        copy.store(InFlight::make(held - std::min(held, word.units()), mark));
    }
}

void take_in_flight(Claim *claim, uint64_t now_ms) {
    Hold &hold = *claim->hold;
    assert(!hold.is_held());
    const InFlight rule(*claim->policy, 0, claim->limit);
    Table<WordSlots> table = shared_table_of(*claim, rule);

    Copy copy = table.find_ready();
    if (copy.kind != Copy::confirmed) { copy = table.look(); }

    /* a rejection makes no entry */
    const bool admits = rule.admits(copy.bare_state(), claim->cost);
    if (claim->cost == 0 || !admits) {
        conclude(claim, admits ? Outcome::kAdmitted : Outcome::kRejected, copy.bare_state());
        return;
    }

    hold.entry = hold.holdings->add_entry(now_ms);
    hold.no_entry = hold.entry == Holdings::kNone;
    if (hold.no_entry) {
        add(&counts_of(*claim)->refused, 1);
        conclude(claim, Outcome::kRefused, 0);
        return;
    }

    const Ledger &ledger = hold.holdings->ledger();
    Ledger::Entry &own = ledger.entry(hold.entry);
    const Word word = Word::taking({own.word.load(std::memory_order_relaxed)}, claim->cost, now_ms);
    own.hash.store(claim->hash, std::memory_order_relaxed);
    own.word.store(word.bits, std::memory_order_relaxed);

    const TakeStep step = {rule, claim->cost, Ledger::mark_of(hold.entry, word), ledger};
    Table<WordSlots>::Result result = {Outcome::kAdmitted, step.take(copy.bare_state())};

    if (copy.kind != Copy::confirmed || !copy.store(result.state)) {
        /* a key that holds units is never evicted */
        result = table.update(step, false);
        copy = result.outcome == Outcome::kAdmitted ? table.look() : Copy{};
    }

    conclude(claim, result.outcome, result.state);

    if (copy.slot == nullptr) {
        own.word.store(word.with(Ledger::kFree).bits, std::memory_order_relaxed);
        hold.holdings->remove_entry(hold.entry);
        return;
    }

    /* publishes the hash to Ledger::sums(); the swap of the state publishes the other words */
    own.word.store(word.confirmed().bits, std::memory_order_release);
    hold.slot = copy.slot;
    remove_mark(copy, result.state);
}

void Hold::release() {
    if (!is_held()) { return; }

    const Ledger &ledger = holdings->ledger();
    Ledger::Entry &own = ledger.entry(entry);
    const Word word = Word{own.word.load(std::memory_order_relaxed)}.returning();
    const uint64_t mark = Ledger::mark_of(entry, word);
    own.word.store(word.bits, std::memory_order_relaxed);

    Copy copy;
    uint64_t next;
    unsigned attempts = 0;
    do {
        copy = Copy::read(*slot);
        const uint64_t held = InFlight::held(copy.bare_state());
        assert(copy.kind == Copy::confirmed && held >= word.units());

        ledger.confirm(InFlight::mark(copy.bare_state()));
        next = InFlight::make(held - std::min(held, word.units()), mark);
    } while (!copy.store(next) && ++attempts < kAttempts);

    /* a change without a mark must be known to be made, so the entry is free first */
    own.word.store(word.with(Ledger::kFree).bits, std::memory_order_relaxed);
    remove_mark(copy, next);
    holdings->remove_entry(entry);
    slot = nullptr;
}

void look_in_flight(Claim *claim, uint64_t) {
    const InFlight rule(*claim->policy, 0, claim->limit);
    const uint64_t state = shared_table_of(*claim, rule).look_state();
    conclude(claim, rule.admits(state, claim->cost) ? Outcome::kAdmitted : Outcome::kRejected,
             state);
}

} // namespace limit_sliding
