/* Copyright (C) the limit_sliding authors */

/* Units that wait to be told, in a small table, beside a list of them: whatever workers
 * do in whatever order, none is lost, and only the reply to the last report counts. */

#include <algorithm>
#include <cstring>
#include <map>

#include "input.hpp"
#include "redis/shared/outbox.hpp"

using namespace limit_sliding;

namespace {

constexpr size_t kKeys = 10;
constexpr size_t kBytes = sizeof(Outbox) + 2 * 256;
constexpr uint64_t kIntervalMs = 100;

class History {
public:
    explicit History(fuzz::Input &input) : input_(input) {
        memset(memory_, 0, sizeof(memory_));
        outbox_ = Outbox::init(memory_, sizeof(memory_));
        CHECK(outbox_ != nullptr);
    }

    void step() {
        key_ = input_.below(kKeys);
        /* a refund may be evicted, which is not told */
        if (units_[key_] < 0 && outbox_->units(hash()) == 0) { units_[key_] = 0; }

        now_ms_ += input_.flag() ? input_.below(300) : input_.number() % 1000000;
        switch (input_.below(6)) {
        case 0:
        case 1:
            add();
            break;
        case 2:
            take();
            break;
        case 3:
            done();
            break;
        case 4:
            look();
            break;
        default:
            subtract();
        }

        CHECK(outbox_->units(hash()) == units_[key_]);
    }

private:
    static uint64_t hash_of(uint64_t key) { return key * 0x9e3779b97f4a7c15; }

    uint64_t hash() const { return hash_of(key_); }

    void check_due(uint64_t due_ms) const {
        CHECK(due_ms >= now_ms_ && due_ms <= now_ms_ + Outbox::kWaitMaxMs);
    }

    /* Finds the key that has lost these units. */
    void note_evicted(uint64_t evicted) {
        if (evicted == 0) { return; }

        const auto lost = std::find_if(units_.begin(), units_.end(), [=](const auto &key) {
            return key.second == static_cast<int64_t>(evicted)
                   && outbox_->units(hash_of(key.first)) == 0;
        });
        CHECK(lost != units_.end());
        lost->second = 0;
    }

    void add() {
        const auto most = static_cast<int64_t>(input_.number() % UINT32_MAX);
        const int64_t units = input_.flag() ? 1 + most : -1 - most;
        uint64_t due_ms = 0, evicted = 0;
        const auto added = outbox_->add(hash(), units, now_ms_, kIntervalMs, &due_ms, &evicted);
        note_evicted(evicted);
        if (added != Outbox::Added::kFull) { units_[key_] += units; }

        if (added == Outbox::Added::kSend) { check_due(due_ms); }
    }

    void take() {
        Outbox::Report report = {};
        uint64_t due_ms = 0;
        const auto took = outbox_->take(hash(), now_ms_, input_.below(200000), input_.flag(),
                                        1 + key_, &report, &due_ms);
        if (took == Outbox::Took::kLater) { CHECK(due_ms > now_ms_); }

        if (took == Outbox::Took::kTaken) {
            CHECK(report.units == units_[key_] && report.life == 1 + key_);
            reports_[key_] = report;
        }
    }

    void done() {
        const auto found = reports_.find(key_);
        if (found == reports_.end()) { return; }

        const Outbox::Report report = found->second;
        Outbox::Rest rest = {};
        const int64_t told = input_.flag() ? report.units : 0;
        if (outbox_->acknowledge(hash(), report, report.acked + told)) {
            CHECK(told == 0 || !outbox_->acknowledge(hash(), report, report.acked));
            rest.settled = told;
        }

        rest.look = input_.flag();
        rest.due_ms = now_ms_ + kIntervalMs;
        rest.wait_ms = input_.below(1000);
        rest.look_ms = now_ms_ + input_.below(1000);

        uint64_t due_ms = 0;
        const int64_t before = outbox_->units(hash());
        const auto added = outbox_->done(hash(), now_ms_, report, rest, &due_ms);
        units_[key_] = outbox_->units(hash());
        CHECK(units_[key_] == before - rest.settled || units_[key_] == 0);
        if (added == Outbox::Added::kSend) { check_due(due_ms); }

        CHECK(added != Outbox::Added::kDone || units_[key_] == 0);
        reports_.erase(found);
    }

    void look() {
        uint64_t due_ms = 0, evicted = 0;
        if (outbox_->look(hash(), now_ms_, kIntervalMs, &due_ms, &evicted)
            == Outbox::Added::kSend) {
            check_due(due_ms);
        }

        note_evicted(evicted);

        const Outbox::Seen seen = {static_cast<int64_t>(input_.number()),
                                   0,
                                   input_.number(),
                                   now_ms_,
                                   input_.number(),
                                   input_.number()};
        outbox_->set_seen(hash(), seen);
        const Outbox::Seen known = outbox_->seen(hash(), now_ms_);
        CHECK(known.at_ms <= now_ms_ && known.reserved <= seen.reserved);
    }

    void subtract() {
        const uint64_t wanted = input_.number();
        const uint64_t subtracted = outbox_->subtract(hash(), wanted);
        CHECK(subtracted == std::min<uint64_t>(wanted, std::max<int64_t>(units_[key_], 0)));
        units_[key_] -= static_cast<int64_t>(subtracted);
    }

    fuzz::Input &input_;
    Outbox *outbox_;
    uint64_t now_ms_ = 1000000;
    uint64_t key_ = 0;
    std::map<uint64_t, int64_t> units_;          /* that wait, of each key */
    std::map<uint64_t, Outbox::Report> reports_; /* under way */
    alignas(64) uint8_t memory_[kBytes];
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    History history(input);
    for (unsigned i = 0; i < 1000 && !input.empty(); i++) {
        history.step();
    }

    return 0;
}
