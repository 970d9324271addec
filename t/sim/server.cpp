/* Copyright (C) the limit_sliding authors */

#include "server.hpp"

#include <algorithm>
#include <cstdlib>

#include "lua_scripts.hpp"
#include "redis/protocol/key_slot.hpp"
#include "scenario.hpp"
#include "site.hpp"
#include "world.hpp"

namespace sim {

Guest *tampering;
ScriptWatch *script_watch;

namespace {

/* The errors that are no verdicts, and some that Redis does not know. */
const char *const kErrors[] = {
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS Not enough good replicas to write.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "ERR max number of clients reached",
    "NOSCRIPT No matching script. Please use EVAL.",
    "MOVED 1 10.0.0.1:7001",
    "ASK 1 10.0.0.1:7001",
    "MOVED 70000 nowhere",
    "ERR",
    "",
};

const char *const kNonsense[] = {
    "$1000000000\r\n",
    "*1000000000\r\n",
    "*-5\r\n",
    "$-5\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ":\r\n",
    "*3\r\n:1\r\n$3\r\nabc\r\n$-1\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\r\n",
    "*0\r\n",
    "*2\r\n:9223372036854775807\r\n:-9223372036854775808\r\n",
    "+OK\r\n",
    "$0\r\n\r\n",
    "*5\r\n:1\r\n:1\r\n:-9223372036854775808\r\n:1\r\n:1\r\n",
    ":1e9\r\n",
};

template <size_t N>
const char *one_of(const char *const (&all)[N]) {
    return all[below(N)];
}

/* Damages a reply: other bytes, fewer or more of them, or something else. */
void damage(std::string &bytes) {
    switch (below(5)) {
    case 0:
        bytes = one_of(kNonsense);
        break;
    case 1:
        bytes[below(bytes.size())] = static_cast<char>(below(256));
        break;
    case 2:
        bytes.erase(below(bytes.size()), between(1, 4));
        break;
    case 3:
        bytes.insert(below(bytes.size()), one_of(kNonsense));
        break;
    default:
        /* a digit, so that it may still be a reply */
        for (size_t i = below(bytes.size()); i < bytes.size(); i++) {
            if (bytes[i] >= '0' && bytes[i] <= '9') {
                bytes[i] = static_cast<char>('0' + below(10));
                break;
            }
        }
    }
}

} // namespace

void Server::step_clock(int64_t us) {
    trace("server %u: clock steps by %.3f ms", number_, static_cast<double>(us) / 1000);
    clock_us_ += us;
}

int64_t Server::clock_us() const { return clock_us_ + static_cast<int64_t>(now_us()); }

void Server::suffer(Fault fault, uint64_t us) {
    static const char *const names[] = {"none",   "refused", "frozen",  "unreachable", "slow",
                                        "errors", "closes",  "garbage", "extra",       "flushes"};
    heal();
    fault_ = fault;
    count((std::string("fault ") + names[static_cast<int>(fault)]).c_str());
    trace("server %u: %s", number_, names[static_cast<int>(fault)]);
    if (fault == Fault::kRefused) { restart(true); }

    /* connections at rest are told something, too */
    for (auto &weak : links_) {
        const LinkPtr link = weak.lock();
        if (fault == Fault::kExtra && link != nullptr && !link->server_closed
            && link->established) {
            send_to_client(link, one_of(kNonsense), 0);
        }
    }

    after(us, [this, number = ++fault_number_] {
        if (number == fault_number_) { heal(); }
    });
}

void Server::heal() {
    if (fault_ != Fault::kNone) { trace("server %u: heals", number_); }

    fault_ = Fault::kNone;
    auto held = std::move(held_);
    held_.clear();
    for (auto &what : held) {
        what();
    }
}

void Server::restart(bool keeps_keys) {
    trace("server %u: restarts%s", number_, keeps_keys ? "" : " without its keys");
    scripts_.clear();
    run_ += 256;
    if (!keeps_keys) {
        store.clear();
        losses_++;
    }

    for (auto &weak : links_) {
        if (LinkPtr link = weak.lock()) { close_by_server(link, chance(500)); }
    }
    links_.clear();
}

void Server::connect(const LinkPtr &link, uint64_t delay_us, std::function<void()> decided) {
    add_link(link);
    after(delay_us, [this, decided] {
        if (is_unreachable()) {
            held_.push_back(decided);
        } else {
            decided();
        }
    });
}

void Server::receive(const LinkPtr &link, const std::string &bytes) {
    if (holds()) {
        held_.push_back([this, link, bytes] { receive(link, bytes); });
        return;
    }

    link->received += bytes;
    run_commands(link);
}

bool Server::next_command(const LinkPtr &link, Arguments *args) {
    const std::string &in = link->received;
    size_t at = 0;
    auto number = [&](char type, size_t *n) {
        const size_t end = in.find("\r\n", at);
        if (end == std::string::npos) { return false; }

        if (in[at] != type) { broken("the client sends what is no command"); }

        *n = strtoull(in.c_str() + at + 1, nullptr, 10);
        at = end + 2;
        return true;
    };

    size_t n;
    if (!number('*', &n)) { return false; }

    args->clear();
    for (size_t i = 0; i < n; i++) {
        size_t len;
        if (!number('$', &len) || in.size() < at + len + 2) { return false; }

        args->push_back(in.substr(at, len));
        at += len + 2;
    }
    link->received.erase(0, at);
    return true;
}

void Server::run_commands(const LinkPtr &link) {
    Arguments args;
    while (!link->server_closed && next_command(link, &args)) {
        reply_to(link, args);
    }
}

Value Server::run_script_command(const Arguments &args) {
    std::string digest = args[1];
    if (args[0] == "EVAL") {
        digest = add_script(args[1]);
        scripts_.insert(digest);
    } else if (scripts_.count(digest) == 0) {
        return Value::error("NOSCRIPT No matching script. Please use EVAL.");
    }

    const auto nkeys = static_cast<ptrdiff_t>(strtoul(args[2].c_str(), nullptr, 10));
    const Arguments keys(args.begin() + 3, args.begin() + 3 + nkeys);
    const Arguments rest(args.begin() + 3 + nkeys, args.end());
    if (script_watch != nullptr) { script_watch->before(*this); }

    const Value reply = run_script(digest, {&store, clock_us(), run_}, keys, rest);
    if (script_watch != nullptr) {
        script_watch->after(*this, args, reply);
    } else {
        note_run(*this, args, reply);
    }
    return reply;
}

/* Redirects the client of a cluster; of no type if the server has the key. */
static Value redirection(const Server &server, const std::string &key) {
    const auto slot = static_cast<size_t>(limit_sliding::key_slot(key));
    const unsigned owner = site->owner(slot);
    if (owner == server.number()) { return Value(); }

    count("redirections");
    const std::string host = chance(200) ? "" : "10.0.0." + std::to_string(owner);
    return Value::error("MOVED " + std::to_string(slot) + " " + host + ":"
                        + std::to_string(7000 + owner));
}

/* The reply to CLUSTER SLOTS. */
static Value slot_map() {
    std::vector<Value> ranges;
    for (size_t first = 0; first < limit_sliding::kClusterSlots;) {
        size_t end = first + 1;
        const unsigned owner = site->owner(first);
        while (end < limit_sliding::kClusterSlots && site->owner(end) == owner) {
            end++;
        }

        ranges.push_back(
            Value::array({Value::integer(static_cast<int64_t>(first)),
                          Value::integer(static_cast<int64_t>(end - 1)),
                          Value::array({Value::string("10.0.0." + std::to_string(owner)),
                                        Value::integer(7000 + owner)})}));
        first = end;
    }
    return Value::array(std::move(ranges));
}

void Server::promote(Server &last, bool keeps_keys) {
    role_ = Role::kMaster;
    if (keeps_keys) { store.copy(last.store); }

    /* what the last one grants from now on is lost */
    losses_++;
    after(between(1000, 500000), [&last] {
        if (&site->master() == &last) { return; }

        last.role_ = Role::kReplica;
        last.restart(true);
    });
}

Value Server::run_other(const Arguments &args) {
    if (args[0] == "SENTINEL") {
        /* one that is stale knows the first master; others outvote it */
        const bool is_stale = site->plan.nsentinels == 3 && number_ == site->plan.stale;
        const std::string number = is_stale ? "1" : std::to_string(site->master().number());
        return Value::array({Value::string("10.0.0." + number),
                             Value::string(std::to_string(7000 + std::stoi(number)))});
    }
    if (args[0] == "ROLE" && role_ == Role::kMaster) {
        return Value::array({Value::string("master"), Value::integer(7), Value::array({})});
    }

    if (args[0] == "ROLE") {
        return Value::array({Value::string("slave"), Value::string("10.0.0.1"),
                             Value::integer(7001), Value::string("connected"), Value::integer(7)});
    }

    return args[0] == "CLUSTER" ? slot_map() : store.run(args, clock_us() / 1000);
}

Value Server::run(const Arguments &args) {
    if (args[0] == "EVALSHA" || args[0] == "EVAL") {
        if (role_ == Role::kReplica) {
            return Value::error("READONLY You can't write against a read only replica.");
        }

        const bool is_cluster = site->plan.topology == limit_sliding::Topology::kCluster;
        const Value to = is_cluster ? redirection(*this, args[3]) : Value();
        return to.type == Value::kError ? to : run_script_command(args);
    }

    if (args[0] == "AUTH" || args[0] == "SELECT" || args[0] == "ASKING") {
        return Value::status("OK");
    }

    if (args[0] == "TIME") {
        return Value::array({Value::string(std::to_string(clock_us() / 1000000)),
                             Value::string(std::to_string(clock_us() % 1000000))});
    }
    return run_other(args);
}

void Server::reply_to(const LinkPtr &link, const Arguments &args) {
    if (fault_ == Fault::kFlushes && chance(300)) { scripts_.clear(); }

    const bool fails = chance(fault_ == Fault::kErrors ? 700 : 300);
    const Value reply
        = fault_ == Fault::kErrors && fails ? Value::error(one_of(kErrors)) : run(args);

    std::string bytes;
    reply.append_to(bytes);
    std::string line = bytes;
    std::replace(line.begin(), line.end(), '\r', ' ');
    std::replace(line.begin(), line.end(), '\n', ' ');
    trace("server %u: %s %s of %zu: %.150s", number_, args[0].c_str(),
          args.size() > 3 ? args[3].c_str() : "", args.size(), line.c_str());

    if (tampering != nullptr) { tampering->tamper(bytes); }

    if (fault_ == Fault::kGarbage && fails && !bytes.empty()) { damage(bytes); }

    if (fault_ == Fault::kExtra && fails) { bytes += chance(500) ? "+OK\r\n" : one_of(kNonsense); }

    if (fault_ == Fault::kCloses && fails) {
        bytes.resize(below(bytes.size() + 1));
        send_to_client(link, bytes, 0);
        close_by_server(link, chance(500));
        return;
    }

    send_to_client(link, bytes, fault_ == Fault::kSlow ? between(0, 120000) : 0);
}

} // namespace sim
