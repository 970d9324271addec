/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/facts/fact_table.hpp"
#include "core/table/zone.hpp"

namespace limit_sliding {

/* The largest PenaltyRule::after. */
constexpr uint32_t kPenaltyAfterMax = 1000;

/* The rule that bans a key after `after` rejections within a window.  The time of a ban doubles
 * with each further ban. */
struct PenaltyRule {
    uint64_t penalty_ms; /* length of the first ban; 1 .. max_ms; 0: no bans */
    uint64_t max_ms;     /* length of the longest ban; after max_ms without a ban, the next ban
                            lasts penalty_ms again */
    uint64_t window_ms;  /* time in which rejections add up; begins with the first one */
    uint32_t after;      /* rejections until a ban; 1 .. kPenaltyAfterMax */

    /* Returns the length of a ban in ms after 0 .. 31 doublings. */
    uint64_t length_ms(unsigned doublings) const;
};

struct Ban {
    uint64_t left_ms;   /* remaining time; 0: not banned */
    unsigned doublings; /* doublings of the penalty, up to the first one that reaches the longest
                           ban */
};

/* The fields of a fact of Bans, from the lowest bit on. */
namespace ban_fact {

constexpr uint64_t kTimeMax = (uint64_t{1} << 40) - 1;
constexpr unsigned kForgottenShift = 40;
constexpr unsigned kDoublingsShift = 45;
constexpr uint64_t kDoublingsMax = 31;
constexpr unsigned kRejectionsShift = 50;

} // namespace ban_fact

/*
 * Banned keys and keys that were rejected lately.  The fact of a key is
 *
 *     rejections 10 | doublings 5 | forgotten 5 | time 40
 *
 * If `rejections` is not 0, `time` is the time of the first rejection, `doublings` belong to the
 * next ban and expire at `forgotten`, in 16ths of the longest ban modulo 32.  If `rejections` is
 * 0, `time` is the end of a ban, and `doublings` belong to this ban.
 *
 * A new key takes the place of an expired fact, else of the key with the fewest rejections, else
 * of remembered doublings.  A ban is evicted only for a ban that ends later.
 */
class Bans : public FactTable {
public:
    /* Makes the table in `bytes` >= kBytesMin of zeroed memory, aligned to 64.  The secret keeps
     * clients from choosing keys that share places; null if hashes depend on a secret already. */
    static Bans *init(void *memory, size_t bytes, const uint8_t secret[kSecretBytes]);

    /* Returns a hash of the key that is equal on all nodes. */
    static uint64_t common_hash(std::string_view key);

    /* Times are ms of one clock, below 2^40.  Different keys must have different 64-bit hashes. */

    Ban find(uint64_t hash, uint64_t now_ms) const;

    /* Counts a rejection.  Returns the ban if one begins.  A banned key gets no further ban. */
    Ban reject(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms);

    /* Bans a key for ban.left_ms (1 ms .. 1 year) or longer: of two bans, the later end and the
     * larger doublings count.  Returns false if the ban is known already or no place is free. */
    bool set(uint64_t hash, const Ban &ban, const PenaltyRule &rule, uint64_t now_ms);

    /* Deletes the ban and the rejections of a key.  Returns false if the key was not banned. */
    bool lift(uint64_t hash, uint64_t now_ms);

    /* Returns the number of banned keys.  If the table has more than places_max places, the result
     * is an estimate from a part of the table. */
    uint64_t banned(uint64_t now_ms, uint64_t places_max) const;

private:
    template <class Next>
    bool update(uint64_t hash, const PenaltyRule &rule, uint64_t now_ms, const Next &next);
};

/* Inline, because each request of a zone with bans calls this function. */
inline Ban Bans::find(uint64_t hash, uint64_t now_ms) const {
    using namespace ban_fact;

    Ban ban = {0, 0};

    if (now_ms >= until_ms()) { return ban; }

    look(hash, [&](uint64_t fact) {
        const uint64_t end_ms = fact & kTimeMax;
        const bool is_ban = fact >> kRejectionsShift == 0 && end_ms > now_ms;
        if (is_ban) { ban = {end_ms - now_ms, static_cast<unsigned>(fact >> kDoublingsShift)}; }
        return is_ban;
    });

    return ban;
}

} // namespace limit_sliding
