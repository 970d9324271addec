/* Copyright (C) the limit_sliding authors */

/* Connections between workers and servers. */

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nginx.hpp"

namespace sim {

class Server;

/* What a network does to all bytes, until it is told otherwise. */
struct Weather {
    uint64_t delay_least_us;
    uint64_t delay_most_us;
    unsigned pieces;    /* of 1000: replies that come in pieces */
    unsigned partial;   /* of 1000: calls of send() that take a part */
    unsigned no_socket; /* of 1000: connections that cannot even be tried */
    unsigned late = 0;  /* of 1000: calls of send() whose bytes arrive seconds later */
};

extern Weather weather;

/* What cuts the connections of a worker: what is under way waits for the end of the cut. */
struct Cut {
    bool is_on = false;
    std::vector<std::function<void()>> held;

    void begin() { is_on = true; }
    void end();
};

/* Returns the cut of a connection that is being opened; nullptr: it has none. */
extern std::function<Cut *(const ngx_peer_connection_t *)> find_cut;

/* A connection, as long as its client or anything under way knows it. */
struct Link {
    ngx_connection_t *client; /* nullptr: it has closed */
    Server *server;
    Cut *cut;
    bool established;
    bool server_closed;

    std::string arrived; /* at the client, and not read */
    bool ended;          /* after that */
    bool reset;
    bool blocked; /* the client cannot send */

    std::string received;  /* by the server, and not run */
    bool asking;           /* the next command of a cluster's client */
    uint64_t to_client_us; /* nothing overtakes what arrives then */
    uint64_t to_server_us;
};

using LinkPtr = std::shared_ptr<Link>;

/* Sends bytes to the client after so long, perhaps in pieces. */
void send_to_client(const LinkPtr &link, std::string bytes, uint64_t delay_us);

/* Closes the connection at the server's end, after what is under way. */
void close_by_server(const LinkPtr &link, bool reset);

/* Forgets all connections. */
void forget_connections();

/* Returns the server that the client's endpoints name by this number, from 1 on. */
Server *server_at(unsigned number);

} // namespace sim
