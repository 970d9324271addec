/* The page that all processes of a test share: the time, and who waits for what.
 *
 * Time goes on only when every process that takes part is idle: blocked in a call that waits for a
 * file descriptor, a child, a signal or a time, with nothing to read.  The keeper (keeper.cpp) then
 * moves the time to the earliest deadline of any process.  So no timeout expires because a machine
 * is slow, and hours pass in milliseconds.
 *
 * A process publishes in its slot that it is about to block.  The kernel tells whether it has
 * blocked and not been woken since: its state in /proc is S. */
#ifndef LIMIT_SLIDING_CLOCK_PAGE_HPP
#define LIMIT_SLIDING_CLOCK_PAGE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace limit_sliding {

constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kMsNs = 1000000;
constexpr size_t kClockSlots = 512;
constexpr size_t kClocks = 16; /* the first one shows the page's time */

/* Names the page to processes that start. */
constexpr const char *kClockVariable = "LIMIT_SLIDING_CLOCK";

/* What a process does. */
enum class Doing : int32_t {
    Runs,    /* it may do anything */
    Waits,   /* it is about to block, or blocked */
    Settles, /* a test: it goes on once all servers are idle */
    Reaps,   /* it waits for a child, or already takes note of its end */
    Ends,    /* it is about to end */
};

/* How a process takes part. Clock.pm writes these numbers. */
enum class Part : int32_t {
    Server, /* all but tests */
    Test,   /* acts only when all servers are idle, and last at each time */
    Spins,  /* is never idle, so that time goes on slowly beside it */
    None,   /* runs on real time */
};

constexpr int32_t kNobody = 0;
constexpr int32_t kUnborn = -1; /* taken for a child that is about to be made */

/* Clock.pm knows the places of `pid`, `part`, `clock` and `strays`, and of the page's clocks. */
struct ClockSlot {
    std::atomic<int32_t> pid;
    std::atomic<Part> part;
    std::atomic<Doing> doing;
    std::atomic<uint32_t> turns;         /* how often it began to wait */
    std::atomic<int64_t> until_ns;       /* when its wait ends; kNever */
    std::atomic<int64_t> alarm_ns;       /* when it gets SIGALRM; kNever */
    std::atomic<int64_t> alarm_every_ns; /* and how often then; 0 for once */
    std::atomic<int64_t> clock;          /* which of the page's clocks it sees; a child's, too */
    std::atomic<int64_t> strays;         /* waits of a server for anything but events */
    int64_t unused;
};

/* A clock that some processes see: how far ahead of the page's time. */
struct Ahead {
    std::atomic<int64_t> mono_ns;
    std::atomic<int64_t> utc_ns;
};

struct ClockPage {
    std::atomic<int64_t> mono_ns; /* CLOCK_MONOTONIC */
    std::atomic<int64_t> utc_ns;  /* how far ahead of it CLOCK_REALTIME is */
    std::atomic<uint32_t> news;   /* the keeper sleeps on it */
    std::atomic<uint32_t> used;   /* slots that were ever used: the first ones */
    int64_t unused[5];
    Ahead ahead[kClocks];
    ClockSlot slots[kClockSlots];
};

static_assert(sizeof(ClockSlot) == 64 && offsetof(ClockSlot, clock) == 40
              && offsetof(ClockSlot, strays) == 48);
static_assert(offsetof(ClockPage, ahead) == 64 && offsetof(ClockPage, slots) == 320);
static_assert(std::atomic<int64_t>::is_always_lock_free);

} // namespace limit_sliding

#endif
