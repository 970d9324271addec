/* Copyright (C) the limit_sliding authors */

/* Rates, windows and overrides as texts, against a reading of the same by other means;
 * windows of the calendar against the C library's. */

#include <cstring>
#include <ctime>
#include <regex>
#include <string>
#include <vector>

#include "core/policy/calendar.hpp"
#include "core/policy/override.hpp"
#include "core/policy/rate.hpp"
#include "input.hpp"

using namespace limit_sliding;
using std::string;
using std::string_view;

namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr uint64_t kDayMs = 24 * 60 * 60 * 1000;

/* A copy without a byte after it, so that a sanitizer sees what reads beyond it. */
struct Exact {
    explicit Exact(string_view text) : bytes(text.begin(), text.end()) {}
    string_view view() const { return {bytes.data(), bytes.size()}; }
    std::vector<char> bytes;
};

Wide wide_of(const string &digits) {
    Wide n = 0;
    for (const char c : digits) {
        n = std::min<Wide>(n * 10 + static_cast<Wide>(c - '0'), Wide{1} << 100);
    }

    return n;
}

uint64_t unit_ms(const string &unit) {
    return unit == "ms"  ? 1
           : unit == "s" ? 1000
           : unit == "m" ? 60000
           : unit == "h" ? 3600000
           : unit == "d" ? kDayMs
           : unit == "w" ? 7 * kDayMs
           : unit == "M" ? 30 * kDayMs
           : unit == "y" ? 365 * kDayMs
                         : 0;
}

bool naive_rate(const string &text, Rate *rate) {
    static const std::regex form("([0-9]{1,18})(r/([smhd]))?");
    std::smatch match;
    if (!std::regex_match(text, match, form)) { return false; }

    *rate = {static_cast<uint64_t>(wide_of(match[1])), match[2].matched ? unit_ms(match[3]) : 0};
    return rate->count != 0;
}

bool naive_window(const string &text, Window *window) {
    for (const Calendar calendar :
         {Calendar::kDay, Calendar::kWeek, Calendar::kMonth, Calendar::kYear}) {
        if (text == name_of(calendar)) {
            *window = Window::of(calendar);
            return true;
        }
    }

    static const std::regex form(
        "(?:([0-9]+)y)?(?:([0-9]+)M)?(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?"
        "(?:([0-9]+)m)?(?:([0-9]+)s?)?(?:([0-9]+)ms)?");
    static const std::regex parts("([0-9]+)(ms|[yMwdhms]?)");
    if (text.empty() || !std::regex_match(text, form)) { return false; }

    Wide ms = 0;
    for (std::sregex_iterator part(text.begin(), text.end(), parts), end; part != end; ++part) {
        const string unit = (*part)[2];
        const bool is_last = part->suffix().length() == 0;
        if (unit.empty() && !is_last) { return false; }

        ms += wide_of((*part)[1]) * unit_ms(unit.empty() ? "s" : unit);
    }

    if (ms < kWindowMinMs || ms > kWindowMaxMs) { return false; }

    *window = {static_cast<uint64_t>(ms), Calendar::kNone};
    return true;
}

uint64_t naive_limit(const Rate &rate, uint64_t window_ms) {
    if (rate.per_ms == 0) { return rate.count; }

    return static_cast<uint64_t>(
        std::min<Wide>(Wide{rate.count} * window_ms / rate.per_ms, UINT64_MAX));
}

bool naive_own(const string &text, const Policy &policy, uint64_t limit_max, Override *own) {
    if (text == "off" || text == "0") {
        *own = {text == "0" ? kLimitBlocked : kLimitOff, {}};
        return true;
    }

    Rate rate;
    Window window = {};
    const size_t slash = text.find('/');
    const bool is_plain = slash == string::npos || naive_rate(text, &rate);
    if (!naive_rate(is_plain ? text : text.substr(0, slash), &rate)) { return false; }

    if (!is_plain
        && (rate.per_ms != 0 || !naive_window(text.substr(slash + 1), &window)
            || (window.calendar != Calendar::kNone && policy.algorithm != Algorithm::kFixed))) {
        return false;
    }

    const uint64_t limit = naive_limit(rate, is_plain ? policy.window_ms : window.ms);
    *own = {limit, window == policy.window() ? Window{} : window};
    return limit >= 1 && limit <= limit_max;
}

void check_texts(string_view input, const Policy &policy, uint64_t limit_max) {
    const Exact exact(input);
    const string text(input);

    Rate rate = {7, 7}, other_rate;
    if (rate.parse(exact.view())) {
        CHECK(naive_rate(text, &other_rate));
        CHECK(rate.count == other_rate.count && rate.per_ms == other_rate.per_ms);
        CHECK(rate.limit(policy.window_ms) == naive_limit(rate, policy.window_ms));
    } else {
        CHECK(!naive_rate(text, &other_rate));
        CHECK(rate.count == 7 && rate.per_ms == 7);
    }

    Window window = {7, Calendar::kDay}, other_window;
    if (window.parse(exact.view())) {
        CHECK(naive_window(text, &other_window) && window == other_window);
        CHECK(Window::from_code(window.code()) == window);
    } else {
        CHECK(!naive_window(text, &other_window));
        CHECK((window == Window{7, Calendar::kDay}));
    }

    Override own = {7, {}}, other_own;
    if (own.parse(exact.view(), policy, limit_max)) {
        CHECK(naive_own(text, policy, limit_max, &other_own) && own == other_own);
        CHECK(own.is_set());
        const Policy with = with_window(policy, own.window);
        CHECK((with.salt != 0) == own.window.is_given());
    } else {
        CHECK(!naive_own(text, policy, limit_max, &other_own));
        CHECK((own == Override{7, {}}));
    }
}

/* A window has its time, and begins where one of UTC does. */
void check_calendar(Calendar kind, const UtcOffsets *offsets, uint64_t now_ms) {
    const CalendarWindow window = calendar_window(kind, offsets, now_ms);
    CHECK(window.begin_ms < window.end_ms);
    CHECK(now_ms < window.end_ms && (window.begin_ms <= now_ms || window.number == 0));
    CHECK(calendar_number(kind, offsets, now_ms) == window.number);
    CHECK(calendar_number(kind, offsets, window.end_ms) > window.number);
    CHECK(calendar_begin_ms(kind, offsets, window.number) == window.begin_ms);
    if (offsets != nullptr) { return; }

    const auto begin_s = static_cast<time_t>(window.begin_ms / 1000);
    tm at;
    gmtime_r(&begin_s, &at);
    CHECK(window.begin_ms % kDayMs == 0);
    CHECK(kind != Calendar::kWeek || at.tm_wday == 1 || window.number == 0);
    CHECK(kind != Calendar::kMonth || at.tm_mday == 1);
    CHECK(kind != Calendar::kYear || at.tm_yday == 0);

    const auto now_s = static_cast<time_t>(now_ms / 1000);
    tm now;
    gmtime_r(&now_s, &now);
    CHECK(kind != Calendar::kYear || window.number == static_cast<uint64_t>(now.tm_year - 70));
    CHECK(kind != Calendar::kMonth
          || window.number == static_cast<uint64_t>((now.tm_year - 70) * 12 + now.tm_mon));
    CHECK(kind != Calendar::kDay || window.number == now_ms / kDayMs);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const auto kind = static_cast<Calendar>(1 + input.below(4));
    Policy policy = {};
    policy.algorithm = static_cast<Algorithm>(input.below(5));
    policy.window_ms = kWindowMinMs + input.number() % (kWindowMaxMs - kWindowMinMs + 1);
    if (policy.algorithm == Algorithm::kFixed && input.flag()) {
        policy.calendar = kind;
        policy.window_ms = Window::of(kind).ms;
    }

    check_calendar(kind, nullptr, input.number() % (uint64_t{1} << 45));

    UtcOffset offsets[3];
    int64_t since_ms = 0;
    for (UtcOffset &offset : offsets) {
        since_ms += static_cast<int64_t>(input.number() % (uint64_t{1} << 40));
        offset = {since_ms,
                  static_cast<int64_t>(input.number() % (4 * kDayMs - 1))
                      - static_cast<int64_t>(2 * kDayMs - 1),
                  0};
    }

    const UtcOffsets zone = UtcOffsets::of(offsets, 1 + input.below(3));
    check_calendar(kind, &zone, 3 * kDayMs + input.number() % (uint64_t{1} << 42));

    const uint64_t limit_max = input.flag() ? policy.limit_max(input.flag()) : input.number();
    check_texts(input.rest().substr(0, 200), policy, limit_max);
    return 0;
}
