/* Copyright (C) the limit_sliding authors */

#include "core/holds/ledger.hpp"

#include <algorithm>
#include <cassert>

#include "core/rules/in_flight.hpp"

namespace limit_sliding {

Ledger *Ledger::init(void *memory, size_t bytes) {
    assert(bytes >= kBytesMin);
    constexpr size_t kChunkBytes = kChunk * sizeof(Entry) + sizeof(uint64_t);

    /* a mark has an index + 1 beside a number */
    constexpr size_t kIndices = size_t{1} << (InFlight::kMarkBits - Word::kNumberBits);
    constexpr size_t kChunksMax = (kIndices - 1) / kChunk;

    auto *ledger = static_cast<Ledger *>(memory);
    ledger->chunks_ = std::min((bytes - sizeof(Ledger)) / kChunkBytes, kChunksMax);
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

    for (uint32_t chunk = 0; chunk < chunks_; chunk++) {
        if (header(chunk).load() == 0) { continue; }

        for (uint32_t i = 0; i < kChunk; i++) {
            const Entry &one = entry(chunk * kChunk + i);
            const Word word = {one.word.load()};
            if (!word.is_held() || (hash != nullptr && one.hash.load() != *hash)) { continue; }

            sums.requests++;
            sums.units += word.units();
            sums.longest_s = std::max(sums.longest_s, word.age_s(now_ms));
        }
    }

    return sums;
}

uint32_t Ledger::claim_chunk(uint32_t seat) {
    assert(seat < kSeats);
    seats_[seat / 64].fetch_or(uint64_t{1} << seat % 64);

    for (uint32_t chunk = 0; chunk < chunks_; chunk++) {
        uint64_t seen = header(chunk).load();

        if (seen == 0 && header(chunk).compare_exchange_strong(seen, header_of(seat, 0, 0))) {
            return chunk + 1;
        }
    }

    return 0;
}

} // namespace limit_sliding
