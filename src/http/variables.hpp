/* Copyright (C) the limit_sliding authors */

/* The variables of the module. */

#pragma once

#include "ngx/ngx.hpp"

namespace limit_sliding {

/* Returns false if there is no memory. */
bool add_variables(ngx_conf_t *cf);

/* Texts by Source. */
extern ngx_str_t source_names[];

} // namespace limit_sliding
