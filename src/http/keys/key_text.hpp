/* Copyright (C) the limit_sliding authors */

/* Keys as the API shows them. */

#pragma once

#include <string_view>

#include "http/conf/zone.hpp"
#include "http/json/json.hpp"

namespace limit_sliding {

/* Writes two fields: the key as text, also for an address, and the text percent-encoded. */
void write_key(Json &json, const ZoneConf &zone, std::string_view key);

} // namespace limit_sliding
