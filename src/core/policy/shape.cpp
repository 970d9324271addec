/* Copyright (C) the limit_sliding authors */

#include "core/policy/shape.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/policy/window.hpp"

namespace limit_sliding {

Shape::Shape(const Policy &policy) {
    if (policy.algorithm == Algorithm::kInFlight) {
        add("inflight");
        return;
    }

    constexpr std::string_view kLetters = "clftb";
    add({&kLetters[static_cast<unsigned>(policy.algorithm)], 1});
    if (policy.calendar != Calendar::kNone) {
        add(name_of(policy.calendar));
        if (policy.offsets != nullptr) { add(".local"); }
        return;
    }

    const bool is_whole = policy.window_ms % 1000 == 0;
    add(is_whole ? policy.window_ms / 1000 : policy.window_ms);
    is_whole ? add("s") : add("ms");
    if (policy.algorithm == Algorithm::kCounter && policy.precision != 0) {
        add(".");
        add(policy.precision);
    }
}

void Shape::add(std::string_view text) {
    std::copy(text.begin(), text.end(), text_ + bytes_);
    bytes_ += text.size();
}

void Shape::add(uint64_t number) {
    bytes_
        = static_cast<size_t>(std::to_chars(text_ + bytes_, std::end(text_), number).ptr - text_);
}

} // namespace limit_sliding
