/* Copyright (C) the limit_sliding authors */

/*
 * Plays scenes with relacy: processes are its threads, each word of shared memory is one
 * of its atomics, and a load returns any value that C++ allows, out of the last three.
 * What relacy does not play: a load that returns what is stored only later, and a
 * compare-and-swap that fails though the word is as expected.
 */

#include "checker.hpp"

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

/* relacy.hpp has macros of common words besides */
#include <relacy/atomic.hpp>
#include <relacy/context.hpp>
#include <relacy/context_base_impl.hpp>
#include <relacy/stdlib/condition_variable.hpp>
#include <relacy/stdlib/event.hpp>
#include <relacy/stdlib/mutex.hpp>
#include <relacy/stdlib/semaphore.hpp>
#include <relacy/test_suite.hpp>
#include <relacy/var.hpp>

#include "accesses.hpp"
#include "orders.hpp"

namespace weak {

namespace {

using Shadow = rl::generic_atomic<uint64_t, true>;

constexpr size_t kWords = kMemoryBytes / sizeof(uint32_t);
constexpr unsigned kDepthMax = 50000;

/* The first executions only find out which words are accessed. */
constexpr uint64_t kScouts = 2000;

alignas(4096) unsigned char memory[kMemoryBytes];
unsigned char built[kMemoryBytes];

/* The words of 32 bits or of 64, by where they begin.  There is no allocation while a
 * scene is played: relacy would count it. */
enum class Word : uint8_t { kUnknown, kMissed, kKnown };

Word words[kWords];
uint8_t word_bytes[kWords];
alignas(Shadow) unsigned char shadows[kWords][sizeof(Shadow)];
size_t known[kWords];
size_t known_count;

Shadow &shadow_of(size_t word) { return *reinterpret_cast<Shadow *>(shadows[word]); }

const Scene *scene;
bool is_playing;

/* How the first process dies. */
struct Death {
    jmp_buf at;
    bool is_near;
    unsigned left; /* accesses */
};

constexpr unsigned kDeathMax = 128;
Death death;

bool is_ending;
const char *failure;

/* True while an execution is told. */
bool is_loud;

rl::memory_order order_of(std::memory_order order) {
    switch (order) {
    case std::memory_order_relaxed:
        return rl::mo_relaxed;
    case std::memory_order_consume:
    case std::memory_order_acquire:
        return rl::mo_acquire;
    case std::memory_order_release:
        return rl::mo_release;
    case std::memory_order_acq_rel:
        return rl::mo_acq_rel;
    default:
        return rl::mo_seq_cst;
    }
}

uint64_t play_as(Shadow &shadow, const Access &access, const Operands &operands) {
    const rl::debug_info info(scene->name, access.file, static_cast<unsigned>(access.line));
    const rl::memory_order order = order_of(access.order);

    switch (access.kind) {
    case Kind::kLoad:
        return shadow.load(order, info);
    case Kind::kStore:
        shadow.store(operands.operand, order, info);
        return operands.operand;
    case Kind::kExchange:
        return shadow.exchange(operands.operand, order, info);
    case Kind::kAdd:
        return shadow.fetch_add(operands.operand, order, info);
    case Kind::kSwap:
        break;
    }

    uint64_t expected = operands.expected;

    shadow.compare_exchange(rl::bool_t<false>(), expected, operands.operand, order,
                            order_of(access.failure), info);
    return expected;
}

uint64_t play_shadow(Shadow &shadow, Access access, const Operands &operands) {
    Count &count = count_of(access);

    count.times++;

    access = as_played(count, access);
    const uint64_t seen = play_as(shadow, access, operands);

    if (is_loud) {
        fprintf(stderr, "%u  %s:%d  %s %s  word %5td: %llx", rl::thread_index(), access.file,
                access.line, name_of(access.kind), name_of(access.order),
                static_cast<unsigned char *>(operands.word) - memory,
                static_cast<unsigned long long>(seen));

        if (access.kind == Kind::kSwap) {
            fprintf(stderr, ", %llx to %llx", static_cast<unsigned long long>(operands.expected),
                    static_cast<unsigned long long>(operands.operand));
        }

        fputc('\n', stderr);
    }

    return seen;
}

/* ---- executions ---- */

void begin_execution() {
    std::memcpy(memory, built, kMemoryBytes);

    for (size_t i = 0; i < known_count; i++) {
        const size_t word = known[i];
        auto *shadow = ::new (shadows[word]) Shadow;

        shadow->store(plain_load(memory + word * sizeof(uint32_t), word_bytes[word]),
                      rl::mo_relaxed, rl::debug_info("build", "", 0));
    }

    std::memset(&outcome, 0, sizeof(outcome));
    death.is_near = false;
    is_playing = true;
}

void run_process(unsigned process) {
    for (Operation operation : scene->processes[process]) {
        if (operation != nullptr) { operation(); }
    }
}

void live(unsigned process) {
    if (process != 0 || !scene->is_mortal) {
        run_process(process);
        return;
    }

    if (setjmp(death.at) == 0) {
        death.left = rl::rand(kDeathMax);
        death.is_near = true;
        run_process(process);
    } else {
        outcome.has_died = true;
    }

    death.is_near = false;
}

void end_execution() {
    scene->end();

    if (scene->accepts != nullptr) {
        check(scene->accepts(outcome), "this must not be");
    } else {
        check(is_explained(), "no order of the operations explains it");
    }

    is_playing = false;

    for (size_t i = 0; i < known_count; i++) {
        shadow_of(known[i]).~Shadow();
    }
}

template <rl::thread_id_t n>
struct Suite : rl::test_suite<Suite<n>, n> {
    void before() {
        is_ending = false;
        begin_execution();
    }

    void thread(unsigned process) { live(process); }

    void after() {
        is_ending = true;
        end_execution();
    }
};

/* Draws as relacy's own scheduler, but lets a process go on for a while in some executions,
 * so that others stand still for long. */
template <rl::thread_id_t n>
class Scheduler : public rl::scheduler<Scheduler<n>, rl::scheduler_thread_info, n> {
public:
    using Base = rl::scheduler<Scheduler<n>, rl::scheduler_thread_info, n>;

    struct task_t {};

    Scheduler(rl::test_params &params, typename Base::shared_context_t &context,
              rl::thread_id_t dynamic)
        : Base(params, context, dynamic) {}

    rl::thread_id_t iteration_begin_impl() {
        static const unsigned patience[] = {1, 4, 16, 64, 2048};
        static const unsigned age[] = {2, 3, 8, 2};

        random_.seed(this->iter_);
        patience_ = patience[this->iter_ % 5];
        age_ = age[this->iter_ / 5 % 4];
        return any();
    }

    bool iteration_end_impl() { return this->iter_ >= this->params_.iteration_count; }

    rl::thread_id_t schedule_impl(rl::unpark_reason &reason, unsigned) {
        reason = rl::unpark_reason_normal;
        const bool goes_on = patience_ > 1 && this->thread_ != nullptr
                             && this->thread_->state_ == rl::thread_state_running
                             && random_.rand() % patience_ != 0;

        return goes_on ? this->thread_->index_ : any();
    }

    /* 0 means the newest value that a load may return. */
    unsigned rand_impl(unsigned limit, rl::sched_type type) {
        if (type != rl::sched_type_atomic_load) { return random_.rand() % limit; }

        return random_.rand() % age_ == 0 ? 1 : 0;
    }

    rl::iteration_t iteration_count_impl() { return this->params_.iteration_count; }
    void get_state_impl(std::ostream &) {}
    void set_state_impl(std::istream &) {}
    void on_thread_block(rl::thread_id_t, bool) {}

private:
    rl::thread_id_t any() {
        return this->running_threads[random_.rand() % this->running_threads_count];
    }

    rl::random_generator random_;
    unsigned patience_;
    unsigned age_;
};

/* Plays executions from `first` on; returns the number of the one that fails, or 0. */
template <rl::thread_id_t n>
uint64_t run(uint64_t first, uint64_t last) {
    std::ostringstream none, state;
    rl::test_params params;

    params.iteration_count = last;
    params.execution_depth_limit = kDepthMax;
    params.output_stream = &none;
    params.progress_stream = &none;
    params.initial_state = std::to_string(first) + " ";
    failure = "it does not end";

    const auto result = rl::run_test<Suite<n>, Scheduler<n>>(params, state, false);

    is_playing = is_ending = false;
    return result == rl::test_result_success ? 0 : params.stop_iteration;
}

uint64_t run_any(uint64_t first, uint64_t last) {
    return processes_of(*scene) == 2 ? run<2>(first, last) : run<3>(first, last);
}

/* Makes the words that were missed known; returns false if there were none. */
bool learn() {
    const size_t before = known_count;

    for (size_t word = 0; word < kWords; word++) {
        if (words[word] == Word::kMissed) {
            words[word] = Word::kKnown;
            known[known_count++] = word;
        }
    }

    return known_count != before;
}

} // namespace

uint64_t access(const Access &access, const Operands &operands) {
    const auto at = static_cast<size_t>(static_cast<unsigned char *>(operands.word) - memory);

    if (!is_playing || at >= kMemoryBytes) { return play_plain(access.kind, operands); }

    const size_t word = at / sizeof(uint32_t);

    if (words[word] != Word::kKnown) {
        words[word] = Word::kMissed;
        word_bytes[word] = static_cast<uint8_t>(operands.bytes);
        return play_plain(access.kind, operands);
    }

    if (death.is_near && !is_ending && rl::thread_index() == 0 && death.left-- == 0) {
        longjmp(death.at, 1);
    }

    return play_shadow(shadow_of(word), access, operands);
}

void check(bool is_true, const char *what) {
    if (is_true) { return; }

    failure = what;
    rl::ctx().fail_test(what, rl::test_result_user_assert_failed,
                        rl::debug_info(scene->name, "check", 0));
}

void note(uint64_t what) {
    const unsigned process = !is_playing ? ordered_process
                             : is_ending ? kProcesses
                                         : rl::thread_index();
    unsigned &count = outcome.counts[process];

    if (count < kNotes) { outcome.notes[process][count++] = what; }
}

Result play(const Scene &played, unsigned percent, bool tells) {
    scene = &played;
    known_count = 0;
    std::memset(words, 0, sizeof(words));
    std::memset(memory, 0, kMemoryBytes);
    scene->build(memory);
    std::memcpy(built, memory, kMemoryBytes);

    if (scene->accepts == nullptr) { play_orders(*scene, memory, built); }

    const uint64_t last = uint64_t{scene->thousands} * 10 * percent;

    /* what the scouts find wrong is found again */
    run_any(1, std::min(kScouts, last));
    learn();

    uint64_t failed;

    do {
        failed = run_any(1, last);
    } while (learn());

    if (failed == 0) { return {true, last}; }

    if (tells) {
        is_loud = true;
        run_any(failed, failed);
        is_loud = false;
    }

    fprintf(stderr, "        %s: %s\n", scene->name, failure);
    print_notes();
    return {false, failed};
}

} // namespace weak
