/* Copyright (C) the limit_sliding authors */

/* The variables of the module. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Adds the variables.  Returns false if that fails. */
bool add_variables(ngx_conf_t *cf);

/* Adds a variable whose value keeps a pointer over redirects of a request.  The name has a space,
 * so no configuration can use the variable.  Returns the variable's index, or NGX_ERROR. */
ngx_int_t add_holder(ngx_conf_t *cf, const char *text);

/* Texts by Source. */
inline constexpr std::string_view kSourceNames[] = {"local", "redis", "lease", "cache", "fallback"};

} // namespace limit_sliding
