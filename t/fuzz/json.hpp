/* Copyright (C) the limit_sliding authors */

/* A plain reader of JSON that is as strict as RFC 8259, for small texts. */

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

class Json {
public:
    explicit Json(std::string_view text) : text_(trimmed(text)) {}

    /* Is it one value, with strings of UTF-8? */
    bool is_valid() const {
        size_t at = 0;
        return skip(&at) && at == text_.size();
    }

    std::string_view raw() const { return text_; }

    /* Returns the text in the quotes of a string that has no escapes; else none. */
    std::string_view text() const {
        const bool is_string = text_.size() >= 2 && text_[0] == '"';
        return is_string ? text_.substr(1, text_.size() - 2) : std::string_view();
    }

    /* The values of an array, and that of a member of an object; nothing: it is none. */
    std::vector<Json> elements() const {
        std::vector<Json> found;
        each([&](std::string_view, Json value) { found.push_back(value); });
        return found;
    }

    Json member(std::string_view name) const {
        Json found("");
        each([&](std::string_view other, Json value) {
            if (other == name) { found = value; }
        });
        return found;
    }

private:
    static std::string_view trimmed(std::string_view text) {
        const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
        while (!text.empty() && is_blank(text.front())) {
            text.remove_prefix(1);
        }

        while (!text.empty() && is_blank(text.back())) {
            text.remove_suffix(1);
        }

        return text;
    }

    bool has(size_t *at, char c) const {
        if (*at >= text_.size() || text_[*at] != c) { return false; }

        ++*at;
        return true;
    }

    void skip_blanks(size_t *at) const {
        while (*at < text_.size() && (text_[*at] == ' ' || text_[*at] == '\n')) {
            ++*at;
        }
    }

    /* Goes beyond a character; false: it is none of UTF-8, or has to be escaped. */
    bool skip_character(size_t *at) const {
        const auto byte = [&](size_t i) {
            return *at + i < text_.size() ? static_cast<unsigned char>(text_[*at + i]) : 0u;
        };
        const unsigned first = byte(0);
        if (first < 0x80) {
            ++*at;
            return first >= ' ' && first != '<';
        }

        const size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
        unsigned code = first & (0xff >> (n + 1));
        for (size_t i = 1; i < n; i++) {
            if ((byte(i) & 0xc0) != 0x80) { return false; }

            code = code << 6 | (byte(i) & 0x3f);
        }

        *at += n;
        const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
        return first >= 0xc2 && first <= 0xf4 && code >= least[n] && code <= 0x10ffff
               && (code & ~0x7ffu) != 0xd800;
    }

    bool skip_string(size_t *at) const {
        if (!has(at, '"')) { return false; }

        while (!has(at, '"')) {
            if (!has(at, '\\')) {
                if (*at >= text_.size() || !skip_character(at)) { return false; }

                continue;
            }

            const bool is_code = *at + 4 < text_.size() && text_[*at] == 'u';
            if (!is_code
                && (*at >= text_.size()
                    || std::string_view("\"\\/bfnrt").find(text_[*at]) == std::string_view::npos)) {
                return false;
            }

            *at += is_code ? 5 : 1;
        }

        return true;
    }

    bool skip_word(size_t *at) const {
        const size_t begin = *at;
        while (*at < text_.size()
               && std::string_view(",]}\n ").find(text_[*at]) == std::string_view::npos) {
            ++*at;
        }

        const std::string_view word = text_.substr(begin, *at - begin);
        const bool is_number = !word.empty() && word.find_first_not_of("0123456789.") == word.npos
                               && (word[0] != '0' || word.size() == 1 || word[1] == '.');
        return is_number || word == "true" || word == "false" || word == "null";
    }

    bool skip(size_t *at) const {
        skip_blanks(at);
        if (*at < text_.size() && text_[*at] == '"') { return skip_string(at); }

        if (*at < text_.size() && (text_[*at] == '{' || text_[*at] == '[')) {
            return skip_all(at, [](std::string_view, Json) {});
        }

        return skip_word(at);
    }

    /* Goes beyond an object or an array, with a call for each of its values. */
    template <class Visit>
    bool skip_all(size_t *at, const Visit &visit) const {
        const bool is_object = has(at, '{');
        const char end = is_object ? '}' : ']';
        if (!is_object && !has(at, '[')) { return false; }

        skip_blanks(at);
        if (has(at, end)) { return true; }

        do {
            skip_blanks(at);
            const size_t name = *at;
            if (is_object && (!skip_string(at) || !has(at, ':'))) { return false; }

            const size_t value = *at;
            if (!skip(at)) { return false; }

            visit(is_object ? text_.substr(name + 1, value - name - 3) : std::string_view(),
                  Json(text_.substr(value, *at - value)));
            skip_blanks(at);
        } while (has(at, ','));

        return has(at, end);
    }

    template <class Visit>
    void each(const Visit &visit) const {
        size_t at = 0;
        (void)skip_all(&at, visit);
    }

    std::string_view text_;
};

} // namespace fuzz
