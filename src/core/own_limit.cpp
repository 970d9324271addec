/* Copyright (C) the limit_sliding authors */

#include "core/own_limit.hpp"

#include "core/mix.hpp"
#include "core/rate.hpp"

namespace limit_sliding {

bool OwnLimit::parse(std::string_view text, const Policy &policy, uint64_t limit_max) {
    if (text == "off" || text == "0") {
        *this = {text == "off" ? kUnlimited : kBlocked, {}};
        return true;
    }

    const size_t slash = text.find('/');
    const bool has_window = slash != std::string_view::npos && slash != 0 && text[slash - 1] != 'r';
    Rate rate;
    Window own = {};

    if (has_window) {
        if (!own.parse({text.data() + slash + 1, text.size() - slash - 1})) { return false; }

        if (own.calendar != Calendar::kNone && policy.algorithm != Algorithm::kFixed) {
            return false;
        }

        text = {text.data(), slash};
    }

    if (!rate.parse(text)) { return false; }

    uint64_t n = rate.limit(has_window ? own.ms : policy.window_ms);
    if (n < 1 || n > limit_max) { return false; }

    *this = {n, own == policy.window() ? Window{} : own};
    return true;
}

Policy with_window(const Policy &policy, const Window &window) {
    Policy own = policy;
    if (!window.is_given() || window == policy.window()) { return own; }

    own.window_ms = window.ms;
    own.calendar = window.calendar;
    own.salt = mixed(window.code()) | 1;
    return own;
}

} // namespace limit_sliding
