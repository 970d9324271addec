/* Copyright (C) the limit_sliding authors */

/* Requests, and what must hold for each and for all of them. */

#pragma once

#include <map>
#include <string>

#include "site.hpp"

namespace sim {

/* What is known of the key of a request. */
struct KeyRecord {
    uint64_t asked = 0;    /* units that requests have asked a Redis for */
    uint64_t granted = 0;  /* by servers, those that were leased with them */
    uint64_t admitted = 0; /* to requests */
    /* When so many units were admitted: by the clock of the server; with "sync=", of each machine
     * by its own. */
    std::map<const Machine *, std::vector<std::pair<int64_t, uint64_t>>> times;
};

class Traffic {
public:
    explicit Traffic(Site &of);
    ~Traffic();

    /* A request of the worker's comes, which claims this key, and perhaps the next one. */
    void come(Worker &worker, unsigned key, bool is_pair);

    /* Checks what must hold of all once they are over; `is_bounded` if servers have not
     * lied, and their clocks were not set back. */
    void check(bool is_bounded);

    /* No request leaves from now on. */
    void set_patient() { is_patient_ = true; }

    /* How many were admitted by a Redis or by leases. */
    uint64_t admitted() const { return admitted_; }

    /* Requests that Redis has not decided, though it was to. */
    uint64_t unanswered() const { return unanswered_; }

    /* Lets a request leave now and then that was answered, and does not know yet. */
    void interrupt();

    /* A server has run a script. */
    void note_run() { runs_++; }
    uint64_t runs() const { return runs_; }

    /* It has granted so many units. */
    void note_grant(const std::string &name, uint64_t units);

private:
    struct Request;

    void decide(Request &request);
    void told(Request &request);
    void finish(Request &request, const char *how);
    void admit(Request &request);
    void refund(Request &request);
    void add_claim(Request &request, unsigned key);
    void decide_here(Request &request);
    void leave(Request &request);
    void check_bound(const std::string &key, KeyRecord &record, bool is_bounded);

    Site &site_;
    std::list<Request> requests_;
    std::map<std::string, KeyRecord> keys_;
    size_t waiting_ = 0;
    uint64_t admitted_ = 0;
    uint64_t runs_ = 0;
    uint64_t unanswered_ = 0;
    bool is_patient_ = false;
};

/* That of the present seed. */
extern Traffic *traffic;

} // namespace sim
