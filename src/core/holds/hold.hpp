/* Copyright (C) the limit_sliding authors */

/* The units that a request holds while it is in flight, in a zone with inflight=. */

#pragma once

#include <cstdint>

#include "core/holds/ledger.hpp"
#include "core/policy/claim.hpp"
#include "core/table/slot.hpp"

namespace limit_sliding {

/* A worker's part of the ledger of a zone.  The object is in the worker's own memory. */
class Holdings {
public:
    Holdings() = default;

    /* No living worker may have the same seat, 0 .. Ledger::kSeats - 1.  The caller calls
     * recover() for the seat before the first hold. */
    Holdings(Zone *zone, Ledger *ledger, uint32_t seat)
        : zone_(zone), ledger_(ledger), seat_(seat), free_(0), line_(0), full_ms_(0) {}

    Ledger &ledger() const { return *ledger_; }
    uint32_t seat() const { return seat_; }

    /* Gives back all units of a seat whose worker has died.  Only one process may do so for a seat
     * at a time, and no worker may take the seat meanwhile.  If the process dies, another one may
     * begin again. */
    void recover(uint32_t seat) const;

    /* Frees unused entries of this worker, except for a few, so that others can claim them. */
    void tidy();

private:
    friend struct Hold;
    friend void take_in_flight(Claim *claim, uint64_t now_ms);

    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr unsigned kKept = 16; /* unused entries that tidy() keeps */

    /* add_entry() takes an unused entry, and returns its index, or kNone if the ledger is full.
     * remove_entry() makes the entry unused. */
    uint32_t add_entry(uint64_t now_ms);
    void remove_entry(uint32_t index);

    bool claim_entries(uint64_t now_ms);
    uint32_t next_of(uint32_t index) const;

    void give_back(uint32_t index) const;

    Zone *zone_;
    Ledger *ledger_;
    uint32_t seat_;
    uint32_t free_;    /* first unused entry of this worker, + 1; 0: none */
    uint32_t line_;    /* line at which the search for free entries begins */
    uint64_t full_ms_; /* time at which no entry was free, in ms */
};

/* The hold of one claim, in the memory of its request. */
struct Hold {
    Holdings *holdings;
    Slot *slot = nullptr;  /* of the key, which no other key can take while units are held */
    uint32_t entry = 0;    /* index of the entry; valid if `slot` is not null */
    bool no_entry = false; /* the claim was refused because the ledger is full */

    bool is_held() const { return slot != nullptr; }

    /* Gives back the units that the request holds, if it does. */
    void release();
};

/* Decides a claim with a hold, and holds its cost if it is admitted. */
void take_in_flight(Claim *claim, uint64_t now_ms);

/* Decides a claim without consuming. */
void look_in_flight(Claim *claim, uint64_t now_ms);

} // namespace limit_sliding
