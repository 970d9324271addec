/* Copyright (C) the limit_sliding authors */

/* The facts about a key beside its history: overrides here, limits that Redis or a variable sent
 * (override_cache.hpp), bans (bans.hpp), debts (debts.hpp), and ranks among the most rejected keys
 * (offenders.hpp).  Each is a table in shared memory, found by the hash of a key. */

#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/atomics.hpp"
#include "core/policy/override.hpp"

namespace limit_sliding {

/*
 * The table of overrides in shared memory, 24 bytes a key in tables of 1,024 keys or more.
 *
 * A line is a cache line with places for three keys.  The hash of a key selects its first line and
 * a step to the next one; the number of lines is a prime, so this path visits all lines.  A key is
 * stored in the first line of its path with a free place, and never moves.  Each line counts the
 * keys that passed it because it was full, so a search ends at a line that no key has passed.  In a
 * full table, a search reads 2.4 lines for an absent key and 1.5 lines for a present one on
 * average.
 *
 * A bitmap behind the lines has a bit for each group of 64 lines, a page of memory.  The bit is set
 * before the group is first written.  Walks skip the other groups, so that unused pages take no
 * memory.
 *
 * Two keys are confused if they share 31 bits of their hash and a line: 3 of 10^9 searches for
 * absent keys in a full table.
 *
 * Readers take no lock.  Callers ensure that there is one writer at a time.  The writer may die
 * between any two stores: the tag of a key is stored last and removed first.
 *
 * Reads of writers are relaxed, because the writers' lock orders them.  Other relaxed accesses: the
 * count of passed keys, which is raised before the release of the tag; the place in the file, which
 * is compared only under the lock or with the line at that place; the removal of a tag, which the
 * following stores release; and the bitmap, because a walk may miss a key that is added meanwhile.
 */
class Overrides {
public:
    static size_t bytes_for(size_t keys);

    /* Makes a table in zeroed memory of bytes_for(keys) bytes, aligned to 64. */
    void init(size_t keys);

    /* Returns the number of keys, including expired ones until their places are needed.  Readers
     * call find() only if it is not 0.  Relaxed: a key that is not counted yet may as well be
     * absent. */
    uint64_t count() const { return count_.load(std::memory_order_relaxed); }

    /* Returns the number of keys that fit. */
    uint64_t max() const { return max_; }

    /* All data of a key. */
    struct Entry {
        Override own;
        uint64_t until_s; /* end in s since 1970, or kNoEnd */
        uint64_t at;      /* offset of the key's line in the file, in bytes */
    };

    /* Finds the override of a key by Zone::hash().  Returns false, and leaves `own` alone, if
     * there is none or if it has expired. now_s() is called only for keys that are found. */
    template <class Now>
    bool find(uint64_t hash, const Now &now_s, Override *own) const {
        const Place place = find_place(hash);
        Entry entry;
        if (__builtin_expect(!place.is_there(), true) || !read(place, hash, &entry)
            || entry.until_s <= static_cast<uint64_t>(now_s())) {
            return false;
        }

        *own = entry.own;
        return true;
    }

    /* Finds the whole entry of a key, even if it has expired. */
    bool find(uint64_t hash, Entry *entry) const;

    /* Walk over all keys.  The first place is 0.  next() finds the next key and moves *place
     * behind it.  It returns false at the end, or after *lines_left lines, and decrements
     * *lines_left.  is_of() compares *tag with the hash of a key.  place_after() returns the place
     * behind a key, or a place nearby if the key is absent. */
    bool next(uint64_t *place, uint64_t *lines_left, Entry *entry, uint32_t *tag) const;
    uint64_t place_after(uint64_t hash) const;
    static bool is_of(uint32_t tag, uint64_t hash) { return tag == tag_of(hash); }

    /* The following functions are for the one writer. */

    /* The state of the file when the table was last in step with it.  If `size` and `changed_ns`
     * equal the file's, the table is up to date.  The writers' lock orders all fields but `size`,
     * which a writer that may die stores last.  `size` is kUnknown while the table differs from
     * the file by more than appended lines. */
    struct File {
        static constexpr uint64_t kUnknown = UINT64_MAX;

        void begin_change() { size.exchange(kUnknown); }

        /* The store to `size` releases the table; a reader that finds it current acquires the
         * table. */
        void end_change(uint64_t size_now, uint64_t identity_now, uint64_t changed_now_ns) {
            identity.store(identity_now, std::memory_order_relaxed);
            changed_ns.store(changed_now_ns, std::memory_order_relaxed);
            size.store(size_now, std::memory_order_release);
        }

        bool is_current(uint64_t size_now, uint64_t changed_now_ns) const {
            return size.load(std::memory_order_acquire) == size_now
                   && changed_ns.load(std::memory_order_relaxed) == changed_now_ns;
        }

        Atomic<uint64_t> size; /* bytes, or kUnknown */
        Atomic<uint64_t> identity;
        Atomic<uint64_t> changed_ns; /* ns since 1970 */
        Atomic<uint64_t> lines;      /* lines with limits in the file */
        Atomic<uint64_t> superseded; /* estimated number of lines that later lines replace */
    };

    File file;

    /* Sets the override of a key, or removes the key if the entry has none.  `entry.at` is below 4
     * GB; an end from 2^32 - 1 s on is stored as none.  Returns false if the table is full. */
    bool set(uint64_t hash, const Entry &entry, uint64_t now_s);

    void remove_ended(uint64_t now_s);

private:
    friend class OverridesLoad;

    static constexpr unsigned kPlaces = 3;
    static constexpr uint64_t kGroup = 64; /* lines in a group */

    struct alignas(64) Line {
        Atomic<uint32_t> tag[kPlaces];  /* tag of the key; 0: free place */
        Atomic<uint32_t> passed;        /* number of keys that passed the full line, or more */
        Atomic<uint64_t> rule[kPlaces]; /* Override::code() */
        Atomic<uint32_t> until_s[kPlaces];
        Atomic<uint32_t> at[kPlaces];
    };

    static_assert(sizeof(Line) == 64, "a cache line");

    /* The number of different steps.  A table has more lines than that. */
    static constexpr uint64_t kSteps = 64;

    /* The lines of a key in the order of a search, as offsets in bytes from the first line. */
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

        /* Returns false once all lines were visited. */
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

    /* Returns the word with a group's bit. */
    Atomic<uint64_t> &word_of(uint64_t group) const {
        return reinterpret_cast<Atomic<uint64_t> *>(line_at(bytes_))[group / 64];
    }
    static uint64_t bit_of(uint64_t group) { return uint64_t(1) << group % 64; }

    /* Returns the first line >= n in a group that was written; the number of lines if there is
     * none. */
    uint64_t touched_from(uint64_t n) const;
    Line *lines() const { return reinterpret_cast<Line *>(const_cast<Overrides *>(this) + 1); }
    Line *line_at(uint64_t at) const {
        return reinterpret_cast<Line *>(reinterpret_cast<char *>(lines()) + at);
    }
    Line *line(const Path &path) const { return line_at(path.at()); }
    void add_count(uint64_t n) { count_.store(count() + n, std::memory_order_relaxed); }

    Place find_place(uint64_t hash) const;
    static unsigned look_at(const Line *line, uint32_t tag);

    /* Reads a place of the key.  Returns false if the place has another key by now. */
    static bool read(const Place &place, uint64_t hash, Entry *entry);
    Place insert(uint64_t hash, const Entry &entry);

    /* Removes the keys for which keep(place) is false, and counts the remaining ones. */
    template <class Keep>
    void keep_if(const Keep &keep);
    void remove(uint64_t hash, const Place &place);

    Atomic<uint64_t> count_;
    uint64_t max_;
    uint64_t bytes_; /* size of all lines */
};

/*
 * Brings the table in step with a file while requests are served.  The last line of a key counts.
 * A key that has a limit before and afterwards has a limit all the time.  Readers see only its
 * last line, unless the table was full when the key was added.
 *
 * If readers know the table already, the caller first gives all lines to mark(), which adds new
 * keys without a limit, and calls remove_unmarked() to make room.  Then it gives all lines to
 * set() in the same order.  end() removes the keys that were not set.
 */
class OverridesLoad {
public:
    /* Returns the bytes of scratch memory, which must be zeroed.  Pages for unused parts of the
     * table are not touched. */
    static size_t scratch_bytes(const Overrides &overrides) {
        return overrides.lines_count() * (sizeof(uint32_t) + sizeof(uint8_t));
    }

    OverridesLoad(Overrides &overrides, void *scratch)
        : table_(overrides), passed_(static_cast<uint32_t *>(scratch)),
          marks_(reinterpret_cast<uint8_t *>(passed_ + overrides.lines_count())) {}

    void mark(uint64_t hash, uint64_t at);
    void remove_unmarked();

    /* Works like Overrides::set(). */
    bool set(uint64_t hash, const Overrides::Entry &entry, uint64_t now_s);

    void end();

private:
    using Place = Overrides::Place;
    using Path = Overrides::Path;

    /* Bits in the marks of a line, for its first place. */
    static constexpr uint8_t kMarked = 1;
    static constexpr uint8_t kSet = 1 << Overrides::kPlaces;

    uint8_t &marks_of(const Place &place) const { return marks_[place.line - table_.lines()]; }
    void keep_only(uint8_t mark);
    bool remove_waiting();

    Overrides &table_;
    uint32_t *passed_; /* final value of Line::passed for each line */
    uint8_t *marks_;
};

} // namespace limit_sliding
