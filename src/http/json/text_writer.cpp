/* Copyright (C) the limit_sliding authors */

#include "http/json/text_writer.hpp"

#include <algorithm>

#include "ngx/strings.hpp"

namespace limit_sliding {
namespace {

constexpr size_t kBufferBytes = 4096;
constexpr size_t kPrintBytes = 1024;

/* Returns true if a character needs no escape. */
bool is_plain(u_char ch, Quotes quotes) {
    if (quotes == Quotes::kUri) {
        return ngx_escape_uri(nullptr, &ch, 1, NGX_ESCAPE_URI_COMPONENT) == 0;
    }

    return ch >= ' ' && ch < 0x7f && ch != '"' && ch != '\\' && ch != '<';
}

/* Returns the length in bytes of the text's first character, or 0 if it is no UTF-8.  NGINX's
 * decoder does not check all bytes, nor surrogates. */
size_t character_bytes(std::string_view text) {
    u_char *first = bytes(text);
    if (*first < 0x80) { return 1; }

    u_char *last = first;
    const uint32_t code = ngx_utf8_decode(&last, text.size());
    const bool is_valid
        = *first <= 0xf4 && code <= 0x10ffff && (code & ~0x7ff) != 0xd800
          && std::all_of(first + 1, last, [](u_char ch) { return (ch & 0xc0) == 0x80; });
    return is_valid ? last - first : 0;
}

} // namespace

void Writer::append(std::string_view text) {
    while (!text.empty() && !failed_) {
        if (buf_ == nullptr || buf_->last == buf_->end) {
            add_buffer();
            continue;
        }

        const size_t n = std::min<size_t>(text.size(), buf_->end - buf_->last);
        buf_->last = ngx_cpymem(buf_->last, text.data(), n);
        size_ += n;
        text.remove_prefix(n);
    }
}

void ngx_cdecl Writer::print(const char *format, ...) {
    u_char text[kPrintBytes];
    va_list args;

    va_start(args, format);
    const u_char *last = ngx_vslprintf(text, text + sizeof(text), format, args);
    va_end(args);

    append(view(text, last - text));
}

void Writer::quote(std::string_view text, Quotes quotes) {
    append("\"");

    while (!text.empty()) {
        const auto special = std::find_if_not(text.begin(), text.end(),
                                              [quotes](u_char ch) { return is_plain(ch, quotes); });
        const size_t plain = special - text.begin();

        append({text.data(), plain});
        text.remove_prefix(plain);

        if (!text.empty()) { text.remove_prefix(escape(text, quotes)); }
    }

    append("\"");
}

ngx_chain_t *Writer::finish(bool last_of_request) {
    buf_->last_buf = last_of_request;
    buf_->last_in_chain = 1;
    return first_;
}

void Writer::add_buffer() {
    buf_ = ngx_create_temp_buf(pool_, kBufferBytes);
    ngx_chain_t *link = ngx_alloc_chain_link(pool_);
    if (buf_ == nullptr || link == nullptr) {
        failed_ = true;
        return;
    }

    *link = {buf_, nullptr};
    *next_ = link;
    next_ = &link->next;
}

/* Appends the text's first character, and returns its length in bytes. */
size_t Writer::escape(std::string_view text, Quotes quotes) {
    const auto ch = static_cast<u_char>(text[0]);
    if (quotes == Quotes::kUri) {
        print("%%%02Xd", ch);
    } else if (ch == '"' || ch == '\\') {
        print("\\%c", ch);
    } else if (quotes == Quotes::kLabel && ch == LF) {
        append("\\n");
    } else if (quotes == Quotes::kJson && ch < 0x80) {
        print("\\u%04xd", ch);
    } else if (const size_t len = character_bytes(text)) {
        append({text.data(), len});
        return len;
    } else {
        append("\xef\xbf\xbd"); /* U+FFFD */
    }

    return 1;
}

} // namespace limit_sliding
