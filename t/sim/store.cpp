/* Copyright (C) the limit_sliding authors */

#include "store.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <strings.h>

namespace sim {

namespace {

using Member = std::pair<double, std::string>;

const char *const kWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";

/* A bound of scores: "5", "(5", "-inf". */
struct Bound {
    explicit Bound(const std::string &text)
        : is_open(text[0] == '('), score(strtod(text.c_str() + is_open, nullptr)) {}

    bool is_open;
    double score;
};

bool is_between(const Member &member, const Bound &least, const Bound &most) {
    return (least.is_open ? member.first > least.score : member.first >= least.score)
           && (most.is_open ? member.first < most.score : member.first <= most.score);
}

/* Cuts ranks as Redis does: negative ones count from the end. */
void cut_ranks(int64_t size, int64_t *from, int64_t *to) {
    if (*from < 0) { *from = std::max<int64_t>(*from + size, 0); }

    if (*to < 0) { *to += size; }

    *to = std::min(*to, size - 1);
}

Value score_of(double score) {
    char text[40];
    snprintf(text, sizeof(text), "%.17g", score);
    return Value::string(text);
}

} // namespace

void Value::append_to(std::string &bytes) const {
    switch (type) {
    case kNil:
        bytes += "$-1\r\n";
        break;
    case kStatus:
        bytes += "+" + text + "\r\n";
        break;
    case kError:
        bytes += "-" + text + "\r\n";
        break;
    case kInteger:
        bytes += ":" + std::to_string(number) + "\r\n";
        break;
    case kString:
        bytes += "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
        break;
    case kArray:
        bytes += "*" + std::to_string(elements.size()) + "\r\n";
        for (const Value &element : elements) {
            element.append_to(bytes);
        }
    }
}

Store::Entry *Store::find(const std::string &key, int64_t now_ms) {
    auto found = keys_.find(key);
    if (found == keys_.end()) { return nullptr; }

    if (found->second.ends_ms != 0 && found->second.ends_ms <= now_ms) {
        keys_.erase(found);
        return nullptr;
    }
    return &found->second;
}

void Store::erase_if_empty(const std::string &key) {
    if (keys_[key].members.empty()) { keys_.erase(key); }
}

void Store::take(Store &from, const std::string &prefix) {
    for (auto i = from.keys_.begin(); i != from.keys_.end();) {
        if (i->first.compare(0, prefix.size(), prefix) == 0) {
            keys_[i->first] = std::move(i->second);
            i = from.keys_.erase(i);
        } else {
            ++i;
        }
    }
}

Value Store::run(const Arguments &args, int64_t now_ms) {
    const std::string &name = args[0];
    if (name == "MGET") {
        std::vector<Value> values;
        for (size_t i = 1; i < args.size(); i++) {
            Entry *entry = find(args[i], now_ms);
            values.push_back(entry != nullptr && !entry->is_set ? Value::string(entry->text)
                                                                : Value());
        }
        return Value::array(std::move(values));
    }

    if (name == "EXISTS" || name == "DEL") {
        int64_t n = 0;
        for (size_t i = 1; i < args.size(); i++) {
            n += find(args[i], now_ms) != nullptr;
            if (name == "DEL") { keys_.erase(args[i]); }
        }
        return Value::integer(n);
    }

    if (name == "PSETEX") { return run({"SET", args[1], args[3], "PX", args[2]}, now_ms); }

    if (name == "PTTL") {
        Entry *entry = find(args[1], now_ms);
        return Value::integer(entry == nullptr      ? -2
                              : entry->ends_ms == 0 ? -1
                                                    : entry->ends_ms - now_ms);
    }

    if (name == "PEXPIRE") {
        Entry *entry = find(args[1], now_ms);
        if (entry != nullptr) { entry->ends_ms = now_ms + strtoll(args[2].c_str(), nullptr, 10); }

        return Value::integer(entry != nullptr);
    }

    return name[0] == 'Z' ? run_on_set(args, now_ms) : run_on_string(args, now_ms);
}

Value Store::run_on_string(const Arguments &args, int64_t now_ms) {
    const std::string &name = args[0];
    Entry *entry = find(args[1], now_ms);
    if (name == "SET") {
        Entry &set = keys_[args[1]];
        set = {};
        set.text = args[2];
        if (args.size() > 4) { set.ends_ms = now_ms + strtoll(args[4].c_str(), nullptr, 10); }

        return Value::status("OK");
    }

    if (entry != nullptr && entry->is_set) { return Value::error(kWrongType); }

    if (name == "GET") { return entry != nullptr ? Value::string(entry->text) : Value(); }

    if (name == "SETRANGE") {
        std::string &text = keys_[args[1]].text;
        const auto at = static_cast<size_t>(strtoll(args[2].c_str(), nullptr, 10));
        text.resize(std::max(text.size(), at + args[3].size()));
        text.replace(at, args[3].size(), args[3]);
        return Value::integer(static_cast<int64_t>(text.size()));
    }

    return Value::error("ERR unknown command '" + name + "'");
}

Value Store::add_members(const Arguments &args, int64_t now_ms) {
    (void)find(args[1], now_ms);
    Entry &entry = keys_[args[1]];
    entry.is_set = true;
    for (size_t i = 2; i + 1 < args.size(); i += 2) {
        auto &all = entry.members;
        all.erase(std::remove_if(all.begin(), all.end(),
                                 [&](const Member &m) { return m.second == args[i + 1]; }),
                  all.end());
        Member added{strtod(args[i].c_str(), nullptr), args[i + 1]};
        all.insert(std::upper_bound(all.begin(), all.end(), added), added);
    }
    return Value::integer(static_cast<int64_t>(args.size() / 2 - 1));
}

Value Store::run_on_set(const Arguments &args, int64_t now_ms) {
    const std::string &name = args[0];
    Entry *entry = find(args[1], now_ms);
    if (entry != nullptr && !entry->is_set) { return Value::error(kWrongType); }

    if (name == "ZADD") { return add_members(args, now_ms); }

    std::vector<Member> none;
    auto &all = entry != nullptr ? entry->members : none;
    if (name == "ZCARD") { return Value::integer(static_cast<int64_t>(all.size())); }

    if (name == "ZCOUNT" || name == "ZREMRANGEBYSCORE") {
        const Bound least(args[2]), most(args[3]);
        auto is_in = [&](const Member &m) { return is_between(m, least, most); };
        const auto n = std::count_if(all.begin(), all.end(), is_in);
        if (name != "ZCOUNT" && n != 0) {
            all.erase(std::remove_if(all.begin(), all.end(), is_in), all.end());
            erase_if_empty(args[1]);
        }
        return Value::integer(n);
    }

    if (name == "ZRANGE" || name == "ZREMRANGEBYRANK") {
        int64_t from = strtoll(args[2].c_str(), nullptr, 10);
        int64_t to = strtoll(args[3].c_str(), nullptr, 10);
        cut_ranks(static_cast<int64_t>(all.size()), &from, &to);
        std::vector<Value> values;
        for (int64_t i = from; i <= to; i++) {
            values.push_back(Value::string(all[static_cast<size_t>(i)].second));
            if (args.size() > 4) { values.push_back(score_of(all[static_cast<size_t>(i)].first)); }
        }

        if (name == "ZRANGE") { return Value::array(std::move(values)); }

        if (from <= to) {
            all.erase(all.begin() + from, all.begin() + to + 1);
            erase_if_empty(args[1]);
        }
        return Value::integer(std::max<int64_t>(to - from + 1, 0));
    }

    return Value::error("ERR unknown command '" + name + "'");
}

} // namespace sim
