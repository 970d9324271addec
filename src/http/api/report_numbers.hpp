/* Copyright (C) the limit_sliding authors */

/* Numbers of reports: each is a field of the JSON, and a metric in Prometheus' text format. */

#pragma once

#include <iterator>
#include <optional>
#include <string_view>

#include "http/json/json.hpp"
#include "ngx/containers.hpp"

namespace limit_sliding {

struct Label {
    std::string_view name;
    std::string_view value;
};

/* A number as text, with the last `decimals` digits behind a point. */
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
    std::string_view label = {}; /* name, if the metric has several numbers */
};

/* Writes numbers of a report as fields of JSON, or as samples of a metric. */
class Numbers {
public:
    explicit Numbers(Json &json) : json_(&json) {}

    /* Writes the head of the metric. */
    [[gnu::noinline]] Numbers(Writer &text, const MetricHead &head) : text_(&text), head_(head) {
        text.print("# HELP %s %s\n# TYPE %s %s\n", head.name, head.help, head.name, head.type);
    }

    /* Sets the first label of the samples that follow. */
    void set_owner(const Label &owner) { owner_ = owner; }

    /* Writes a number.  A missing number is null in the JSON, and has no sample.  If the metric
     * has a label, its value is the name of the field. */
    void number(std::string_view field, std::optional<uint64_t> value, bool is_sampled = true) {
        if (json_ != nullptr) {
            json_->field(field, value ? &*value : nullptr);
        } else if (value && is_sampled) {
            sample({head_.label, field}, *value);
        }
    }

    /* Writes a number that the JSON has in another form. */
    void metric_only(const Number &value) {
        if (json_ == nullptr) { sample({}, value); }
    }

    /* Writes a text as a field of JSON, or as the label of a sample of 1. */
    void text(std::string_view field, std::string_view value) {
        if (json_ != nullptr) {
            json_->field(field, value);
        } else {
            sample({head_.label, value}, 1);
        }
    }

    /* Writes a histogram of times in 10^-decimals s.  The names are JSON fields: a bound, the
     * number of times up to the bound, the sum of all times, and their number. */
    template <class Times>
    void times(const char *field, const Times &times, int decimals, const char *bound_name,
               const char *up_to_name, const char *sum_name, const char *n_name) {
        if (json_ == nullptr) {
            times.for_each([&](uint64_t n, uint64_t bound) {
                sample({"le", Number(bound, decimals).text()}, n, "_bucket");
            });
            sample({"le", "+Inf"}, times.n(), "_bucket");
            sample({}, {times.sum, decimals}, "_sum");
            sample({}, times.n(), "_count");
            return;
        }

        {
            auto object = json_->object(field);
            {
                auto buckets = json_->array("buckets");
                times.for_each([&](uint64_t n, uint64_t bound) {
                    auto bucket = json_->object();
                    json_->field(bound_name, bound);
                    json_->field(up_to_name, n);
                });
            }
            json_->field(sum_name, times.sum);
        }
        json_->field(n_name, times.n());
    }

    /* Writes a sample.  The suffix extends the metric's name: "_sum" of a histogram. */
    [[gnu::noinline]] void sample(const Label &label, const Number &value,
                                  const char *suffix = "") {
        text_->print("%s%s{", head_.name, suffix);
        write(owner_);

        if (!label.name.empty()) {
            text_->append(",");
            write(label);
        }

        text_->append("} ");
        text_->append(value.text());
        text_->append("\n");
    }

private:
    void write(const Label &label) {
        text_->append(label.name);
        text_->append("=");
        text_->quote(label.value, Quotes::kLabel);
    }

    Json *json_ = nullptr; /* nullptr: samples are written to `text_` */
    Writer *text_ = nullptr;
    MetricHead head_ = {};
    Label owner_;
};

/* A metric, and the function that writes its numbers of a report. */
template <class Report>
struct MetricRow {
    MetricHead head;
    void (*tell)(Numbers &out, const Report &report);
};

/* Writes the numbers of a table as fields of the present object. */
template <class Report, size_t N>
void write_fields(Json &json, const MetricRow<Report> (&table)[N], const Report &report) {
    Numbers fields(json);
    for (const auto &row : table) {
        row.tell(fields, report);
    }
}

/* Writes the metrics of a table for all reports, each with its label(). */
template <class Report, size_t N>
void write_metrics(Writer &text, const MetricRow<Report> (&table)[N],
                   const Array<Report> &reports) {
    for (const auto &row : table) {
        Numbers samples(text, row.head);

        for (const Report &report : reports) {
            samples.set_owner(report.label());
            row.tell(samples, report);
        }
    }
}

} // namespace limit_sliding
