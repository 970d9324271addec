// The dashboard's script, third part: the cards, and what keeps them alive.

const PERIOD_MS = 2000, TIMEOUT_MS = 5000;
const OFFENDERS = 10;                      // shown until all are asked for

const RARE = ["delayed_dry_run", "rejected_dry_run", "errors", "refused",
    "bans", "banned_requests"];
const COUNTERS = ["passed", "delayed", "rejected", "evicted", ...RARE];

// The name and password that this page's address may have are left out.
const api = location.origin + location.pathname.replace(/[^/]*$/, "");
const main = document.querySelector("main");
let cards = new Map();
const alarms = new Alarms();
let told;                                  // the last state


// ---- top offenders ----

class Offenders {
    constructor(zone) {
        this.zone = zone;
        this.table = table("Top offenders of the last minutes", "key",
            "rejected");
        this.none = element("p");
        this.button = element("button");
        this.button.type = "button";
        this.button.onclick = () => {
            this.all = !this.all;
            this.set(this.keys);
        };
        this.node = element("div", "", this.table.node, this.none,
            this.button);
    }

    set(keys) {
        const body = this.table.body;
        const shown = (keys || []).slice(0, this.all ? Infinity : OFFENDERS);
        this.keys = keys;

        put(this.none, keys === null ? "not kept: top=off"
            : keys.length ? "" : "nobody");
        this.button.hidden = !keys || keys.length <= OFFENDERS;
        put(this.button, this.all ? "fewer" : "all " + (keys || []).length);

        while (body.rows.length > shown.length) {
            body.lastChild.remove();
        }
        while (body.rows.length < shown.length) {
            const key = element("a", "", element("bdi"));
            body.append(element("tr", "", element("td", "", key,
                element("small")), element("td", "n")));
        }
        shown.forEach((offender, i) => this.row(body.rows[i], offender));
    }

    // A key that was cut is not the one that the API would show.
    row(row, { key, key_uri, truncated, rejected }) {
        const link = row.querySelector("a");
        if (truncated) {
            link.removeAttribute("href");
        } else {
            link.href = api + "zones/" + encodeURIComponent(this.zone)
                + "/key?key=" + key_uri;
        }
        put(link.firstChild, key);
        put(row.querySelector("small"), truncated ? " (cut)" : "");
        put(row.lastChild, count(rejected));
    }
}


// ---- cards ----

class Zone {
    constructor(name) {
        const requests = counterTable("Requests", "decision");
        this.facts = new Facts();
        this.counters = new Counters(requests.body, COUNTERS, RARE);
        this.meter = element("meter");
        this.meter.high = 0.9;
        this.meter.ariaLabel = "slots held";
        this.full = element("p");
        this.sources = counterTable("Where decided", "source");
        this.sources.node.hidden = true;
        this.offenders = new Offenders(name);
        this.node = element("section", "",
            element("h2", "", "Zone ", element("bdi", "", name)),
            this.facts.node, requests.node,
            element("div", "full", this.full, this.meter),
            this.sources.node, this.offenders.node);
    }

    set(zone, time) {
        this.facts.set({
            "limit": zone.limit === null ? zone.rate : count(zone.limit),
            "window": duration(zone.window_ms),
            "burst": zone.burst && count(zone.burst),
            "algorithm": zone.algorithm,
            "key": zone.key,
            "when full": zone.full,
            "size": bytes(zone.bytes),
            "own limits": count(zone.own_limits),
            "penalty": penalty(zone.penalty),
            "banned now": zone.penalty ? count(zone.banned) : undefined
        });
        this.counters.set(zone, time);
        if (zone.redis !== null) {
            this.setRedis(zone, time);
        }

        const share = zone.slots ? zone.keys / zone.slots : 0;
        this.meter.value = share;
        put(this.full, tenth.format(share * 100) + "% full: "
            + count(zone.keys) + " of " + count(zone.slots)
            + " slots held, " + count(zone.slots_used) + " ever used");
        this.offenders.set(zone.top);
    }

    setRedis(zone, time) {
        this.facts.set({ "Redis": zone.redis });
        for (const [name, value] of Object.entries(zone.leases || {})) {
            this.facts.set({ ["leases " + name.replaceAll("_", " ")]:
                typeof value === "number" ? count(value) : String(value) });
        }
        this.bySource ??= new Counters(this.sources.body,
            Object.keys(zone.sources));
        this.bySource.set(zone.sources, time);
        this.sources.node.hidden = false;
    }
}


// The times of the calls since the first answer that is not too old.
class Latency {
    past = [];

    // Returns facts to show, of which the last two are bounds of buckets.
    add({ calls, latency }, time) {
        this.past = this.past.filter(then => then.calls <= calls
            && then.time <= time && then.time > time - SPAN_MS);
        this.past.push({ calls, latency, time });
        const then = this.past[0];
        const n = calls - then.calls;

        const within = share => {
            const i = latency.buckets.findIndex((bucket, i) => bucket.calls
                - then.latency.buckets[i].calls >= share * n);
            return i < 0 ? Infinity : latency.buckets[i].le_us;
        };

        const shown = us => n ? milliseconds(us) : NONE;
        return {
            "mean": shown((latency.sum_us - then.latency.sum_us) / n),
            "p50": shown(within(0.5)),
            "p99": shown(within(0.99))
        };
    }
}

class Redis {
    constructor(name) {
        const calls = counterTable("Calls", "what");
        this.facts = new Facts();
        this.breaker = element("span", "badge");
        this.calls = new Counters(calls.body,
            ["calls", "failed_calls", "breaker_opened"]);
        this.latency = new Latency();
        this.times = new Facts();
        this.node = element("section", "",
            element("h2", "", "Redis ", element("bdi", "", name), " ",
                this.breaker),
            this.facts.node, calls.node,
            element("h3", "", "Round trips of the last 3 minutes"),
            this.times.node);
    }

    set(redis, time) {
        const open = redis.breaker !== "closed";
        put(this.breaker, "breaker " + redis.breaker);
        this.breaker.classList.toggle("bad", open);
        this.facts.set({
            "servers": redis.servers.join(", "),
            "topology": redis.topology,
            "timeout": duration(redis.timeout_ms),
            "on error": redis.on_error
        });
        this.calls.set(redis, time);
        this.times.set(this.latency.add(redis, time));
    }
}


// ---- the page ----

// Shows an answer; returns how much is wrong.
function show(answer) {
    const { version, nginx, time_ms, zones, redis } = answer;
    const before = cards;
    cards = new Map();
    put(document.getElementById("version"), version + ", NGINX " + nginx);

    for (const [Card, all] of [[Zone, zones], [Redis, redis]]) {
        for (const [name, values] of Object.entries(all)) {
            const id = Card.name + " " + name;
            const card = before.get(id) ?? new Card(name);
            card.node.id = id;
            cards.set(id, card);
            card.set(values, time_ms);
        }
    }

    const nodes = [...cards.values()].map(card => card.node);
    if (nodes.length !== main.children.length
        || nodes.some((node, i) => node !== main.children[i]))
    {
        main.replaceChildren(...nodes);
    }
    return alarms.set(answer);
}

// Says once why there is no answer, or "", and how much is wrong: screen
// readers read all that is new.
function tell(problem, wrong = 0) {
    const now = problem || wrong;
    if (now === told) {
        return;
    }
    told = now;
    const state = wrong + (wrong === 1 ? " problem" : " problems");
    document.body.classList.toggle("stale", problem);
    document.body.classList.toggle("wrong", wrong);
    document.title = (problem ? "stale: " : wrong ? state + ": " : "")
        + "limit_sliding";
    put(document.getElementById("state"), problem ? "stale since "
        + new Date().toLocaleTimeString() + ": " + problem
        : wrong ? state : "live");
}

async function poll() {
    try {
        const response = await fetch(api, { cache: "no-store",
            signal: AbortSignal.timeout(TIMEOUT_MS) });
        if (!response.ok) {
            throw new Error("HTTP status " + response.status);
        }
        tell("", show(await response.json()));
    } catch (error) {
        tell(error.message);
    }
    setTimeout(next, PERIOD_MS);
}

// Nobody looks at a hidden page, so it goes on when it is seen again.
function next() {
    if (document.hidden) {
        document.addEventListener("visibilitychange", next, { once: true });
    } else {
        poll();
    }
}

next();
