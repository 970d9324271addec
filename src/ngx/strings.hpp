/* Copyright (C) the limit_sliding authors */

/* NGINX's strings as std::string_view, and functions on both. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

inline std::string_view view(const ngx_str_t &string) {
    return {reinterpret_cast<const char *>(string.data), string.len};
}

inline std::string_view view(const u_char *data, size_t len) {
    return {reinterpret_cast<const char *>(data), len};
}

/* Drops the const, for NGINX's functions that take mutable strings but do not write to them. */
inline u_char *bytes(std::string_view text) {
    return reinterpret_cast<u_char *>(const_cast<char *>(text.data()));
}

inline ngx_str_t to_str(std::string_view text) { return {text.size(), bytes(text)}; }

/* Returns the first `bytes` bytes of the text, or the whole text if it is shorter.  substr() may
 * throw, which needs libstdc++ in builds without optimization. */
inline std::string_view first(std::string_view text, size_t bytes) {
    return {text.data(), bytes < text.size() ? bytes : text.size()};
}

/* Appends the text, and returns its end. */
inline u_char *append(u_char *p, std::string_view text) {
    return text.empty() ? p : ngx_cpymem(p, text.data(), text.size());
}

/* Prints two digits in front of `end`.  Returns their begin. */
inline u_char *print_pair(u_char *end, uint64_t pair) {
    static constexpr char kPairs[]
        = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
          "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
          "8081828384858687888990919293949596979899";

    ngx_memcpy(end - 2, &kPairs[2 * pair], 2);
    return end - 2;
}

/* Prints a number in front of `end`, at most NGX_INT64_LEN bytes.  Returns its begin.
 * ngx_sprintf() takes several times as long. */
inline u_char *print_digits(u_char *end, uint64_t n) {
    for (; n > UINT32_MAX; n /= 100) {
        end = print_pair(end, n % 100);
    }

    /* 32-bit divisions are faster. */
    auto rest = static_cast<uint32_t>(n);
    for (; rest >= 100; rest /= 100) {
        end = print_pair(end, rest % 100);
    }

    if (rest >= 10) { return print_pair(end, rest); }

    *--end = static_cast<u_char>('0' + rest);
    return end;
}

/* Appends the number in decimal, and returns its end. */
inline u_char *append_number(u_char *p, uint64_t n) {
    u_char digits[NGX_INT64_LEN];
    u_char *const end = digits + sizeof(digits);
    const u_char *begin = print_digits(end, n);
    return ngx_cpymem(p, begin, end - begin);
}

/* Appends the number at *p, and moves *p to its end.  Returns the digits. */
inline std::string_view append_digits(u_char **p, uint64_t n) {
    u_char *begin = *p;
    *p = append_number(begin, n);
    return view(begin, *p - begin);
}

/* The SHA-1 of a text. */
struct Sha1 {
    explicit Sha1(std::string_view text) {
        ngx_sha1_t sha;
        ngx_sha1_init(&sha);
        ngx_sha1_update(&sha, text.data(), text.size());
        ngx_sha1_final(bytes, &sha);
    }

    u_char bytes[20];
};

/* The bytes of append_digest(). */
constexpr size_t kDigestBytes = 22;

/* Appends the first 128 bits of the text's SHA-1 in base64url, and returns its end. */
inline u_char *append_digest(u_char *p, std::string_view text) {
    Sha1 sha(text);
    ngx_str_t bits = {128 / 8, sha.bytes}, digest = {0, p};
    ngx_encode_base64url(&digest, &bits);
    return p + digest.len;
}

/* Joins the texts in memory of the pool.  The data is nullptr if there is no memory. */
template <class... Texts>
ngx_str_t join(ngx_pool_t *pool, const Texts &...texts) {
    size_t len = (std::string_view(texts).size() + ...);
    auto *joined = static_cast<u_char *>(ngx_pnalloc(pool, len));
    if (u_char *p = joined) { ((p = append(p, texts)), ...); }
    return {len, joined};
}

inline bool starts_with(std::string_view text, std::string_view prefix) {
    return first(text, prefix.size()) == prefix;
}

/* Removes a prefix or suffix.  Returns false if the text does not have it. */
inline bool cut_prefix(std::string_view *text, std::string_view prefix) {
    const bool found = starts_with(*text, prefix);
    text->remove_prefix(found ? prefix.size() : 0);
    return found;
}

inline bool cut_suffix(std::string_view *text, std::string_view suffix) {
    const bool found = text->size() >= suffix.size()
                       && std::string_view(text->end() - suffix.size(), suffix.size()) == suffix;
    text->remove_suffix(found ? suffix.size() : 0);
    return found;
}

/* Returns true if the names of two variables or headers are equal but for case. */
inline bool is_same_name(std::string_view a, std::string_view b) {
    return a.size() == b.size() && ngx_strncasecmp(bytes(a), bytes(b), a.size()) == 0;
}

/* Returns true if the names are equal but for case, "-" and "_". */
inline bool is_similar(std::string_view a, std::string_view b) {
    auto skip = [](std::string_view &text) {
        while (!text.empty() && (text.front() == '-' || text.front() == '_')) {
            text.remove_prefix(1);
        }
    };

    for (;;) {
        skip(a);
        skip(b);
        if (a.empty() || b.empty()) { return a.empty() && b.empty(); }

        if (ngx_tolower(a.front()) != ngx_tolower(b.front())) { return false; }

        a.remove_prefix(1);
        b.remove_prefix(1);
    }
}

/* Returns true if the word is the name, of four characters or more, but for one character that is
 * wrong, missing or too many, or for two neighbors that have changed places. */
inline bool is_misspelt(std::string_view word, std::string_view name) {
    const auto rest = [](std::string_view text, size_t n) {
        text.remove_prefix(ngx_min(n, text.size()));
        return text;
    };

    size_t same = 0;
    while (same < ngx_min(word.size(), name.size()) && word[same] == name[same]) {
        same++;
    }

    const auto a = rest(word, same), b = rest(name, same);
    const bool is_swapped = a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]
                            && is_similar(rest(a, 2), rest(b, 2));
    return name.size() >= 4
           && (is_swapped || is_similar(rest(a, 1), b) || is_similar(a, rest(b, 1))
               || is_similar(rest(a, 1), rest(b, 1)));
}

} // namespace limit_sliding
