/* Copyright (C) the limit_sliding authors */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/atomics.hpp"
#include "core/own_limit.hpp"

namespace limit_sliding {

/*
 * The own limits of keys, in shared memory: 24 bytes each, all included, if there
 * is room for 1,024 or more.
 *
 * A line is a cache line of three keys.  The hash of a key selects its first
 * line and a step; its further lines are each a step away, and since their
 * number is a prime they are all there are.  A key is in the first of its lines that had
 * room for it, and never moves.  A line counts the keys that found it full and
 * went on, so a search ends at the first line that nobody has passed.  If the
 * table is full, an absent key is looked for in 2.4 lines on average, and
 * a present one in 1.5.
 *
 * Two keys are taken for one if they share 31 bits of their hash and a line that
 * both may be in: of 10^9 searches for absent keys in a full table, three.
 *
 * Readers take no lock.  There is one writer at a time, which the callers see to,
 * and it may die between any two stores: a key is published by its tag, which
 * comes last and goes first.
 *
 * The lock of the writers orders what they read, which is therefore relaxed.  So are the
 * count of a line, which is raised before the tag of the key is released; the place of a
 * key in the file, which is only compared under the lock or with the line found there;
 * and a tag that is taken away, as the words that replace the limit release that.
 */
class OwnLimits {
public:
    /* No end, where the time of one is expected. */
    static constexpr uint64_t kNoEnd = UINT64_MAX;

    /* Returns the bytes of a table for so many keys. */
    static size_t bytes_for(size_t keys);

    /* Makes a table of zeroed memory of so many bytes, aligned to 64. */
    void init(size_t keys);

    /* 0: no key has an own limit; callers read it before find().  Those that have
     * ended are counted until somebody needs their room.  It is relaxed: a key that is
     * not counted yet is as one that is not there yet. */
    uint64_t count() const { return count_.load(std::memory_order_relaxed); }

    /* Returns how many keys there is room for. */
    uint64_t max() const { return max_; }

    /* Sets the own limit of the key of this hash, by Zone::hash().  False: it has
     * none, or that has ended; `own` stays as it was.  Most keys have none, and need no
     * time: now_s() returns it. */
    template <class Now>
    bool find(uint64_t hash, const Now &now_s, OwnLimit *own) const {
        const Place place = find_place(hash);
        if (__builtin_expect(!place.is_there(), true)) { return false; }

        return read(place, hash, static_cast<uint64_t>(now_s()), own);
    }

    /* What is known of a key besides. */
    struct Entry {
        OwnLimit own;
        uint64_t until_s; /* UNIX time of its end, or kNoEnd */
        uint64_t at;      /* where its line begins in the file */
    };

    /* The same, in full; also finds what has ended. */
    bool find(uint64_t hash, Entry *entry) const;

    /*
     * Walks over all keys.  A place is a number, 0 the first one.  next() finds the
     * next key from a place on, and moves that past it; false: there is none.
     * `tag` tells what key it may be, by is_of().  place_after() returns the place
     * after that of a key, or if it is not there one near which it was.
     */
    bool next(uint64_t *place, Entry *entry, uint32_t *tag) const;
    uint64_t place_after(uint64_t hash) const;
    static bool is_of(uint32_t tag, uint64_t hash) { return tag == tag_of(hash); }

    /* The rest is for the one writer. */

    /* The file of the own limits as it was when the table was last what it says, if
     * `size` is that of the file.  The lock orders all but what a writer that dies has
     * stored last: that is `size`, and kUnknown before the table changes otherwise
     * than by what it has appended to the file. */
    struct File {
        static constexpr uint64_t kUnknown = UINT64_MAX;

        void begin_change() { size.exchange(kUnknown); }

        /* The table is released by the size, and acquired by whoever finds it current. */
        void end_change(uint64_t size_now, uint64_t identity_now, uint64_t changed_now_ns) {
            identity.store(identity_now, std::memory_order_relaxed);
            changed_ns.store(changed_now_ns, std::memory_order_relaxed);
            size.store(size_now, std::memory_order_release);
        }

        bool is_current(uint64_t size_now, uint64_t changed_now_ns) const {
            return size.load(std::memory_order_acquire) == size_now
                   && changed_ns.load(std::memory_order_relaxed) == changed_now_ns;
        }

        Atomic<uint64_t> size;
        Atomic<uint64_t> identity;
        Atomic<uint64_t> changed_ns; /* UNIX time */
        Atomic<uint64_t> lines;      /* with limits; of them are of no use, */
        Atomic<uint64_t> superseded; /* or nearly so many */
    };

    File file;

    /* Sets the own limit of a key, or takes it away if none is set in the entry.  Its line
     * begins below 4 GB; an end after the year 2105 is none.  False: there is no
     * room for another key. */
    bool set(uint64_t hash, const Entry &entry, uint64_t now_s);

    /* Removes all that have ended. */
    void remove_ended(uint64_t now_s);

private:
    friend class OwnLimitsLoad;

    static constexpr unsigned kPlaces = 3;

    struct alignas(64) Line {
        Atomic<uint32_t> tag[kPlaces];  /* of the key; 0: the place is free */
        Atomic<uint32_t> passed;        /* keys that went further, or more */
        Atomic<uint64_t> rule[kPlaces]; /* code of the window 32 | limit 32 */
        Atomic<uint32_t> until_s[kPlaces];
        Atomic<uint32_t> at[kPlaces];
    };

    static_assert(sizeof(Line) == 64, "a cache line");

    /* Keys that begin at one line have so many ways to go on.  There are more lines. */
    static constexpr uint64_t kSteps = 64;

    /* The lines of a key, one after the other, as bytes from the first line of all. */
    class Path {
    public:
        Path(uint64_t hash, uint64_t bytes)
            : at_(first_of(hash, bytes)), first_(at_), bytes_(bytes),
              step_((hash >> 26 & (kSteps - 1) * sizeof(Line)) + sizeof(Line)) {}

        static uint64_t first_of(uint64_t hash, uint64_t bytes) {
            return ((hash >> 32) * bytes >> 32) & ~(sizeof(Line) - 1);
        }

        uint64_t at() const { return at_; }
        uint64_t line() const { return at_ / sizeof(Line); }

        /* False: that was the last one. */
        bool next() {
            at_ -= step_;
            at_ += static_cast<uint64_t>(static_cast<int64_t>(at_) >> 63) & bytes_;
            return at_ != first_;
        }

    private:
        uint64_t at_;
        uint64_t first_;
        uint64_t bytes_;
        uint64_t step_;
    };

    /* A place of a line. */
    struct Place {
        Line *line;
        unsigned i;

        bool is_there() const { return line != nullptr; }
        bool is_taken() const;
        bool has_ended(uint64_t now_s) const;
        Entry entry() const;
        void write(uint32_t tag, const Entry &entry) const;
        void change(const Entry &entry) const;
        void clear() const { line->tag[i].store(0, std::memory_order_relaxed); }
    };

    static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash) | 1; }

    uint64_t lines_count() const { return bytes_ / sizeof(Line); }
    Line *lines() const { return reinterpret_cast<Line *>(const_cast<OwnLimits *>(this) + 1); }
    Line *line_at(uint64_t at) const {
        return reinterpret_cast<Line *>(reinterpret_cast<char *>(lines()) + at);
    }
    Line *line(const Path &path) const { return line_at(path.at()); }
    void add_count(uint64_t n) { count_.store(count() + n, std::memory_order_relaxed); }

    Place find_place(uint64_t hash) const;
    static unsigned look_at(const Line *line, uint32_t tag);
    bool read(const Place &place, uint64_t hash, uint64_t now_s, OwnLimit *own) const;
    Place insert(uint64_t hash, const Entry &entry);
    void remove(uint64_t hash, const Place &place);

    Atomic<uint64_t> count_;
    uint64_t max_;
    uint64_t bytes_; /* of all lines */
};

/*
 * Makes a table what a file says, of which the last line of a key counts, while
 * requests are served.  A key that has a limit before and after has one all the time,
 * and only the last one of its lines is ever seen, unless it is new to the table and that
 * was full.
 *
 * If readers may know the table, all lines are given to mark(), which enters new keys
 * without a limit, and remove_unmarked() makes room.  Then they are given to set(), in
 * the same order, and end() removes what was not set.
 */
class OwnLimitsLoad {
public:
    /* Returns the bytes of memory that it needs, zeroed. */
    static size_t scratch_bytes(const OwnLimits &own_limits) {
        return own_limits.lines_count() * (sizeof(uint32_t) + sizeof(uint8_t));
    }

    OwnLimitsLoad(OwnLimits &own_limits, void *scratch)
        : table_(own_limits), passed_(static_cast<uint32_t *>(scratch)),
          marks_(reinterpret_cast<uint8_t *>(passed_ + own_limits.lines_count())),
          was_empty_(own_limits.count() == 0) {}

    void mark(uint64_t hash, uint64_t at);
    void remove_unmarked();

    /* As OwnLimits::set(). */
    bool set(uint64_t hash, const OwnLimits::Entry &entry, uint64_t now_s);

    void end();

private:
    using Place = OwnLimits::Place;
    using Path = OwnLimits::Path;

    /* Bits of a line's mark, for each place. */
    static constexpr uint8_t kMarked = 1;
    static constexpr uint8_t kSet = 1 << OwnLimits::kPlaces;

    uint8_t &marks_of(const Place &place) const { return marks_[place.line - table_.lines()]; }
    void add_path(uint64_t hash, const Place &place, uint32_t n);
    template <class Keep>
    void keep_if(const Keep &keep);
    void keep_only(uint8_t mark);
    bool remove_waiting();

    OwnLimits &table_;
    uint32_t *passed_; /* what each line is to have in the end */
    uint8_t *marks_;
    bool was_empty_;
};

} // namespace limit_sliding
