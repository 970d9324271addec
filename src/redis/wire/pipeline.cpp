/* Copyright (C) the limit_sliding authors */

#include "redis/wire/pipeline.hpp"

#include <hiredis/hiredis.h>

#include "ngx/event.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

void Pipeline::init(Node *node) {
    node_ = node;
    calls_.init();
    init_event<&Pipeline::check_time>(timer_, *this);
    timer_.cancelable = 1;
}

/* Writes a command as an array of strings: their number, then length and bytes of each. */
bool Pipeline::command(Call &call, Span<const Arg> args) {
    constexpr size_t kFrameBytes = sizeof("$\r\n\r\n") + NGX_SIZE_T_LEN;
    size_t bytes = kFrameBytes;
    for (const Arg &arg : args) {
        bytes += kFrameBytes + arg.size();
    }

    u_char *p = reserve(bytes);
    if (p == nullptr) { return false; }

    *p++ = '*';
    p = append_number(p, args.size());
    for (const Arg &arg : args) {
        p = append_number(append(p, "\r\n$"), arg.size());
        p = append(append(append(p, "\r\n"), arg.text), arg.suffix);
    }

    written(append(p, "\r\n"));
    call.sent = ngx_current_msec;
    if (call.sent_us == 0) { call.sent_us = clock_us(); }

    calls_.push_back(call);
    ncalls++;

    set_idle(false);
    return true;
}

void Pipeline::check_time() {
    if (!ready_) {
        if (grace_.is_given(timer_, connect_until_, settings->clock_age_ms)) { return; }

        connection_events->failed(*this, NGX_ETIMEDOUT,
                                  is_shaking_hands()
                                      ? "no TLS handshake in time, does the server use TLS?"
                                      : "connecting took too long");
        return;
    }

    if (calls_.empty()) { return; }

    const ngx_msec_t until = calls_.front().sent + settings->timeout;
    const ngx_msec_int_t left = ms_until(until);
    if (left > 0) {
        ngx_add_timer(&timer_, static_cast<ngx_msec_t>(left));
    } else if (!grace_.is_given(timer_, until, settings->clock_age_ms)) {
        connection_events->failed(*this, NGX_ETIMEDOUT, "no reply in time");
    }
}

const char *Pipeline::received(Connection &connection, u_char *data, size_t len) {
    auto &self = static_cast<Pipeline &>(connection);
    Reply &reply = self.reader_.reply;
    if (self.settings->clock_age_ms != 0) { ngx_time_update(); }

    if (!self.reader_.feed(data, len)) { return "no memory"; }

    while (self.broken_ == nullptr) {
        Call *call = self.calls_.empty() ? nullptr : &self.calls_.front();
        ngx_int_t rc = call != nullptr ? self.reader_.next(call->slots, call->texts)
                                       : self.reader_.next(nullptr, nullptr);

        /* else the rest would be taken for the reply to the next call */
        if (rc == NGX_AGAIN && call == nullptr) { return "unexpected reply"; }

        if (rc == NGX_AGAIN || rc == NGX_DECLINED) { return nullptr; }

        if (rc == NGX_ERROR) {
            const size_t n = ngx_min(reply.received, len);
            return reply_beginning("invalid reply", view(data + len - n, n));
        }

        if (call == nullptr) {
            self.blame(reply);
            break;
        }

        self.calls_.remove(*call);
        self.ncalls--;
        if (self.authenticates_ && reply.type == REDIS_REPLY_ERROR) {
            const auto error = view(reply.text, reply.len);
            /* a new connection reads the file of the password again */
            if (starts_with(error, "NOAUTH ") || starts_with(error, "WRONGPASS ")) {
                self.blame(reply);
            }
        }

        call->handler(*self.node_, *call, &reply);
        reply.type = 0;
    }
    return self.broken_;
}

void Pipeline::blame(const Reply &reply) {
    static u_char text[NGX_MAX_ERROR_STR];
    if (reply.type != REDIS_REPLY_ERROR) {
        set_broken(reply_beginning("unexpected reply", reply.type == REDIS_REPLY_STATUS
                                                           ? view(reply.text, reply.len)
                                                           : std::string_view{}));
        return;
    }

    broken_ = reply_text(&reply);
    if (role != nullptr) {
        *ngx_snprintf(text, sizeof(text) - 1, "%s %V: %s", role, &endpoint->text, broken_) = '\0';
        broken_ = reinterpret_cast<char *>(text);
    }
}

void Pipeline::drop_calls() {
    while (!calls_.empty()) {
        Call &call = calls_.pop_front();
        ncalls--;
        call.handler(*node_, call, nullptr);
    }
}

void Pipeline::disconnect() {
    ready_ = false;
    broken_ = nullptr;
    reader_.stop();
    Connection::close();
}

} // namespace limit_sliding
