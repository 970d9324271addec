/* Copyright (C) the limit_sliding authors */

/* A simulated Redis, and what can go wrong with it. */

#pragma once

#include <functional>
#include <set>
#include <vector>

#include "network.hpp"
#include "store.hpp"

namespace sim {

/* What is wrong with a server at present. */
enum class Fault {
    kNone = 0,
    kRefused,     /* nobody listens */
    kFrozen,      /* it runs nothing until the fault is over */
    kUnreachable, /* nothing arrives, either way, until then */
    kSlow,        /* its replies take long */
    kErrors,      /* it replies with an error, and runs nothing */
    kCloses,      /* it closes connections in a reply, after it has run the command */
    kGarbage,     /* its replies are damaged, after that */
    kExtra,       /* it says more than it was asked */
    kFlushes,     /* it forgets its scripts all the time */
    kNumber
};

enum class Role { kMaster = 0, kReplica, kSentinel };

struct Guest;

class Server {
public:
    /* Its clock is ahead of those of other machines by so much. */
    Server(unsigned number, int64_t ahead_us)
        : number_(number), run_(number), clock_us_(1700000000000000 + ahead_us) {}

    /* The fault lasts so long. */
    void suffer(Fault fault, uint64_t us);
    void heal();

    /* Restarts, with or without its keys; connections are reset. */
    void restart(bool keeps_keys);

    /* Its clock is set forward, or back. */
    void step_clock(int64_t us);

    int64_t clock_us() const;
    bool accepts() const { return fault_ != Fault::kRefused; }
    bool is_unreachable() const { return fault_ == Fault::kUnreachable; }

    /* Knows a connection, which it closes when it restarts. */
    void add_link(const LinkPtr &link) { links_.push_back(link); }

    /* Calls the function when a client's attempt to connect is decided. */
    void connect(const LinkPtr &link, uint64_t delay_us, std::function<void()> decided);

    /* Bytes have arrived. */
    void receive(const LinkPtr &link, const std::string &bytes);

    void set_role(Role role) { role_ = role; }

    /* Becomes the master in place of another one, which goes on for a while. */
    void promote(Server &last, bool keeps_keys);

    unsigned number() const { return number_; }

    /* How often keys were lost. */
    unsigned losses() const { return losses_; }

    Store store;

private:
    void run_commands(const LinkPtr &link);
    bool next_command(const LinkPtr &link, Arguments *args);
    Value run(const Arguments &args);
    Value run_other(const Arguments &args);
    Value run_script_command(const Arguments &args);
    void reply_to(const LinkPtr &link, const Arguments &args);
    bool holds() const { return fault_ == Fault::kFrozen || fault_ == Fault::kUnreachable; }

    unsigned number_;
    uint64_t run_; /* its run_id, another one after each start */
    Role role_ = Role::kMaster;
    Fault fault_ = Fault::kNone;
    uint64_t fault_number_ = 0;
    int64_t clock_us_;
    unsigned losses_ = 0;
    std::set<std::string> scripts_;
    std::vector<std::weak_ptr<Link>> links_;
    std::vector<std::function<void()>> held_; /* until the fault is over */
};

/* If not nullptr, it changes what servers reply. */
extern Guest *tampering;

/* Sees each run of a script, in place of note_run(). */
struct ScriptWatch {
    std::function<void(Server &server)> before;
    std::function<void(Server &server, const Arguments &command, const Value &reply)> after;
};

/* That of the present seed; nullptr: none. */
extern ScriptWatch *script_watch;

/* A script was run by a server, with its keys and arguments. */
void note_run(const Server &server, const Arguments &command, const Value &reply);

} // namespace sim
