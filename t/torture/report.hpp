/* Copyright (C) the limit_sliding authors */

/*
 * How a part of the torture is told how long to run and from which seed, and
 * how it tells what it found.  A part goes on after a deviation, with the next
 * round, and tells the first one of each kind in full.
 *
 *     usage: PART SECONDS [SEED]
 *
 * SEED 0, or none, is one of the clock's.  With 0 seconds one round is run, so
 * that a deviation can be replayed by the seed it was told with.
 */

#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

namespace torture {

inline uint64_t clock_ns() {
    timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);

    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

[[gnu::format(printf, 1, 2)]] inline std::string text(const char *format, ...) {
    char buffer[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(buffer, sizeof(buffer), format, arguments);
    va_end(arguments);

    return buffer;
}

class Report {
public:
    Report(const char *part, int argc, char **argv) : part_(part) {
        seconds_ = argc > 1 ? strtod(argv[1], nullptr) : 20;
        seed_ = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;

        if (seed_ == 0) {
            /* short enough to be typed */
            seed_ = static_cast<uint64_t>(time(nullptr)) % 1000000 * 1000;
        }

        begun_ns_ = clock_ns();
        printf("%s: seed %llu, %g s\n", part_, static_cast<unsigned long long>(seed_), seconds_);
        fflush(stdout);
    }

    /* Rounds have seeds of their own, one after the other. */
    uint64_t next_seed() { return seed_ + rounds_++; }

    bool has_time() const { return rounds_ == 0 || elapsed_s() < seconds_; }

    double seconds() const { return seconds_; }

    double elapsed_s() const { return static_cast<double>(clock_ns() - begun_ns_) / 1e9; }

    uint64_t rounds() const { return rounds_; }

    /* `kind` is what one cause has in common; `where` begins with the seed. */
    void deviates(const std::string &kind, const std::string &where) {
        if (kinds_[kind]++ == 0) {
            printf("%s: DEVIATION: %s\n    %s\n", part_, kind.c_str(), where.c_str());
            fflush(stdout);
        }
    }

    uint64_t deviations() const {
        uint64_t sum = 0;

        for (const auto &kind : kinds_) {
            sum += kind.second;
        }

        return sum;
    }

    /* Prints the result; returns the exit status. */
    int finish(const std::string &counts) const {
        for (const auto &kind : kinds_) {
            printf("%s: %llu x %s\n", part_, static_cast<unsigned long long>(kind.second),
                   kind.first.c_str());
        }

        printf("%s: %s: seed %llu, %llu rounds, %s, %.1f s, %llu deviations\n", part_,
               kinds_.empty() ? "ok" : "FAILED", static_cast<unsigned long long>(seed_),
               static_cast<unsigned long long>(rounds_), counts.c_str(), elapsed_s(),
               static_cast<unsigned long long>(deviations()));

        return kinds_.empty() ? 0 : 1;
    }

private:
    const char *part_;
    double seconds_;
    uint64_t seed_;
    uint64_t rounds_ = 0;
    uint64_t begun_ns_;
    std::map<std::string, uint64_t> kinds_;
};

} // namespace torture
