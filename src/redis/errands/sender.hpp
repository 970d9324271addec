/* Copyright (C) the limit_sliding authors */

/*
 * The sender of errands, which are all commands but greetings and questions about the topology.
 *
 * Errands that are due at a node leave in one turn of the event loop, several in a call if their
 * kind allows that.  The sender alone sends an errand again: with the text of a script that the
 * server does not know, and in a cluster to another node.  An errand ends within
 *
 *   - connect_timeout, while the node is being connected to
 *   - timeout, once it was sent; redirections do not prolong that
 *   - connect_timeout + timeout, while it is for a master and no map of slots was received; at
 *     once, if no node can be connected to
 *
 * and its kind learns of the reply or the failure.
 */

#pragma once

#include "redis/errands/redis_instance.hpp"

namespace limit_sliding {

/* The most errands of a call: more of them gain little, and make others wait for Redis. */
constexpr auto kErrandsPerCall = 16;

/* A call that carries errands. */
struct ErrandCall : Call {
    const ErrandKind *kind; /* kind of the first errand */
    ErrandList errands;
    size_t nerrands;
    size_t nclaims; /* claims of asks, see join_call() */
    bool whole;     /* the script is sent by its text, not by its digest */
    bool was_late;  /* the server's clock was beyond the deadline of the call */
};

/* The functions that nodes call. */
extern const ClientEvents kSenderEvents;

/* Notes for the breaker that the node has answered a call. */
void node_answered(Node &node);

/* Notes for the breaker that the node has not answered, or with an error that is no verdict. */
void node_failed(Node &node);

/* Sends an idle errand in this turn of the event loop, or once its node is connected. */
void send(Errand &errand);

/* Sends an errand that no request waits for.  A bounded number of such errands is under way, and
 * their calls leave room for calls that requests wait for. */
void send_patiently(Errand &errand);

/* Lets an idle errand wait while too many patient ones are under way; the sender resumes it.
 * Returns false if the errand may be sent now. */
bool must_wait(Errand &errand);

/* Makes an errand idle that is not in a call. */
void withdraw(Errand &errand);

/* Takes the first errand from a call, and makes it idle. */
Errand &take_errand(ErrandCall &call);

/* Puts ASKING into the node's buffer, so that the node runs the next command even if it has not
 * got the slot yet.  Returns false if there is no memory. */
bool put_asking(Node &node);

/* Prepares the lists of errands that wait. */
void init_sender(Client &client);

} // namespace limit_sliding
