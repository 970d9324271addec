/* Copyright (C) the limit_sliding authors */

/* The scanner of bodies against a naive one, however a body is cut. */

#include "http/usage/usage_scanner.hpp"

#include "support.hpp"

using std::string_view;

#define SPACES " \t\r\n"
#define MAX_TEXT "9007199254740992"
#define TOO_LARGE "9007199254740993"
#define BODY_MAX 12000

/* A text that is put together; unit tests have no libstdc++. */
struct Text {
    operator string_view() const { return {data, size}; }

    Text &add(string_view text) {
        assert_true(text.size() <= sizeof(data) - size);
        memcpy(data + size, text.data(), text.size());
        size += text.size();
        return *this;
    }

    Text &add(size_t n, char ch) {
        assert_true(n <= sizeof(data) - size);
        memset(data + size, ch, n);
        size += n;
        return *this;
    }

    Text &quote(string_view name) { return add("\"").add(name).add("\""); }

    size_t size = 0;
    char data[BODY_MAX];
};

/* Where a body is cut, in ascending order. */
struct Cuts {
    Cuts &add(size_t at) {
        places[size++] = at;
        return *this;
    }

    size_t size = 0;
    size_t places[BODY_MAX];
};

/* What a body says: the last integer, and the first value that is none. */
struct Said {
    bool has_value = false;
    uint64_t value = 0;
    bool has_bad = false;
    bool is_clipped = false;
    Text bad;
};

static void assert_same(const Said &a, const Said &b, string_view body) {
    if (a.has_value != b.has_value || a.value != b.value || a.has_bad != b.has_bad
        || a.is_clipped != b.is_clipped || string_view(a.bad) != string_view(b.bad)) {
        fail_msg("%d %ju %d <%.*s> and %d %ju %d <%.*s> in <%.*s>", a.has_value, a.value, a.has_bad,
                 (int)a.bad.size, a.bad.data, b.has_value, b.value, b.has_bad, (int)b.bad.size,
                 b.bad.data, (int)body.size(), body.data());
    }
}

/* Returns the first place of any of the bytes, or the text's length. */
static size_t find_any(string_view text, string_view bytes) {
    return std::min(text.find_first_of(bytes), text.size());
}

/* Removes leading white space. */
static string_view without_space(string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(SPACES), text.size()));
    return text;
}

/* Returns the value that a text begins with, and at most one byte more than is shown. */
static string_view naive_value(string_view text) {
    size_t length = text[0] == '"' ? 1 : find_any(text, ",}]\"" SPACES);

    if (text[0] == '"') {
        while (length < text.size() && text[length] != '"') {
            length += text[length] == '\\' ? 2 : 1;
        }
        length++;
    }

    return {text.data(), std::min({length, text.size(), UsageScanner::kShown + 1})};
}

static void naive_judge(string_view value, Said *said) {
    const bool is_clipped = value.size() > UsageScanner::kShown;
    uint64_t number = 0;
    bool is_number = !value.empty() && !is_clipped;

    for (const char ch : value) {
        is_number = is_number && ch >= '0' && ch <= '9' && number <= kSettledMax;
        number = is_number ? number * 10 + (ch - '0') : number;
    }

    if (is_number && number <= kSettledMax) {
        said->has_value = true;
        said->value = number;
    } else if (!said->has_bad) {
        said->has_bad = true;
        said->is_clipped = is_clipped;
        said->bad.add({value.data(), std::min(value.size(), UsageScanner::kShown)});
    }
}

static Said naive(string_view name, string_view body) {
    const auto quoted = Text().quote(name);
    const char *begin = body.begin();
    Said said;

    for (size_t at; (at = body.find(quoted)) != string_view::npos;) {
        const char *quote = body.begin() + at;
        const bool is_escaped = quote != begin && quote[-1] == '\\';
        body.remove_prefix(is_escaped ? at + 1 : at + quoted.size);

        const auto colon = without_space(body);
        if (is_escaped || colon.empty() || colon[0] != ':') { continue; }

        const auto text = without_space({colon.data() + 1, colon.size() - 1});
        if (text.empty()) { break; }

        const auto value = naive_value(text);
        naive_judge(value, &said);
        body.remove_prefix(value.end() - body.begin());
    }

    return said;
}

/* Reads a body in parts, each in memory of its own. */
static Said scan(string_view name, string_view body, const Cuts &cuts) {
    const UsageName quoted(name);
    UsageScanner scanner(quoted);
    size_t from = 0;

    for (size_t i = 0; i <= cuts.size; i++) {
        const size_t to = i < cuts.size ? cuts.places[i] : body.size();
        auto *part = static_cast<char *>(malloc(to - from));
        memcpy(part, body.data() + from, to - from);
        scanner.feed(part, part + (to - from));
        free(part);
        from = to;
    }
    scanner.finish();

    Said said;
    said.has_value = scanner.value().has_value();
    said.value = scanner.value().value_or(0);
    said.has_bad = scanner.has_bad();
    said.is_clipped = said.has_bad && scanner.is_clipped();
    said.bad.add(said.has_bad ? scanner.shown() : "");
    return said;
}

/* Cuts a body at every place, at every pair of places, and everywhere. */
static void check_cuts(string_view name, string_view body) {
    const auto said = naive(name, body);
    Cuts all;

    assert_same(said, scan(name, body, Cuts()), body);
    for (size_t i = 0; i <= body.size(); i++) {
        all.add(i);
        assert_same(said, scan(name, body, Cuts().add(i)), body);
        for (size_t j = i; j <= body.size() && body.size() < 100; j++) {
            assert_same(said, scan(name, body, Cuts().add(i).add(j)), body);
        }
    }
    assert_same(said, scan(name, body, all), body);
}

/* A body, and what is found in it by "total_tokens": digits, and the bad value. */
static const struct {
    const char *body;
    const char *value; /* or nullptr */
    const char *bad;   /* or nullptr */
} examples[] = {
    {"", nullptr, nullptr},
    {"{\"usage\":{\"prompt_tokens\":9,\"total_tokens\":42}}", "42", nullptr},
    {"{\"total_tokens\" \r\n\t: \n\n 0\n}", "0", nullptr},
    {"\"total_tokens\":7", "7", nullptr},
    {"{\"total_tokens\":1,\"b\":[{\"total_tokens\":2}]}", "2", nullptr},
    {"{\"total_tokens\":" MAX_TEXT "}", MAX_TEXT, nullptr},
    {"{\"total_tokens\":00" MAX_TEXT "}", MAX_TEXT, nullptr},
    {"{\"total_tokens\":" TOO_LARGE "}", nullptr, TOO_LARGE},
    {"{\"total_tokens\":18446744073709551617}", nullptr, "18446744073709551617"},
    {"{\"total_tokens\":3,\"total_tokens\":null}", "3", "null"},
    {"{\"total_tokens\":null,\"total_tokens\":-5,\"total_tokens\":3}", "3", "null"},
    {"{\"total_tokens\":-0}", nullptr, "-0"},
    {"{\"total_tokens\":1.0}", nullptr, "1.0"},
    {"{\"total_tokens\":1e3}", nullptr, "1e3"},
    {"{\"total_tokens\":\"12\"}", nullptr, "\"12\""},
    {"{\"total_tokens\":\"\\\\\",\"total_tokens\":4}", "4", "\"\\\\\""},
    {"{\"total_tokens\":\"a\\\"total_tokens\\\":1\"}", nullptr, "\"a\\\"total_tokens\\\":1\""},
    {"{\"total_tokens\":[5]}", nullptr, "[5"},
    {"{\"total_tokens\":{\"total_tokens\":6}}", "6", "{"},
    {"{\"total_tokens\":,\"a\":1}", nullptr, ""},
    {"{\"total_tokens\":", nullptr, nullptr},
    {"{\"total_tokens\"", nullptr, nullptr},
    {"{\"name\":\"total_tokens\",\"value\":1}", nullptr, nullptr},
    {"{\"content\":\"a \\\"total_tokens\\\": 99 \"}", nullptr, nullptr},
    {"{\"content\":\"\\\"total_tokens\": 99}", nullptr, nullptr},
    {"{\"total_tokens_\":1,\"_total_tokens\":2,\"total_token\":3}", nullptr, nullptr},
    {"\"total_\"total_tokens\":8", "8", nullptr},
    {"data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":17}}\n\ndata: [DONE]\n\n", "17",
     nullptr},
};

static void test_examples_cut_anywhere(void **state) {
    (void)state;

    for (const auto &example : examples) {
        Said said;
        said.has_value = example.value != nullptr;
        said.value = said.has_value ? strtoull(example.value, nullptr, 10) : 0;
        said.has_bad = example.bad != nullptr;
        said.bad.add(said.has_bad ? example.bad : "");

        assert_same(said, scan("total_tokens", example.body, Cuts()), example.body);
        check_cuts("total_tokens", example.body);
        check_cuts("total_tokens", Text().add(70, ' ').add(example.body).add(70, 'x'));
    }
}

/* A name is found wherever it is in the blocks that are searched at once. */
static void test_a_name_anywhere_in_a_body(void **state) {
    (void)state;

    for (const size_t length : {1, 2, 13, 14, 15, 30, 31, 32, 33, 63, 64}) {
        const auto name = Text().add(length - 1, 'n').add("q");
        for (const size_t size : {80, 120, 200}) {
            for (size_t at = 0; at < size; at++) {
                const auto body = Text().add(at, '"').quote(name).add(":5,").add(size - at, 'q');
                const auto said = scan(name, body, Cuts());
                assert_true(said.has_value);
                assert_int_equal(said.value, 5);
            }
        }
    }
}

static void test_long_values_are_clipped(void **state) {
    (void)state;

    for (const size_t length : {61, 62, 63, 64, 65, 66, 300}) {
        const auto text = Text().add("{\"n\":\"").add(length, 'a').add("\",\"n\":1}");

        check_cuts("n", text);
        check_cuts("n", Text().add("{\"n\":").add(length, '0').add("}"));

        const auto said = scan("n", text, Cuts());
        assert_int_equal(said.bad.size, std::min<size_t>(length + 2, 64));
        assert_int_equal(said.is_clipped, length + 2 > 64);
        assert_int_equal(said.value, 1);
    }
}

static void test_an_unfinished_value_does_not_count(void **state) {
    const UsageName name("n");
    UsageScanner scanner(name);
    const string_view body = "\"n\":12";

    (void)state;

    scanner.feed(body.begin(), body.end());
    assert_false(scanner.value().has_value());
    scanner.finish();
    assert_int_equal(scanner.value().value_or(0), 12);
}

static void test_names(void **state) {
    (void)state;

    for (const string_view name : {"n", "a b:c", "\xc3\xa4'"}) {
        assert_true(UsageName::is_valid(name));
        assert_true(UsageName(name).name() == name);
    }
    for (const string_view name : {"", "a\"", "\\a"}) {
        assert_false(UsageName::is_valid(name));
    }
    assert_true(UsageName::is_valid(Text().add(64, 'n')));
    assert_false(UsageName::is_valid(Text().add(65, 'n')));
}

/* Adds what a scanner may stumble over. */
static void add_piece(uint64_t *random, string_view name, Text *body) {
    static const char *const pieces[]
        = {"\"", "\\", " ",    "\n",     ":",      ":",       ",",         "}",     "{",
           "1",  "0",  "1234", MAX_TEXT, "-1",     "null",    "1.5",       "\"x\"", "some text ",
           "n",  "nn", "\\\"", "\\\\",   "\": \"", "data: {", "]}\n\ndata"};

    switch (random_below(random, 12)) {
    case 0:
    case 1:
        body->quote(name).add(":");
        break;
    case 2:
        body->quote(name);
        break;
    case 3:
        body->add("\"").add({name.data(), random_below(random, name.size())});
        break;
    case 4:
        body->add(random_below(random, 150), "9a, "[random_below(random, 4)]);
        break;
    default:
        body->add(pieces[random_below(random, LENGTH(pieces))]);
    }
}

static void test_random_bodies_cut_at_random(void **state) {
    const auto longest = Text().add(64, 'n');
    const string_view names[] = {"n", "nn", "total_tokens", ":", " ", "1", "n n", longest};
    uint64_t random = 1, found = 0, bad = 0;

    (void)state;

    for (size_t round = 0; round < 30000; round++) {
        const auto name = names[random_below(&random, LENGTH(names))];
        Text body;
        for (uint64_t n = random_below(&random, 60); n > 0; n--) {
            add_piece(&random, name, &body);
        }

        const auto said = naive(name, body);
        found += said.has_value;
        bad += said.has_bad;

        for (const size_t most : {SIZE_MAX, size_t(4), size_t(40), size_t(200)}) {
            Cuts cuts;
            for (size_t at = random_below(&random, most); at < body.size;) {
                cuts.add(at);
                at += 1 + random_below(&random, most - 1);
            }
            assert_same(said, scan(name, body, cuts), body);
        }
    }

    /* The bodies say something at all. */
    assert_true(found > 5000);
    assert_true(bad > 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_cut_anywhere),
        cmocka_unit_test(test_a_name_anywhere_in_a_body),
        cmocka_unit_test(test_long_values_are_clipped),
        cmocka_unit_test(test_an_unfinished_value_does_not_count),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_bodies_cut_at_random),
    };

    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
