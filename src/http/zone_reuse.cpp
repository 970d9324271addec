/*
 * Copyright (C) the limit_sliding authors
 */

#include "http/zone_reuse.hpp"

#include "http/algorithm_param.hpp"
#include "ngx/pool.hpp"
#include "ngx/strings.hpp"

namespace limit_sliding {

namespace {

/*
 * NGINX hands the memory of a zone over to the next cycle if name, size and
 * tag are the same.  Our zones have one of two tags: the same as before if the
 * state is to be kept, the other one if it is not.
 */
char zone_tags[2];

bool is_ours(void *tag)
{
    return tag == &zone_tags[0] || tag == &zone_tags[1];
}

ngx_shm_zone_t *find_old_memory(ngx_conf_t *cf, const ZoneConf &zone)
{
    for (auto &memory :
         elements<ngx_shm_zone_t>(cf->cycle->old_cycle->shared_memory)) {
        if (view(memory.shm.name) == view(zone.name)) {
            return &memory;
        }
    }

    return nullptr;
}

/* Writes the first difference by which old states mean something else. */
u_char *print_difference(u_char *p, u_char *last, const ZoneConf &zone,
                         const ZoneConf &old)
{
    const auto &key = zone.key.complex.value, &old_key = old.key.complex.value;
    const auto &policy = zone.policy, &old_policy = old.policy;
    auto precision = ngx_max(policy.precision, 1);
    auto old_precision = ngx_max(old_policy.precision, 1);

    if (view(key) != view(old_key)) {
        return ngx_slprintf(p, last, "its key was \"%V\", now \"%V\"", &old_key,
                            &key);
    }

    if (policy.window_ms != old_policy.window_ms) {
        return ngx_slprintf(p, last, "its window was %uL ms, now %uL ms",
                            old_policy.window_ms, policy.window_ms);
    }

    if (policy.algorithm != old_policy.algorithm) {
        return ngx_slprintf(p, last, "its algorithm was %V, now %V",
                            algorithm_name(old_policy.algorithm),
                            algorithm_name(policy.algorithm));
    }

    if (precision != old_precision) {
        return ngx_slprintf(p, last, "its precision was %uD, now %uD",
                            old_precision, precision);
    }

    if (policy.burst != old_policy.burst) {
        return ngx_slprintf(p, last, "its burst was %uD, now %uD",
                            old_policy.burst, policy.burst);
    }

    if ((zone.redis == nullptr) != (old.redis == nullptr)) {
        return ngx_slprintf(p, last,
                            zone.redis != nullptr ? "it is in redis now"
                                                  : "it was in redis");
    }

    if (zone.remote.lease != 0 && old.remote.leases == nullptr) {
        return ngx_slprintf(p, last, "it has leases now");
    }

    if (zone.size != old.size) {
        return ngx_slprintf(p, last, "its size was %uz, now %uz", old.size,
                            zone.size);
    }

    return p;
}

} // namespace

void *first_zone_tag()
{
    return &zone_tags[0];
}

ngx_int_t reuse_zone(ngx_conf_t *cf, ZoneConf *zone)
{
    auto *memory = find_old_memory(cf, *zone);
    if (memory == nullptr || !is_ours(memory->tag)) {
        return NGX_OK;
    }

    auto &old = *static_cast<ZoneConf *>(memory->data);

    size_t size = sizeof("its window was  ms, now  ms") + 4 * NGX_INT64_LEN
                  + zone->key.complex.value.len + old.key.complex.value.len;
    auto *text = alloc_bytes(cf->pool, size);
    if (text == nullptr) {
        return NGX_ERROR;
    }

    auto *end = print_difference(text, text + size, *zone, old);
    zone->restarted = {static_cast<size_t>(end - text), text};

    bool first = (memory->tag == &zone_tags[0]);
    bool keep = (end == text);
    zone->shm_zone->tag = &zone_tags[first == keep ? 0 : 1];
    return NGX_OK;
}

/*
 * The notice appears in logs of the level "error" as well, which is NGINX's
 * default: all clients have their whole limit again, and an operator who did
 * not mean that would look for the reason there.  It is not itself an error,
 * as the configuration asks for it.
 */
void log_restarted(ngx_log_t *log, ZoneConf *zone)
{
    ngx_log_t shown = *log;

    if (shown.log_level >= NGX_LOG_ERR && shown.log_level < NGX_LOG_NOTICE) {
        shown.log_level = NGX_LOG_NOTICE;
    }

    ngx_log_error(NGX_LOG_NOTICE, &shown, 0,
                  "limit_sliding zone \"%V\" starts empty: %V", &zone->name,
                  &zone->restarted);
}

} // namespace limit_sliding
