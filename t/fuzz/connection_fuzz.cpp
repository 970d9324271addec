/* Copyright (C) the limit_sliding authors */

/* Connections in all their states: the simulation of t/sim, in which servers say what the
 * fuzzer wants in place of some of their replies, to whatever they were asked, in pieces
 * and at any time; and pages of a zone's limits, which seeds do not ask for.  What holds for
 * its seeds must hold: each waiter is answered once and in time, nothing is left, and Redis
 * decides again once it tells the truth. */

#include <string>

#include "../sim/scenario.hpp"
#include "../sim/server.hpp"
#include "../sim/site.hpp"
#include "../sim/world.hpp"
#include "input.hpp"
#include "ngx/event.hpp"
#include "ngx/strings.hpp"
#include "redis/lists/pages.hpp"

namespace {

constexpr size_t kNumbersMax = 40;

/* An array of numbers, as scripts reply. */
std::string numbers(fuzz::Input &input) {
    const size_t n = input.below(kNumbersMax);
    std::string bytes = "*" + std::to_string(n) + "\r\n";
    for (size_t i = 0; i < n; i++) {
        bytes += ":" + std::to_string(static_cast<int64_t>(input.number())) + "\r\n";
    }

    return bytes;
}

/* Puts another number in the place of one of an array. */
void change_number(fuzz::Input &input, std::string &bytes) {
    const size_t at = bytes.find(':', input.below(256));
    const size_t end = at != std::string::npos ? bytes.find("\r\n", at) : at;
    if (end == std::string::npos) { return; }

    bytes.replace(at + 1, end - at - 1, std::to_string(static_cast<int64_t>(input.number())));
}

/* A reply to SCAN, with names of limits. */
std::string names(fuzz::Input &input) {
    const std::string cursor = std::to_string(input.number());
    const size_t n = input.below(8);
    std::string bytes = "*2\r\n$" + std::to_string(cursor.size()) + "\r\n" + cursor + "\r\n*"
                        + std::to_string(n) + "\r\n";
    for (size_t i = 0; i < n; i++) {
        const std::string name = "p:z:{" + std::string(input.take(input.below(12))) + "}:limit";
        bytes += "$" + std::to_string(name.size()) + "\r\n" + name + "\r\n";
    }

    return bytes;
}

/* A page of the limits of a zone, as the API asks for one. */
struct Page {
    limit_sliding::ScanPage *page;
    ngx_event_t done;
    bool is_answered;
};

class Liar {
public:
    explicit Liar(fuzz::Input &input) : input_(input) {}

    void enter(sim::Site &site, uint64_t length_us) {
        for (Page &page : pages_) {
            const uint64_t at_us = length_us * input_.below(16) / 16;
            const uint64_t patience_us = input_.below(8) * length_us / 8;
            sim::Worker *worker = site.workers[input_.below(site.workers.size())].get();
            sim::after(at_us, [this, worker, &page, patience_us] {
                begin(worker->zone, page);
                sim::after(patience_us, [this, &page] { leave(page); });
            });
        }
    }

    /* Once there is no more input, servers tell the truth. */
    void tamper(std::string &bytes) {
        switch (input_.byte() >> 4) {
        case 9:
            bytes = names(input_);
            break;
        case 10:
            bytes = input_.text();
            break;
        case 11:
            bytes += input_.text();
            break;
        case 12:
            bytes.resize(std::min<size_t>(bytes.size(), input_.below(256)));
            break;
        case 13:
            bytes = numbers(input_);
            break;
        case 14:
            change_number(input_, bytes);
            break;
        case 15:
            bytes.insert(std::min<size_t>(bytes.size(), input_.below(256)), input_.text());
            break;
        default:
            break;
        }
    }

    void check() {
        for (Page &page : pages_) {
            CHECK(page.page == nullptr || page.is_answered);
            leave(page);
        }
    }

private:
    void begin(limit_sliding::RemoteZone &zone, Page &page) {
        const limit_sliding::ScanPosition from
            = {input_.flag() ? input_.number() : 0, input_.number()};
        limit_sliding::init_event<&Liar::answered>(page.done, page);
        page.page = limit_sliding::scan_overrides(zone, from, 1 + input_.below(20), &page.done);
    }

    static void answered(Page &page) {
        using limit_sliding::ScanResult;
        CHECK(!page.is_answered && page.page != nullptr);
        CHECK(page.page->result != ScanResult::kWaits);
        page.is_answered = true;
        for (const limit_sliding::ScannedOverride &own : page.page->overrides) {
            CHECK(limit_sliding::view(own.key).size() == own.key.len);
            checked_ += std::string(limit_sliding::view(own.key)).size();
            checked_ += std::string(limit_sliding::view(own.text)).size();
        }
    }

    static void leave(Page &page) {
        if (page.page == nullptr) { return; }

        limit_sliding::leave_scan(page.page);
        page.page = nullptr;
    }

    fuzz::Input &input_;
    Page pages_[2] = {};
    static inline size_t checked_; /* bytes, which were read */
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const uint64_t seed = 1 + input.below(65536);
    Liar liar(input);
    sim::Guest guest = {[&](sim::Site &site, uint64_t length_us) { liar.enter(site, length_us); },
                        [&](std::string &bytes) { liar.tamper(bytes); }, [&] { liar.check(); }};
    sim::guest = &guest;
    const sim::Outcome outcome = sim::run_seed(seed);
    sim::guest = nullptr;
    CHECK(!outcome.is_broken);
    return 0;
}
