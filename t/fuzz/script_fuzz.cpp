/* Copyright (C) the limit_sliding authors */

/* Numbers that a Redis answers to a call of the script, for calls of all shapes: what is
 * taken for a reply can be read and described, and is of all the call's asks. */

#include "redis/asks/script_call.hpp"

#include <hiredis/hiredis.h>

#include <memory>
#include <vector>

#include "core/policy/override.hpp"
#include "input.hpp"

namespace limit_sliding {

/* In place of the one that sends it: no call is too large. */
bool Pipeline::command(Call &, Span<const Arg>) { return true; }

} // namespace limit_sliding

using namespace limit_sliding;

namespace {

constexpr size_t kAsks = 3;
constexpr size_t kParts = 3;

Policy policy_of(fuzz::Input &input) {
    Policy policy = {};
    policy.algorithm = static_cast<Algorithm>(input.below(5));
    policy.window_ms = kWindowMinMs + input.number() % (kWindowMaxMs - kWindowMinMs + 1);
    if (policy.algorithm == Algorithm::kCounter) {
        policy.precision = static_cast<uint32_t>(input.below(61));
    }

    if (policy.algorithm == Algorithm::kFixed) {
        const Window window = Window::of(static_cast<Calendar>(input.below(5)));
        if (window.is_given()) { policy = with_window(policy, window); }

        policy.salt = 0;
    }

    return policy;
}

/* The asks of a call. */
struct Asked {
    explicit Asked(fuzz::Input &input) {
        call.errands.init();
        for (size_t n = 1 + input.below(kAsks); n > 0; n--) {
            Ask &ask = asks[n - 1];
            AskPart *first = &parts[(n - 1) * kParts];
            ask.parts = {first, 1 + input.below(kParts)};
            ask.asked_units = 1 + input.below(300);
            for (AskPart &part : ask.parts) {
                set_part(part, input);
            }

            call.errands.push_back(ask);
        }
    }

    void set_part(AskPart &part, fuzz::Input &input) {
        const size_t i = &part - parts;
        policies[i] = policy_of(input);
        zones[i].policy = &policies[i];
        part.zone = &zones[i];
        part.claim.policy = &policies[i];
        part.claim.limit = 1 + input.number() % policies[i].limit_max(true);
        part.pace = part.claim.limit;
        part.claim.cost = input.number() % (kRemoteMax + 2);
        part.claim.purpose = static_cast<Purpose>(input.below(5));
        part.claim.records = input.flag();
        const bool is_synced = part.claim.cost % 8 == 5;
        part.beside = !input.flag() ? Beside::kNothing
                      : is_synced   ? Beside::kTotals
                                    : Beside::kMark;
        if (input.flag()) { part.window = Window::from_code(60000); }
    }

    ErrandCall call = {};
    Ask asks[kAsks] = {};
    AskPart parts[kAsks * kParts] = {};
    RemoteZone zones[kAsks * kParts] = {};
    Policy policies[kAsks * kParts] = {};
};

void check_part(const Ask &ask, const AskPart &part, const PartAnswer &answer, int64_t granted) {
    CHECK(answer.state.limit >= 1 || answer.terms == Terms::kBlocked);
    CHECK(!is_settled(part.claim) || answer.lost <= part.claim.cost);

    for (int64_t turn = 0; turn < static_cast<int64_t>(ask.asked_units); turn += 1 + turn / 2) {
        const bool has_state = !is_settled(part.claim) && answer.terms == Terms::kLimited;
        const auto before = static_cast<uint32_t>(std::min(turn, granted));
        const Verdict verdict
            = turn < granted && has_state
                  ? answer.state.describe(answer.policy, part.claim.cost, before, true,
                                          part.claim.purpose != Purpose::kConsume)
                  : describe_part(part, answer, before);
        CHECK(answer.terms == Terms::kBlocked || verdict.limit == answer.state.limit);
        if (!has_state) { continue; }

        const Policy &policy = answer.policy;
        const Wide full = policy.capacity(verdict.limit);
        CHECK(verdict.delay_ms <= full * policy.window_ms / verdict.limit);

        (void)answer.state.refused_ms(answer.policy, verdict);
        (void)answer.state.taken(answer.policy, static_cast<uint64_t>(turn));
        (void)answer.state.part_ends_ms(answer.policy);
        (void)answer.state.used_after(answer.policy, part.claim.cost);
    }
}

/* Adds a number, nil, or the state of a counter, or nearly so. */
void add_element(Reply &reply, fuzz::Input &input) {
    int64_t &element = reply.numbers[reply.n++];
    element = static_cast<int64_t>(input.number());
    if (element >= kReplyNumberMin) { return; }

    const size_t length = input.below(90);
    element = kReplyNil;
    if (length == 0 || length > kReplyBytes - reply.nbytes) { return; }

    element += 1 + static_cast<int64_t>(reply.nbytes * kReplyBytes + length);
    for (size_t i = 0; i < length; i++) {
        /* most bytes of counts are 0 */
        reply.bytes[reply.nbytes++] = i >= 6 && input.flag() ? 0 : static_cast<char>(input.byte());
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const auto asked = std::make_unique<Asked>(input);

    /* what the reply does not have is as an earlier one left it */
    static auto reply = std::make_unique<Reply>();
    const auto stale = std::max(static_cast<int64_t>(input.number()), kReplyNumberMin);
    std::fill(std::begin(reply->numbers), std::end(reply->numbers), stale);
    reply->type = REDIS_REPLY_ARRAY;
    reply->n = 0;
    reply->nbytes = 0;
    while (!input.empty() && reply->n < 400) {
        add_element(*reply, input);
    }

    /* a whole one of the call's, whose last number was not read */
    if (reply->n != 0 && input.empty() && (reply->numbers[0] & 1) != 0) { reply->n--; }

    ScriptReply script_reply{*reply};
    for (const Ask &ask : asks_of(asked->call)) {
        Answer answer = {};
        const bool is_last = &ask == &asks_of(asked->call).back();
        if (!script_reply.read(ask, is_last, &answer)) { return 0; }

        CHECK(answer.granted >= 0 && answer.granted <= static_cast<int64_t>(ask.asked_units));
        /* the client ends an ask with a foreign state as one without an answer */
        bool is_foreign = false;
        for (size_t i = 0; i < ask.parts.size(); i++) {
            is_foreign |= answer.parts[i].is_foreign;
        }
        if (is_foreign) { continue; }

        for (size_t i = 0; i < ask.parts.size(); i++) {
            check_part(ask, ask.parts[i], answer.parts[i], answer.granted);
        }
    }

    return 0;
}
