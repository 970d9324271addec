/* Copyright (C) the limit_sliding authors */

/* A writer of JSON: commas, quotes and nesting. */

#pragma once

#include <string_view>
#include <type_traits>

#include "http/json/text_writer.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

/* Elements of arrays and the outermost object have an empty name. */
class Json {
public:
    /* An object or array, which ends with the life of the scope. */
    class Scope {
    public:
        Scope(Json &json, const char *end) : json_(json), end_(end) {}

        [[gnu::noinline]] ~Scope() {
            json_.out_.append(end_);
            json_.is_first_ = false;
        }

        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        Json &json_;
        const char *end_;
    };

    explicit Json(Writer &out) : out_(out) {}

    [[nodiscard]] Scope object(std::string_view name = {}) {
        begin(name, "{");
        return {*this, "}"};
    }

    [[nodiscard]] Scope array(std::string_view name = {}) {
        begin(name, "[");
        return {*this, "]"};
    }

    /* Writes a number, a bool, a text, or the target of a pointer, which is null for nullptr. */
    template <class T>
    void field(std::string_view name, const T &value) {
        if constexpr (std::is_null_pointer_v<T>) {
            begin(name, "null");
        } else if constexpr (std::is_same_v<T, bool>) {
            begin(name, value ? "true" : "false");
        } else if constexpr (std::is_integral_v<T>) {
            begin(name);
            out_.print("%uL", static_cast<uint64_t>(value));
        } else if constexpr (std::is_same_v<T, ngx_str_t>) {
            field(name, view(value));
        } else if constexpr (std::is_convertible_v<T, std::string_view>) {
            begin(name);
            out_.quote(value, Quotes::kJson);
        } else if (value != nullptr) {
            field(name, *value);
        } else {
            field(name, nullptr);
        }
    }

    /* Writes a text, percent-encoded for an argument of a request. */
    void uri_field(std::string_view name, std::string_view text) {
        begin(name);
        out_.quote(text, Quotes::kUri);
    }

    /* Writes a time in ms as seconds. */
    void seconds_field(std::string_view name, uint64_t ms) {
        begin(name);
        out_.print(ms % 1000 != 0 ? "%uL.%03uL" : "%uL", ms / 1000, ms % 1000);
    }

    /* Puts the next field on a new line. */
    void line() { begins_line_ = true; }

private:
    /* Writes the part of a field before its value, and then `text`. */
    [[gnu::noinline]] void begin(std::string_view name, std::string_view text = {}) {
        out_.append(is_first_ ? "" : ",");
        out_.append(begins_line_ ? "\n" : "");
        if (!name.empty()) {
            out_.quote(name, Quotes::kJson);
            out_.append(":");
        }

        out_.append(text);
        is_first_ = text == "{" || text == "[";
        begins_line_ = false;
    }

    Writer &out_;
    bool is_first_ = true; /* no comma before the next field */
    bool begins_line_ = false;
};

} // namespace limit_sliding
