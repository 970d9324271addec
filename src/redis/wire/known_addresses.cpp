/* Copyright (C) the limit_sliding authors */

#include "redis/wire/known_addresses.hpp"

#include "core/base/hashes.hpp"

namespace limit_sliding {

uint64_t KnownAddresses::Entry::sum() const {
    return SipHash13(0, 0).hash(&id, sizeof(Entry) - sizeof(checksum));
}

void KnownAddresses::put(const Endpoint &from) {
    Entry entry{};
    entry.id = from.id();
    entry.naddrs = from.naddrs;
    for (size_t i = 0; i < from.naddrs; i++) {
        Address &to = entry.addrs[i];
        to.len = ngx_min(from.addrs[i].len, static_cast<socklen_t>(sizeof(to.address)));
        ngx_memcpy(&to.address, &from.addrs[i].address, to.len);
    }

    entry.checksum = entry.sum();

    Entry *place = &entries_[entry.id % kNames];
    for (Entry &one : entries_) {
        if (one.id == entry.id) {
            place = &one;
            break;
        }

        if (one.id == 0 && place->id != 0) { place = &one; }
    }
    *place = entry;
}

void KnownAddresses::get(Endpoint &to) const {
    const uint64_t id = to.id();
    for (const Entry &one : entries_) {
        if (one.id != id) { continue; }

        const Entry entry = one; /* another worker may write the entry meanwhile */
        if (entry.id != id || entry.checksum != entry.sum()) { continue; }

        to.naddrs = entry.naddrs;
        for (size_t i = 0; i < entry.naddrs; i++) {
            to.addrs[i].len = entry.addrs[i].len;
            ngx_memcpy(&to.addrs[i].address, &entry.addrs[i].address, entry.addrs[i].len);
        }
        return;
    }
}

} // namespace limit_sliding
