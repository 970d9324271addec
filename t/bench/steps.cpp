// Copyright (C) the limit_sliding authors

// A clock for an NGINX that is measured, which preloads this: it goes on by two
// milliseconds whenever NGINX has events, and as far as it wanted to wait when there
// are none.  So requests that come one after the other find the same times, however
// fast the machine is.

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>

namespace {

constexpr long kStepMs = 2;

long now_ms = 1'700'000'000'000;

} // namespace

extern "C" int epoll_wait(int epoll, epoll_event *events, int size, int timeout) {
    static const auto wait
        = reinterpret_cast<decltype(&epoll_wait)>(dlsym(RTLD_NEXT, "epoll_wait"));

    const int n = wait(epoll, events, size, timeout);
    if (n > 0) {
        now_ms += kStepMs;
    } else if (n == 0) {
        now_ms += timeout;
    }
    return n;
}

extern "C" int clock_gettime(clockid_t, timespec *time) noexcept {
    *time = {now_ms / 1000, now_ms % 1000 * 1'000'000};
    return 0;
}

extern "C" int gettimeofday(timeval *time, void *) noexcept {
    *time = {now_ms / 1000, now_ms % 1000 * 1000};
    return 0;
}
