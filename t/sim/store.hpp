/* Copyright (C) the limit_sliding authors */

/* The keys of a simulated Redis, and the commands that the scripts use. */

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace sim {

/* A reply as RESP has them. */
struct Value {
    enum Type { kNil, kStatus, kError, kInteger, kString, kArray };

    Type type = kNil;
    int64_t number = 0;
    std::string text;
    std::vector<Value> elements;

    static Value status(std::string text) { return {kStatus, 0, std::move(text), {}}; }
    static Value error(std::string text) { return {kError, 0, std::move(text), {}}; }
    static Value integer(int64_t number) { return {kInteger, number, {}, {}}; }
    static Value string(std::string text) { return {kString, 0, std::move(text), {}}; }
    static Value array(std::vector<Value> elements) { return {kArray, 0, {}, std::move(elements)}; }

    /* Appends it in RESP. */
    void append_to(std::string &bytes) const;
};

using Arguments = std::vector<std::string>;

class Store {
public:
    /* Runs a command at that time of the server's clock. */
    Value run(const Arguments &args, int64_t now_ms);

    /* Takes the keys of another one whose names begin so; or has a copy of all. */
    void take(Store &from, const std::string &prefix);
    void copy(const Store &from) { keys_ = from.keys_; }

    void clear() { keys_.clear(); }

private:
    /* A sorted set is in order of scores and members. */
    struct Entry {
        bool is_set = false;
        std::string text;
        std::vector<std::pair<double, std::string>> members;
        int64_t ends_ms = 0; /* 0: never */
    };

    Entry *find(const std::string &key, int64_t now_ms);
    Value run_on_string(const Arguments &args, int64_t now_ms);
    Value run_on_set(const Arguments &args, int64_t now_ms);
    Value add_members(const Arguments &args, int64_t now_ms);
    void erase_if_empty(const std::string &key);

    std::unordered_map<std::string, Entry> keys_;
};

} // namespace sim
