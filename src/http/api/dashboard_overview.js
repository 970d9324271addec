// The dashboard's script, fifth part: the tables of zones and of each Redis.

// A table with a row for each card, sorted by a column.  A column is { head,
// name of its class, value(card) to sort by, show(cell, card, value) }.
class Overview {
    rows = new Map();
    sort = null;                           // the column; null: as configured

    constructor(title, columns) {
        this.columns = columns;
        this.body = element("tbody");
        const row = element("tr");
        for (const column of columns) {
            const head = element("th", column.name ?? "");
            head.scope = "col";
            head.append(column.value
                ? button(column.head, () => this.sortBy(column)) : column.head);
            column.node = head;
            row.append(head);
        }
        this.node = element("table", "overview", element("caption", "", title),
            element("thead", "", row), this.body);
    }

    // Sorts by a column, the largest first, then the other way, then not.
    sortBy(column) {
        this.up = this.sort === column ? !this.up : column === this.columns[0];
        this.sort = column;
        for (const { node } of this.columns) {
            node.ariaSort = node !== column.node ? null
                : this.up ? "ascending" : "descending";
        }
        this.arrange();
    }

    // Shows these cards, { id, name, node, ... }, in their order.
    set(cards) {
        const before = this.rows;
        this.rows = new Map();
        for (const card of cards) {
            const row = before.get(card.id) ?? this.row(card);
            this.rows.set(card.id, row);
            row.card = card;
            this.columns.forEach((column, i) =>
                column.show(row.cells[i], card, column.value?.(card)));
        }
        this.node.hidden = !cards.length;
        this.arrange();
    }

    row(card) {
        const row = element("tr", "", ...this.columns.map(({ name }, i) =>
            element(i ? "td" : "th", name ?? "")));
        const open = button(card.name, () => toggleCard(card.id));
        open.dir = "auto";
        open.title = card.name;
        row.cells[0].scope = "row";
        row.cells[0].append(open);
        return row;
    }

    arrange() {
        const { sort, up } = this;
        const rows = [...this.rows.values()];
        if (sort) {
            const key = ({ card }) => sort.value(card) ?? -1;
            rows.sort((a, b) => (up ? 1 : -1)
                * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
        }
        if (rows.length !== this.body.rows.length
            || rows.some((row, i) => row !== this.body.rows[i]))
        {
            const focused = document.activeElement;
            this.body.replaceChildren(...rows);
            if (this.body.contains(focused)) {
                focused.focus({ preventScroll: true });
            }
        }
    }

    // Hides the rows of other cards; returns the number of shown rows.
    filter(matches) {
        for (const row of this.rows.values()) {
            row.hidden = !matches(row.card);
        }
        return [...this.rows.values()].filter(row => !row.hidden).length;
    }
}


// ---- columns ----

function number(cell, text, zero, bad) {
    put(cell, text);
    cell.className = cell.className.replace(/ (zero|bad)/g, "")
        + (bad ? " bad" : zero ? " zero" : "");
}

const NAME = { head: "", value: ({ name }) => name.toLowerCase(),
    show(cell, { id, isBad, isOpen }) {
        cell.firstChild.classList.toggle("marked", isBad);
        cell.firstChild.ariaExpanded = String(isOpen);
    } };

function trend(names) {
    return { head: "last 10 min", name: "trend wide", show(cell, card) {
        card.trend ??= new Lines(names);
        if (!cell.firstChild) {
            cell.append(card.trend.node);
            card.trend.node.ariaHidden = "true";
        }
        const { counters } = card;
        card.trend.show(counters, Math.max(...names.map(name =>
            counters.peak(name) ?? 0)) || 1);
    } };
}

// Requests per second of a zone, or of these decisions; null: not known.
function requests({ counters }, names = CHARTED) {
    const rates = names.map(name => counters.rate(name));
    return rates.includes(null) ? null : rates.reduce((a, b) => a + b);
}

function rejectedShare(card) {
    const all = requests(card);
    return all === null ? null : all === 0 ? 0
        : card.counters.rate("rejected") / all;
}

// Keys from a share of the limit on; null: not known.
function keysFrom({ zone }, ...bands) {
    return zone.shares?.[0] === undefined ? null
        : bands.reduce((n, band) => n + zone.shares[band], 0);
}

// The source that decides most requests of a zone at present.
function decidedBy({ zone, counters }) {
    if (!zone.sources) {
        return "this node";
    }
    const [[source, rate]] = Object.keys(zone.sources).map(source => [source,
        counters.rate(source, all => all.sources[source]) ?? 0])
        .sort(([, a], [, b]) => b - a);
    return rate === 0 || source === "redis" ? "Redis " + zone.redis
        : source === "fallback" ? "without Redis" : source;
}

const zoneTable = new Overview("Zones", [
    { ...NAME, head: "zone" },
    { head: "requests\u200b/s", name: "n", value: card => requests(card),
        show: (cell, card, rate) => number(cell, perSecond(rate), rate === 0) },
    { head: "rejected", name: "n", value: rejectedShare,
        show: (cell, card, share) => number(cell, percent(share), share === 0,
            share > 0.5) },
    { head: "at limit", name: "n", value: card => keysFrom(card, 100),
        show: (cell, card, n) => number(cell, n === null ? NONE : count(n),
            !n) },
    { head: "above 80%", name: "n", value: card => keysFrom(card, 80, 100),
        show: (cell, card, n) => number(cell, n === null ? NONE : count(n),
            !n) },
    { head: "top key", name: "key wide", show(cell, { zone }) {
        const key = zone.top?.[0];
        cell.dir = "auto";
        number(cell, key ? masked(key.key, zone.key) : NONE, !key);
    } },
    { head: "decided by", name: "key wide", value: decidedBy,
        show: (cell, card, by) => number(cell, by, false,
            by === "without Redis") },
    trend(["passed", "rejected", "fallback"])
]);

const redisTable = new Overview("Redis", [
    { ...NAME, head: "Redis" },
    { head: "calls/s", name: "n", value: ({ counters }) =>
        counters.rate("calls"),
    show: (cell, card, rate) => number(cell, perSecond(rate), rate === 0) },
    { head: "failed/s", name: "n", value: ({ counters }) =>
        counters.rate("failed_calls"),
    show: (cell, card, rate) => number(cell, perSecond(rate), rate === 0,
        rate > 0) },
    { head: "p99", name: "n", value: ({ times }) => times.p99,
        show: (cell, { times }) => put(cell, latencies([times.p99])[0]) },
    { head: "breaker", name: "n", value: ({ redis }) => redis.breaker,
        show: (cell, { redis }) => number(cell, redis.breaker, false,
            redis.breaker !== "closed") },
    { head: "memory", name: "key wide", value: ({ redis }) =>
        redis.memory?.bytes, show: (cell, { redis: { memory } }) =>
        put(cell, memory ? bytes(memory.bytes) : NONE) },
    { head: "on error", name: "key wide", value: ({ redis }) => redis.on_error,
        show: (cell, { redis }) => put(cell, redis.on_error) },
    trend(["calls", "failed_calls"])
]);
