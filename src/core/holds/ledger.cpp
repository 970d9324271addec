/* Copyright (C) the limit_sliding authors */

#include "core/holds/ledger.hpp"

#include <algorithm>
#include <cassert>

#include "core/rules/in_flight.hpp"

namespace limit_sliding {

Ledger *Ledger::init(void *memory, size_t bytes) {
    assert(bytes >= kBytesMin);
    constexpr size_t kLineBytes = kLine * sizeof(Entry) + sizeof(uint64_t);

    /* a mark has an index + 1 beside a number */
    constexpr size_t kIndices = size_t{1} << (InFlight::kMarkBits - Word::kNumberBits);
    constexpr size_t kLinesMax = (kIndices - 1) / kLine;

    auto *ledger = static_cast<Ledger *>(memory);
    ledger->lines_ = std::min((bytes - sizeof(Ledger)) / kLineBytes, kLinesMax);
    return ledger;
}

void Ledger::confirm(uint64_t mark) const {
    const uint64_t index = (mark >> Word::kNumberBits) - 1;
    if (index >= capacity()) { return; }

    Atomic<uint64_t> &word = entry(static_cast<uint32_t>(index)).word;
    Word seen = {word.load()};

    if (seen.number() == (mark & Word::kNumberMask) && seen.is_changing()) {
        word.compare_exchange_strong(seen.bits, seen.confirmed().bits);
    }
}

Ledger::Sums Ledger::sums(const uint64_t *hash, uint64_t now_ms) const {
    Sums sums = {};

    for (uint32_t line = 0; line < lines_; line++) {
        if (owners(line).load() == 0) { continue; }

        for (uint32_t i = 0; i < kLine; i++) {
            const Entry &one = entry(line * kLine + i);
            const Word word = {one.word.load()};
            if (word.status() != kHeld || (hash != nullptr && one.hash.load() != *hash)) {
                continue;
            }

            sums.requests++;
            sums.units += word.units();
            sums.longest_s = std::max(sums.longest_s, word.age_s(now_ms));
        }
    }

    return sums;
}

unsigned Ledger::claim(uint32_t seat, uint32_t *line) {
    assert(seat < kSeats);
    seats_[seat / 64].fetch_or(uint64_t{1} << seat % 64);

    const auto end = static_cast<uint32_t>(lines_);

    for (uint32_t n = 0; n < end; n++, *line = (*line + 1) % end) {
        uint64_t seen = owners(*line).load();
        uint64_t next = seen;
        unsigned claimed = 0;

        for (unsigned i = 0; i < kLine; i++) {
            if (owner_of(seen, i) != 0) { continue; }

            next |= uint64_t{seat + 1} << shift_of(i);
            claimed |= 1u << i;
        }

        if (claimed != 0 && owners(*line).compare_exchange_strong(seen, next)) { return claimed; }
    }

    return 0;
}

} // namespace limit_sliding
