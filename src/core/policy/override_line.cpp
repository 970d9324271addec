/* Copyright (C) the limit_sliding authors */

#include "core/policy/override_line.hpp"

#include <charconv>
#include <cstring>

#include "core/policy/calendar.hpp"

namespace limit_sliding {

namespace {

using Kind = OverrideLine::Kind;

constexpr std::string_view kDefault = "default";
constexpr std::string_view kUntil = "until=";

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns true if a key may contain the character unescaped. */
bool is_plain(char c) { return c > ' ' && c <= '~' && c != '#' && c != '%'; }

int hex_digit(char c) {
    if (is_digit(c)) { return c - '0'; }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void skip_blanks(std::string_view *rest) {
    while (!rest->empty() && is_blank(rest->front())) {
        rest->remove_prefix(1);
    }
}

/* Cuts a word and the blanks after it off the line's begin.  Returns the word. */
std::string_view cut_word(std::string_view *rest) {
    size_t size = 0;
    while (size < rest->size() && !is_blank((*rest)[size])) {
        size++;
    }
    const std::string_view word(rest->data(), size);
    rest->remove_prefix(size);
    skip_blanks(rest);
    return word;
}

/* Decodes a key in place.  Returns false if an escape or a byte is invalid. */
bool decode(char *text, size_t size, std::string_view *key) {
    size_t n = 0;

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (c == '%') {
            if (size - i < 3) { return false; }

            const int high = hex_digit(text[i + 1]);
            const int low = hex_digit(text[i + 2]);
            if (high < 0 || low < 0) { return false; }

            c = static_cast<char>(high << 4 | low);
            i += 2;
        } else if (!is_plain(c)) {
            return false;
        }

        text[n++] = c;
    }

    *key = {text, n};
    return true;
}

/* Returns the value of the decimal number of `digits` digits that begins at text[at]. */
unsigned number_at(std::string_view text, size_t at, size_t digits) {
    unsigned n = 0;
    for (size_t i = at; i < at + digits; i++) {
        n = n * 10 + static_cast<unsigned>(text[i] - '0');
    }
    return n;
}

/* Parses "2026-11-22T21:00:00Z".  Returns false for another form and for invalid times. */
bool parse_date(std::string_view text, uint64_t *s) {
    constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
    if (text.size() != kForm.size()) { return false; }

    for (size_t i = 0; i < kForm.size(); i++) {
        if (kForm[i] == 'd' ? !is_digit(text[i]) : text[i] != kForm[i]) { return false; }
    }

    const unsigned year = number_at(text, 0, 4), month = number_at(text, 5, 2),
                   day = number_at(text, 8, 2), hour = number_at(text, 11, 2),
                   minute = number_at(text, 14, 2), second = number_at(text, 17, 2);
    if (year < 1970 || month < 1 || month > 12 || hour > 23 || minute > 59 || second > 60) {
        return false;
    }

    const int64_t months = (int64_t{year} - 1970) * 12 + month - 1;
    const int64_t days = first_day_of_month(months) + day - 1;
    if (day < 1 || days >= first_day_of_month(months + 1)) { return false; }

    *s = ((static_cast<uint64_t>(days) * 24 + hour) * 60 + minute) * 60 + second;
    return true;
}

/* Parses a date or seconds from a non-empty text. */
bool parse_time(std::string_view text, uint64_t *s) {
    if (parse_date(text, s)) { return true; }

    const char *end = text.data() + text.size();
    return text.size() <= 18 && std::from_chars(text.data(), end, *s).ptr == end;
}

/* Copies a text to `p` and returns its end.  text.data() must not be null. */
char *append(char *p, std::string_view text) {
    std::memcpy(p, text.data(), text.size());
    return p + text.size();
}

} // namespace

Kind OverrideLine::parse(char *line, size_t size, const Policy &policy, uint64_t limit_max) {
    const auto wrong = [this](const char *why) {
        error = why;
        return Kind::kWrong;
    };

    if (size != 0 && line[size - 1] == '\r') { size--; }

    std::string_view rest(line, size);
    const auto is_at_end = [&rest] { return rest.empty() || rest.front() == '#'; };
    skip_blanks(&rest);
    if (is_at_end()) { return Kind::kNone; }

    char *begin = line + (size - rest.size());
    const size_t key_size = cut_word(&rest).size();
    if (!decode(begin, key_size, &key)) {
        return wrong("the key has a byte that must be written as \"%XX\", or a wrong \"%\"");
    }

    if (key.size() > kKeyMax) { return wrong("the key is longer than 65535 bytes"); }

    if (is_at_end()) { return wrong("the key has no limit"); }

    text = cut_word(&rest);
    own = {kLimitUnset, {}};
    if (text != kDefault && !own.parse(text, policy, limit_max)) {
        return wrong("the limit is invalid");
    }

    until_s = kNoEnd;
    if (is_at_end()) { return Kind::kOverride; }

    std::string_view word = cut_word(&rest);
    if (word.size() <= kUntil.size() || std::string_view(word.data(), kUntil.size()) != kUntil) {
        return wrong("what follows the limit is not \"until=\"");
    }

    word.remove_prefix(kUntil.size());
    if (!parse_time(word, &until_s)) {
        return wrong("the time is neither in seconds nor as \"2026-11-22T21:00:00Z\"");
    }

    if (until_s > kUntilMax) { return wrong("the time is after \"2106-02-07T06:28:14Z\""); }

    return is_at_end() ? Kind::kOverride : wrong("more follows the time than a comment");
}

size_t OverrideLine::write(char *line) const {
    constexpr char kHex[] = "0123456789ABCDEF";
    char *p = line;

    *p++ = ' ';
    for (const char c : key) {
        if (is_plain(c)) {
            *p++ = c;
            continue;
        }

        const auto byte = static_cast<unsigned char>(c);
        *p++ = '%';
        *p++ = kHex[byte >> 4];
        *p++ = kHex[byte & 15];
    }

    *p++ = ' ';
    p = append(p, own.is_set() ? text : kDefault);

    if (own.is_set() && until_s != kNoEnd) {
        constexpr size_t kDigitsMax = 20;
        p = append(append(p, " "), kUntil);
        p = std::to_chars(p, p + kDigitsMax, until_s).ptr;
    }

    *p++ = '\n';
    return static_cast<size_t>(p - line);
}

} // namespace limit_sliding
