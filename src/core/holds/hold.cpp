/* Copyright (C) the limit_sliding authors */

#include "core/holds/hold.hpp"

#include <algorithm>
#include <cassert>

#include "core/rules/in_flight.hpp"
#include "core/rules/word_steps.hpp"

namespace limit_sliding {

namespace {

using Word = Ledger::Word;

/* The table for a key.  States do not depend on the time, so all tags have the epoch 0. */
Table<WordSlots> table_at(Zone *zone, uint64_t hash, SlotCounts *counts) {
    return Table<WordSlots>(WordSlots(zone), zone->pairs, counts, hash, TagEpoch{0, 0});
}

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

    bool admit(uint64_t state, uint64_t *next) const {
        if (!rule.admits(state, cost)) { return false; }
        ledger.confirm(InFlight::mark(state));
        *next = InFlight::make(InFlight::held(state) + cost, mark);
        return true;
    }

    uint64_t expires_ms(const Copy &) const { return kNever; }
    bool clear(Copy *copy) const { return copy->store(0); }
    const TakeStep &other_window_slots() const { return *this; }
    bool is_recent(uint64_t) const { return true; }
};

void conclude(Claim *claim, Outcome outcome, uint64_t state) {
    claim->outcome = outcome;
    claim->state = outcome == Outcome::kRefused ? kNever : state;
    claim->rejection.retry_after_ms = outcome == Outcome::kRejected ? kNever : 0;
}

/* Takes units from a copy of the key.  Returns false if another process was faster. */
[[gnu::always_inline]] inline bool take_from(Copy *copy, const TakeStep &step, uint64_t *next) {
    return step.admit(copy->bare_state(), next) && copy->store(*next);
}

/* Removes the mark of a change that has ended, if the copy still has the state of the change. */
[[gnu::always_inline]] inline void remove_mark(Copy copy, uint64_t state) {
    if (copy.bare_state() == state) { copy.store(InFlight::without_mark(state)); }
}

} // namespace

uint32_t Holdings::add_entry(uint64_t now_ms) {
    if (free_ == 0) {
        /* the search for a chunk reads all headers, so it is not repeated at once */
        if (full_ms_ == now_ms && now_ms != 0) { return kNone; }

        free_ = ledger_->claim_chunk(seat_);

        if (free_ == 0) {
            full_ms_ = now_ms;
            return kNone;
        }
    }

    const uint32_t chunk = free_ - 1;
    Atomic<uint64_t> &header = ledger_->header(chunk);
    const uint64_t seen = header.load(std::memory_order_relaxed);
    const uint64_t used = Ledger::used_of(seen);
    const auto place = static_cast<unsigned>(__builtin_ctzll(~used));
    const uint64_t next = seen | uint64_t{1} << (32 + place);

    assert(used != Ledger::kAllUsed);
    if (Ledger::used_of(next) == Ledger::kAllUsed) { free_ = Ledger::next_of(seen); }

    header.store(next, std::memory_order_relaxed);
    return chunk * Ledger::kChunk + place;
}

void Holdings::remove_entry(uint32_t index) {
    const uint32_t chunk = index / Ledger::kChunk;
    Atomic<uint64_t> &header = ledger_->header(chunk);
    const uint64_t seen = header.load(std::memory_order_relaxed);
    uint64_t next = seen & ~(uint64_t{1} << (32 + index % Ledger::kChunk));

    if (Ledger::used_of(seen) == Ledger::kAllUsed) {
        next = Ledger::header_of(seat_, Ledger::used_of(next), free_);
        free_ = chunk + 1;
    }

    header.store(next, std::memory_order_relaxed);
}

void Holdings::tidy() {
    uint32_t kept = 0;
    uint32_t last = 0; /* last chunk that stays in the list, + 1 */
    uint32_t chunk = free_;

    free_ = 0;

    while (chunk != 0) {
        const uint64_t seen = ledger_->header(chunk - 1).load();
        const uint64_t used = Ledger::used_of(seen);
        const uint32_t next = Ledger::next_of(seen);

        if (used == 0 && kept++ != 0) {
            ledger_->free_chunk(chunk - 1);
        } else {
            if (last == 0) {
                free_ = chunk;
            } else {
                const uint64_t before = ledger_->header(last - 1).load();
                ledger_->header(last - 1).store(
                    Ledger::header_of(seat_, Ledger::used_of(before), chunk));
            }

            ledger_->header(chunk - 1).store(Ledger::header_of(seat_, used, 0));
            last = chunk;
        }

        chunk = next;
    }
}

void Holdings::recover(uint32_t seat) const {
    ledger_->recover(seat, [this](uint32_t index) { give_back(index); });
}

/* Gives back the units of an entry.  The worker of the entry may have died between any two
 * instructions, and so may an earlier process that ran this function. */
void Holdings::give_back(uint32_t index) const {
    Ledger::Entry &entry = ledger_->entry(index);
    const Table<WordSlots> table = table_at(zone_, entry.hash.load(), &zone_->counts);

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

/* Makes an entry for the claim, with this word.  Returns false if there is no room. */
[[gnu::always_inline]] inline bool Hold::begin(const Claim &claim, uint64_t now_ms, Word *word) {
    entry = holdings->add_entry(now_ms);
    no_entry = entry == Holdings::kNone;
    if (no_entry) { return false; }

    Ledger::Entry &own = holdings->ledger().entry(entry);
    *word = Word::taking({own.word.load(std::memory_order_relaxed)}, claim.cost, now_ms);
    own.hash.store(claim.hash, std::memory_order_relaxed);
    own.word.store(word->bits, std::memory_order_relaxed);
    return true;
}

void take_in_flight(Claim *claim, uint64_t now_ms) {
    Hold &hold = *claim->hold;
    assert(!hold.is_held());
    const InFlight rule(*claim->policy, 0, claim->limit);
    Table<WordSlots> table = table_at(claim->zone, claim->hash, counts_of(*claim));

    Copy copy = table.find_ready();
    if (copy.kind != Copy::confirmed) { copy = table.look(); }

    /* a rejection makes no entry */
    const bool admits = rule.admits(copy.bare_state(), claim->cost);
    if (claim->cost == 0 || !admits) {
        conclude(claim, admits ? Outcome::kAdmitted : Outcome::kRejected, copy.bare_state());
        return;
    }

    Word word;
    if (!hold.begin(*claim, now_ms, &word)) {
        add(&counts_of(*claim)->refused, 1);
        conclude(claim, Outcome::kRefused, 0);
        return;
    }

    const Ledger &ledger = hold.holdings->ledger();
    const TakeStep step = {rule, claim->cost, Ledger::mark_of(hold.entry, word), ledger};
    Table<WordSlots>::Result result = {Outcome::kAdmitted, 0};

    if (copy.kind != Copy::confirmed || !take_from(&copy, step, &result.state)) {
        /* a key that holds units is never evicted */
        result = table.update(step, false);
        copy = result.outcome == Outcome::kAdmitted ? table.look() : Copy{};
    }

    conclude(claim, result.outcome, result.state);

    if (copy.slot == nullptr) {
        ledger.entry(hold.entry)
            .word.store(word.with(Ledger::kFree).bits, std::memory_order_relaxed);
        hold.holdings->remove_entry(hold.entry);
        return;
    }

    /* publishes the hash to Ledger::sums(); the swap of the state publishes the other words */
    ledger.entry(hold.entry).word.store(word.confirmed().bits, std::memory_order_release);
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
    const uint64_t state = table_at(claim->zone, claim->hash, counts_of(*claim)).look_state();
    conclude(claim, rule.admits(state, claim->cost) ? Outcome::kAdmitted : Outcome::kRejected,
             state);
}

} // namespace limit_sliding
