/* Runs a test on virtual time: keeper LIBRARY COMMAND...
 *
 * The keeper makes the page (page.hpp), starts the command with the library preloaded, and moves
 * the time whenever everybody is idle.  It ends as the command does, and nothing outlives it.
 *
 * Order at each time: first the servers that are due, all at once; then, when all servers are idle
 * again, the tests.  CLOCK_TRACE=1 prints each step to stderr. */
#include "page.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace limit_sliding;

namespace {

/* A Wednesday, in the middle of a month, an hour and a minute: no window is about to end. */
constexpr int64_t kBeginUtcS = 1773224430; /* 2026-03-11 10:20:30 */
constexpr int64_t kBeginMonoNs = 100000 * 1000000000LL;

/* Real times. */
constexpr int64_t kSpinNs = 5 * kMsNs; /* each step beside a process that spins */
constexpr int64_t kDeathNs = 2 * kMsNs;
constexpr int64_t kFirstPauseNs = 20000, kLastPauseNs = kMsNs;
constexpr int64_t kStallNs = 60 * 1000000000LL; /* nobody runs, nor can go on */

ClockPage *page;
std::string directory;
bool trace;

/* Files of a process or a thread in /proc. */
struct Task {
    int stat = -1;
    int call = -1;
};

/* What the keeper has opened for a slot. */
struct Opened {
    int32_t pid = kNobody;
    Task first;
    int bell = -1;
    std::vector<Task> threads; /* but the first */
    uint32_t threads_turn = 0; /* since when all of them have had no work */
    int64_t unborn_since_ns = 0;
    int64_t zombie_since_ns = 0;
} opened[kClockSlots];

int64_t real_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void pause_ns(int64_t ns) {
    const timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, nullptr);
}

Task open_task(const std::string &in) {
    return {open((in + "/stat").c_str(), O_RDONLY | O_CLOEXEC),
            open((in + "/syscall").c_str(), O_RDONLY | O_CLOEXEC)};
}

void close_task(const Task &task) {
    if (task.stat >= 0) { close(task.stat); }
    if (task.call >= 0) { close(task.call); }
}

void forget_threads(Opened &o) {
    for (const Task &thread : o.threads) {
        close_task(thread);
    }
    o.threads.clear();
}

void forget(Opened &o) {
    forget_threads(o);
    close_task(o.first);
    if (o.bell >= 0) { close(o.bell); }
    o = Opened();
}

/* What /proc/PID/stat says. */
struct Stat {
    char state = 'X'; /* also of a process that is gone */
    size_t threads = 1;
};

Stat read_stat(int fd) {
    Stat stat;
    char text[512];
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) { return stat; }
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    if (at == nullptr || at[1] == '\0') { return stat; }
    stat.state = at[2];
    for (int field = 2; field < 20 && at != nullptr; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at != nullptr) { stat.threads = strtoul(at, nullptr, 10); }
    return stat;
}

Stat stat_of(size_t i, int32_t pid) {
    Opened &o = opened[i];
    if (o.pid != pid) {
        forget(o);
        o.pid = pid;
        o.first = open_task("/proc/" + std::to_string(pid));
    }
    return read_stat(o.first.stat);
}

/* Returns the call in which a process or a thread sleeps; -1 if it runs, or is gone.  Neither file
 * tells enough.  The state is S while wait4() takes note of a child's end.  The call stays for a
 * moment when somebody has woken the task already, and the state is R by then. */
long sleeps_in(const Task &task) {
    char text[24];
    const ssize_t n = task.call < 0 ? -1 : pread(task.call, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *end;
    const long call = strtol(text, &end, 10);
    return end != text && read_stat(task.stat).state == 'S' ? call : -1;
}

/* True if all threads but the first wait: a pool of threads may write a file, and nothing else
 * tells that.  A thread without work waits in futex() until the first one has some; others wait for
 * events, or for a lock of a file, which another process may have.  One that sleeps goes on by
 * itself, as its time is real. */
bool threads_wait(size_t i, int32_t pid, size_t threads) {
    Opened &o = opened[i];
    const uint32_t turn = page->slots[i].turns;
    if (o.threads.size() + 1 != threads) {
        forget_threads(o);
        const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
        DIR *directory = opendir(tasks.c_str());
        while (const dirent *entry = directory != nullptr ? readdir(directory) : nullptr) {
            if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == pid) { continue; }
            o.threads.push_back(open_task(tasks + entry->d_name));
        }
        if (directory != nullptr) { closedir(directory); }
    } else if (o.threads_turn == turn) {
        return true;
    }
    bool have_work = false;
    for (const Task &thread : o.threads) {
        const long call = sleeps_in(thread);
        if (call < 0 || call == SYS_nanosleep || call == SYS_clock_nanosleep) {
            forget_threads(o); /* it may be gone */
            return false;
        }
        have_work |= call != SYS_futex;
    }
    if (!have_work) { o.threads_turn = turn; }
    return true;
}

/* True if the process sleeps in a call that only its peer or child can end.  libc itself makes
 * some, which the library does not see: stdio that writes to a full pipe, or wait3() of a shell. */
bool sleeps_in_call(size_t i) {
    const long call = sleeps_in(opened[i].first);
    return call == SYS_read || call == SYS_write || call == SYS_writev || call == SYS_wait4;
}

void ring(size_t i) {
    Opened &o = opened[i];
    if (o.bell < 0) {
        o.bell = open((directory + "/" + std::to_string(i)).c_str(),
                      O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    if (o.bell >= 0 && write(o.bell, "!", 1) < 0) {}
}

void show() {
    fprintf(stderr, "clock: nobody goes on at %.3f s:\n", (page->mono_ns - kBeginMonoNs) / 1e9);
    for (size_t i = 0; i < page->used; i++) {
        const ClockSlot &slot = page->slots[i];
        const int32_t pid = slot.pid;
        if (pid <= 0) { continue; }
        char name[60], words[200] = "", call[100] = "";
        snprintf(name, sizeof name, "/proc/%d/cmdline", pid);
        int fd = open(name, O_RDONLY);
        ssize_t n = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
        for (ssize_t k = 0; k < n; k++) {
            if (words[k] == '\0') { words[k] = ' '; }
        }
        close(fd);
        snprintf(name, sizeof name, "/proc/%d/syscall", pid);
        fd = open(name, O_RDONLY);
        n = fd < 0 ? 0 : read(fd, call, 40);
        call[n > 0 ? strcspn(call, "\n") : 0] = '\0';
        close(fd);
        const char *const doings[] = {"runs", "waits", "settles", "reaps", "ends"};
        const int64_t until_ns = slot.until_ns;
        fprintf(stderr, "clock: %7d part %d %s %c until %.3f, call %s: %s\n", pid,
                static_cast<int>(slot.part.load()), doings[static_cast<int>(slot.doing.load())],
                stat_of(i, pid).state, until_ns == kNever ? -1 : (until_ns - kBeginMonoNs) / 1e9,
                call, words);
    }
}

/* What a look at all processes finds. */
struct Found {
    bool servers_idle = true;
    bool tests_idle = true;
    bool moves = false; /* somebody is on a processor, or comes, or goes */
    bool spins = false;
    int64_t next_ns = kNever; /* the earliest deadline, if all are idle */
};

/* True if the kernel still holds packets of the loopback: on a busy machine it hands them over in a
 * thread of its own, and until then those who will get them sleep. */
bool packets_wait() {
    static const int fd = open("/proc/net/softnet_stat", O_RDONLY | O_CLOEXEC);
    char text[65536];
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) { return false; }
    text[n] = '\0';
    const char *line = text;
    while (line != nullptr && *line != '\0') {
        unsigned held = 0; /* by this processor */
        sscanf(line, "%*x %*x %*x %*x %*x %*x %*x %*x %*x %*x %*x %x", &held);
        if (held > 0) { return true; }
        line = strchr(line, '\n');
        if (line != nullptr) { line++; }
    }
    return false;
}

bool is_idle(Doing doing) { return doing == Doing::Waits || doing == Doing::Settles; }

/* A child that is to be born soon; its slot is given back if its parent was killed meanwhile. */
bool is_coming(size_t i) {
    Opened &o = opened[i];
    if (o.unborn_since_ns == 0) { o.unborn_since_ns = real_ns(); }
    if (real_ns() - o.unborn_since_ns < 2000 * kMsNs) { return true; }
    int32_t unborn = kUnborn;
    page->slots[i].pid.compare_exchange_strong(unborn, kNobody);
    return false;
}

/* True if the parent of a zombie may not have got SIGCHLD: that comes a moment after the end of the
 * last thread.  A parent that has waited for it is at work, and the zombie gone. */
bool dies(Opened &o, size_t threads) {
    if (o.zombie_since_ns == 0 || threads > 1) { o.zombie_since_ns = real_ns(); }
    return real_ns() - o.zombie_since_ns < kDeathNs;
}

/* Looks at one process. */
void look_at(size_t i, int32_t pid, Doing doing, Found &found) {
    ClockSlot &slot = page->slots[i];
    const Part part = slot.part;
    const auto [state, threads] = stat_of(i, pid);
    if (state == 'Z' && dies(opened[i], threads)) {
        found.servers_idle = false;
        found.moves = true;
        return;
    }
    if (state == 'X' || state == 'Z') {
        int32_t gone = pid;
        forget(opened[i]);
        slot.pid.compare_exchange_strong(gone, kNobody);
        found.servers_idle = false; /* its parent may have been asleep before it got SIGCHLD */
        found.moves = true;
        return;
    }
    if (state == 'T' || state == 't') { return; }
    if (part == Part::Spins) {
        found.spins |= state == 'R';
        return;
    }

    /* a thread that has just done its work has woken the first one by then */
    const bool sleeps
        = state == 'S'
          && (threads == 1 || (threads_wait(i, pid, threads) && stat_of(i, pid).state == 'S'));
    if (!sleeps) { found.moves = true; }
    if (!sleeps || (!is_idle(doing) && !sleeps_in_call(i))) {
        (part == Part::Test ? found.tests_idle : found.servers_idle) = false;
        return;
    }
    if (doing == Doing::Waits && slot.until_ns < found.next_ns) { found.next_ns = slot.until_ns; }
    if (slot.alarm_ns < found.next_ns) { found.next_ns = slot.alarm_ns; }
}

/* Whoever waits has finished all by which it may wake others.  So nobody does anything if all were
 * about to wait when this began, all sleep now, and nobody has begun another wait meanwhile. */
Found look() {
    struct Seen {
        int32_t pid;
        Doing doing;
        uint32_t turns;
    };
    static Seen seen[kClockSlots];
    Found found;
    const size_t used = page->used;
    for (size_t i = 0; i < used; i++) {
        const ClockSlot &slot = page->slots[i];
        seen[i] = {slot.pid, slot.doing, slot.turns};
        if (seen[i].pid != kUnborn) {
            opened[i].unborn_since_ns = 0;
        } else if (is_coming(i)) {
            found.servers_idle = false;
            found.moves = true;
        }
    }
    const auto counts
        = [&](size_t i) { return seen[i].pid > 0 && page->slots[i].part != Part::None; };

    /* first those that may end the search */
    for (const bool idle : {false, true}) {
        if (idle && found.servers_idle && packets_wait()) {
            found.servers_idle = false;
            found.moves = true;
        }
        for (size_t i = 0; i < used && found.servers_idle; i++) {
            if (counts(i) && is_idle(seen[i].doing) == idle) {
                look_at(i, seen[i].pid, seen[i].doing, found);
            }
        }
    }
    for (size_t i = 0; i < page->used && found.servers_idle; i++) {
        /* one that looked idle may have had a child first, in a slot that was free */
        const ClockSlot &slot = page->slots[i];
        if (i >= used || slot.pid != seen[i].pid
            || (counts(i) && (slot.turns != seen[i].turns || slot.doing != seen[i].doing))) {
            found.servers_idle = false;
        }
    }
    return found;
}

/* Rings for those of this part that are due.  True if there are any. */
bool wake(Part part) {
    bool any = false;
    const int64_t now_ns = page->mono_ns;
    for (size_t i = 0; i < page->used; i++) {
        ClockSlot &slot = page->slots[i];
        const int32_t pid = slot.pid;
        const bool is_due
            = slot.alarm_ns <= now_ns || (is_idle(slot.doing) && slot.until_ns <= now_ns);
        if (pid <= 0 || slot.part != part || !is_due || stat_of(i, pid).state != 'S') { continue; }
        if (trace) { fprintf(stderr, "clock: wakes %d\n", pid); }
        any = true;
        if (slot.alarm_ns <= now_ns) {
            slot.alarm_ns = slot.alarm_every_ns > 0 ? now_ns + slot.alarm_every_ns : kNever;
            kill(pid, SIGALRM);
        }
        if (is_idle(slot.doing) && slot.until_ns <= now_ns) { ring(i); }
    }
    return any;
}

/* Does the next step, if everybody is idle.  True if somebody moves, or was woken. */
bool step() {
    const Found found = look();
    if (!found.servers_idle) { return found.moves; }
    if (wake(Part::Server) || wake(Part::Test)) { return true; }
    if (!found.tests_idle || found.next_ns == kNever) { return found.moves || found.spins; }
    if (found.spins) {
        pause_ns(kSpinNs);
        const Found later = look();
        if (!later.servers_idle || !later.tests_idle || later.next_ns != found.next_ns) {
            return true;
        }
    }
    if (trace) { fprintf(stderr, "clock: %.3f s\n", (found.next_ns - kBeginMonoNs) / 1e9); }
    page->mono_ns = found.next_ns;
    return wake(Part::Server) || wake(Part::Test);
}

pid_t child;
void pass_on(int signal) { kill(child, signal); }

/* Keeps the time until the command ends.  Returns its status.  Who begins to wait wakes the keeper;
 * nothing but a look tells of a death, a stop, or that a thread waits. */
int keep() {
    int64_t moved_ns = real_ns(), pause = kFirstPauseNs;
    bool shown = false;
    for (;;) {
        const uint32_t news = page->news;
        int status;
        if (waitpid(child, &status, WNOHANG) == child) { return status; }
        if (step()) {
            moved_ns = real_ns();
            shown = false;
        } else if (real_ns() - moved_ns > kStallNs) {
            if (!shown) { show(); }
            kill(child, shown ? SIGKILL : SIGTERM);
            shown = true;
            moved_ns = real_ns();
        }
        const timespec t = {0, pause};
        const bool told = syscall(SYS_futex, &page->news, FUTEX_WAIT, news, &t, nullptr, 0) == 0
                          || errno == EAGAIN;
        pause = told ? kFirstPauseNs : pause < kLastPauseNs ? pause * 2 : pause;
    }
}

/* Ends what the test has left behind, as it does when it is killed. */
void end_others() {
    for (size_t i = 0; i < page->used; i++) {
        const int32_t pid = page->slots[i].pid;
        if (pid <= 0 || opened[i].pid != pid) { continue; }
        const char state = stat_of(i, pid).state;
        if (state != 'X' && state != 'Z') { kill(pid, SIGKILL); }
    }
}

void remove_directory() {
    for (size_t i = 0; i < kClockSlots; i++) {
        unlink((directory + "/" + std::to_string(i)).c_str());
    }
    unlink((directory + "/page").c_str());
    rmdir(directory.c_str());
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 3) {
        fputs("usage: keeper LIBRARY COMMAND...\n", stderr);
        return 2;
    }
    trace = getenv("CLOCK_TRACE") != nullptr;
    prctl(PR_SET_TIMERSLACK, 1);

    const char *tmp = getenv("TMPDIR");
    directory = std::string(tmp != nullptr ? tmp : "/tmp") + "/limit-sliding-clock-XXXXXX";
    if (mkdtemp(directory.data()) == nullptr) {
        perror(directory.c_str());
        return 2;
    }
    const std::string file = directory + "/page";
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* a server may run as another user */
    chmod(directory.c_str(), 0777);
    chmod(file.c_str(), 0666);
    void *memory
        = fd < 0 || ftruncate(fd, sizeof(ClockPage)) < 0
              ? MAP_FAILED
              : mmap(nullptr, sizeof(ClockPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror(file.c_str());
        return 2;
    }
    page = new (memory) ClockPage();
    page->mono_ns = kBeginMonoNs;
    page->utc_ns = kBeginUtcS * 1000000000LL - kBeginMonoNs;

    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        prctl(PR_SET_TIMERSLACK, 0);
        setenv(kClockVariable, file.c_str(), 1);
        const char *also = getenv("LD_PRELOAD");
        setenv("LD_PRELOAD",
               also != nullptr ? (std::string(argv[1]) + " " + also).c_str() : argv[1], 1);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    for (int signal : {SIGHUP, SIGINT, SIGTERM}) {
        ::signal(signal, pass_on);
    }

    const int status = keep();
    end_others();
    remove_directory();
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
