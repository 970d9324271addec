/* Copyright (C) the limit_sliding authors */

/* The last resolved addresses of names, in memory that the workers of all cycles share: a worker
 * that starts while the name server fails can still connect. */

#pragma once

#include "redis/wire/endpoint.hpp"

namespace limit_sliding {

/* Valid if zeroed.  Workers write without a lock.  A checksum detects entries that two workers
 * wrote at once, or that a worker died while writing; such an entry counts as empty. */
class KnownAddresses {
public:
    /* Stores the addresses of an endpoint with a name.  A full table evicts another name. */
    void put(const Endpoint &from);

    /* Sets the addresses of an endpoint that has none, if its name is known. */
    void get(Endpoint &to) const;

private:
    struct Address {
        socklen_t len;
        sockaddr_in6 address; /* or a shorter sockaddr_in: resolvers return no others */
    };

    struct Entry {
        uint64_t sum() const;

        uint64_t checksum; /* of the fields below */
        uint64_t id;       /* Endpoint::id() */
        size_t naddrs;
        Address addrs[Endpoint::kAddressesMax];
    };

    static constexpr size_t kNames = 16;

    Entry entries_[kNames];
};

} // namespace limit_sliding
