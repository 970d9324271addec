/*
 * Copyright (C) the limit_sliding authors
 */

/* Metrics in the text format of Prometheus. */

#ifndef LIMIT_SLIDING_HTTP_API_METRICS_HPP
#define LIMIT_SLIDING_HTTP_API_METRICS_HPP

#include <initializer_list>
#include <iterator>
#include <string_view>

#include "http/api/writer.hpp"

namespace limit_sliding {

struct Label {
    std::string_view name;
    std::string_view value;
};

/* A number as text, with so many of its last digits after the point. */
class Number {
public:
    Number(uint64_t n, int decimals = 0)
    {
        for (int i = 0; n != 0 || i <= decimals; i++) {
            if (i != 0 && i == decimals) {
                *--first_ = '.';
            }
            *--first_ = static_cast<char>('0' + n % 10);
            n /= 10;
        }
    }

    std::string_view text() const
    {
        return {first_, static_cast<size_t>(std::end(digits_) - first_)};
    }

private:
    char digits_[24];
    char *first_ = std::end(digits_);
};

struct MetricHead {
    const char *name;
    const char *type;
    const char *help;
};

/* A metric: its head, which the constructor writes, and then its samples. */
class Metric {
public:
    Metric(Writer &out, const MetricHead &head) : out_(out), name_(head.name)
    {
        out_.print("# HELP %s %s\n# TYPE %s %s\n", head.name, head.help,
                   head.name, head.type);
    }

    /* The suffix belongs to the metric's name, as "_sum" of a histogram. */
    void sample(std::initializer_list<Label> labels, const Number &value,
                const char *suffix = "")
    {
        out_.print("%s%s{", name_, suffix);

        for (const Label &label : labels) {
            out_.append(&label != labels.begin() ? "," : "");
            out_.append(label.name);
            out_.append("=");
            out_.quote(label.value, Quotes::kLabel);
        }

        out_.append("} ");
        out_.append(value.text());
        out_.append("\n");
    }

private:
    Writer &out_;
    const char *name_;
};

} // namespace limit_sliding

#endif
