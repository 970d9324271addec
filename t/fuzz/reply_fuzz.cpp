/* Copyright (C) the limit_sliding authors */

/* Bytes of a Redis through the reader of replies: it finds the same replies however the
 * bytes come, and hands none on that is larger than its buffer. */

#include "redis/wire/reply.hpp"

#include <hiredis/hiredis.h>

#include <string>
#include <vector>

#include "input.hpp"

using namespace limit_sliding;
using std::string;
using std::string_view;

namespace {

enum class Kind { kAny, kSlots, kKeys };

/* All that was found, as text. */
struct Seen : SlotRangeSink, TextSink {
    Seen() {
        add = [](SlotRangeSink &sink, const SlotRange &range) {
            CHECK(range.host.size() <= kReplyHost);
            static_cast<Seen &>(sink).text
                += "range " + std::to_string(range.first) + "-" + std::to_string(range.last) + " "
                   + string(range.host) + ":" + std::to_string(range.port) + "\n";
        };
        add_text = [](TextSink &sink, string_view key) {
            static_cast<Seen &>(sink).text += "key " + string(key) + "\n";
        };
    }

    void add_reply(const Reply &reply, Kind kind) {
        text += "reply " + std::to_string(reply.type);
        if (reply.type == REDIS_REPLY_ARRAY) {
            CHECK(reply.n <= (kind == Kind::kSlots ? size_t{16384} : kReplyNumbers));
            text += " of " + std::to_string(reply.n);
            for (size_t i = 0; kind == Kind::kAny && i < reply.n; i++) {
                const string_view part = reply.string(i);
                CHECK(part.empty() || part.data() + part.size() <= reply.bytes + kReplyBytes);
                text += " '" + string(part) + "'";
            }
        } else if (reply.type == REDIS_REPLY_INTEGER) {
            text += " " + std::to_string(reply.numbers[0]);
        } else if (reply.type != REDIS_REPLY_NIL) {
            CHECK(reply.len <= sizeof(reply.text));
            text += string_view(reinterpret_cast<const char *>(reply.text), reply.len);
            CHECK(string_view(reply_text(&reply)).size() <= reply.len);
        }

        text += "\n";
    }

    string text;
};

/* Numbers of an array are those that were sent: what is between is of former replies. */
class Stream {
public:
    explicit Stream(Kind kind) : kind_(kind) { CHECK(reader_->start()); }

    /* Reads a part of the bytes in memory of its own. */
    void feed(string_view part) {
        if (has_failed_) { return; }

        std::vector<u_char> bytes(part.begin(), part.end());
        CHECK(reader_->feed(bytes.data(), bytes.size()));

        ngx_int_t rc;
        while ((rc = reader_->next(kind_ == Kind::kSlots ? &seen_ : nullptr,
                                   kind_ == Kind::kKeys ? &seen_ : nullptr))
               == NGX_OK) {
            seen_.add_reply(reader_->reply, kind_);
        }

        has_failed_ = rc == NGX_ERROR;
        if (has_failed_) { seen_.text += "error\n"; }
    }

    const string &seen() const { return seen_.text; }

private:
    Kind kind_;
    std::unique_ptr<Reader> reader_ = std::make_unique<Reader>();
    Seen seen_;
    bool has_failed_ = false;
};

string read(Kind kind, string_view bytes, size_t first, size_t most) {
    Stream stream(kind);
    stream.feed(bytes.substr(0, first));
    for (size_t at = first; at < bytes.size(); at += most) {
        stream.feed(bytes.substr(at, most));
    }

    return stream.seen();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const auto kind = static_cast<Kind>(input.below(3));
    const size_t cut = input.below(256), most = 1 + input.below(64);
    const string_view bytes = input.rest();
    const string whole = read(kind, bytes, bytes.size(), 1);

    CHECK(read(kind, bytes, 0, 1) == whole);
    CHECK(read(kind, bytes, std::min(cut, bytes.size()), most) == whole);
    return 0;
}
