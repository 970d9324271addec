
/*
 * Copyright (C) the limit_sliding authors
 */

/* The text of a response. */

#include "http/api/writer.hpp"

namespace limit_sliding {

constexpr auto kTextBuffer = 4096;

/* What one print() writes at most. */

constexpr auto kTextPrint = 1024;

static void print_quoted(Writer *text, ngx_str_t *s, ngx_uint_t json);
static u_char *text_reserve(Writer *text, size_t len);
static void text_advance(Writer *text, u_char *last);
static u_char *character(u_char *dst, u_char **src, u_char *last);
static size_t utf8_len(u_char *p, u_char *last);

void text_init(Writer *text, ngx_pool_t *pool)
{
    ngx_memzero(text, sizeof(Writer));

    text->pool = pool;
    text->next = &text->first;
}

/* A bounded text: strings in it are no user's. */

void ngx_cdecl print(Writer *text, const char *fmt, ...)
{
    u_char *p;
    va_list args;

    p = text_reserve(text, kTextPrint);
    if (p == NULL) {
        return;
    }

    va_start(args, fmt);
    p = ngx_vslprintf(p, p + kTextPrint, fmt, args);
    va_end(args);

    text_advance(text, p);
}

/* A string with its quotes; what is no UTF-8 is replaced. */

void print_json(Writer *text, ngx_str_t *s)
{
    print_quoted(text, s, 1);
}

/* As above, the value of a label of Prometheus. */

void print_label(Writer *text, ngx_str_t *s)
{
    print_quoted(text, s, 0);
}

/* They differ in controls, of which a label escapes only the end of a line. */

static void print_quoted(Writer *text, ngx_str_t *s, ngx_uint_t json)
{
    u_char *p, *src, *last;

    src = s->data;
    last = s->data + s->len;

    print(text, "\"");

    while (src < last) {
        p = text_reserve(text, sizeof("\\u0000"));
        if (p == NULL) {
            return;
        }

        if (*src == '"' || *src == '\\') {
            *p++ = '\\';
            *p++ = *src++;

        } else if (json && (*src < ' ' || *src == '<' || *src == 0x7f)) {

            /* "<", so that it may stand in a page */

            p = ngx_sprintf(p, "\\u%04xd", *src++);

        } else if (!json && *src == LF) {
            *p++ = '\\';
            *p++ = 'n';
            src++;

        } else {
            p = character(p, &src, last);
        }

        text_advance(text, p);
    }

    print(text, "\"");
}

/* As it may stand in an argument of a request, in quotes. */

void print_uri(Writer *text, ngx_str_t *s)
{
    u_char *p, *src, *last, ch;

    last = s->data + s->len;

    print(text, "\"");

    for (src = s->data; src < last; src++) {
        p = text_reserve(text, 3);
        if (p == NULL) {
            return;
        }

        ch = *src;

        if ((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
            || (ch >= '0' && ch <= '9') || ch == '-' || ch == '.' || ch == '_'
            || ch == '~') {
            *p++ = ch;

        } else {
            p = ngx_sprintf(p, "%%%02Xd", ch);
        }

        text_advance(text, p);
    }

    print(text, "\"");
}

static u_char *text_reserve(Writer *text, size_t len)
{
    ngx_buf_t *b;
    ngx_chain_t *cl;

    b = text->buf;

    if (b && (size_t)(b->end - b->last) >= len) {
        return b->last;
    }

    if (text->failed) {
        return NULL;
    }

    b = ngx_create_temp_buf(text->pool, kTextBuffer);
    cl = ngx_alloc_chain_link(text->pool);

    if (b == NULL || cl == NULL) {
        text->failed = 1;
        text->buf = NULL;
        return NULL;
    }

    cl->buf = b;
    cl->next = NULL;

    *text->next = cl;
    text->next = &cl->next;
    text->buf = b;

    return b->last;
}

static void text_advance(Writer *text, u_char *last)
{
    text->len += last - text->buf->last;
    text->buf->last = last;
}

/* Copies a character, or writes U+FFFD for a byte that is none. */

static u_char *character(u_char *dst, u_char **src, u_char *last)
{
    size_t len;

    len = utf8_len(*src, last);

    if (len == 0) {
        (*src)++;
        return ngx_cpymem(dst, "\xef\xbf\xbd", 3);
    }

    dst = ngx_cpymem(dst, *src, len);
    *src += len;

    return dst;
}

/* 0: not UTF-8.  nginx's decoder takes surrogates, too. */

static size_t utf8_len(u_char *p, u_char *last)
{
    size_t i, len;
    uint32_t n;

    static uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

    if (*p < 0x80) {
        return 1;
    }

    len = (*p >= 0xf0) ? 4 : (*p >= 0xe0) ? 3 : 2;

    if (*p < 0xc2 || *p > 0xf4 || (size_t)(last - p) < len) {
        return 0;
    }

    n = *p & (0x7f >> len);

    for (i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }

        n = (n << 6) | (p[i] & 0x3f);
    }

    return n < least[len] || n > 0x10ffff || (n >= 0xd800 && n <= 0xdfff) ? 0
                                                                          : len;
}

} // namespace limit_sliding
