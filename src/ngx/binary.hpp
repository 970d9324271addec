/* Copyright (C) the limit_sliding authors */

/* Finds out whether the binary that has loaded the module is OpenResty, and whether the module was
 * built for OpenResty.  The patches of OpenResty add fields to structures of NGINX, so a module
 * that was built for OpenResty reads wrong fields in another NGINX, and the reverse.  NGINX itself
 * does not notice, because it compares the version and the options of configure, which patches do
 * not change. */

#pragma once

#include "ngx/ngx.hpp"

/* A queue that only a binary with OpenResty's patches has.  The reference is weak, so that the
 * module loads in other binaries as well. */
extern "C" [[gnu::weak]] ngx_queue_t ngx_posted_delayed_events;

namespace limit_sliding {

#ifdef HAVE_POSTED_DELAYED_EVENTS_PATCH
constexpr bool kBuiltForOpenResty = true;
#else
constexpr bool kBuiltForOpenResty = false;
#endif

/* Returns true if the binary that has loaded the module has OpenResty's patches. */
inline bool is_openresty() { return &ngx_posted_delayed_events != nullptr; }

} // namespace limit_sliding
