/* Copyright (C) the limit_sliding authors */

/* The variables of the module. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns false if there is no memory. */
bool add_variables(ngx_conf_t *cf);

/* Adds a variable whose data holds something of a request over redirects.  Nobody
 * evaluates it: its name has a space, and cannot be written in a configuration.  Returns
 * its index, or NGX_ERROR. */
ngx_int_t add_holder(ngx_conf_t *cf, const char *text);

/* Texts by Source. */
inline constexpr std::string_view kSourceNames[] = {"local", "redis", "lease", "cache", "fallback"};

} // namespace limit_sliding
