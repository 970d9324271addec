/* Copyright (C) the limit_sliding authors */

/* The lines of a limits file: reading a file by lines, whatever is in it, and what a line
 * means, against readings by other means; and what is written is read as the same. */

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "core/policy/override_line.hpp"
#include "http/overrides/line_reader.hpp"
#include "input.hpp"

using namespace limit_sliding;
using std::string;
using std::string_view;

namespace {

std::vector<string> words_of(string_view line) {
    std::vector<string> words;
    while (!line.empty()) {
        const size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
        line.remove_prefix(begin);
        const size_t end = std::min(line.find_first_of(" \t"), line.size());
        if (end != 0) { words.emplace_back(line.substr(0, end)); }

        line.remove_prefix(end);
    }

    return words;
}

bool is_comment(const std::vector<string> &words, size_t i) {
    return i >= words.size() || words[i][0] == '#';
}

bool naive_key(const string &word, string *key) {
    for (size_t i = 0; i < word.size(); i++) {
        if (word[i] <= ' ' || word[i] > '~' || word[i] == '#') { return false; }

        if (word[i] != '%') {
            *key += word[i];
            continue;
        }

        if (word.size() - i < 3 || !isxdigit(word[i + 1]) || !isxdigit(word[i + 2])) {
            return false;
        }

        *key += static_cast<char>(strtoul(word.substr(i + 1, 2).c_str(), nullptr, 16));
        i += 2;
    }

    return key->size() <= OverrideLine::kKeyMax;
}

bool naive_time(const string &word, uint64_t *s) {
    const bool is_number = word.find_first_not_of("0123456789") == string::npos;
    if (is_number && !word.empty() && word.size() <= 18) {
        *s = strtoull(word.c_str(), nullptr, 10);
        return true;
    }

    const string form = "dddd-dd-ddTdd:dd:ddZ";
    if (word.size() != form.size()) { return false; }

    for (size_t i = 0; i < form.size(); i++) {
        if (form[i] == 'd' ? isdigit(word[i]) == 0 : word[i] != form[i]) { return false; }
    }

    tm at = {};
    sscanf(word.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &at.tm_year, &at.tm_mon, &at.tm_mday,
           &at.tm_hour, &at.tm_min, &at.tm_sec);
    at.tm_year -= 1900;
    at.tm_mon--;

    /* what is no time of the calendar is another one for the C library, but for leap seconds */
    tm other = at;
    const int64_t time_s = timegm(&other);
    other = at;
    other.tm_sec = 0;
    (void)timegm(&other);
    *s = static_cast<uint64_t>(time_s);
    return at.tm_year >= 70 && at.tm_sec <= 60 && other.tm_mon == at.tm_mon
           && other.tm_mday == at.tm_mday && other.tm_hour == at.tm_hour
           && other.tm_min == at.tm_min && at.tm_mon >= 0;
}

/* What a line says, by a slow reading. */
OverrideLine::Kind naive(string_view text, const Policy &policy, uint64_t limit_max, string *key,
                         OverrideLine *line) {
    if (!text.empty() && text.back() == '\r') { text.remove_suffix(1); }

    const std::vector<string> words = words_of(text);
    line->until_s = kNoEnd;
    line->own = {kLimitUnset, {}};
    if (is_comment(words, 0)) { return OverrideLine::Kind::kNone; }

    if (!naive_key(words[0], key) || is_comment(words, 1)
        || (words[1] != "default" && !line->own.parse(words[1], policy, limit_max))) {
        return OverrideLine::Kind::kWrong;
    }

    if (is_comment(words, 2)) { return OverrideLine::Kind::kOverride; }

    return words[2].rfind("until=", 0) == 0 && naive_time(words[2].substr(6), &line->until_s)
                   && line->until_s < UINT32_MAX && is_comment(words, 3)
               ? OverrideLine::Kind::kOverride
               : OverrideLine::Kind::kWrong;
}

void check_line(string_view text, const Policy &policy, uint64_t limit_max) {
    string key;
    OverrideLine expected;
    const auto kind = naive(text, policy, limit_max, &key, &expected);

    std::vector<char> bytes(text.begin(), text.end());
    OverrideLine line;
    CHECK(line.parse(bytes.data(), bytes.size(), policy, limit_max) == kind);
    if (kind == OverrideLine::Kind::kWrong) { CHECK(strlen(line.error) != 0); }

    if (kind != OverrideLine::Kind::kOverride) { return; }

    CHECK(line.key == key && line.own == expected.own && line.until_s == expected.until_s);

    std::vector<char> written(line.size_max());
    const size_t size = line.write(written.data());
    CHECK(size <= line.size_max() && written[0] == ' ' && written[size - 1] == '\n');

    OverrideLine again;
    CHECK(again.parse(written.data(), size - 1, policy, limit_max)
          == OverrideLine::Kind::kOverride);
    CHECK(again.key == key && again.own == line.own);
    CHECK(again.until_s == (line.own.is_set() ? line.until_s : kNoEnd));
}

/* Makes a file in which a run of one byte takes three bytes of the input: lines of more
 * than the buffer. */
string expanded(string_view input) {
    string text;
    fuzz::Input runs(reinterpret_cast<const uint8_t *>(input.data()), input.size());
    while (!runs.empty() && text.size() < 3 * LineReader::kBufferBytes) {
        const auto c = static_cast<char>(runs.byte());
        text.append(c == '\x01' ? size_t{1} << runs.below(20) : 1, c == '\x01' ? '0' : c);
    }

    return text;
}

/* Reads the bytes from .. to - 1 of a file, and compares what the reader says of each. */
void check_file(const string &text, uint64_t from, uint64_t to) {
    static const int fd = memfd_create("lines", 0);
    static std::vector<char> buffer(LineReader::kBufferBytes);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK(pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));

    LineReader lines(fd, buffer.data(), from, to);
    uint64_t number = 0;
    const string_view all = string_view(text).substr(from, to - from);
    for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find('\n', at), all.size());
        const string_view line = all.substr(at, end - at);
        CHECK(lines.next());
        CHECK(lines.at == from + at && lines.number == ++number);
        CHECK(lines.is_complete == (end < all.size()));
        CHECK(lines.is_long == (line.size() >= LineReader::kBufferBytes));
        const string_view seen(lines.line, lines.size);
        CHECK(lines.is_long ? seen == line.substr(line.size() - seen.size()) : seen == line);
        at = end + 1;
    }

    CHECK(!lines.next() && lines.error == 0);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const uint8_t kind = input.byte();
    Policy policy = {};
    policy.window_ms = 60000;
    policy.algorithm = static_cast<Algorithm>(kind % 5);
    const uint64_t limit_max = policy.limit_max((kind & 64) != 0);

    if ((kind & 128) == 0) {
        check_line(input.rest(), policy, limit_max);
        return 0;
    }

    const uint64_t first = input.number(), last = input.number();
    const string text = expanded(input.rest());
    const uint64_t from = first % (text.size() + 1);
    check_file(text, from, from + last % (text.size() - from + 1));
    check_file(text, 0, text.size());
    return 0;
}
