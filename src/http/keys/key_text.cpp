/* Copyright (C) the limit_sliding authors */

#include "http/keys/key_text.hpp"

#include "http/conf/written_key.hpp"

namespace limit_sliding {

void write_key(Json &json, const ZoneConf &zone, std::string_view key) {
    u_char buf[NGX_INET6_ADDRSTRLEN];
    const auto text = text_of_key(zone, key, buf);

    json.field("key", text);
    json.uri_field("key_uri", text);
}

} // namespace limit_sliding
