/* Preloaded into NGINX, Redis and all other programs of a test: they see the time of the page and
 * tell it whenever they wait.  See page.hpp.
 *
 * Only the first thread of a process takes part.  Others wait on real time. */
#include "page.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

using namespace limit_sliding;

namespace {

ClockPage *page;
ClockSlot *own; /* of this process; nullptr if it takes no part */
char directory[256];
int bell = -1;         /* a FIFO that the keeper writes to when it is this one's turn */
bool serves;           /* has made an epoll: it waits there, and nowhere else */
bool settled;          /* a test has just found something to read, and all servers were idle */
char settings[2][600]; /* NAME=VALUE of what brings a program here */

template <class F>
F *next(const char *name) {
    return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

/* A child keeps the value of its parent, whose first thread has made it. */
bool first_thread() {
    static thread_local const bool is = syscall(SYS_gettid) == getpid();
    return is;
}

bool takes_part() { return own != nullptr && own->part != Part::None && first_thread(); }

ClockSlot *take_slot(int32_t pid) {
    for (size_t i = 0; i < kClockSlots; i++) {
        int32_t nobody = kNobody;
        ClockSlot &slot = page->slots[i];
        if (slot.pid.load() != kNobody || !slot.pid.compare_exchange_strong(nobody, kUnborn)) {
            continue;
        }
        uint32_t used = page->used;
        while (used <= i && !page->used.compare_exchange_weak(used, i + 1)) {}
        slot.part = Part::Server;
        slot.doing = Doing::Runs;
        slot.strays = 0;
        slot.until_ns = slot.alarm_ns = kNever;
        slot.clock = own != nullptr ? own->clock.load() : 0;
        slot.pid = pid;
        return &slot;
    }
    fputs("clock: too many processes\n", stderr);
    abort();
}

void open_bell() {
    if (bell >= 0) { close(bell); }
    char name[300];
    snprintf(name, sizeof name, "%s/%zu", directory, static_cast<size_t>(own - page->slots));
    mkfifo(name, 0600);
    chmod(name, 0666); /* the next process in this slot may be of another user */
    const int fd = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    /* above what a test looks at, and what select() can wait for */
    bell = fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (bell < 0) {
        bell = fd;
    } else {
        close(fd);
    }
}

__attribute__((constructor)) void begin() {
    const char *file = getenv(kClockVariable);
    if (file == nullptr || strlen(file) >= sizeof directory) { return; }
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) { return; }
    void *memory = mmap(nullptr, sizeof(ClockPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) { return; }

    page = static_cast<ClockPage *>(memory);
    const char *preloaded = getenv("LD_PRELOAD");
    snprintf(settings[0], sizeof settings[0], "LD_PRELOAD=%s",
             preloaded != nullptr ? preloaded : "");
    snprintf(settings[1], sizeof settings[1], "%s=%s", kClockVariable, file);
    strcpy(directory, file);
    *strrchr(directory, '/') = '\0';
    const int32_t pid = getpid();
    for (ClockSlot &slot : page->slots) {
        if (slot.pid == pid) { own = &slot; }
    }
    if (own == nullptr) { own = take_slot(pid); }
    own->doing = Doing::Runs;
    open_bell();
}

void tell_keeper() {
    page->news++;
    syscall(SYS_futex, &page->news, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

/* The keeper need not look while anybody runs, who will wait later. */
void tell_if_last() {
    const uint32_t used = page->used;
    for (uint32_t i = 0; i < used; i++) {
        const ClockSlot &slot = page->slots[i];
        if (&slot != own && slot.pid != kNobody && slot.doing == Doing::Runs
            && slot.part != Part::None && slot.part != Part::Spins) {
            return;
        }
    }
    tell_keeper();
}

void begin_wait(Doing doing, int64_t until_ns) {
    own->until_ns = until_ns;
    own->turns++;
    own->doing = doing;
    tell_if_last();
}

void say_goodbye() {
    if (own == nullptr || own->pid != getpid()) { return; }
    own->doing = Doing::Ends;
    tell_if_last();
}

void end_wait() { own->doing = Doing::Runs; }

/* True if it rang since this was last called.  Keeps errno. */
bool hear_bell() {
    const int error = errno;
    char rings[64];
    bool rang = false;
    while (syscall(SYS_read, bell, rings, sizeof rings) > 0) {
        rang = true;
    }
    errno = error;
    return rang;
}

/* Returns once all servers are idle, if this is a test.  Keeps errno. */
void settle() {
    if (own->part != Part::Test) { return; }
    const int error = errno;
    hear_bell();
    begin_wait(Doing::Settles, page->mono_ns);
    pollfd bells[1] = {{bell, POLLIN, 0}};
    while (syscall(SYS_poll, bells, 1, -1) < 0) {}
    end_wait();
    errno = error;
}

/* Deadlines are whole milliseconds, so that times are exact ones of NGINX's clock. */
int64_t deadline(int64_t ns) {
    if (ns < 0 || ns > kNever / 2) { return kNever; }
    return (page->mono_ns + ns + kMsNs - 1) / kMsNs * kMsNs;
}
int64_t ns_of(const timespec &t) { return t.tv_sec * 1000000000LL + t.tv_nsec; }
int64_t ns_of(const timeval &t) { return t.tv_sec * 1000000000LL + t.tv_usec * 1000LL; }

/* Waits until look() finds something or the time has come, and returns what look() does then, which
 * is negative for an error.  block() really waits, for the bell as well.  A test goes on only when
 * the keeper has rung: nothing happens then before it acts. */
template <class Look, class Block>
int wait_until(int64_t until_ns, Look look, Block block) {
    bool quiet = own->part != Part::Test;
    if (!quiet) { hear_bell(); }
    for (;;) {
        const int found = look();
        if (found < 0) { return found; }
        if (found > 0 || page->mono_ns >= until_ns) {
            if (quiet) {
                settled = found > 0 && own->part == Part::Test;
                return found;
            }
            settle();
            quiet = true;
            continue;
        }
        begin_wait(Doing::Waits, until_ns);
        const int blocked = block();
        end_wait();
        if (blocked < 0) { return -1; } /* a signal */
        quiet = hear_bell() || own->part != Part::Test;
    }
}

bool is_readable(int fd) {
    pollfd fds[1] = {{fd, POLLIN, 0}};
    return syscall(SYS_poll, fds, 1, 0) != 0;
}

/* Waits until there is something to read.  False if a signal came. */
bool wait_readable(int fd) {
    if (is_readable(fd)) { return true; }
    pollfd fds[1] = {{fd, POLLIN, 0}};
    begin_wait(Doing::Waits, kNever);
    own->strays += serves;
    const bool ready = syscall(SYS_poll, fds, 1, -1) >= 0;
    end_wait();
    return ready;
}

/* True if a call may wait for this socket or pipe. */
bool blocks(int fd) {
    if (!takes_part()) { return false; }
    const int error = errno;
    struct stat is;
    const bool may = (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0 && fstat(fd, &is) == 0
                     && (S_ISSOCK(is.st_mode) || S_ISFIFO(is.st_mode));
    errno = error;
    return may;
}

/* A call that reads: it waits first, and a test goes on when all is quiet, as it is when select()
 * has just told that there is something to read. */
template <class Call>
auto reading(int fd, Call call) {
    if (!blocks(fd)) { return call(); }
    const bool was_settled = settled;
    settled = false;
    if (was_settled && is_readable(fd)) { return call(); }
    if (!wait_readable(fd)) { return static_cast<decltype(call())>(-1); }
    auto result = call();
    settle();
    return result;
}

/* A call that really blocks, and whose end nothing announces but itself. */
template <class Call>
auto blocking(Doing doing, Call call) {
    begin_wait(doing, kNever);
    own->strays += serves;
    auto result = call();
    end_wait();
    settle();
    return result;
}

int sleep_until(int64_t until_ns) {
    own->strays += serves;
    return wait_until(
        until_ns, [] { return 0; },
        [] {
            pollfd bells[1] = {{bell, POLLIN, 0}};
            return static_cast<int>(syscall(SYS_poll, bells, 1, -1));
        });
}

int64_t time_of(clockid_t id) {
    const int64_t ns = page->mono_ns;
    const Ahead &ahead = page->ahead[own != nullptr ? own->clock.load() : 0];
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? ns + page->utc_ns + ahead.utc_ns
                                                               : ns + ahead.mono_ns;
}

bool is_virtual(clockid_t id) {
    return page != nullptr && first_thread() && (own == nullptr || own->part != Part::None)
           && id != CLOCK_PROCESS_CPUTIME_ID && id != CLOCK_THREAD_CPUTIME_ID;
}

} // namespace

extern "C" {

/* ---- what time it is ---- */

int clock_gettime(clockid_t id, timespec *t) noexcept {
    if (!is_virtual(id)) { return static_cast<int>(syscall(SYS_clock_gettime, id, t)); }
    const int64_t ns = time_of(id);
    *t = {ns / 1000000000, ns % 1000000000};
    return 0;
}

int gettimeofday(timeval *t, void *) noexcept {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = {now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t) noexcept {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t != nullptr) { *t = now.tv_sec; }
    return now.tv_sec;
}

/* ---- waits for a time ---- */

int nanosleep(const timespec *t, timespec *rest) {
    if (!takes_part()) { return static_cast<int>(syscall(SYS_nanosleep, t, rest)); }
    const int64_t until_ns = deadline(ns_of(*t));
    const int result = sleep_until(until_ns);
    if (result < 0 && rest != nullptr) {
        const int64_t ns = until_ns - page->mono_ns;
        *rest = {ns / 1000000000, ns % 1000000000};
    }
    return result;
}

int clock_nanosleep(clockid_t id, int flags, const timespec *t, timespec *rest) {
    if (!takes_part()) {
        return static_cast<int>(-syscall(SYS_clock_nanosleep, id, flags, t, rest));
    }
    timespec wait = *t;
    if ((flags & TIMER_ABSTIME) != 0) {
        const int64_t ns = ns_of(*t) > time_of(id) ? ns_of(*t) - time_of(id) : 0;
        wait = {ns / 1000000000, ns % 1000000000};
    }
    return nanosleep(&wait, rest) < 0 ? errno : 0;
}

int usleep(useconds_t us) {
    const timespec t = {us / 1000000, us % 1000000 * 1000};
    return nanosleep(&t, nullptr);
}

unsigned sleep(unsigned seconds) {
    const timespec t = {seconds, 0};
    timespec rest = {0, 0};
    return nanosleep(&t, &rest) < 0 ? static_cast<unsigned>(rest.tv_sec) : 0;
}

int setitimer(__itimer_which_t which, const itimerval *value, itimerval *old) noexcept {
    if (!takes_part() || which != ITIMER_REAL) {
        return static_cast<int>(syscall(SYS_setitimer, which, value, old));
    }
    const int64_t was_ns = own->alarm_ns, now_ns = page->mono_ns;
    if (old != nullptr) {
        const int64_t left_us = was_ns == kNever ? 0 : (was_ns - now_ns + 999) / 1000;
        *old = {{}, {left_us / 1000000, left_us % 1000000}};
    }
    const int64_t in_ns = ns_of(value->it_value);
    own->alarm_every_ns = ns_of(value->it_interval);
    own->alarm_ns = in_ns == 0 ? kNever : deadline(in_ns);
    return 0;
}

unsigned alarm(unsigned seconds) noexcept {
    const itimerval value = {{0, 0}, {seconds, 0}};
    itimerval old = {};
    setitimer(ITIMER_REAL, &value, &old);
    return static_cast<unsigned>(old.it_value.tv_sec + (old.it_value.tv_usec > 0));
}

/* ---- waits for descriptors, or a time ---- */

int epoll_create(int size) noexcept {
    serves = true;
    return static_cast<int>(syscall(SYS_epoll_create, size));
}

int epoll_create1(int flags) noexcept {
    serves = true;
    return static_cast<int>(syscall(SYS_epoll_create1, flags));
}

int epoll_pwait(int ep, epoll_event *events, int n, int ms, const sigset_t *mask) {
    auto call = [=](int timeout) {
        return static_cast<int>(syscall(SYS_epoll_pwait, ep, events, n, timeout, mask, 8));
    };
    if (!takes_part() || (ms == 0 && own->part != Part::Test)) { return call(ms); }
    return wait_until(
        deadline(ms < 0 ? -1 : ms * kMsNs), [&] { return call(0); },
        [&] {
            pollfd fds[2] = {{ep, POLLIN, 0}, {bell, POLLIN, 0}};
            return static_cast<int>(syscall(SYS_ppoll, fds, 2, nullptr, mask, 8));
        });
}

int epoll_wait(int ep, epoll_event *events, int n, int ms) {
    return epoll_pwait(ep, events, n, ms, nullptr);
}

int ppoll(pollfd *fds, nfds_t n, const timespec *t, const sigset_t *mask) {
    constexpr nfds_t kMost = 4096;
    timespec zero = {0, 0};
    if (!takes_part() || n >= kMost
        || (t != nullptr && ns_of(*t) == 0 && own->part != Part::Test)) {
        timespec copy = t != nullptr ? *t : zero;
        return static_cast<int>(
            syscall(SYS_ppoll, fds, n, t != nullptr ? &copy : nullptr, mask, 8));
    }
    auto look = [&] {
        timespec none = {0, 0};
        return static_cast<int>(syscall(SYS_ppoll, fds, n, &none, mask, 8));
    };
    return wait_until(deadline(t == nullptr ? -1 : ns_of(*t)), look, [&] {
        pollfd all[kMost];
        memcpy(all, fds, n * sizeof *fds);
        all[n] = {bell, POLLIN, 0};
        return static_cast<int>(syscall(SYS_ppoll, all, n + 1, nullptr, mask, 8));
    });
}

int poll(pollfd *fds, nfds_t n, int ms) {
    const timespec t = {ms / 1000, ms % 1000 * kMsNs};
    return ppoll(fds, n, ms < 0 ? nullptr : &t, nullptr);
}

int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const timespec *t, const sigset_t *mask) {
    const struct {
        const sigset_t *mask;
        size_t bytes;
    } with = {mask, 8};
    auto call = [&](int count, fd_set *const *sets, timespec *timeout) {
        return static_cast<int>(
            syscall(SYS_pselect6, count, sets[0], sets[1], sets[2], timeout, &with));
    };
    fd_set *const given[3] = {r, w, e};
    if (!takes_part() || (t != nullptr && ns_of(*t) == 0 && own->part != Part::Test)) {
        timespec copy = t != nullptr ? *t : timespec{0, 0};
        return call(n, given, t != nullptr ? &copy : nullptr);
    }

    fd_set asked[3];
    for (int i = 0; i < 3; i++) {
        FD_ZERO(&asked[i]);
        if (given[i] != nullptr) { asked[i] = *given[i]; }
    }
    auto look = [&] {
        for (int i = 0; i < 3; i++) {
            if (given[i] != nullptr) { *given[i] = asked[i]; }
        }
        timespec none = {0, 0};
        return call(n, given, &none);
    };
    return wait_until(deadline(t == nullptr ? -1 : ns_of(*t)), look, [&] {
        fd_set copies[3] = {asked[0], asked[1], asked[2]};
        fd_set *const sets[3] = {&copies[0], &copies[1], &copies[2]};
        FD_SET(bell, sets[0]);
        return call(n > bell ? n : bell + 1, sets, nullptr);
    });
}

int select(int n, fd_set *r, fd_set *w, fd_set *e, timeval *t) {
    timespec wait = {0, 0};
    if (t != nullptr) { wait = {t->tv_sec, t->tv_usec * 1000}; }
    return pselect(n, r, w, e, t != nullptr ? &wait : nullptr, nullptr);
}

/* ---- calls that block by themselves ---- */

ssize_t read(int fd, void *buffer, size_t n) {
    return reading(fd, [=] { return static_cast<ssize_t>(syscall(SYS_read, fd, buffer, n)); });
}

ssize_t recvfrom(int fd, void *buffer, size_t n, int flags, sockaddr *from, socklen_t *length) {
    auto call = [=] {
        return static_cast<ssize_t>(syscall(SYS_recvfrom, fd, buffer, n, flags, from, length));
    };
    return (flags & MSG_DONTWAIT) != 0 ? call() : reading(fd, call);
}

ssize_t recv(int fd, void *buffer, size_t n, int flags) {
    return recvfrom(fd, buffer, n, flags, nullptr, nullptr);
}

int accept4(int fd, sockaddr *address, socklen_t *length, int flags) {
    return reading(
        fd, [=] { return static_cast<int>(syscall(SYS_accept4, fd, address, length, flags)); });
}

int accept(int fd, sockaddr *address, socklen_t *length) { return accept4(fd, address, length, 0); }

/* A test that hangs up goes on once the server has noticed: its next request comes after that. */
int close(int fd) {
    const int error = errno;
    char byte;
    errno = 0;
    const bool hangs_up
        = takes_part() && own->part == Part::Test
          && (syscall(SYS_recvfrom, fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, nullptr, nullptr) > 0
              || errno == EAGAIN);
    errno = error;
    const int result = static_cast<int>(syscall(SYS_close, fd));
    if (hangs_up) { settle(); }
    return result;
}

/* Without it, the kernel may keep a small segment for 40 ms, while nobody has anything to do. */
int socket(int domain, int type, int protocol) noexcept {
    const int fd = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
    if (page != nullptr && fd >= 0 && (domain == AF_INET || domain == AF_INET6)
        && (type & 0xf) == SOCK_STREAM) {
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return fd;
}

pid_t wait4(pid_t pid, int *status, int options, rusage *usage) {
    auto call = [=] { return static_cast<pid_t>(syscall(SYS_wait4, pid, status, options, usage)); };
    if (!takes_part()) { return call(); }
    if ((options & WNOHANG) == 0) { return blocking(Doing::Reaps, call); }

    /* The kernel shows it as asleep while it looks for children, as in a handler of SIGCHLD. */
    const Doing doing = own->doing;
    own->doing = Doing::Runs;
    own->turns++;
    const pid_t result = call();
    own->doing = doing;
    return result;
}

pid_t waitpid(pid_t pid, int *status, int options) { return wait4(pid, status, options, nullptr); }

pid_t wait(int *status) { return wait4(-1, status, 0, nullptr); }

int sigsuspend(const sigset_t *mask) {
    auto call = [=] { return static_cast<int>(syscall(SYS_rt_sigsuspend, mask, 8)); };
    return takes_part() ? blocking(Doing::Waits, call) : call();
}

/* Returns once the process has stopped. */
int kill(pid_t pid, int signal) noexcept {
    const int result = static_cast<int>(syscall(SYS_kill, pid, signal));
    if (signal != SIGSTOP || result < 0 || pid <= 0 || !takes_part()) { return result; }
    char name[40], text[512];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    for (int i = 0; i < 100000; i++) {
        const int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) { break; }
        const ssize_t n = syscall(SYS_read, fd, text, sizeof text - 1);
        close(fd);
        text[n > 0 ? n : 0] = '\0';
        const char *end = strrchr(text, ')');
        if (end == nullptr || strchr("TtZX", end[2]) != nullptr) { break; }
        const timespec moment = {0, 50000};
        syscall(SYS_nanosleep, &moment, nullptr);
    }
    return result;
}

/* ---- children ---- */

pid_t fork() noexcept {
    static auto *const call = next<decltype(fork)>("fork");
    if (own == nullptr) { return call(); }
    ClockSlot *const slot = take_slot(kUnborn);
    const pid_t pid = call();
    if (pid < 0) {
        slot->pid = kNobody;
    } else if (pid > 0) {
        int32_t unborn = kUnborn;
        slot->pid.compare_exchange_strong(unborn, pid);
    } else {
        const Part part = own->part;
        own = slot;
        if (part == Part::None) { own->part = part; }
        own->pid = getpid();
        open_bell();
    }
    return pid;
}

pid_t vfork() noexcept { return fork(); }

void _exit(int status) {
    say_goodbye();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

/* NGINX starts its new binary with variables of its own choice: adds ours. */
int execve(const char *path, char *const *arguments, char *const *variables) noexcept {
    static auto *const call = next<decltype(execve)>("execve");
    if (own == nullptr || own->part == Part::None || variables == nullptr) {
        return call(path, arguments, variables);
    }
    size_t n = 0;
    while (variables[n] != nullptr) {
        n++;
    }
    auto **const all = static_cast<char **>(calloc(n + 3, sizeof(char *)));
    memcpy(all, variables, n * sizeof(char *));
    for (char *ours : settings) {
        const size_t name = strcspn(ours, "=") + 1;
        size_t i = 0;
        while (all[i] != nullptr && strncmp(all[i], ours, name) != 0) {
            i++;
        }
        if (all[i] == nullptr) { all[i] = ours; }
    }
    const int result = call(path, arguments, all);
    free(all);
    return result;
}

/* exit() ends without a call of _exit(). */
__attribute__((destructor)) void end() { say_goodbye(); }

} /* extern "C" */
