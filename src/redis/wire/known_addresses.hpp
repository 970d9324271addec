/* Copyright (C) the limit_sliding authors */

/* The addresses of names as they were resolved last, in memory that the workers of all
 * cycles share: a worker that is younger than a failure of the name server has them. */

#pragma once

#include "redis/wire/endpoint.hpp"

namespace limit_sliding {

/* Valid if zeroed.  Workers write without a lock: a checksum tells of an entry
 * that two of them wrote at once, or that a dead one left half written.  Such an
 * entry holds nothing. */
class KnownAddresses {
public:
    /* Keeps the addresses of the endpoint, which is a name.  If there are too many
     * names, the addresses of another one go. */
    void put(const Endpoint &from);

    /* Sets the addresses of an endpoint without any, if its name is known.  The
     * first one gets this number. */
    void get(Endpoint &to, size_t start) const;

private:
    struct Address {
        socklen_t len;
        sockaddr_in6 address; /* or a shorter one: resolvers find no others */
    };

    struct Entry {
        bool is_whole() const { return id != 0 && checksum == sum(); }
        uint64_t sum() const;

        uint64_t checksum; /* of the words that follow */
        uint64_t id;       /* Endpoint::id() */
        size_t naddrs;
        Address addrs[Endpoint::kAddressesMax];
    };

    static constexpr size_t kNames = 16;

    Entry entries_[kNames];
};

} // namespace limit_sliding
