// The dashboard's script, first part: the parts of its cards.

"use strict";

// Others choose names and keys, so their text is never parsed as markup: all
// goes through textContent and append().

const RECENT = 6;                          // periods that problems are told of
const SPAN_MS = 600000;                    // time that charts show
const NONE = "\u2013";

// The API's URL, without a user name and password of the page's address.
const api = location.origin + location.pathname.replace(/[^/]*$/, "");

function byId(id) {
    return document.getElementById(id);
}

function element(tag, name, ...children) {
    const node = document.createElement(tag);
    if (name) {
        node.className = name;
    }
    node.append(...children);
    return node;
}

// Writes a text only if it has changed, so that a selection stays.
function put(node, text) {
    if (node.textContent !== text) {
        node.textContent = text;
    }
}

function button(text, action) {
    const node = element("button", "", text);
    node.type = "button";
    node.onclick = action;
    return node;
}

// Returns a text as an element that screen readers read as a unit.
function bdi(text) {
    return element("bdi", "", text);
}


// ---- numbers as text ----

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const large = new Intl.NumberFormat("en", { notation: "compact" });

function count(n, most = 1e7) {
    return (n < most ? whole : large).format(n);
}

function perSecond(n) {
    return n === null ? NONE : n < 10 ? tenth.format(n) : count(n, 1e5);
}

// Formats a share of 1.
function percent(n) {
    return n === null ? NONE : n > 0 && n < 0.001 ? "< 0.1%"
        : (n < 0.1 ? tenth : whole).format(n * 100) + "%";
}

const UNITS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"],
    [1, "ms"]];

// Formats a configured time, in the largest unit that divides it.
function duration(ms) {
    const [unit, name] = UNITS.find(([unit]) => ms % unit === 0);
    return count(ms / unit) + " " + name;
}

// Formats a passing time, rounded.
function about(ms) {
    const [unit, name] = UNITS.find(([unit]) => ms >= unit) ?? [1, "ms"];
    const n = ms / unit;
    return (n < 10 ? tenth : whole).format(n) + " " + name;
}

function penalty(rule) {
    return rule && duration(rule.time_ms) + " to " + duration(rule.max_ms)
        + " after " + count(rule.after);
}

// Formats times in us, all in the same unit.
function latencies(times) {
    const known = times.filter(us => us < Infinity);
    const [size, unit] = Math.max(...known) < 1000 ? [1, " \u00b5s"]
        : [1000, " ms"];
    return times.map(us => us === Infinity ? "longer" : us === null ? NONE
        : Number((us / size).toPrecision(2)) + unit);
}

function bytes(n) {
    return n < 1048576 ? count(n / 1024) + " KiB"
        : tenth.format(n / 1048576) + " MiB";
}


// ---- keys that may be secrets ----

// Variables that are no secrets; others may be, such as tokens and cookies.
const OPEN = new RegExp("\\$\\{?(" + ["binary_remote_addr", "remote_addr",
    "realip_remote_addr", "limit_sliding_client", "host", "server_name",
    "server_addr", "server_port", "scheme", "request_method"].join("|")
    + ")\\b", "g");

// Returns true if keys may be secrets, by the key in the configuration.
function maySecret(configured) {
    return configured.replace(OPEN, "").includes("$");
}

// Returns the shown part of a key: few characters without "show keys".
function masked(key, configured) {
    return byId("shown").checked || !maySecret(configured) ? key
        : (key.length > 8 ? key.slice(0, 2) : "") + "\u2022\u2022\u2022";
}


// ---- parts of a card ----

class Facts {
    node = element("dl");
    values = {};

    // Shows the members of an object that have a text.
    set(facts) {
        for (const name of Object.keys(facts)) {
            if (!this.values[name]) {
                this.values[name] = bdi("");
                this.node.append(element("div", "", element("dt", "", name),
                    element("dd", "", this.values[name])));
            }
        }
        for (const [name, value] of Object.entries(this.values)) {
            const text = facts[name] ?? "";
            value.closest("div").hidden = text === "";
            put(value, text);
        }
    }
}

function table(title, ...heads) {
    const row = element("tr");
    for (const head of heads) {
        row.append(element("th", "", head));
        row.lastChild.scope = "col";
    }
    const body = element("tbody");
    return { body, node: element("table", "", element("caption", "", title),
        element("thead", "", row), body) };
}


// Counters of requests that have a line in charts.
const CHARTED = ["passed", "delayed", "rejected", "delayed_dry_run",
    "rejected_dry_run"];
const COUNTERS = [...CHARTED, "unlimited", "errors", "evicted", "refused",
    "calls", "failed_calls"];

// ---- counters, in the past and now ----

// The counters of a zone or a Redis.  The server has the last ten minutes, and
// two answers tell the present rates.
class Counters {
    timeline = { period_ms: 1, age_ms: 0, periods: 0 };

    set(values, time) {
        const { values: last, time: then } = this;
        const anew = !last || time <= then
            || COUNTERS.some(name => values[name] < last[name]);
        Object.assign(this, { values, time, last: anew ? null : last,
            step: anew ? 0 : (time - then) / 1000 });
        this.timeline = values.timeline ?? this.timeline;
    }

    // Returns the present rate, or the last known one; null: there is none.
    rate(name, part = all => all[name]) {
        return this.last ? (part(this.values) - part(this.last)) / this.step
            : this.rates(name).at(-2) ?? null;
    }

    // Returns the increases in each period.
    increases(name) {
        return this.timeline[name] ?? Array(this.timeline.periods).fill(0);
    }

    rates(name) {
        const seconds = this.timeline.period_ms / 1000;
        return this.increases(name).map(n => n / seconds);
    }

    // Returns points [ms ago, rate] of a counter, the oldest first.
    points(name) {
        const { period_ms, age_ms, periods } = this.timeline;
        const points = this.rates(name).slice(0, -1).map((rate, i) =>
            [age_ms + (periods - 1.5 - i) * period_ms, rate]);
        const rate = this.rate(name);
        return rate === null ? points : [...points, [0, rate]];
    }

    // The highest rate; null: no rate is known.
    peak(name) {
        const rates = this.points(name).map(([, rate]) => rate);
        return rates.length ? Math.max(...rates) : null;
    }

    // Returns for how long a test of a period has held, up to the last minute:
    // { ms, ago }, and `whole` if it held in all periods; null: it has not.
    lasts(test) {
        const { period_ms, age_ms, periods } = this.timeline;
        let end = periods - 1;
        while (end >= 0 && end > periods - RECENT && !test(end)) {
            end--;
        }
        if (end < 0 || !test(end)) {
            return null;
        }
        let first = end;
        while (first > 0 && test(first - 1)) {
            first--;
        }
        const ago = end === periods - 1 ? 0
            : age_ms + (periods - 2 - end) * period_ms;
        const ms = age_ms + (periods - 1 - first) * period_ms - ago;
        return { ms, ago, whole: first === 0 && periods === 60 };
    }
}
