/* Copyright (C) the limit_sliding authors */

/* The name before the usage of a request in a body, and the search for it. */

#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "http/usage/byte_block.hpp"

namespace limit_sliding {

/* A name, and the text to search for: the name with quotes around it. */
class UsageName {
public:
    static constexpr size_t kMax = 64;

    /* Returns true for 1 to kMax bytes without quotes and backslashes, which JSON escapes. */
    static bool is_valid(std::string_view name) {
        return !name.empty() && name.size() <= kMax
               && name.find_first_of("\"\\") == std::string_view::npos;
    }

    /* The name must be valid. */
    explicit UsageName(std::string_view name) : size_(name.size() + 2), rare_(rare_in(name) + 1) {
        text_[0] = '"';
        std::memcpy(text_ + 1, name.data(), name.size());
        text_[size_ - 1] = '"';
    }

    size_t size() const { return size_; }
    std::string_view name() const { return {text_ + 1, size_ - 2}; }

    /* Returns true if the bytes [p, end) equal the text from its i-th byte on. */
    bool is_like(const char *p, const char *end, size_t i) const {
        for (; p != end; p++, i++) {
            if (*p != text_[i]) { return false; }
        }

        return true;
    }

    /* Returns true if [p, end) is long enough for find_step(). */
    bool has_step(const char *p, const char *end) const {
        return static_cast<size_t>(end - p) >= size_ + kStep - 1;
    }

    /* Searches steps of kStep positions.  Returns the first step with a quote and the rare byte
     * at its distance, or nullptr, the usual case.  The last step may overlap the one before. */
    [[gnu::always_inline]] const char *find_step(const char *p, const char *end) const {
        const auto quotes = ByteBlock::all('"');
        const auto rares = ByteBlock::all(text_[rare_]);
        const auto pairs = [&](const char *at) {
            return (ByteBlock::at(at) == quotes) & (ByteBlock::at(at + rare_) == rares);
        };
        const auto has_pair
            = [&](const char *at) { return (pairs(at) | pairs(at + ByteBlock::kSize)).any(); };

        const char *last = end - (size_ + kStep - 1);
        for (; p < last; p += kStep) {
            if (has_pair(p)) { return p; }
        }

        return has_pair(last) ? last : nullptr;
    }

    /* Returns the first position from p on where the text may begin, or the end. */
    const char *find_candidate(const char *p, const char *end) const {
        if (has_step(p, end)) {
            const char *step = find_step(p, end);
            return step != nullptr ? find_pair(step, end) : end;
        }

        const char *last = end - std::min<size_t>(end - p, size_ - 1);
        p = find_pair(p, last);
        return p != last ? p : end;
    }

    /* Returns the last quote where an incomplete text may begin, or nullptr.  has_step() is
     * true. */
    const char *find_last_quote(const char *end) const {
        const char *least = end - (size_ - 1);
        do {
            end -= ByteBlock::kSize;
            const auto found = ByteBlock::at(end) == ByteBlock::all('"');
            if (found.any()) {
                const char *quote = end + found.last();
                return quote >= least ? quote : nullptr;
            }
        } while (end > least);

        return nullptr;
    }

private:
    static constexpr size_t kStep = 2 * ByteBlock::kSize;

    /* Returns the index of a byte that is rare in texts. */
    static size_t rare_in(std::string_view name) {
        constexpr std::string_view common = "etanoisrlhdcu";
        size_t rarest = 0;
        for (size_t i = 1; i < name.size(); i++) {
            /* For bytes that are not common, find() returns npos, the largest number. */
            if (common.find(name[i]) > common.find(name[rarest])) { rarest = i; }
        }

        return rarest;
    }

    /* Returns the first position in [p, last) with a quote and the rare byte at its distance, or
     * `last`. */
    const char *find_pair(const char *p, const char *last) const {
        while (p != last && (*p != '"' || p[rare_] != text_[rare_])) {
            p++;
        }

        return p;
    }

    size_t size_;
    size_t rare_;
    char text_[kMax + 2];
};

} // namespace limit_sliding
