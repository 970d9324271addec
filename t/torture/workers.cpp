/* Copyright (C) the limit_sliding authors */

#include "workers.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random.hpp"
#include "report.hpp"

namespace torture {

namespace {

/* Time of the zone when a round begins: no core starts at 0. */
constexpr uint64_t kEpochMs = 1000000;

/* A call takes microseconds: one that used so much never ends. */
constexpr double kHungCpuS = 2;

/* Nor does one that waits so long, for there is nothing to wait for. */
constexpr double kHungS = 60;

constexpr int kOurNice = -10;

/* Of rejections one in so many is noted; there are too many of them. */
constexpr uint64_t kRejectionsANote = 16;

/* Calls of a worker between two changes of its clock, on the average. */
constexpr uint64_t kCallsAClock = 1024;

void *share(size_t bytes) {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }

    return memory;
}

void nap_us(uint64_t us) {
    timespec pause = {static_cast<time_t>(us / 1000000), static_cast<long>(us % 1000000 * 1000)};

    nanosleep(&pause, nullptr);
}

/* User and system time, by /proc/PID/stat. */
double cpu_s(pid_t pid) {
    char line[1024];
    unsigned long user = 0;
    unsigned long system = 0;
    FILE *file = fopen(text("/proc/%d/stat", pid).c_str(), "r");

    if (file == nullptr) { return 0; }

    if (fgets(line, sizeof(line), file) != nullptr && strrchr(line, ')') != nullptr) {
        sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
               &user, &system);
    }

    fclose(file);

    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

} // namespace

Workers::Workers(const Setting &setting)
    : setting_(setting), base_ms_(clock_ns() / 1000000), random_(setting.seed), zone_(nullptr),
      desks_(static_cast<Desk *>(share(setting.processes * sizeof(Desk)))),
      is_over_(static_cast<std::atomic<bool> *>(share(sizeof(*is_over_)))),
      processes_(setting.processes) {
    uint8_t secret[kSecretBytes];
    void *memory = share(setting.zone_bytes);

    for (uint8_t &byte : secret) {
        byte = static_cast<uint8_t>(random_next(&random_));
    }

    zone_ = Zone::init(memory, setting.zone_bytes, setting_.policy, 0, secret);

    if (zone_ == nullptr) { abort(); }
}

Workers::~Workers() {
    munmap(zone_, setting_.zone_bytes);
    munmap(desks_, setting_.processes * sizeof(Desk));
    munmap(is_over_, sizeof(*is_over_));
}

uint64_t Workers::now_ms() const { return kEpochMs + clock_ns() / 1000000 - base_ms_; }

Claim Workers::claim(uint64_t key, uint32_t cost) const {
    Claim claim = {};

    claim.zone = zone_;
    claim.policy = &setting_.policy;
    claim.hash = zone_->hash({(const char *)&key, sizeof(key)});
    claim.limit = setting_.limit;
    claim.cost = cost;

    return claim;
}

uint64_t Workers::calls() const {
    uint64_t sum = 0;

    for (unsigned i = 0; i < setting_.processes; i++) {
        sum += desks_[i].calls.load();
    }

    return sum;
}

/* ---- in a worker ---- */

void Workers::write_down(Desk *desk, uint64_t before_ms, const Claim &claim, bool is_admitted) {
    uint64_t notes = desk->notes.load(std::memory_order_relaxed);

    if (notes < kNotes) {
        desk->note[notes]
            = {static_cast<uint32_t>(before_ms), static_cast<uint32_t>(now_ms() + setting_.skew_ms),
               static_cast<uint32_t>(desk->key.load()), static_cast<uint16_t>(claim.cost),
               is_admitted};
        desk->notes.store(notes + 1, std::memory_order_release);
    } else if (desk->full_ms.load() == 0) {
        desk->full_ms.store(before_ms);
    }
}

/* Returns how much later than the earliest clock a worker's is. */
uint64_t Workers::draw_skew(uint64_t random) const {
    return (random >> 32) % (2 * setting_.skew_ms + 1);
}

void Workers::decide(Desk *desk, uint64_t random, uint64_t skew_ms) {
    bool is_other = setting_.other_keys > 0 && random % 4 == 0;
    uint64_t key = is_other ? setting_.keys + (random >> 8) % setting_.other_keys
                            : (random >> 8) % setting_.keys;
    auto cost = static_cast<uint32_t>((random >> 40) % setting_.cost_max);
    Claim c = claim(key, 1 + cost);
    uint64_t notes = desk->notes.load(std::memory_order_relaxed);
    uint64_t before_ms = now_ms() - setting_.skew_ms;

    desk->key.store(key, std::memory_order_relaxed);
    desk->cost.store(c.cost, std::memory_order_relaxed);
    desk->before_ms.store(before_ms, std::memory_order_relaxed);
    desk->doing.store(notes + 1, std::memory_order_release);

    limit_sliding::acquire(&c, 1, before_ms + skew_ms);

    bool is_admitted = c.outcome == Outcome::kAdmitted;

    if (!is_other && (is_admitted || (random >> 48) % kRejectionsANote == 0)) {
        write_down(desk, before_ms, c, is_admitted);
    }

    desk->doing.store(0, std::memory_order_release);
    desk->calls.fetch_add(1, std::memory_order_relaxed);
}

void Workers::work(unsigned i) {
    uint64_t random = setting_.seed * 1000003 + born_ * 65537 + i;
    uint64_t skew_ms = draw_skew(random_next(&random));

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpriority(PRIO_PROCESS, 0, 0);

    while (!is_over_->load(std::memory_order_relaxed)) {
        /* a clock is set now and then */
        if (random_next(&random) % kCallsAClock == 0) { skew_ms = draw_skew(random_next(&random)); }

        decide(&desks_[i], random_next(&random), skew_ms);
    }

    _exit(0);
}

/* ---- in their parent ---- */

void Workers::start(unsigned i) {
    born_++;
    processes_[i].pid = fork();

    if (processes_[i].pid == 0) { work(i); }

    if (processes_[i].pid < 0) {
        perror("fork");
        exit(2);
    }
}

/* Those whose time has come. */
void Workers::go_on(uint64_t until_ns) {
    for (Process &p : processes_) {
        if (p.stopped_until_ns != 0 && p.stopped_until_ns <= until_ns) {
            kill(p.pid, SIGCONT);
            p.stopped_until_ns = 0;
        }
    }
}

void Workers::stop_some() {
    unsigned n = setting_.is_even
                     ? setting_.stopped
                     : 1 + static_cast<unsigned>(random_below(&random_, setting_.stopped));

    while (n-- > 0) {
        size_t any = random_below(&random_, processes_.size());
        Process &p = processes_[setting_.is_even ? n : any];
        uint64_t us
            = setting_.is_even ? setting_.stop_us : random_scale(&random_, 50, setting_.stop_us);

        if (!p.is_dying) {
            kill(p.pid, SIGSTOP);
            p.stopped_until_ns = clock_ns() + us * 1000;
            stops_++;
        }
    }
}

/* What the dead process was about may have been recorded, or not. */
void Workers::note_loss(unsigned i) {
    Desk &desk = desks_[i];
    uint64_t doing = desk.doing.load();

    if (doing == 0 || desk.notes.load() != doing - 1) { return; }

    losses_.push_back(
        {desk.before_ms.load(), now_ms() + setting_.skew_ms, desk.key.load(), desk.cost.load()});
}

void Workers::kill_one() {
    auto i = static_cast<unsigned>(random_below(&random_, processes_.size()));

    if (!processes_[i].is_dying) {
        kill(processes_[i].pid, SIGKILL);
        processes_[i].stopped_until_ns = 0;
        processes_[i].is_dying = true;
        kills_++;
    }
}

/* Others take the desks of the dead. */
void Workers::replace_dead() {
    for (unsigned i = 0; i < processes_.size(); i++) {
        Process &p = processes_[i];

        if (p.is_dying && waitpid(p.pid, nullptr, WNOHANG) == p.pid) {
            p.is_dying = false;
            note_loss(i);
            start(i);
        }
    }
}

/* Kills and stops until the round's time is over. */
void Workers::bother() {
    uint64_t now_ns = clock_ns();
    uint64_t ends_ns = now_ns + static_cast<uint64_t>(setting_.seconds * 1000000000);
    uint64_t kill_ns = now_ns;
    uint64_t stop_ns = now_ns;

    for (; now_ns < ends_ns; now_ns = clock_ns()) {
        go_on(now_ns);
        replace_dead();

        if (setting_.kill_every_us > 0 && now_ns >= kill_ns) {
            kill_one();
            kill_ns = clock_ns() + random_below(&random_, 2000 * setting_.kill_every_us);
        }

        if (setting_.stop_every_us > 0 && now_ns >= stop_ns) {
            stop_some();
            stop_ns = clock_ns() + random_below(&random_, 2000 * setting_.stop_every_us);
        }

        nap_us(100);
    }
}

std::string Workers::run() {
    /* where that is allowed: else there is little time for bothering them */
    setpriority(PRIO_PROCESS, 0, kOurNice);

    for (unsigned i = 0; i < setting_.processes; i++) {
        start(i);
    }

    bother();

    return end();
}

std::string Workers::stack_of(const Process &process, unsigned i) {
    std::string found
        = text("process %u hangs in a request of key %llu since %llu ms", i,
               static_cast<unsigned long long>(desks_[i].key.load()),
               static_cast<unsigned long long>(now_ms() - desks_[i].before_ms.load()));
    std::string command = text("gdb -p %d -batch -ex bt 2>/dev/null | grep '^#'", process.pid);
    char line[512];
    FILE *gdb = popen(command.c_str(), "r");

    while (gdb != nullptr && fgets(line, sizeof(line), gdb) != nullptr) {
        found += text("\n      %.160s", line);
        found.resize(found.find_last_not_of('\n') + 1);
    }

    if (gdb != nullptr) { pclose(gdb); }

    return found;
}

void Workers::kill_all() {
    for (unsigned i = 0; i < processes_.size(); i++) {
        if (processes_[i].pid != 0) {
            kill(processes_[i].pid, SIGKILL);
            waitpid(processes_[i].pid, nullptr, 0);
            note_loss(i);
            processes_[i].pid = 0;
        }
    }
}

/* Lets all end by themselves; one that does not, in no time, hangs. */
std::string Workers::end() {
    uint64_t begun_ns = clock_ns();
    std::vector<double> before_s;

    go_on(UINT64_MAX);
    is_over_->store(true);

    for (const Process &p : processes_) {
        before_s.push_back(cpu_s(p.pid));
    }

    for (size_t left = processes_.size(); left > 0; nap_us(1000)) {
        double waited_s = static_cast<double>(clock_ns() - begun_ns) / 1e9;

        for (unsigned i = 0; i < processes_.size(); i++) {
            Process &p = processes_[i];

            if (p.pid == 0) { continue; }

            if (waitpid(p.pid, nullptr, WNOHANG) == p.pid) {
                if (p.is_dying) { note_loss(i); }

                p.pid = 0;
                left--;
            } else if (cpu_s(p.pid) - before_s[i] > kHungCpuS || waited_s > kHungS) {
                std::string hung = stack_of(p, i);

                kill_all();

                return hung;
            }
        }
    }

    return "";
}

} // namespace torture
