/* Copyright (C) the limit_sliding authors */

/* Finds what a body says that a request used: the last integer that follows a
 * name, as in "total_tokens": 42.  The body may be JSON, an event stream, or any
 * text.  It comes in parts, which may end anywhere. */

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace limit_sliding {

/* The name, with quotes around it. */
class UsageName {
public:
    static constexpr size_t kMax = 64;

    /* Within quotes, these bytes would not stand for themselves. */
    static bool is_valid(std::string_view name) {
        return !name.empty() && name.size() <= kMax
               && name.find_first_of("\"\\") == std::string_view::npos;
    }

    /* Precondition: the name is valid. */
    explicit UsageName(std::string_view name) : size_(name.size() + 2), rare_(rare_in(name) + 1) {
        text_[0] = '"';
        std::memcpy(text_ + 1, name.data(), name.size());
        text_[size_ - 1] = '"';
    }

    size_t size() const { return size_; }
    const char *text() const { return text_; }
    std::string_view name() const { return {text_ + 1, size_ - 2}; }

    /* Returns the index of a byte that few bodies have at that distance from a
     * quote. */
    size_t rare() const { return rare_; }

private:
    static size_t rare_in(std::string_view name) {
        constexpr std::string_view common = "etanoisrlhdcu";
        size_t rarest = 0;
        for (size_t i = 1; i < name.size(); i++) {
            /* find() has the highest number for what is not common */
            if (common.find(name[i]) > common.find(name[rarest])) { rarest = i; }
        }

        return rarest;
    }

    size_t size_;
    size_t rare_;
    char text_[kMax + 2];
};

/*
 * Reads the body of one response.  It keeps no text of it but the beginning of
 * the first bad value, which is to be logged.
 *
 * A name has no quotes within it, so where a part of the body ends, only the last
 * quote of this part may begin a name that the next part completes.
 */
class UsageScanner {
public:
    static constexpr uint64_t kMax = uint64_t{1} << 53; /* as far as JSON's integers are exact */
    static constexpr size_t kShown = 64;                /* bytes of a bad value */

    /* The name must live as long as the scanner does. */
    explicit UsageScanner(const UsageName &name) : name_(&name) {}

    /* Reads the next bytes of the body. */
    void feed(const char *p, const char *end) {
        if (p == end) { return; }

        for (const char *begin = p; p != end;) {
            p = state_ == State::kName ? find_name(begin, p, end) : read_value(p, end);
        }

        after_backslash_ = end[-1] == '\\';
    }

    /* The body is complete, and so is a value at its end. */
    void finish() {
        if (state_ == State::kToken) { judge(); }
    }

    /* Returns the last integer so far. */
    std::optional<uint64_t> value() const { return value_; }

    /* Tells whether some value was no integer from 0 to kMax; shown() is the
     * beginning of the first one, and is_clipped() if there is more of it. */
    bool has_bad() const { return has_bad_; }
    std::string_view shown() const { return {shown_, std::min<size_t>(bad_length_, kShown)}; }
    bool is_clipped() const { return bad_length_ > kShown; }

private:
    enum class State : uint8_t { kName, kColon, kSpace, kToken };

    using Block = uint8_t [[gnu::vector_size(16)]];
    using Words = uint64_t [[gnu::vector_size(16)]];
    static constexpr size_t kStep = 2 * sizeof(Block);

    static Words load(const char *p) {
        Words block;
        std::memcpy(&block, p, sizeof(block));
        return block;
    }

    static bool is_space(char ch) { return ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t'; }

    /* Tells whether a byte ends a value that is no string. */
    static bool is_delimiter(char ch) {
        return ch == ',' || ch == '}' || ch == ']' || ch == '"' || is_space(ch);
    }

    bool is_escaped(const char *begin, const char *p) const {
        return p == begin ? after_backslash_ : p[-1] == '\\';
    }

    bool is_name(const char *begin, const char *p) const {
        return std::memcmp(p, name_->text(), name_->size()) == 0 && !is_escaped(begin, p);
    }

    /* Returns where a name ends, or the end; the part of the body is [begin, end),
     * of which everything before p was read. */
    const char *find_name(const char *begin, const char *p, const char *end) {
        if (matched_ != 0) { return complete_name(p, end); }

        const size_t size = name_->size();
        const size_t n = end - p;
        const char *found = nullptr;
        if (n >= size + kStep - 1) {
            found = search(begin, p, end - size - kStep + 1);
        } else if (n >= size) {
            found = search_few(begin, p, end - size);
        }

        if (found != nullptr) {
            state_ = State::kColon;
            return found + size;
        }

        begin_name(begin, end - std::min(n, size - 1), end);
        return end;
    }

    /* Looks for a name from p on, up to all places of the last block; nullptr if
     * there is none.  Most blocks have no quote with the rare byte behind it. */
    const char *search(const char *begin, const char *p, const char *last_block) const {
        const size_t rare = name_->rare();
        const auto rares = Block{} + static_cast<uint8_t>(name_->text()[rare]);
        const auto quotes = Block{} + static_cast<uint8_t>('"');
        const auto hits = [&](const char *at) {
            const auto first = reinterpret_cast<Block>(load(at)) == quotes;
            const auto second = reinterpret_cast<Block>(load(at + rare)) == rares;
            return reinterpret_cast<Words>(first & second);
        };

        for (;; p = std::min(p + kStep, last_block)) {
            const auto either = hits(p) | hits(p + sizeof(Block));
            if ((either[0] | either[1]) != 0) {
                const auto *found = search_few(begin, p, p + kStep - 1);
                if (found != nullptr) { return found; }
            }

            if (p == last_block) { return nullptr; }
        }
    }

    /* The same for all places up to the last one, byte by byte. */
    [[gnu::noinline]] const char *search_few(const char *begin, const char *p,
                                             const char *last) const {
        const size_t rare = name_->rare();
        for (; p <= last; p++) {
            if (*p == '"' && p[rare] == name_->text()[rare] && is_name(begin, p)) { return p; }
        }

        return nullptr;
    }

    /* Remembers how much of a name is at the end, from p on. */
    void begin_name(const char *begin, const char *p, const char *end) {
        const auto *quote = static_cast<const char *>(memrchr(p, '"', end - p));
        if (quote == nullptr || (quote + 1 != end && quote[1] != name_->text()[1])) { return; }

        if (std::memcmp(quote, name_->text(), end - quote) == 0 && !is_escaped(begin, quote)) {
            matched_ = end - quote;
        }
    }

    /* Goes on with a name whose beginning is in the parts before. */
    const char *complete_name(const char *p, const char *end) {
        const auto n = std::min<size_t>(end - p, name_->size() - matched_);
        if (std::memcmp(p, name_->text() + matched_, n) != 0) {
            matched_ = 0;
            return p;
        }

        matched_ += n;
        if (matched_ == name_->size()) {
            matched_ = 0;
            state_ = State::kColon;
        }

        return p + n;
    }

    /* Reads what follows a name, until there is none of it left. */
    const char *read_value(const char *p, const char *end) {
        while (p != end && state_ != State::kName && take(*p)) {
            p++;
        }
        return p;
    }

    /* Returns false if the byte does not belong to the value, which has ended. */
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

    /* Adds a byte to the value. */
    void add(char ch) {
        if (!has_bad_ && length_ < kShown) { shown_[length_] = ch; }

        length_++;
        escape_ = ch == '\\' && !escape_;

        const auto digit = static_cast<unsigned char>(ch - '0');
        is_integer_ = is_integer_ && digit <= 9;
        if (is_integer_ && number_ <= kMax) { number_ = number_ * 10 + digit; }
    }

    void judge() {
        state_ = State::kName;

        if (is_integer_ && length_ != 0 && length_ <= kShown && number_ <= kMax) {
            value_ = number_;
        } else if (!has_bad_) {
            has_bad_ = true;
            bad_length_ = length_;
        }
    }

    const UsageName *name_;
    std::optional<uint64_t> value_;
    uint64_t number_ = 0;    /* of the value that is being read */
    uint8_t length_ = 0;     /* of this value so far, at most kShown + 1 */
    uint8_t bad_length_ = 0; /* of the first bad value */
    uint8_t matched_ = 0;    /* bytes of a name at the end of the last part */
    State state_ = State::kName;
    bool after_backslash_ = false; /* the next part of the body begins there */
    bool escape_ = false;          /* of the next byte of this value, if it is a string */
    bool is_integer_ = false;      /* this value so far */
    bool is_string_ = false;
    bool has_bad_ = false;
    char shown_[kShown];
};

} // namespace limit_sliding
