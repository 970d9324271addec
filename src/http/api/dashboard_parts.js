// The dashboard's script, first part: the parts of its cards.

"use strict";

// Others choose names and keys, so their text is never parsed as markup: all
// goes through textContent and append().

const SPAN_MS = 180000;                    // time that charts show
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
    return tenth.format(ms / unit) + " " + name;
}

function penalty(rule) {
    return rule && duration(rule.time_ms) + " to " + duration(rule.max_ms)
        + " after " + count(rule.after);
}

function latency(us) {
    const [n, unit] = us < 10 ? [us, " us"] : [us / 1000, " ms"];
    return us === Infinity ? "longer" : Number(n.toPrecision(2)) + unit;
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

function counterTable(title, what) {
    return table(title, what, "per second", "peak", "total");
}

// A row of a table: a counter, its present rate and its peak in SPAN_MS.
class Counter {
    constructor(body, name, rare) {
        this.name = name;
        this.head = element("th", "", name.replaceAll("_", " "));
        this.head.scope = "row";
        this.now = element("td", "n", NONE);
        this.peak = element("td", "n", NONE);
        this.total = element("td", "n");
        this.row = element("tr", "", this.head, this.now, this.peak,
            this.total);
        this.rare = rare;
        this.points = [];
        body.append(this.row);
    }

    // `step`: seconds since the last value; 0: the values do not compare.
    set(total, time, step) {
        this.rate = step > 0 ? (total - this.last) / step : null;
        this.last = total;
        this.points = this.points.filter(([then]) =>
            then <= time && then > time - SPAN_MS);
        this.points.push([time, this.rate]);
        const rates = this.points.map(([, rate]) => rate)
            .filter(rate => rate !== null);
        this.most = rates.length ? Math.max(...rates) : null;
        this.row.hidden = this.rare && total === 0;
        put(this.now, perSecond(this.rate));
        put(this.peak, perSecond(this.most));
        put(this.total, count(total));
    }
}

// Counters by name.  If one has fallen, all have started anew.
class Counters {
    constructor(body, names, rare = []) {
        this.rows = new Map(names.map(name =>
            [name, new Counter(body, name, rare.includes(name))]));
    }

    set(values, time) {
        const rows = [...this.rows];
        const anew = rows.some(([name, row]) => !(values[name] >= row.last));
        const step = anew ? 0 : (time - this.time) / 1000;
        this.time = time;
        rows.forEach(([name, row]) => row.set(values[name], time, step));
    }

    rate(name) {
        return this.rows.get(name).rate;
    }

    // Returns a chart of the counters with these names.
    chart(...names) {
        return new Chart(names.map(name => this.rows.get(name)));
    }
}
