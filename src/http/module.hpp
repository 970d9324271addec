/* Copyright (C) the limit_sliding authors */

#pragma once

#include "ngx/ngx.hpp"

/* NGINX finds the module by this name. */
extern "C" ngx_module_t ngx_http_limit_sliding_module;
