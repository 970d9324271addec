/* Copyright (C) the limit_sliding authors */

/* What a reload changes of the zones of the last cycle, and the log says. */

#pragma once

#include "http/conf/zone.hpp"

namespace limit_sliding {

/* Prints the first difference that gives old states another meaning, up to `last`.  Returns the
 * end of the text; `p` if there is none. */
u_char *print_difference(u_char *p, u_char *last, const ZoneConf &zone, const ZoneConf &old);

/* Returns a log for notices, which the configuration demands.  Logs of the level "error", NGINX's
 * default, show them as well: an operator may look for the reason there. */
ngx_log_t shown_log(const ngx_log_t &log);

/* Logs that a zone starts empty, so that all clients have their whole limit again, or that its keys
 * have other names in Redis. */
void tell_changes(ngx_log_t &log, const ZoneConf &zone);

/* Logs that a zone of the last cycle is no more, if its keys may have had their own limits. */
void tell_gone(ngx_log_t &log, const ZoneConf &old);

} // namespace limit_sliding
