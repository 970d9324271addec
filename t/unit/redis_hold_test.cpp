/* Copyright (C) the limit_sliding authors */

/*
 * The scripts that count units in flight, in a real Redis beside a model: random takes, releases,
 * deaths, epochs, losses of memory, and limits that change.  The model has a number for each holder
 * and key, and knows nothing of the format in Redis.
 */

#include <stdio.h>

#include <algorithm>

#include "redis/protocol/scripts.hpp"
#include "redis_server.hpp"
#include "support.hpp"

namespace {

constexpr size_t kHolders = 4;
constexpr size_t kKeys = 3;

/* Nothing expires during a test. */
constexpr char kLifeMs[] = "3600000";

redis_server_t server;
char heartbeat_sha[41];
char hold_sha[41];

/* The words of a command. */
struct Words {
    char text[24][64];
    size_t n = 0;

    template <class... Values>
    Words &add(const char *format, Values... values) {
        assert_true(n < LENGTH(text));
        snprintf(text[n++], sizeof(text[0]), format, values...);
        return *this;
    }

    redisReply *run() const {
        const char *argv[LENGTH(text)];
        for (size_t i = 0; i < n; i++) {
            argv[i] = text[i];
        }

        auto *reply = static_cast<redisReply *>(
            redisCommandArgv(server.context, static_cast<int>(n), argv, NULL));
        assert_non_null(reply);
        if (reply->type == REDIS_REPLY_ERROR) { fail_msg("%s", reply->str); }

        return reply;
    }

    long long number() const {
        redisReply *reply = run();
        const long long number = reply->integer;
        freeReplyObject(reply);
        return number;
    }
};

/* An override as its text in Redis, its code in replies, and the limit in force. */
struct Own {
    const char *text; /* NULL: there is no override */
    int64_t code;     /* 0: none */
    uint64_t limit;   /* valid if the override is well-formed */

    bool decides() const { return code != 0 && code != kScriptMalformed; }
};

constexpr Own kOwn[] = {
    {NULL, 0, 0},
    {"0", kScriptOwn, 0},
    {"off", kScriptOff, UINT64_MAX},
    {"3", kScriptOwn + 3, 3},
    {"12", kScriptOwn + 12, 12},
    {"4194302", kScriptOwn + 4194302, 4194302},
    {"4194303", kScriptMalformed, 0},
    {"5r/s", kScriptMalformed, 0},
};

struct Holder {
    char id[17];
    unsigned epoch;          /* of the last heartbeat that was written; 0: none */
    bool is_alive;           /* Redis has the heartbeat */
    uint64_t used[kKeys];    /* units of requests */
    uint64_t counted[kKeys]; /* units that Redis counts while the holder is alive */
};

/* What a message tells of a key: the units in use are those of the holder. */
struct Part {
    size_t key;
    bool has_limit;
    uint64_t wanted;
    uint64_t limit;
};

class History {
public:
    explicit History(uint64_t seed);

    void step();
    void end();

private:
    uint64_t below(uint64_t n) { return random_below(&random_, n); }

    bool beat(Holder &holder, unsigned epoch);
    void begin_anew(Holder &holder);
    uint64_t counted_of_others(const Holder &holder, size_t key) const;
    void check(Holder &holder, const Part &part, redisReply *reply, size_t *next);
    void send(Holder &holder, unsigned epoch, const Part *parts, size_t n);
    void draw_message(Holder &holder);
    void draw_own(size_t key);
    void die(Holder &holder);
    void lose_all();
    void lose(size_t key);

    uint64_t random_;
    unsigned nids_ = 0;
    long long since_ = 0;
    Holder holders_[kHolders] = {};
    const Own *own_[kKeys] = {kOwn, kOwn, kOwn};
};

History::History(uint64_t seed) : random_(seed) {
    Words().add("FLUSHALL").number();
    for (Holder &holder : holders_) {
        begin_anew(holder);
    }
}

/* Sends a heartbeat, which must revive neither a holder nor an old epoch.  Returns true if it was
 * written. */
bool History::beat(Holder &holder, unsigned epoch) {
    Words words;
    words.add("EVALSHA").add("%s", heartbeat_sha).add("3").add("p:holder:%s", holder.id);
    words.add("p:holders")
        .add("p:grace")
        .add("%u", epoch)
        .add("%u", holder.epoch)
        .add("%lld", since_);
    redisReply *reply = words.add("%s", kLifeMs).add("0").add("0").run();
    assert_int_equal(reply->elements, 3);
    (void)Words().add("DEL").add("p:grace").number(); /* the model has no time */

    const bool is_written = reply->element[0]->integer == 1;
    assert_int_equal(is_written, holder.epoch == 0 || (holder.is_alive && epoch >= holder.epoch));
    since_ = reply->element[1]->integer;
    freeReplyObject(reply);
    if (is_written) {
        holder.epoch = epoch;
        holder.is_alive = true;
    }
    return is_written;
}

/* The holder continues with another id, and its requests run on. */
void History::begin_anew(Holder &holder) {
    snprintf(holder.id, sizeof(holder.id), "%016x", ++nids_);
    holder.epoch = 0;
    std::fill(holder.counted, holder.counted + kKeys, 0);
    (void)beat(holder, 1);
}

uint64_t History::counted_of_others(const Holder &holder, size_t key) const {
    uint64_t sum = 0;
    for (const Holder &other : holders_) {
        if (&other != &holder && other.is_alive) { sum += other.counted[key]; }
    }
    return sum;
}

/* Checks the answer about a key, from this element of the reply on. */
void History::check(Holder &holder, const Part &part, redisReply *reply, size_t *next) {
    const auto take = [&]() -> int64_t {
        assert_true(*next < reply->elements);
        return reply->element[(*next)++]->integer;
    };

    const Own &own = *own_[part.key];
    const uint64_t limit = own.decides() ? own.limit : part.limit;
    const uint64_t used = holder.used[part.key];
    const uint64_t before = counted_of_others(holder, part.key) + used;
    const uint64_t room = part.has_limit ? limit - std::min(limit, before) : 0;
    const uint64_t granted = std::min(room, part.wanted);

    if (part.has_limit && own.code != 0) { assert_int_equal(take(), -own.code); }

    assert_int_equal(take(), granted);
    assert_int_equal(take(), before + granted);
    holder.counted[part.key] = used + granted;
    if (part.has_limit) { holder.used[part.key] += below(granted + 1); }
}

/* Sends a message of this epoch.  An old epoch, and a holder that is dead, must change nothing. */
void History::send(Holder &holder, unsigned epoch, const Part *parts, size_t n) {
    Words words;
    words.add("EVALSHA").add("%s", hold_sha).add("").add("p:holder:%s", holder.id);
    words.add("p:grace");
    for (const Part *part = parts; part != parts + n; part++) {
        words.add("k%zu", part->key);
        if (part->has_limit) { words.add("k%zu:limit", part->key); }
    }

    snprintf(words.text[2], sizeof(words.text[2]), "%zu", words.n - 3);
    words.add("%u", epoch).add("%s", kLifeMs);
    const char *last = "";
    for (const Part *part = parts; part != parts + n; part++) {
        const auto used = static_cast<unsigned long long>(holder.used[part->key]);
        words.add("%llu", used);
        char *text = words.text[words.n - 1];
        if (part->has_limit) {
            snprintf(text, sizeof(words.text[0]), "%llu %llu %llu", used,
                     (unsigned long long)part->wanted, (unsigned long long)part->limit);
        }

        if (strcmp(text, last) == 0) {
            *text = '\0';
        } else {
            last = text;
        }
    }

    redisReply *reply = words.run();
    const bool is_taken = holder.is_alive && epoch == holder.epoch;
    size_t next = 1;
    assert_int_equal(reply->element[0]->integer, is_taken);
    for (size_t i = 0; is_taken && i < n; i++) {
        check(holder, parts[i], reply, &next);
    }

    assert_int_equal(reply->elements, next);
    freeReplyObject(reply);
}

void History::draw_message(Holder &holder) {
    Part parts[kKeys];
    const size_t n = 1 + below(kKeys);
    const size_t first = below(kKeys);
    for (size_t i = 0; i < n; i++) {
        parts[i] = {(first + i) % kKeys, below(3) != 0, below(5), 1 + below(10)};
        if (i != 0 && below(2)) {
            parts[i].wanted = parts[i - 1].wanted;
            parts[i].limit = parts[i - 1].limit;
        }
    }

    send(holder, holder.epoch - (below(10) == 0), parts, n);
}

void History::draw_own(size_t key) {
    own_[key] = &kOwn[below(LENGTH(kOwn))];
    Words words;
    if (own_[key]->text == NULL) {
        words.add("DEL").add("k%zu:limit", key);
    } else {
        words.add("SET").add("k%zu:limit", key).add("%s", own_[key]->text);
    }
    words.number();
}

void History::die(Holder &holder) {
    Words().add("DEL").add("p:holder:%s", holder.id).number();
    holder.is_alive = false;
}

void History::lose_all() {
    Words().add("FLUSHALL").number();
    std::fill(own_, own_ + kKeys, kOwn);
    for (Holder &holder : holders_) {
        holder.is_alive = false;
    }
}

/* The state of one key is lost, until its holders send their units again. */
void History::lose(size_t key) {
    Words().add("DEL").add("k%zu", key).number();
    for (Holder &holder : holders_) {
        holder.counted[key] = 0;
    }
}

void History::step() {
    Holder &holder = holders_[below(kHolders)];
    const size_t key = below(kKeys);
    switch (below(40)) {
    case 0:
        die(holder);
        break;
    case 1:
        draw_own(key);
        break;
    case 2:
        (void)beat(holder, holder.epoch + 1);
        break;
    case 3:
        (void)beat(holder, holder.epoch - 1);
        break;
    case 4:
        if (below(10) == 0) { lose_all(); }
        break;
    case 5:
        lose(key);
        break;
    case 6:
        /* on_error admits requests */
        holder.used[key] += below(4);
        break;
    case 7:
        if (!holder.is_alive) { begin_anew(holder); }
        break;
    default:
        holder.used[key] -= below(holder.used[key] + 1);
        draw_message(holder);
    }
}

/* All requests end, and nothing is left. */
void History::end() {
    for (Holder &holder : holders_) {
        if (!holder.is_alive) { begin_anew(holder); }

        for (size_t key = 0; key < kKeys; key++) {
            assert_int_not_equal(Words().add("PTTL").add("k%zu", key).number(), -1);
            const Part part = {key, false, 0, 0};
            holder.used[key] = 0;
            send(holder, holder.epoch, &part, 1);
        }
    }

    assert_int_equal(Words().add("EXISTS").add("k0").add("k1").add("k2").number(), 0);
}

int start(void **) {
    assert_true(redis_server_start(&server));
    const auto load = [](std::string_view script, char sha[41]) {
        auto *reply = static_cast<redisReply *>(
            redisCommand(server.context, "SCRIPT LOAD %b", script.data(), script.size()));
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        snprintf(sha, 41, "%s", reply->str);
        freeReplyObject(reply);
    };
    load(heartbeat_script(), heartbeat_sha);
    load(hold_script(), hold_sha);
    return 0;
}

int stop(void **) {
    redis_server_stop(&server);
    return 0;
}

void units_are_as_in_the_model(void **) {
    for (uint64_t seed = 1; seed <= draws(30); seed++) {
        History history(seed);
        for (unsigned i = 0; i < 400; i++) {
            history.step();
        }
        history.end();
    }
}

/* More holders than a function of Lua gets arguments; each other one is dead. */
void a_key_has_many_holders(void **) {
    constexpr char kFill[] = "local units = {} "
                             "for i = 1, 10001 do "
                             "local id = string.format('%016x', i) "
                             "units[i] = id .. ':1' "
                             "if i % 2 == 1 then redis.call('SET', 'p:holder:' .. id, 1) end "
                             "end "
                             "redis.call('SET', 'k0', table.concat(units, ' ')) "
                             "return #units";
    Words().add("FLUSHALL").number();
    auto *filled = static_cast<redisReply *>(redisCommand(server.context, "EVAL %s 0", kFill));
    assert_int_equal(filled->integer, 10001);
    freeReplyObject(filled);

    /* holder 1 has used 1 of 5,004 units, and wants 5: 3 are left beside those of 5,000 others */
    Words words;
    words.add("EVALSHA").add("%s", hold_sha).add("4").add("p:holder:%016x", 1);
    words.add("p:grace").add("k0").add("k0:limit").add("1").add("%s", kLifeMs).add("1 5 5004");
    redisReply *reply = words.run();
    assert_int_equal(reply->elements, 3);
    assert_int_equal(reply->element[0]->integer, 1);
    assert_int_equal(reply->element[1]->integer, 3);
    assert_int_equal(reply->element[2]->integer, 5004);
    freeReplyObject(reply);

    const long long bytes_of_living
        = sizeof("0123456789abcdef:1") - 1 + 5000 * sizeof("0123456789abcdef:1");
    assert_int_equal(Words().add("STRLEN").add("k0").number(), bytes_of_living);
}

/* Sends a heartbeat of the first epoch.  Returns the ms of the grace. */
long long beat(unsigned id, unsigned last, const char *since, const char *has_unreported) {
    Words words;
    words.add("EVALSHA").add("%s", heartbeat_sha).add("3").add("p:holder:%016x", id);
    words.add("p:holders").add("p:grace").add("1").add("%u", last).add("%s", since);
    redisReply *reply = words.add("%s", kLifeMs).add("0").add("%s", has_unreported).run();
    const long long left = reply->element[2]->integer;
    assert_int_equal(reply->element[0]->integer, last == 0);
    freeReplyObject(reply);
    return left;
}

/* The first element of the reply to a wish for a unit, and the granted units. */
void assert_take(unsigned id, bool is_in_grace, long long granted) {
    Words words;
    words.add("EVALSHA").add("%s", hold_sha).add("4").add("p:holder:%016x", id).add("p:grace");
    words.add("k0").add("k0:limit").add("1").add("%s", kLifeMs).add("1 1 10");
    redisReply *reply = words.run();
    assert_int_equal(reply->element[0]->integer > 1, is_in_grace);
    assert_int_equal(reply->element[1]->integer, granted);
    freeReplyObject(reply);
}

void a_grace_grants_nothing(void **) {
    const long long life = strtoll(kLifeMs, nullptr, 10);
    const auto end_grace = [] { (void)Words().add("DEL").add("p:grace").number(); };

    Words().add("FLUSHALL").number();
    assert_in_range(beat(1, 0, "0", "0"), 1, life / 2);
    assert_take(1, true, 0);
    assert_in_range(beat(2, 0, "0", "0"), 1, life / 2);
    assert_true(beat(2, 0, "0", "1") > life / 2); /* until it has reported */

    end_grace();
    assert_int_equal(beat(2, 0, "0", "1"), 0); /* a new holder has no units */
    assert_take(1, false, 1);

    assert_true(beat(3, 1, "7", "0") > life / 2); /* another server has heard this holder */
    assert_take(1, true, 0);
    assert_int_equal(Words().add("PEXPIRE").add("p:grace").add("1000").number(), 1);
    assert_true(beat(4, 1, "8", "0") > life / 2);

    /* not for ever */
    Words().add("SET").add("p:grace").add("1").add("PX").add("1000").number();
    assert_in_range(beat(2, 0, "0", "1"), 1, 1000);
}

} // namespace

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_as_in_the_model),
        cmocka_unit_test(a_key_has_many_holders),
        cmocka_unit_test(a_grace_grants_nothing),
    };

    return cmocka_run_group_tests_name("redis hold", tests, start, stop);
}
