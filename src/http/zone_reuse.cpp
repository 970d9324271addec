
/*
 * Copyright (C) the limit_sliding authors
 */

/* Does a zone keep its state over a reload? */

#include "http/zone_reuse.hpp"

#include "http/algorithm_param.hpp"
#include "http/zone.hpp"

namespace limit_sliding {

static ngx_shm_zone_t *find_shm_zone(ngx_list_t *zones, ngx_str_t *name);
static ngx_int_t compare_zones(ngx_pool_t *pool, ZoneConf *zone,
                               ngx_shm_zone_t *oshm_zone);

/*
 * nginx hands the memory of a zone over to the next cycle if name, size and
 * tag are the same.  Our zones have one of two tags: the same as before where
 * the state is to be kept, the other one where it is not.
 */

ngx_uint_t zone_tags[2];

#define is_tag(tag) ((tag) == &zone_tags[0] || (tag) == &zone_tags[1])

/* Says in the zone's tag whether it keeps the memory that it had. */

ngx_int_t reuse_zone(ngx_conf_t *cf, ZoneConf *zone)
{
    ngx_shm_zone_t *oshm_zone;

    oshm_zone
        = find_shm_zone(&cf->cycle->old_cycle->shared_memory, &zone->name);

    if (oshm_zone == NULL || !is_tag(oshm_zone->tag)) {
        return NGX_OK;
    }

    if (compare_zones(cf->pool, zone, oshm_zone) != NGX_OK) {
        return NGX_ERROR;
    }

    zone->shm_zone->tag = oshm_zone->tag;

    if (zone->restarted.len) {
        zone->shm_zone->tag
            = (oshm_zone->tag == &zone_tags[0]) ? &zone_tags[1] : &zone_tags[0];
    }

    return NGX_OK;
}

static ngx_shm_zone_t *find_shm_zone(ngx_list_t *zones, ngx_str_t *name)
{
    ngx_uint_t i;
    ngx_list_part_t *part;
    ngx_shm_zone_t *shm_zone;

    for (part = &zones->part; part; part = part->next) {
        shm_zone = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (shm_zone[i].shm.name.len == name->len
                && ngx_strncmp(shm_zone[i].shm.name.data, name->data, name->len)
                       == 0) {
                return &shm_zone[i];
            }
        }
    }

    return NULL;
}

/* Leaves zone->restarted empty where the states mean what they meant. */

static ngx_int_t compare_zones(ngx_pool_t *pool, ZoneConf *zone,
                               ngx_shm_zone_t *oshm_zone)
{
    size_t len;
    u_char *p;
    ngx_str_t *key, *okey;
    Policy *policy, *opolicy;
    ZoneConf *ozone;

    ozone = oshm_zone->data;

    policy = &zone->policy;
    opolicy = &ozone->policy;

    key = &zone->key.complex.value;
    okey = &ozone->key.complex.value;

    len = sizeof("its window was  ms, now  ms") + 4 * NGX_INT64_LEN + key->len
          + okey->len;

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    zone->restarted.data = p;

    if (key->len != okey->len
        || ngx_strncmp(key->data, okey->data, key->len) != 0) {
        p = ngx_slprintf(p, p + len, "its key was \"%V\", now \"%V\"", okey,
                         key);

    } else if (policy->window_ms != opolicy->window_ms) {
        p = ngx_slprintf(p, p + len, "its window was %uL ms, now %uL ms",
                         opolicy->window_ms, policy->window_ms);

    } else if (policy->algorithm != opolicy->algorithm) {
        p = ngx_slprintf(p, p + len, "its algorithm was %V, now %V",
                         algorithm_name(opolicy->algorithm),
                         algorithm_name(policy->algorithm));

    } else if (ngx_max(policy->precision, 1)
               != ngx_max(opolicy->precision, 1)) {
        p = ngx_slprintf(p, p + len, "its precision was %uD, now %uD",
                         ngx_max(opolicy->precision, 1),
                         ngx_max(policy->precision, 1));

    } else if (policy->burst != opolicy->burst) {
        p = ngx_slprintf(p, p + len, "its burst was %uD, now %uD",
                         opolicy->burst, policy->burst);

    } else if ((zone->redis == NULL) != (ozone->redis == NULL)) {
        p = ngx_slprintf(
            p, p + len, zone->redis ? "it is in redis now" : "it was in redis");

    } else if (zone->remote.lease && ozone->remote.leases == NULL) {
        p = ngx_slprintf(p, p + len, "it has leases now");

    } else if (zone->shm_zone->shm.size != oshm_zone->shm.size) {
        p = ngx_slprintf(p, p + len, "its size was %uz, now %uz",
                         oshm_zone->shm.size, zone->shm_zone->shm.size);
    }

    zone->restarted.len = p - zone->restarted.data;

    return NGX_OK;
}

} // namespace limit_sliding
