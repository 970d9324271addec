/* Copyright (C) the limit_sliding authors */

#include "core/policy/override.hpp"

#include "core/base/hashes.hpp"
#include "core/policy/rate.hpp"

namespace limit_sliding {

bool Override::parse(std::string_view text, const Policy &policy, uint64_t limit_max) {
    if (text == "off" || text == "0") {
        *this = {text == "off" ? kLimitOff : kLimitBlocked, {}};
        return true;
    }

    Rate rate;
    Window own = {};
    if (!rate.parse(text, &own)) { return false; }

    if (own.calendar != Calendar::kNone && policy.algorithm != Algorithm::kFixed) { return false; }

    if (policy.is_in_flight() && (own.is_given() || rate.per_ms != 0)) { return false; }

    uint64_t n = rate.limit(own.is_given() ? own.ms : policy.window_ms);
    if (n < 1 || n > limit_max) { return false; }

    *this = {n, own == policy.window() ? Window{} : own};
    return true;
}

Policy with_window(const Policy &policy, const Window &window) {
    Policy own = policy;
    if (!is_own_window(policy, window)) { return own; }
    own.window_ms = window.ms;
    own.calendar = window.calendar;
    own.salt = mixed(window.code()) | 1;
    return own;
}

} // namespace limit_sliding
