/* Copyright (C) the limit_sliding authors */

#include "network.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <vector>

#include "redis/wire/tls.hpp"
#include "server.hpp"
#include "traffic.hpp"
#include "world.hpp"

namespace sim {

Weather weather;
std::function<Cut *(const ngx_peer_connection_t *)> find_cut;

void Cut::end() {
    is_on = false;
    auto all = std::move(held);
    held.clear();
    for (auto &what : all) {
        what();
    }
}

namespace {

/* By the numbers that stand for their sockets. */
std::map<int, LinkPtr> links;
int next_socket = 1000;

LinkPtr link_of(const ngx_connection_t *c) { return links.at(c->fd); }

/* Lets it happen, at once or when the connection is not cut any more. */
void pass(const LinkPtr &link, std::function<void()> what) {
    if (link->cut != nullptr && link->cut->is_on) {
        link->cut->held.push_back(std::move(what));
    } else {
        what();
    }
}

uint64_t draw_delay() { return between(weather.delay_least_us, weather.delay_most_us); }

/* Tells the client of what has arrived. */
void notify(const LinkPtr &link) {
    if (link->client == nullptr) { return; }

    ngx_event_t *ev = link->client->read;
    ev->ready = 1;
    ev->handler(ev);
}

void tell_writable(const LinkPtr &link) {
    if (link->client == nullptr) { return; }

    link->client->write->ready = 1;
    link->client->write->handler(link->client->write);
}

ssize_t receive(ngx_connection_t *c, u_char *buffer, size_t size) {
    LinkPtr link = link_of(c);
    if (!link->arrived.empty()) {
        size_t n = std::min(size, link->arrived.size());
        if (chance(weather.pieces)) { n = between(1, n); }

        memcpy(buffer, link->arrived.data(), n);
        link->arrived.erase(0, n);
        return static_cast<ssize_t>(n);
    }

    c->read->ready = 0;
    if (link->reset) {
        errno = ECONNRESET;
        return NGX_ERROR;
    }
    return link->ended ? 0 : NGX_AGAIN;
}

ssize_t send_bytes(ngx_connection_t *c, u_char *buffer, size_t size) {
    LinkPtr link = link_of(c);
    if (link->reset) {
        errno = EPIPE;
        return NGX_ERROR;
    }

    if (link->blocked) {
        c->write->ready = 0;
        return NGX_AGAIN;
    }

    size_t n = size;
    if (chance(weather.partial)) {
        count("partial writes");
        n = between(0, size - 1);
        link->blocked = true;
        after(draw_delay(), [link] {
            link->blocked = false;
            wake([link] { tell_writable(link); });
        });
        if (n == 0) {
            c->write->ready = 0;
            return NGX_AGAIN;
        }
    }

    link->to_server_us = std::max(link->to_server_us, now_us() + draw_delay());
    if (weather.late != 0 && chance(weather.late)) {
        count("late bytes");
        link->to_server_us += below(5000000);
    }

    after(link->to_server_us - now_us(),
          [link, bytes = std::string(reinterpret_cast<char *>(buffer), n)] {
              pass(link, [link, bytes] {
                  if (!link->server_closed) { link->server->receive(link, bytes); }
              });
          });
    return static_cast<ssize_t>(n);
}

ngx_connection_t *create_connection() {
    auto *c = static_cast<ngx_connection_t *>(calloc(1, sizeof(ngx_connection_t)));
    c->read = static_cast<ngx_event_t *>(calloc(1, sizeof(ngx_event_t)));
    c->write = static_cast<ngx_event_t *>(calloc(1, sizeof(ngx_event_t)));
    c->read->data = c;
    c->write->data = c;
    c->write->write = 1;
    c->recv = receive;
    c->send = send_bytes;
    c->fd = next_socket++;
    return c;
}

/* The outcome of connect() is there. */
void connected(const LinkPtr &link) {
    link->established = true;
    if (!link->server->accepts() || link->server_closed) {
        link->reset = true;
        count("refused connections");
    }

    wake([link] { tell_writable(link); });
}

unsigned number_of(const sockaddr *address) {
    return ntohs(reinterpret_cast<const sockaddr_in *>(address)->sin_port) - 7000u;
}

} // namespace

void send_to_client(const LinkPtr &link, std::string bytes, uint64_t delay_us) {
    delay_us += draw_delay();
    while (!bytes.empty()) {
        size_t n = chance(weather.pieces) ? between(1, bytes.size()) : bytes.size();
        link->to_client_us = std::max(link->to_client_us, now_us() + delay_us);
        after(link->to_client_us - now_us(), [link, piece = bytes.substr(0, n)] {
            pass(link, [link, piece] {
                link->arrived += piece;
                wake([link] {
                    notify(link);
                    if (traffic != nullptr) { traffic->interrupt(); }
                });
            });
        });
        bytes.erase(0, n);
        if (!bytes.empty()) { delay_us += draw_delay() / 4; }
    }
}

void close_by_server(const LinkPtr &link, bool reset) {
    if (link->server_closed) { return; }

    link->server_closed = true;
    link->to_client_us = std::max(link->to_client_us, now_us() + draw_delay());
    after(link->to_client_us - now_us(), [link, reset] {
        pass(link, [link, reset] {
            link->ended = true;
            link->reset = reset;
            if (link->established) {
                wake([link] { notify(link); });
            }
        });
    });
}

void forget_connections() { links.clear(); }

size_t open_connections() { return links.size(); }

void close_idle() {
    std::vector<LinkPtr> all;
    for (auto &[fd, link] : links) {
        all.push_back(link);
    }

    for (auto &link : all) {
        ngx_connection_t *c = link->client;
        if (c == nullptr || !c->idle) { continue; }

        c->close = 1;
        c->read->handler(c->read);
    }
}

} // namespace sim

using namespace sim;

extern "C" {

ngx_int_t ngx_event_get_peer(ngx_peer_connection_t *, void *) { return NGX_OK; }

ngx_int_t ngx_event_connect_peer(ngx_peer_connection_t *pc) {
    Server *server = server_at(number_of(pc->sockaddr));
    if (chance(weather.no_socket)) {
        count("missing sockets");
        return NGX_ERROR;
    }

    if (server == nullptr || (!server->accepts() && chance(500))) {
        count("refused connections");
        return NGX_DECLINED;
    }

    auto link = std::make_shared<Link>();
    link->client = create_connection();
    link->server = server;
    link->cut = find_cut ? find_cut(pc) : nullptr;
    links[link->client->fd] = link;
    pc->connection = link->client;
    const bool is_cut = link->cut != nullptr && link->cut->is_on;
    if (server->accepts() && !server->is_unreachable() && !is_cut && chance(50)) {
        link->client->write->ready = 1;
        server->add_link(link);
        link->established = true;
        return NGX_OK;
    }

    server->connect(link, draw_delay(), [link] { pass(link, [link] { connected(link); }); });
    return NGX_AGAIN;
}

void ngx_close_connection(ngx_connection_t *c) {
    LinkPtr link = link_of(c);
    link->client = nullptr;
    links.erase(c->fd);
    for (ngx_event_t *ev : {c->read, c->write}) {
        if (ev->timer_set) { ngx_del_timer(ev); }

        if (ev->posted) { ngx_delete_posted_event(ev); }

        free(ev);
    }
    free(c);
}

int getsockopt(int fd, int, int, void *value, socklen_t *) {
    *static_cast<int *>(value) = links.at(fd)->reset ? ECONNREFUSED : 0;
    return 0;
}

ngx_int_t ngx_handle_read_event(ngx_event_t *, ngx_uint_t) { return NGX_OK; }
ngx_int_t ngx_handle_write_event(ngx_event_t *, size_t) { return NGX_OK; }
ngx_int_t ngx_tcp_nodelay(ngx_connection_t *) { return NGX_OK; }

/* Neither TLS nor names nor files of passwords are simulated. */
ngx_int_t ngx_ssl_shutdown(ngx_connection_t *) { return NGX_OK; }
ngx_resolver_ctx_t *ngx_resolve_start(ngx_resolver_t *, ngx_resolver_ctx_t *) { return nullptr; }
ngx_int_t ngx_resolve_name(ngx_resolver_ctx_t *) { return NGX_ERROR; }
void ngx_resolve_name_done(ngx_resolver_ctx_t *) {}
char *ngx_resolver_strerror(ngx_int_t) { return nullptr; }

} // extern "C"

namespace limit_sliding {

bool tls_handshake(ngx_connection_t *, const TlsSettings &, std::string_view,
                   ngx_connection_handler_pt) {
    return false;
}

const char *tls_failure(const char *what) { return what; }

bool tls_verify(ngx_connection_t *, const TlsSettings &, std::string_view, ErrorLog &) {
    return false;
}

std::string_view PasswordFile::current(const ErrorLog &) { return {}; }

} // namespace limit_sliding
