/* Copyright (C) the limit_sliding authors */

#include "redis/protocol/scripts.hpp"

#include <algorithm>

namespace limit_sliding {

namespace {

/* The files of src/redis/protocol/lua, one after the other; call.lua explains them. */
constexpr char kLua[] = {
#include "limit_sliding_lua.inc"
};

constexpr std::string_view kChunk = "--@ chunk ";
constexpr std::string_view kInclude = "--@ include ";
constexpr std::string_view kIf = "--@ if ";
constexpr std::string_view kElse = "--@ else";
constexpr std::string_view kEnd = "--@ end";

constexpr unsigned mask(Algorithm algorithm) { return 1u << static_cast<unsigned>(algorithm); }

/* Lines after "--@ if NAME" are in the scripts for any of these algorithms and flags. */
constexpr struct {
    std::string_view name;
    unsigned algorithms;
} kConditions[] = {
    {"cluster", kScriptCluster},
    {"settles", kScriptSettles},
    {"rejected", kScriptRejected},
    {"syncs", kScriptSyncs},
    {"give_back", kScriptCluster | kScriptSettles | kScriptGivesBack | kScriptSyncs},
    {"counter", mask(Algorithm::kCounter)},
    {"log", mask(Algorithm::kLog)},
    {"fixed", mask(Algorithm::kFixed)},
    {"bucket", mask(Algorithm::kTokenBucket) | mask(Algorithm::kLeakyBucket)},
};

/* Writes as far as there is room, and counts all bytes. */
struct Writer {
    char *buffer;
    size_t bytes;
    size_t length = 0;

    void write(std::string_view text) {
        for (char c : text) {
            if (length < bytes) { buffer[length] = c; }
            length++;
        }
    }
};

/* Removes the first line from a text that ends with a newline, and returns the line. */
std::string_view take_line(std::string_view *text) {
    std::string_view line(text->data(), text->find('\n'));
    text->remove_prefix(line.size() + 1);
    return line;
}

/* Removes `prefix` from the line.  Returns false if the line does not begin with it. */
bool take_prefix(std::string_view *line, std::string_view prefix) {
    if (line->size() < prefix.size() || std::string_view(line->data(), prefix.size()) != prefix) {
        return false;
    }

    line->remove_prefix(prefix.size());
    return true;
}

/* Returns the lines of the only chunk with this name. */
std::string_view find_chunk(std::string_view name) {
    std::string_view text(kLua, sizeof(kLua));
    while (!text.empty()) {
        std::string_view line = take_line(&text);
        if (take_prefix(&line, kChunk) && line == name) {
            return {text.data(), std::min(text.find(kChunk), text.size())};
        }
    }

    return {};
}

/* Writes a chunk, with the chunks that it includes. */
void write_chunk(std::string_view name, unsigned algorithms, Writer *writer) {
    std::string_view text = find_chunk(name);
    bool is_skipped = false;
    while (!text.empty()) {
        std::string_view line = take_line(&text);
        if (take_prefix(&line, kIf)) {
            is_skipped = std::none_of(
                std::begin(kConditions), std::end(kConditions), [=](const auto &known) {
                    return known.name == line && (known.algorithms & algorithms) != 0;
                });
        } else if (line == kElse) {
            is_skipped = !is_skipped;
        } else if (line == kEnd) {
            is_skipped = false;
        } else if (is_skipped) {
            continue;
        } else if (take_prefix(&line, kInclude)) {
            write_chunk(line, algorithms, writer);
        } else {
            writer->write(line);
            writer->write("\n");
        }
    }
}

} // namespace

size_t script(unsigned algorithms, char *buffer, size_t bytes) {
    Writer writer = {buffer, bytes};
    write_chunk("call", algorithms, &writer);
    writer.write({"", 1});
    return writer.length - 1;
}

std::string_view forget_script() { return find_chunk("forget"); }

std::string_view bans_script() { return find_chunk("bans"); }

std::string_view heartbeat_script() { return find_chunk("heartbeat"); }

std::string_view hold_script() {
    static char text[sizeof(kLua)];
    Writer writer = {text, sizeof(text)};
    write_chunk("hold", 0, &writer);
    return {text, writer.length};
}

} // namespace limit_sliding
