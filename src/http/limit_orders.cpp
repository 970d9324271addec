/* Copyright (C) the limit_sliding authors */

#include "http/limit_orders.hpp"

namespace limit_sliding {

void order_limit(LimitOrder &order) {
    const uint64_t until_s = order.until_s != 0 ? order.until_s : OwnLimits::kNoEnd;
    auto &own_limits = *order.zone->memory.aside.own_limits;
    const bool done = own_limits.set(order.hash, {order.own, until_s, 0}, ngx_time());

    order.result = done ? LimitOrder::Result::kDone : LimitOrder::Result::kNoRoom;
    ngx_post_event(&order.done, &ngx_posted_events);
}

bool list_limits(const ZoneConf &, std::string_view, size_t, ngx_pool_t *, Array<ListedLimit> &) {
    return true;
}

} // namespace limit_sliding
