/* Copyright (C) the limit_sliding authors */

/* A call of the script, as scripts.h has it, and the keys that it is about. */

#pragma once

#include <cstdint>
#include <deque>
#include <hiredis/hiredis.h>
#include <string>
#include <vector>

#include "model.hpp"
#include "redis/protocol/remote_state.hpp"

namespace torture {

struct Key {
    size_t policy; /* its number in the round */
    std::string name;
    Model model;
    uint32_t limit;
    bool is_own;                   /* `limit` is what the key's string says; 0: off */
    std::deque<std::string> lines; /* of its history */
};

/* One limit of an ask. */
struct Claim {
    Key *key;
    uint32_t limit; /* the zone's */
    uint32_t cost;
    int look; /* 2: give back what the next two tell */
    limit_sliding::Taken taken;
    size_t admission; /* of the model */
};

struct Ask {
    unsigned units;
    std::vector<Claim> claims;
};

struct Call {
    uint64_t now_ms; /* the history's; 0: Redis's */
    std::vector<Ask> asks;
};

/* The words of a command. */
class Command {
public:
    void add(const std::string &word) { words_.push_back(word); }
    void add(uint64_t number) { words_.push_back(std::to_string(number)); }

    void add_kind(const Claim &claim) {
        const Policy &policy = claim.key->model.policy();

        add(static_cast<uint64_t>(policy.algorithm));
        add(policy.window_ms);
        add(claim.limit);
        add(policy.algorithm == Algorithm::kCounter ? policy.precision : policy.burst);
        add(claim.cost);
        add(static_cast<uint64_t>(claim.look));

        if (claim.look == 2) {
            add(claim.taken.now_ms);
            add(claim.taken.values[0]);
            add(claim.taken.values[1]);
            add(uint64_t{0}); /* the window of the zone */
        }
    }

    void append_to(redisContext *context) const {
        std::vector<const char *> argv;
        std::vector<size_t> lengths;

        for (const std::string &word : words_) {
            argv.push_back(word.data());
            lengths.push_back(word.size());
        }

        redisAppendCommandArgv(context, static_cast<int>(argv.size()), argv.data(), lengths.data());
    }

private:
    std::vector<std::string> words_;
};

/* Sends it, by the script's SHA-1, or keeps it to be sent with others. */
inline void send_call(redisContext *context, const char *sha, const Call &call) {
    Command command;
    std::vector<const Claim *> claims;
    size_t kind = 1;

    for (const Ask &ask : call.asks) {
        for (const Claim &claim : ask.claims) {
            claims.push_back(&claim);
        }
    }

    command.add("EVALSHA");
    command.add(sha);
    command.add(claims.size());

    for (const Claim *claim : claims) {
        command.add(claim->key->name);
    }

    /* a kind for each */
    command.add(claims.size());

    for (const Claim *claim : claims) {
        command.add_kind(*claim);
    }

    for (const Ask &ask : call.asks) {
        command.add(ask.units);
        command.add(ask.claims.size());

        for (size_t i = 0; i < ask.claims.size(); i++) {
            command.add(kind++);
        }
    }

    if (call.now_ms != 0) { command.add(call.now_ms); }

    command.append_to(context);
}

} // namespace torture
