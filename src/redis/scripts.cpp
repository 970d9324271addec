/*
 * Copyright (C) the limit_sliding authors
 */

#include "redis/scripts.hpp"

#include <string_view>

#include "core/limiter.hpp"
#include "redis/lua.hpp"
#include "redis/lua_cluster.hpp"

namespace limit_sliding {

namespace {

constexpr bool has(unsigned algorithms, Algorithm algorithm)
{
    return (algorithms >> static_cast<unsigned>(algorithm) & 1) != 0;
}

/* Writes as far as there is room, and counts all. */
class Writer {
public:
    Writer(char *buffer, size_t bytes) : buffer_(buffer), bytes_(bytes) {}

    void write(std::string_view text)
    {
        for (char c : text) {
            if (length_ < bytes_) {
                buffer_[length_] = c;
            }
            length_++;
        }
    }

    size_t finish()
    {
        if (length_ < bytes_) {
            buffer_[length_] = '\0';
        }

        return length_;
    }

private:
    char *buffer_;
    size_t bytes_;
    size_t length_ = 0;
};

/* An algorithm's part of the script. */
struct Block {
    bool used;
    std::string_view condition;
    std::string_view locals;
    std::string_view decide;
    std::string_view record;
    std::string_view rejected;
    std::string_view give_back;

    void write(Writer *writer) const
    {
        writer->write("elseif ");
        writer->write(condition);
        writer->write(" then");
        writer->write(decide);
        writer->write(kGrant);
        writer->write(record);
        writer->write("end\n");

        if (!rejected.empty()) {
            writer->write("if pass == 2 and g < n then");
            writer->write(rejected);
            writer->write("end\n");
        }
    }
};

} // namespace

size_t script(unsigned algorithms, char *buffer, size_t bytes)
{
    Writer writer(buffer, bytes);

    bool is_cluster = (algorithms & kScriptCluster) != 0;
    bool buckets = has(algorithms, Algorithm::kTokenBucket)
                   || has(algorithms, Algorithm::kLeakyBucket);

    const Block blocks[] = {
        {has(algorithms, Algorithm::kCounter),
         "k[1] == 0",
         {},
         kCounter,
         kCounterRecord,
         {},
         kCounterGiveBack},
        {has(algorithms, Algorithm::kLog), "k[1] == 1", kLogLocals, kLog,
         kLogRecord, kLogRejected, kLogGiveBack},
        {has(algorithms, Algorithm::kFixed),
         "k[1] == 2",
         {},
         kFixed,
         kFixedRecord,
         {},
         kFixedGiveBack},
        {buckets, "k[1] > 2", kBucketLocals, kBucket, kBucketRecord,
         kBucketRejected, kBucketGiveBack},
    };

    writer.write(kClock);
    writer.write(kPrelude);
    writer.write(is_cluster ? kReadInCluster : kRead);

    for (const Block &block : blocks) {
        if (block.used) {
            writer.write(block.locals);
        }
    }

    writer.write(kBegin);
    writer.write(is_cluster ? kGiveBackKind : std::string_view{});
    writer.write(buckets ? kLeasedKind : std::string_view{});
    writer.write(kHeldKind);
    writer.write(kLoop);

    if (is_cluster) {
        writer.write(kGiveBack);

        for (const Block &block : blocks) {
            if (block.used) {
                writer.write("elseif ");
                writer.write(block.condition);
                writer.write(" then");
                writer.write(block.give_back);
            }
        }

        writer.write("end\n");
    }

    for (const Block &block : blocks) {
        if (block.used) {
            block.write(&writer);
        }
    }

    writer.write(kEnd);

    return writer.finish();
}

const char *forget_script(size_t *length)
{
    *length = kForget.size();

    return kForget.data();
}

} // namespace limit_sliding
