/* Copyright (C) the limit_sliding authors */

/* Finds the usage of a request in a body: the last integer behind a name, "total_tokens": 42.
 * The body may be JSON, an event stream, or any text, in parts that may end anywhere. */

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/policy/policy.hpp"
#include "http/usage/usage_name.hpp"

namespace limit_sliding {

/* Reads the body of one response.  Keeps no text but the beginning of the first bad value, for
 * the log.  A name contains no quotes, so only the last quote of a part may begin a name that the
 * next part completes. */
class UsageScanner {
public:
    static constexpr size_t kShown = 64; /* kept bytes of a bad value */

    /* The name must outlive the scanner. */
    explicit UsageScanner(const UsageName &name) : name_(&name) {}

    /* Reads the next bytes of the body. */
    void feed(const char *begin, const char *end) {
        const char *p = matched_ == 0 ? begin : complete_name(begin, end);

        /* Nearly all parts need no more than this search. */
        if (is_searching() && name_->has_step(p, end)) {
            p = name_->find_step(p, end);
            if (p == nullptr) {
                const char *quote = name_->find_last_quote(end);
                if (quote != nullptr) { begin_name(begin, quote, end); }

                after_backslash_ = end[-1] == '\\';
                return;
            }
        }

        if (begin != end) { read(begin, p, end); }
    }

    /* Ends the body, and with it a value at its end. */
    void finish() {
        if (state_ == State::kToken) { judge(); }
    }

    /* Returns the last valid integer so far. */
    std::optional<uint64_t> value() const { return value_; }

    /* Returns true if some value was no integer from 0 to kSettledMax.  shown() returns the
     * beginning of the first such value, and is_clipped() whether the value is longer. */
    bool has_bad() const { return has_bad_; }
    std::string_view shown() const { return {shown_, std::min<size_t>(bad_length_, kShown)}; }
    bool is_clipped() const { return bad_length_ > kShown; }

private:
    enum class State : uint8_t { kName, kColon, kSpace, kToken };

    static bool is_space(char ch) { return ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t'; }

    /* Returns true if the byte ends a value that is no string. */
    static bool is_delimiter(char ch) {
        return ch == ',' || ch == '}' || ch == ']' || ch == '"' || is_space(ch);
    }

    bool is_searching() const { return state_ == State::kName && matched_ == 0; }

    /* Reads the bytes from p on, which the first search has not skipped. */
    [[gnu::noinline]] void read(const char *begin, const char *p, const char *end) {
        const char *from = p; /* no incomplete name begins before `from` */

        while (p != end) {
            if (state_ != State::kName) {
                from = p = read_value(p, end);
            } else {
                p = name_->find_candidate(p, end);
                if (p != end) { p = read_name(begin, p); }
            }
        }

        if (is_searching()) {
            const char *least = end - std::min<size_t>(end - from, name_->size() - 1);
            while (p != least && *--p != '"') {}

            if (p != end && *p == '"') { begin_name(begin, p, end); }
        }

        after_backslash_ = end[-1] == '\\';
    }

    bool is_escaped(const char *begin, const char *p) const {
        return p == begin ? after_backslash_ : p[-1] == '\\';
    }

    /* Returns the end of the name at p, or p + 1 if there is none. */
    const char *read_name(const char *begin, const char *p) {
        const char *end = p + name_->size();
        if (!name_->is_like(p, end, 0) || is_escaped(begin, p)) { return p + 1; }

        state_ = State::kColon;
        return end;
    }

    /* Stores how many bytes of a name there are from the last quote on. */
    void begin_name(const char *begin, const char *quote, const char *end) {
        if (name_->is_like(quote + 1, end, 1) && !is_escaped(begin, quote)) {
            matched_ = static_cast<uint8_t>(end - quote);
        }
    }

    /* Continues a name of the last part.  Returns the end of the match, or p if there is none. */
    const char *complete_name(const char *p, const char *end) {
        const char *stop = p + std::min<size_t>(end - p, name_->size() - matched_);
        if (!name_->is_like(p, stop, matched_)) {
            matched_ = 0;
            return p;
        }

        matched_ = static_cast<uint8_t>(matched_ + (stop - p));
        if (matched_ == name_->size()) {
            matched_ = 0;
            state_ = State::kColon;
        }

        return stop;
    }

    /* Reads the text behind a name up to the end of its value, or of the part. */
    const char *read_value(const char *p, const char *end) {
        while (p != end && state_ != State::kName && take(*p)) {
            p++;
        }
        return p;
    }

    /* Reads a byte behind a name.  Returns false if the value has ended before the byte. */
    bool take(char ch) {
        if (state_ != State::kToken && is_space(ch)) { return true; }

        if (state_ == State::kColon) {
            state_ = ch == ':' ? State::kSpace : State::kName;
            return ch == ':';
        }

        if (state_ == State::kSpace) {
            state_ = State::kToken;
            length_ = 0;
            number_ = 0;
            is_integer_ = true;
            is_string_ = ch == '"';
        } else if (is_string_ && ch == '"' && !escape_) {
            add(ch);
            judge();
            return true;
        }

        if (!is_string_ && is_delimiter(ch)) {
            judge();
            return false;
        }

        add(ch);
        if (length_ > kShown) { judge(); }

        return true;
    }

    void add(char ch) {
        if (!has_bad_ && length_ < kShown) { shown_[length_] = ch; }

        length_++;
        escape_ = ch == '\\' && !escape_;

        const auto digit = static_cast<unsigned char>(ch - '0');
        is_integer_ = is_integer_ && digit <= 9;
        if (is_integer_ && number_ <= kSettledMax) { number_ = number_ * 10 + digit; }
    }

    void judge() {
        state_ = State::kName;

        if (is_integer_ && length_ != 0 && length_ <= kShown && number_ <= kSettledMax) {
            value_ = number_;
        } else if (!has_bad_) {
            has_bad_ = true;
            bad_length_ = length_;
        }
    }

    const UsageName *name_;
    std::optional<uint64_t> value_;
    uint64_t number_ = 0;    /* integer of the present value so far */
    uint8_t length_ = 0;     /* bytes of the present value so far, at most kShown + 1 */
    uint8_t bad_length_ = 0; /* bytes of the first bad value, at most kShown + 1 */
    uint8_t matched_ = 0;    /* bytes of an incomplete name at the end of the last part */
    State state_ = State::kName;
    bool after_backslash_ = false; /* the last part ended with a backslash */
    bool escape_ = false;          /* the next byte of the present value is escaped */
    bool is_integer_ = false;      /* the present value has digits only so far */
    bool is_string_ = false;
    bool has_bad_ = false;
    char shown_[kShown];
};

} // namespace limit_sliding
