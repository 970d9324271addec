/* Copyright (C) the limit_sliding authors */

/* Metrics in the text format of Prometheus. */

#pragma once

#include <iterator>
#include <string_view>

#include "http/api/writer.hpp"
#include "ngx/array.hpp"

namespace limit_sliding {

struct Label {
    std::string_view name;
    std::string_view value;
};

/* A number as text, with so many of its last digits after the point. */
class Number {
public:
    [[gnu::noinline]] Number(uint64_t n, int decimals = 0) {
        for (int i = 0; n != 0 || i <= decimals; i++) {
            if (i != 0 && i == decimals) { *--first_ = '.'; }
            *--first_ = static_cast<char>('0' + n % 10);
            n /= 10;
        }
    }

    std::string_view text() const {
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
    [[gnu::noinline]] Metric(Writer &out, const MetricHead &head) : out_(out), name_(head.name) {
        out_.print("# HELP %s %s\n# TYPE %s %s\n", head.name, head.help, head.name, head.type);
    }

    /* Sets the first label of the samples that follow. */
    void set_owner(const Label &owner) { owner_ = owner; }

    void sample(const Number &value) { sample({}, value); }

    /* The suffix belongs to the metric's name, as "_sum" of a histogram. */
    [[gnu::noinline]] void sample(const Label &label, const Number &value,
                                  const char *suffix = "") {
        out_.print("%s%s{", name_, suffix);
        write(owner_);

        if (!label.name.empty()) {
            out_.append(",");
            write(label);
        }

        out_.append("} ");
        out_.append(value.text());
        out_.append("\n");
    }

private:
    void write(const Label &label) {
        out_.append(label.name);
        out_.append("=");
        out_.quote(label.value, Quotes::kLabel);
    }

    Writer &out_;
    const char *name_;
    Label owner_;
};

/* A metric and what writes its samples of a report. */
template <class Report>
struct MetricRow {
    MetricHead head;
    void (*write)(Metric &metric, const Report &report);
};

/* Writes the metrics of a table for all reports, each with its label(). */
template <class Report, size_t N>
void write_metrics(Writer &out, const MetricRow<Report> (&table)[N], const Array<Report> &reports) {
    for (const auto &row : table) {
        Metric metric(out, row.head);

        for (const Report &report : reports) {
            metric.set_owner(report.label());
            row.write(metric, report);
        }
    }
}

} // namespace limit_sliding
