/* Copyright (C) the limit_sliding authors */

/* A plain model of PartCounter: counts in arrays, time by whole parts. */

#pragma once

#include "support.hpp"

#define FORMATS 14

struct form_t {
    uint64_t parts;
    uint64_t most;
    uint64_t unit; /* of the oldest count */
    bool whole;    /* the oldest part counts in full */
};

static const form_t forms[FORMATS] = {{34, 10, 1, true},
                                      {29, 15, 1, true},
                                      {24, 20, 1, true},
                                      {7, 31, 1, false},
                                      {6, 63, 1, false},
                                      {5, 127, 1, false},
                                      {4, 255, 1, false},
                                      {3, 2047, 1, false},
                                      {2, 16383, 1, false},
                                      {1, 4194303, 1, false},
                                      {1, 16777215, 2048, false},
                                      {1, 67108863, 8192, false},
                                      {1, 268435455, 32768, false},
                                      {1, 1073741823, 131072, false}};

struct model_t {
    size_t form;
    uint64_t newest; /* part */
    uint64_t count[40];
    uint64_t gone;
    uint64_t time_ms;
};

struct request_t {
    Policy policy;
    uint64_t now_ms;
    uint32_t limit;
    uint32_t cost;
};

static inline size_t model_form(const request_t *r)
{
    size_t form = r->policy.precision == 1 ? 9 : 0;

    while (form < 9 && forms[form].most < r->limit) {
        form++;
    }

    return form;
}

static inline uint64_t model_sum(const model_t *m, uint64_t parts)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < parts; i++) {
        sum += m->count[i];
    }

    return sum;
}

static inline uint64_t rounded_to(uint64_t n, uint64_t unit)
{
    return n % unit == 0 ? n : n + unit - n % unit;
}

/* As of the request's time, or of its own if that is later. */
static inline model_t model_at(const model_t *model, const request_t *r)
{
    model_t m = *model;
    uint64_t w = r->policy.window_ms;
    uint64_t n = forms[m.form].parts;
    uint64_t now = r->now_ms * n / w;

    m.time_ms = r->now_ms;
    m.gone = r->now_ms * n % w;

    for (uint64_t i = 0; m.newest < now && i <= n; i++) {
        memmove(m.count + 1, m.count, n * sizeof(m.count[0]));
        m.count[0] = 0;
        m.count[n] = rounded_to(m.count[n], forms[m.form].unit);
        m.newest++;
    }

    if (model_sum(&m, n + 1) == 0) {
        m.form = model_form(r);
        m.newest = r->now_ms * forms[m.form].parts / w;
        m.gone = r->now_ms * forms[m.form].parts % w;
    }

    if (m.newest > now && model_sum(&m, n + 1) != 0) {
        m.gone = 0;

        while (m.time_ms * n / w < m.newest) {
            m.time_ms += (m.newest * w - m.time_ms * n + n - 1) / n;
        }
    }

    return m;
}

/* Times w. */
static inline uint64_t model_used(const model_t *m, const request_t *r)
{
    const form_t *form = &forms[m->form];
    uint64_t w = r->policy.window_ms;
    uint64_t gone = m->count[form->parts] * m->gone;

    if (form->parts > 1 && gone > r->limit * w / form->parts) {
        gone = r->limit * w / form->parts;
    }

    if (form->whole || r->policy.strict) {
        gone = 0;
    }

    return model_sum(m, form->parts + 1) * w - gone;
}

static inline bool model_holds(const model_t *m)
{
    const form_t *form = &forms[m->form];

    return form->whole ? model_sum(m, form->parts + 1) <= form->most
                       : model_sum(m, form->parts) <= form->most
                             && m->count[form->parts] <= form->most;
}

static inline model_t model_convert(const model_t *m, size_t form, uint64_t w)
{
    uint64_t n = forms[m->form].parts;
    uint64_t to_n = forms[form].parts;
    model_t to = {};

    to.form = form;
    to.time_ms = m->time_ms;
    to.newest = m->time_ms * to_n / w;

    for (uint64_t i = 0; i <= n && i <= m->newest; i++) {
        uint64_t last_ms = (m->newest - i + 1) * w / n + 1;

        while (last_ms * n / w > m->newest - i) {
            last_ms--;
        }

        uint64_t part = last_ms * to_n / w;
        uint64_t age = part > to.newest ? 0 : to.newest - part;

        if (m->count[i] != 0) {
            assert_in_range(age, 0, to_n);
            to.count[age] += m->count[i];
        }
    }

    to.count[to_n] = rounded_to(to.count[to_n], forms[form].unit);

    return to;
}

static inline bool model_try(model_t *model, const model_t *m, size_t form,
                             const request_t *r)
{
    model_t to
        = form == m->form ? *m : model_convert(m, form, r->policy.window_ms);

    to.count[0] += r->cost;

    if (!model_holds(&to) && (form != m->form || forms[form].whole)) {
        return false;
    }

    if (model_sum(&to, forms[form].parts) > forms[form].most) {
        return false;
    }

    *model = to;
    return true;
}

static inline void model_record(model_t *model, const request_t *r)
{
    model_t m = model_at(model, r);
    size_t own = model_form(r);

    if (model_try(model, &m, own < m.form ? own : m.form, r)) {
        return;
    }

    for (size_t form = own > m.form ? own : m.form; form < FORMATS; form++) {
        if (model_try(model, &m, form, r)) {
            return;
        }
    }

    fail_msg("nothing holds it");
}

static inline bool model_admit(model_t *model, const request_t *r)
{
    model_t m = model_at(model, r);
    uint64_t w = r->policy.window_ms;

    if (r->cost > r->limit || model_used(&m, r) + r->cost * w > r->limit * w) {
        return false;
    }

    if (r->cost > 0) {
        model_record(model, r);
    }

    return true;
}
