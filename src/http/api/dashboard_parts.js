// The dashboard's script, first part: what its cards are made of.

"use strict";

// Names and keys are text that others chose.  It is never taken for markup:
// all goes through textContent and append().

const SPAN_MS = 180000;                    // the width of the lines
const NONE = "\u2013";

function element(tag, name, ...children) {
    const node = document.createElement(tag);
    if (name) {
        node.className = name;
    }
    node.append(...children);
    return node;
}

// Writes only what has changed, so that a selection stays.
function put(node, text) {
    if (node.textContent !== text) {
        node.textContent = text;
    }
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

function duration(ms) {
    const units = [[86400000, "d"], [3600000, "h"], [60000, "min"],
        [1000, "s"], [1, "ms"]];
    const [unit, name] = units.find(([unit]) => ms % unit === 0);
    return count(ms / unit) + " " + name;
}

// Undefined where there is none.
function penalty(rule) {
    return rule ? duration(rule.time_ms) + " to " + duration(rule.max_ms)
        + " after " + count(rule.after) : undefined;
}

function milliseconds(us) {
    return us === Infinity ? "longer"
        : Number((us / 1000).toPrecision(2)) + " ms";
}

function bytes(n) {
    return n < 1048576 ? count(n / 1024) + " KiB"
        : tenth.format(n / 1048576) + " MiB";
}


// ---- parts of a card ----

class Facts {
    node = element("dl");
    values = {};

    // Shows each member of an object, but those that are undefined.
    set(facts) {
        for (const [name, text] of Object.entries(facts)) {
            if (text === undefined) {
                continue;
            }
            if (!this.values[name]) {
                this.values[name] = element("bdi");
                this.node.append(element("div", "", element("dt", "", name),
                    element("dd", "", this.values[name])));
            }
            put(this.values[name], text);
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
    return table(title, what, "per second", "last 3 minutes", "total");
}

// A row of a table: a counter, how fast it goes now and has gone lately.
class Counter {
    constructor(body, name, rare) {
        const svg = "http://www.w3.org/2000/svg";
        const picture = document.createElementNS(svg, "svg");
        this.path = picture.appendChild(document.createElementNS(svg, "path"));
        picture.setAttribute("viewBox", "0 0 180 24");
        picture.setAttribute("preserveAspectRatio", "none");
        picture.setAttribute("aria-hidden", "true");

        this.head = element("th", "", name.replaceAll("_", " "));
        this.head.scope = "row";
        this.rate = element("td", "n", NONE);
        this.line = element("td", "line " + name.split("_")[0], picture);
        this.total = element("td", "n");
        this.row = element("tr", "", this.head, this.rate, this.line,
            this.total);
        this.rare = rare;
        this.points = [];
        body.append(this.row);
    }

    // `step` is in seconds since the last value; 0: they do not compare.
    set(total, time, step) {
        const rate = step > 0 ? (total - this.last) / step : null;
        this.last = total;
        this.points = this.points.filter(([then]) =>
            then <= time && then > time - SPAN_MS);
        this.points.push([time, rate]);
        this.row.hidden = this.rare && total === 0;
        put(this.rate, perSecond(rate));
        put(this.total, count(total));
        this.draw(time);
    }

    draw(now) {
        const most = Math.max(...this.points.map(([, rate]) => rate));
        let d = "", pen = "M";
        for (const [time, rate] of this.points) {
            if (rate === null) {
                pen = "M";
                continue;
            }
            const x = 180 - (now - time) * 180 / SPAN_MS;
            const y = 23 - 22 * rate / (most || 1);
            d += pen + x.toFixed(1) + " " + y.toFixed(1);
            pen = "L";
        }
        this.path.setAttribute("d", d);
        this.line.title = "at most " + perSecond(most) + " per second";
    }
}

// Counters by name.  If one has gone back, all of them were started anew.
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
}
