/* Copyright (C) the limit_sliding authors */

#include "core/policy/rate.hpp"

#include <charconv>

namespace limit_sliding {

namespace {

constexpr size_t kDigitsMax = 18;

constexpr std::string_view kUnits = "smhd";
constexpr uint64_t kUnitsMs[] = {1000, 60 * 1000, 60 * 60 * 1000, 24 * 60 * 60 * 1000};

} // namespace

bool Rate::parse(std::string_view text) {
    Rate parsed = {0, 0};
    const char *end = std::from_chars(text.data(), text.data() + text.size(), parsed.count).ptr;
    const auto digits = static_cast<size_t>(end - text.data());

    if (parsed.count == 0 || digits > kDigitsMax) { return false; }

    text.remove_prefix(digits);

    if (!text.empty()) {
        if (text.size() != 3 || text[0] != 'r' || text[1] != '/') { return false; }

        const size_t unit = kUnits.find(text[2]);
        if (unit == std::string_view::npos) { return false; }

        parsed.per_ms = kUnitsMs[unit];
    }

    *this = parsed;

    return true;
}

bool Rate::parse(std::string_view text, Window *window) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos || slash == 0 || text[slash - 1] == 'r') {
        return parse(text);
    }

    Rate parsed = {0, 0};
    if (!parsed.parse({text.data(), slash})
        || !window->parse({text.data() + slash + 1, text.size() - slash - 1})) {
        return false;
    }

    *this = parsed;
    return true;
}

uint64_t Rate::limit(uint64_t window_ms) const {
    if (per_ms == 0) { return count; }
    if (window_ms == 0) { return 0; }
    uint64_t whole = count / per_ms;
    uint64_t rest = count % per_ms * window_ms / per_ms;
    if (whole > (UINT64_MAX - rest) / window_ms) { return UINT64_MAX; }
    return whole * window_ms + rest;
}

} // namespace limit_sliding
