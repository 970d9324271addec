// The dashboard's script, fifth part: the cards of zones and of Redis.

const OFFENDERS = 10;                      // shown before a click shows all

const CHARTED = ["passed", "delayed", "rejected", "delayed_dry_run",
    "rejected_dry_run"];
const RARE = ["delayed_dry_run", "rejected_dry_run", "unlimited", "errors",
    "refused", "bans", "banned_requests"];
const COUNTERS = ["passed", "delayed", "rejected", "evicted", ...RARE];

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
        this.node = element("div", "", this.table.node, this.none,
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

    constructor(title) {
        this.facts = new Facts();
        this.node = element("div", "", element("h3", "", title
            + " of the last 3 minutes"), this.facts.node);
    }

    // Takes the number of durations, their sum, and buckets, [bound, number up
    // to it].  The sum and the bounds are in us.  p50 and p99 are bounds.
    set(n, sum, buckets, time) {
        this.past = this.past.filter(then => then.n <= n
            && then.time <= time && then.time > time - SPAN_MS);
        this.past.push({ n, sum, buckets, time });
        const then = this.past[0];
        const lately = n - then.n;

        const within = share => {
            const i = buckets.findIndex(([, n], i) =>
                n - then.buckets[i][1] >= share * lately);
            return i < 0 ? Infinity : buckets[i][0];
        };

        const shown = us => lately ? latency(us) : NONE;
        this.facts.set({
            "mean": shown((sum - then.sum) / lately),
            "p50": shown(within(0.5)),
            "p99": shown(within(0.99))
        });
    }
}


// ---- cards ----

class Zone {
    constructor(name) {
        const requests = counterTable("Requests", "decision");
        this.facts = new Facts();
        this.counters = new Counters(requests.body, COUNTERS, RARE);
        this.chart = this.counters.chart(...CHARTED);
        this.meter = element("meter");
        this.meter.high = FULL;
        this.meter.ariaLabel = "slots held";
        this.full = element("p");
        this.times = new Times("Decisions");
        this.sources = counterTable("Where decided", "source");
        this.offenders = new Offenders(name);
        this.node = element("section", "",
            element("h2", "", "Zone ", bdi(name)),
            this.facts.node, this.chart.node, requests.node,
            element("div", "full", this.full, this.meter),
            this.times.node, this.sources.node, this.offenders.node,
            button("Look up a key",
                () => keyDialog.open(name, this.configured)));
    }

    set(zone, time) {
        this.configured = zone.key;
        const lease = zone.leases?.size;
        this.facts.set({
            "limit": zone.limit === null ? zone.rate : count(zone.limit),
            "window": duration(zone.window_ms),
            "burst": zone.burst >= 0 ? count(zone.burst) : "",
            "algorithm": zone.algorithm,
            "key": zone.key,
            "when full": zone.full,
            "size": bytes(zone.bytes),
            "own limits": count(zone.own_limits),
            "penalty": penalty(zone.penalty),
            "banned now": zone.penalty && count(zone.banned),
            "Redis": zone.redis,
            "leases size": lease > 0 ? count(lease) : lease
        });
        this.counters.set(zone, time);
        this.sources.node.hidden = !zone.sources;
        if (zone.sources) {
            this.bySource ??= new Counters(this.sources.body,
                Object.keys(zone.sources));
            this.bySource.set(zone.sources, time);
        }

        const share = zone.slots ? zone.keys / zone.slots : 0;
        this.meter.value = share;
        put(this.full, tenth.format(share * 100) + "% full: "
            + count(zone.keys) + " of " + count(zone.slots)
            + " slots held, " + count(zone.slots_used) + " ever used");
        this.times.set(zone.measured, zone.decision_times.sum_ns / 1000,
            zone.decision_times.buckets.map(({ le_ns, decisions }) =>
                [le_ns / 1000, decisions]), time);
        this.offenders.set(zone.top, zone.key);
    }
}

class Redis {
    constructor(name) {
        const calls = counterTable("Calls", "what");
        this.facts = new Facts();
        this.breaker = element("span", "badge");
        this.counters = new Counters(calls.body,
            ["calls", "failed_calls", "breaker_opened"]);
        this.chart = this.counters.chart("calls", "failed_calls");
        this.times = new Times("Round trips");
        this.node = element("section", "",
            element("h2", "", "Redis ", bdi(name), " ", this.breaker),
            this.facts.node, this.chart.node, calls.node,
            this.times.node);
    }

    set(redis, time) {
        const { breaker, memory } = redis;
        const open = breaker !== "closed";
        put(this.breaker, "breaker " + breaker);
        this.breaker.classList.toggle("bad", open);
        this.facts.set({
            "servers": redis.servers.join(", "),
            "topology": redis.topology,
            "timeout": duration(redis.timeout_ms),
            "on error": redis.on_error,
            "memory": memory && bytes(memory.bytes) + (memory.max_bytes
                ? " of " + bytes(memory.max_bytes) : ""),
            "evicted keys": memory && count(memory.evicted)
        });
        this.counters.set(redis, time);
        this.times.set(redis.calls, redis.latency.sum_us, redis.latency.buckets
            .map(({ le_us, calls }) => [le_us, calls]), time);
    }
}
