/*
 * Copyright (C) the limit_sliding authors
 */

/* The C names of the module, for C++. */

#ifndef LIMIT_SLIDING_HTTP_MODULE_HPP
#define LIMIT_SLIDING_HTTP_MODULE_HPP

#include "ngx/ngx.hpp"

extern "C" {
#include "http/module.h"
}

#endif
