/* Copyright (C) the limit_sliding authors */

/* The scanner of bodies: whatever the name and the body, it finds the same however the
 * body is cut, and that is what a naive reader finds. */

#include "http/usage/usage_scanner.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "input.hpp"

using namespace limit_sliding;
using std::string;
using std::string_view;

namespace {

/* What a body says: the last integer, and the first value that is none. */
struct Said {
    std::optional<uint64_t> value;
    std::optional<string> bad; /* up to UsageScanner::kShown + 1 bytes of it */

    bool operator==(const Said &other) const { return value == other.value && bad == other.bad; }
};

constexpr string_view kSpaces = " \t\r\n";
constexpr string_view kEnds = ",}]\" \t\r\n";

/* Returns the value that a text begins with. */
string_view naive_value(string_view text) {
    size_t length = std::min(text.find_first_of(kEnds), text.size());
    if (text[0] == '"') {
        length = 1;
        while (length < text.size() && text[length] != '"') {
            length += text[length] == '\\' ? 2 : 1;
        }
        length++;
    }

    return text.substr(0, std::min(length, UsageScanner::kShown + 1));
}

void naive_judge(string_view value, Said *said) {
    const bool is_integer = !value.empty() && value.size() <= UsageScanner::kShown
                            && value.find_first_not_of("0123456789") == string_view::npos;
    const string_view digits = value.substr(std::min(value.find_first_not_of('0'), value.size()));
    const uint64_t number
        = is_integer && digits.size() < 18 ? strtoull(string(digits).c_str(), nullptr, 10) : ~0ull;

    if (number <= kSettledMax) {
        said->value = number;
    } else if (!said->bad) {
        said->bad = value;
    }
}

Said naive(const string &quoted, string_view body) {
    Said said;
    for (size_t at = 0; (at = body.find(quoted, at)) != string_view::npos;) {
        const bool is_escaped = at != 0 && body[at - 1] == '\\';
        const size_t colon = body.find_first_not_of(kSpaces, at + quoted.size());
        if (is_escaped || colon == string_view::npos || body[colon] != ':') {
            /* the last quote may be the first one of another name */
            at += is_escaped ? 1 : quoted.size();
            continue;
        }

        at = body.find_first_not_of(kSpaces, colon + 1);
        if (at == string_view::npos) { break; }

        const string_view value = naive_value(body.substr(at));
        naive_judge(value, &said);
        at += value.size();
    }

    return said;
}

class Scan {
public:
    explicit Scan(const UsageName &name) : scanner_(name) {}

    /* Reads a part in memory of its own. */
    void feed(string_view part) {
        const std::vector<char> bytes(part.begin(), part.end());
        scanner_.feed(bytes.data(), bytes.data() + bytes.size());
    }

    Said finish() {
        scanner_.finish();

        Said said;
        said.value = scanner_.value();
        if (scanner_.has_bad()) {
            said.bad = string(scanner_.shown());
            CHECK(said.bad->size() <= UsageScanner::kShown);
            CHECK(!scanner_.is_clipped() || said.bad->size() == UsageScanner::kShown);
        }

        return said;
    }

private:
    UsageScanner scanner_;
};

/* Reads a body in parts of at most so many bytes, after one of `first`. */
Said scan(const UsageName &name, string_view body, size_t first, size_t most) {
    Scan scan(name);
    scan.feed(body.substr(0, first));
    for (size_t at = first; at < body.size(); at += most) {
        scan.feed(body.substr(at, most));
    }

    return scan.finish();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const string name(input.take(1 + input.below(UsageName::kMax)));
    const size_t most = 1 + input.below(80);
    const string_view body = input.rest();
    if (!UsageName::is_valid(name)) { return 0; }

    const UsageName quoted(name);
    Said said = naive('"' + name + '"', body);
    if (said.bad) { said.bad = said.bad->substr(0, UsageScanner::kShown); }

    CHECK(scan(quoted, body, body.size(), 1) == said);
    CHECK(scan(quoted, body, 0, 1) == said);
    CHECK(scan(quoted, body, 0, most) == said);

    for (size_t cut = 0; cut <= body.size(); cut++) {
        CHECK(scan(quoted, body, cut, body.size() + 1) == said);
        if (body.size() < 100) { CHECK(scan(quoted, body, cut, most) == said); }
    }

    return 0;
}
