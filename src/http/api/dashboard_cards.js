// The dashboard's script, sixth part: the cards of zones and of Redis.

const OFFENDERS = 10;                      // shown before a click shows all
const MEMORY = 0.7;                        // share of slots that is shown

const RARE = ["unlimited", "errors", "usage_missing", "evicted", "refused",
    "bans", "banned_requests"];

const keyDialog = new KeyDialog();


// ---- top offenders ----

class Offenders {
    constructor(zone) {
        this.zone = zone;
        this.table = table("Top offenders of the last minutes", "key",
            "rejected");
        this.none = element("p");
        this.button = button("", () => {
            this.all = !this.all;
            this.show();
        });
        this.node = element("div", "part", this.table.node, this.none,
            this.button);
    }

    // `configured` is the key in the zone's configuration.
    set(keys, configured) {
        Object.assign(this, { keys, configured });
    }

    show() {
        const { keys, table: { body } } = this;
        const shown = (keys || []).slice(0, this.all ? Infinity : OFFENDERS);

        put(this.none, keys === null ? "not kept: top=off"
            : keys.length ? "" : "nobody");
        this.button.hidden = !keys || keys.length <= OFFENDERS;
        put(this.button, this.all ? "fewer" : "all " + (keys || []).length);

        while (body.rows.length > shown.length) {
            body.lastChild.remove();
        }
        while (body.rows.length < shown.length) {
            const key = button(bdi(""));
            body.append(element("tr", "", element("td", "", key,
                element("small")), element("td", "n")));
        }
        shown.forEach((offender, i) => this.row(body.rows[i], offender));
    }

    // The API would not find a key that was cut.
    row(row, { key, key_uri, truncated, rejected }) {
        const look = row.querySelector("button");
        look.disabled = truncated;
        look.onclick = () =>
            keyDialog.open(this.zone, this.configured, key_uri);
        put(look.firstChild, masked(key, this.configured));
        put(row.querySelector("small"), truncated ? " (cut)" : "");
        put(row.lastChild, count(rejected));
    }
}


// ---- times ----

// Durations since the oldest answer within SPAN_MS.
class Times {
    past = [];

    // Takes the number of durations, their sum, and buckets, [bound, number up
    // to it].  The sum and the bounds are in us.  p50 and p99 are bounds.
    set(n, sum, buckets, time) {
        this.past = this.past.filter(then => then.n <= n
            && then.time <= time && then.time > time - SPAN_MS);
        this.past.push({ n, sum, buckets, time });
        const then = this.past[0];

        // the page has just been opened
        const first = this.past.length === 1 ? { n: 0, sum: 0, buckets: null }
            : then;
        const lately = this.lately = n - first.n;
        this.spent = sum - first.sum;
        const within = share => {
            const i = buckets.findIndex(([, n], i) =>
                n - (first.buckets?.[i][1] ?? 0) >= share * lately);
            return i < 0 ? Infinity : buckets[i][0];
        };
        this.mean = lately ? this.spent / lately : null;
        this.p50 = lately ? within(0.5) : null;
        this.p99 = lately ? within(0.99) : null;
    }

    get facts() {
        const [mean, p50, p99] = latencies([this.mean, this.p50, this.p99]);
        return { mean, p50, p99 };
    }
}


// ---- cards ----

// A part of a card, which is hidden if it has nothing to show.
function part(title, ...children) {
    return element("div", "part", element("h3", "", title), ...children);
}

// The rates of counters, without those that never counted.
class Rates {
    constructor(title, what) {
        this.table = table(title, what, "per second", "peak", "total");
        this.node = element("div", "part", this.table.node);
    }

    // Takes [name, class, rate, peak, total, whether it is always shown].
    set(rows) {
        const shown = rows.filter(([, , , , total, always]) => total || always);
        this.table.body.replaceChildren(...shown.map(
            ([name, line, rate, peak, total]) => {
                const head = element("th", line, name.replaceAll("_", " "));
                head.scope = "row";
                return element("tr", "", head, ...[perSecond(rate),
                    peak === null ? NONE : perSecond(peak), count(total)]
                    .map(text => element("td", "n", text)));
            }));
        this.node.hidden = !shown.length;
    }
}

// What all cards have: figures for the tables, and a section while it is open.
class Card {
    counters = new Counters();
    times = new Times();

    constructor(name) {
        this.name = name;
        this.id = this.constructor.name + " " + name;
    }

    get isOpen() {
        return Boolean(this.node);
    }

    open() {
        this.facts = new Facts();
        this.chart = new Chart(this.charted);
        this.rates = new Rates(...this.rated);
        this.timing = new Facts();
        const close = button("Close", () => toggleCard(this.id));
        close.ariaLabel = "Close " + this.id;
        this.node = element("section", "", element("header", "",
            element("h2", "", this.constructor.name + " ", bdi(this.name)),
            close),
        this.facts.node, this.chart.node,
        element("div", "parts", this.rates.node,
            part(this.timed, this.timing.node), ...this.parts()));
        this.node.id = this.id;
        this.node.ariaLabel = this.id;
        this.show();
    }

    close() {
        this.node.remove();
        this.node = null;
    }

    show() {
        this.chart.show(this.counters);
        this.rates.set(this.listed.map(name => this.row(name)));
        this.timing.set(this.times.facts);
    }

    // Returns the row of a counter, for Rates.
    row(name) {
        const { counters } = this;
        const line = this.charted.includes(name);
        return [name, line ? "series " + lineClass(name) : "",
            counters.rate(name),
            line || counters.timeline[name] ? counters.peak(name) : null,
            counters.values[name], this.kept.includes(name)];
    }
}

class Zone extends Card {
    charted = [...CHARTED, "fallback"];
    listed = [...CHARTED, ...RARE];
    kept = ["passed", "rejected"];         // listed even if they are 0
    rated = ["Requests", "decision"];
    timed = "Time of a decision";

    set(zone, time) {
        this.zone = zone;
        this.counters.set({ ...zone, fallback: zone.sources?.fallback ?? 0 },
            time);
        this.times.set(zone.measured, zone.decision_times.sum_ns / 1000,
            zone.decision_times.buckets.map(({ le_ns, decisions }) =>
                [le_ns / 1000, decisions]), time);
    }

    parts() {
        this.sources = new Rates("Where decided", "source");
        this.shares = table("Keys by share of the limit, a sample",
            "used", "keys");
        this.sharing = element("div", "part shares", this.shares.node);
        this.full = element("p");
        this.meter = element("meter");
        this.meter.high = FULL;
        this.meter.ariaLabel = "slots held";
        this.memory = part("Memory", this.full, this.meter);
        this.offenders = new Offenders(this.name);
        this.offenders.node.append(button("Look up a key",
            () => keyDialog.open(this.name, this.zone.key)));
        return [this.sharing, this.memory, this.sources.node,
            this.offenders.node];
    }

    show() {
        const { zone, counters } = this;
        const lease = zone.leases?.size;
        this.facts.set({
            "limit": zone.limit === null ? zone.rate ?? zone.inflight
                : count(zone.limit),
            "window": zone.window_ms && duration(zone.window_ms),
            "burst": zone.burst >= 0 ? count(zone.burst) : "",
            "algorithm": zone.algorithm,
            "key": zone.key,
            "when full": zone.full,
            "size": bytes(zone.bytes),
            "keys held": count(zone.keys),
            "in flight": zone.in_flight_max ? count(zone.in_flight) + " of "
                + count(zone.in_flight_max) : "",
            "own limits": zone.own_limits ? count(zone.own_limits) : "",
            "penalty": penalty(zone.penalty),
            "banned now": zone.banned ? count(zone.banned) : "",
            "Redis": zone.redis,
            "leases size": lease > 0 ? count(lease) : lease
        });
        super.show();
        this.sources.set(Object.keys(zone.sources ?? {}).map(name => [name,
            name === "fallback" ? "series fallback" : "",
            counters.rate(name, all => all.sources[name]),
            name === "fallback" ? counters.peak(name) : null,
            zone.sources[name]]));

        const used = zone.slots ? zone.keys / zone.slots : 0;
        this.memory.hidden = used < MEMORY;
        this.meter.value = used;
        put(this.full, percent(used) + " of the slots are held");
        this.showShares(zone.shares ?? {});
        this.offenders.set(zone.top, zone.key);
        this.offenders.show();
    }

    // Keys by their used share of the limit, from a sample, as bars.
    showShares(shares) {
        const bands = Object.entries(shares).reverse();
        const most = Math.max(1, ...bands.map(([, n]) => n));
        this.sharing.hidden = !bands.some(([, n]) => n > 0);
        this.shares.body.replaceChildren(...bands.map(([from, n]) => {
            const head = element("th", "", from === "100" ? "100%"
                : from + "\u2013" + (Number(from) + 20) + "%");
            head.scope = "row";
            const bar = element("span", from === "100" ? "bar bad" : "bar");
            bar.hidden = n === 0;
            bar.style.setProperty("width", n * 60 / most + "%");
            return element("tr", "", head, element("td", "", bar,
                " " + count(n)));
        }));
    }
}

class Redis extends Card {
    charted = ["calls", "failed_calls"];
    listed = ["calls", "failed_calls", "breaker_opened", "unsettled"];
    kept = ["calls"];
    rated = ["Calls", "what"];
    timed = "Round trips";

    set(redis, time) {
        this.redis = redis;
        this.counters.set(redis, time);
        this.times.set(redis.calls, redis.latency.sum_us, redis.latency.buckets
            .map(({ le_us, calls }) => [le_us, calls]), time);
    }

    parts() {
        return [];
    }

    show() {
        const { redis, redis: { memory } } = this;
        this.facts.set({
            "breaker": redis.breaker + (redis.open_ms === null ? ""
                : " for " + about(redis.open_ms)),
            "servers": redis.servers.join(", "),
            "topology": redis.topology,
            "timeout": duration(redis.timeout_ms),
            "on error": redis.on_error,
            "memory": memory && bytes(memory.bytes) + (memory.max_bytes
                ? " of " + bytes(memory.max_bytes) : ""),
            "evicted keys": memory?.evicted ? count(memory.evicted) : ""
        });
        super.show();
    }
}
