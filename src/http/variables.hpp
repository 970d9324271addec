/* Copyright (C) the limit_sliding authors */

/* The variables of the module. */

#pragma once

#include <string_view>

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns false if there is no memory. */
bool add_variables(ngx_conf_t *cf);

/* Texts by Source. */
inline constexpr std::string_view kSourceNames[] = {"local", "redis", "lease", "cache", "fallback"};

} // namespace limit_sliding
