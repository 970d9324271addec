/*
 * Copyright (C) the limit_sliding authors
 */

/* What handlers of directives return: nullptr, or that they failed. */

#ifndef LIMIT_SLIDING_NGX_CONF_HPP
#define LIMIT_SLIDING_NGX_CONF_HPP

#include "ngx/ngx.hpp"

namespace limit_sliding {

inline char *conf_failed()
{
    return static_cast<char *>(NGX_CONF_ERROR);
}

/* Logs what is wrong, to which NGINX adds the file and the line. */
template <class... Args>
char *conf_error(ngx_conf_t *cf, const char *format, Args... args)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, format, args...);
    return conf_failed();
}

} // namespace limit_sliding

#endif
