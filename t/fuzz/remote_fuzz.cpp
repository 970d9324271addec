/* Copyright (C) the limit_sliding authors */

/* Numbers that a Redis answers, through all that reads them without NGINX: states of a
 * key by any policy, bans, and places of a walk. */

#include <cstring>
#include <memory>
#include <vector>

#include "core/facts/bans.hpp"
#include "core/policy/describe_usage.hpp"
#include "core/policy/override.hpp"
#include "input.hpp"
#include "redis/protocol/key_slot.hpp"
#include "redis/protocol/remote_state.hpp"
#include "redis/protocol/scan_position.hpp"
#include "redis/shared/ban_exchange.hpp"

using namespace limit_sliding;

namespace {

constexpr size_t kValuesMax = 80;

Policy policy_of(fuzz::Input &input) {
    Policy policy = {};
    policy.algorithm = static_cast<Algorithm>(input.below(5));
    policy.window_ms = kWindowMinMs + input.number() % (kWindowMaxMs - kWindowMinMs + 1);
    if (policy.algorithm == Algorithm::kCounter) {
        policy.precision = static_cast<uint32_t>(input.below(61));
        policy.strict = input.flag();
    }

    if (policy.algorithm == Algorithm::kFixed) {
        const Window window = Window::of(static_cast<Calendar>(input.below(5)));
        if (window.is_given()) { policy = with_window(policy, window); }
    }

    if (policy.algorithm >= Algorithm::kTokenBucket) {
        policy.burst = static_cast<uint32_t>(std::min<uint64_t>(input.number(), kLimitMax));
        policy.undelayed = policy.burst % 2 != 0 ? kNeverDelayed : policy.burst / 2;
    }

    return policy;
}

/* The script's replies are read up to this time. */
uint64_t time_of(fuzz::Input &input) { return input.number() % kRemoteTimeMax; }

/* Returns how long a client may be told to wait, in ms: a window from the last request, which
 * lies ahead if the clock of Redis was set back, or if a log owes; 69 years for buckets. */
uint64_t longest_ms(const Policy &policy) {
    if (policy.algorithm >= Algorithm::kTokenBucket) { return uint64_t{1} << 41; }

    const uint64_t day_ms = 24 * 3600 * 1000;
    return policy.calendar == Calendar::kNone ? 8196 * policy.window_ms + day_ms : 366 * day_ms;
}

/* Most times and numbers are such as Redis tells, or nearly so. */
int64_t value_of(fuzz::Input &input, const Policy &policy, uint64_t now_ms, unsigned i) {
    const auto number = static_cast<int64_t>(input.number());
    if (input.flag()) { return number; }

    const auto w = static_cast<int64_t>(policy.window_ms);
    const auto now = static_cast<int64_t>(now_ms);
    if (policy.algorithm == Algorithm::kLog) { return i == 0 ? number : now + number % (9000 * w); }

    if (policy.algorithm == Algorithm::kCounter && i == 1) {
        const auto parts = std::max<int64_t>(policy.precision, 1);
        return now / w * parts + number % (3 * parts);
    }

    return i == 2 ? 0 : number;
}

void check_state(fuzz::Input &input) {
    const Policy policy = policy_of(input);
    const uint64_t now_ms = time_of(input);
    const uint64_t limit = 1 + input.number() % policy.limit_max(true);
    const uint64_t cost = input.number() % (kRemoteMax + 2);
    const auto granted = static_cast<uint32_t>(input.below(300));

    const auto first = static_cast<int64_t>(input.number());
    const unsigned n = remote_values(policy, first);
    CHECK(n >= 1 && n <= kValuesMax);

    /* memory of its own, so that a sanitizer sees what reads beyond it */
    std::vector<int64_t> values(n);
    values[0] = first;
    for (unsigned i = 1; i < n; i++) {
        values[i] = value_of(input, policy, now_ms, i);
    }

    if (!are_remote_values(policy, limit, now_ms, values.data())) { return; }

    RemoteState state = {now_ms, limit, values.data()};
    if (input.flag()) {
        const auto units = static_cast<int64_t>(input.number());
        const auto from = static_cast<int64_t>(input.number());
        const uint64_t pace = 1 + input.number() % kRemoteMax;
        if (!is_remote_debt(policy, units, from)) { return; }

        state.debt = {static_cast<uint64_t>(units), static_cast<uint64_t>(from), pace};
    }

    for (const bool admitted : {false, true}) {
        for (const bool look : {false, true}) {
            const uint64_t rejected = input.number() % (kRemoteMax + 1);
            const Verdict verdict = state.describe(policy, cost, granted, admitted, look, rejected);
            CHECK(verdict.limit == limit);
            CHECK(verdict.remaining <= policy.capacity(limit) || verdict.remaining <= limit);
            /* what is ahead in a queue: all of it, what this call has taken, and 1 ms */
            const uint64_t taken = look ? 0 : (granted + uint64_t{admitted}) * cost;
            const uint64_t spent = taken != 0 ? taken + state.debt.units : 0;
            const Wide most = Wide{policy.capacity(limit) + spent} * policy.window_ms / limit + 1;
            CHECK(verdict.delay_ms <= most);
            if (state.debt.units == 0) {
                const uint64_t longest = longest_ms(policy);
                CHECK(verdict.retry_after_ms == kNever || verdict.retry_after_ms <= longest);
                CHECK(verdict.reset_ms <= longest);
            }
            (void)state.refused_ms(policy, verdict);
        }
    }

    CHECK(state.part_ends_ms(policy) > 0);
    (void)state.taken(policy, input.number() % kRemoteMax);
    (void)state.used_after(policy, input.number() % kRemoteMax);
}

/* An exchange of bans with a Redis that answers anything: whatever was told, a ban that
 * waits is told until a reply takes it, and no ban is longer than the rule says. */
void check_bans(fuzz::Input &input) {
    alignas(64) static uint8_t exchange_memory[BanExchange::kBytesMin];
    alignas(64) static uint8_t bans_memory[4096];
    memset(exchange_memory, 0, sizeof(exchange_memory));
    memset(bans_memory, 0, sizeof(bans_memory));

    BanExchange *exchange = BanExchange::init(exchange_memory, sizeof(exchange_memory));
    Bans *bans = Bans::init(bans_memory, sizeof(bans_memory), nullptr);
    const PenaltyRule rule = {1000, 1000 + input.number() % (uint64_t{1} << 34), 60000, 2};
    static auto call = std::make_unique<BanCall>();
    uint64_t now_ms = 1000000;
    uint64_t hashes[8] = {};

    for (unsigned step = 0; !input.empty() && step < 200; step++) {
        uint64_t &hash = hashes[input.below(8)];
        now_ms += input.number() % 5000;
        switch (input.below(4)) {
        case 0:
            hash = input.number();
            if (bans->reject(hash, rule, now_ms).left_ms != 0) { (void)exchange->tell(hash); }
            break;
        case 1:
            if (hash != 0 && bans->lift(hash, now_ms)) {
                (void)exchange->tell_lifted(hash, now_ms);
            }
            break;
        default: {
            std::vector<int64_t> numbers;
            for (uint64_t n = input.below(24); n > 0; n--) {
                numbers.push_back(static_cast<int64_t>(input.number()));
            }

            exchange->fill(call.get(), *bans, rule, now_ms);
            CHECK(call->n <= kBansPerCall);
            const auto reply
                = exchange->read(*call, numbers.data(), numbers.size(), bans, rule, now_ms);
            CHECK(reply == BanReply::kInvalid || numbers.size() >= 5);
            for (size_t i = 5; reply != BanReply::kInvalid && i + 2 < numbers.size(); i += 3) {
                const auto told = static_cast<uint64_t>(numbers[i]) << 32
                                  | static_cast<uint64_t>(numbers[i + 1]);
                CHECK(bans->find(told, now_ms).left_ms <= rule.max_ms);
            }
        }
        }
    }
}

/* A place has one text. */
void check_place(fuzz::Input &input) {
    ScanPosition place;
    const std::string_view text = input.text();
    if (read_scan_position(text, &place)) {
        char again[kScanPositionBytes];
        CHECK(std::string_view(again, write_scan_position(place, again)) == text);
    }

    const ScanPosition any = {input.number() | 1, input.number()};
    char written[kScanPositionBytes];
    CHECK(read_scan_position({written, write_scan_position(any, written)}, &place));
    CHECK(place.node == any.node && place.cursor == any.cursor);

    const std::string_view key = input.text();
    CHECK(key_slot(key) < kClusterSlots);
    std::vector<char> glob(2 * key.size());
    CHECK(escape_glob(key, glob.data()) <= glob.data() + glob.size());
    const size_t count = scan_count(input.below(1000), input.below(100000), input.below(1000));
    CHECK(count >= kScanMin && count <= kScanMax);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    switch (input.below(4)) {
    case 0:
        check_bans(input);
        break;
    case 1:
        check_place(input);
        break;
    default:
        check_state(input);
    }

    return 0;
}
