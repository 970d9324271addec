// The dashboard's script, third part: present problems, on top of the page.

const RECENT_MS = 60000;                   // a problem is shown for so long
const LINES = 12;                          // at most so many are listed
const FULL = 0.9;                          // share in use that is a problem

const DECIDED = { local: "decided by each node alone", allow: "let through",
    deny: "rejected" };

class Alarms {
    past = new Map();

    constructor(node) {
        this.node = node;
    }

    // Returns true if a counter without a timeline has risen in the last
    // RECENT_MS.  The first value does not count as a rise, nor does one after
    // a restart of the counter or a pause of the page.
    rises(name, value, time) {
        if (!(value >= 0)) {
            return false;
        }
        const past = this.past.get(name);
        const anew = !past || value < past.value || time < past.time
            || time - past.time > RECENT_MS;
        const last = anew ? -Infinity : value > past.value ? time : past.last;
        this.past.set(name, { value, time, last });
        return time - last < RECENT_MS;
    }

    // Lists the problems of a Redis, the worst first.
    ofRedis(id, counters, redis, zones) {
        const open = redis.breaker !== "closed";
        const affected = zones.filter(({ zone, counters }) =>
            zone.redis === redis.name && fallback(counters) > 0);
        if (open) {
            const all = affected.reduce((n, { counters }) =>
                n + fallback(counters), 0);
            const how = [...new Set(affected.map(({ zone }) =>
                DECIDED[zone.on_error]))].join(" or ");
            const names = affected.slice(0, 3).map(({ name }) => name);
            this.add(id, "breaker open" + (redis.open_ms === undefined ? ""
                : " for " + about(redis.open_ms)) + (all > 0 ? ", "
                    + perSecond(all) + " requests/s of "
                    + (affected.length > 1 ? "zones " : "zone ")
                    + names.join(", ") + (affected.length > 3 ? " and "
                        + (affected.length - 3) + " more" : "") + " " + how
                    : ""));
        } else {
            this.lately(id, counters, "failed_calls", "calls/s fail");
        }
        if (this.rises(id + " evicted", redis.memory?.evicted, this.time)) {
            this.add(id, "its memory is full, it evicts keys");
        }
        if (this.rises(id + " unsettled", redis.unsettled, this.time)) {
            this.add(id, "it was not told of some units, "
                + count(redis.unsettled) + " in all");
        }
    }

    // Lists the problems of a zone, the worst first; bans are no problem.
    ofZone(id, counters, zone, open) {
        this.lately(id, counters, "refused", "new keys/s refused, it is full");
        if (!open) {
            this.lately(id, counters, "fallback", "requests/s "
                + (DECIDED[zone.on_error] ?? "decided without Redis"));
        }
        this.lately(id, counters, "evicted", "keys/s evicted, it is full");
        this.rejecting(id, counters);
        if (zone.unlimited && !CHARTED.some(name => zone[name])) {
            this.add(id, "limits no request, its key or rate is empty or off");
        }
        if (this.rises(id + " errors", zone.errors, this.time)) {
            this.add(id, "rates or costs are invalid, "
                + count(zone.errors) + " so far");
        }
        if (zone.keys > FULL * zone.slots) {
            this.add(id, percent(zone.keys / zone.slots) + " full");
        }
        if (zone.in_flight > FULL * zone.in_flight_max) {
            this.add(id, "the room for requests in flight is "
                + percent(zone.in_flight / zone.in_flight_max) + " full");
        }
        if (zone.banned > 0) {
            this.add(id, count(zone.banned) + (zone.banned === 1
                ? " key is banned" : " keys are banned"), "info");
        }
    }

    // Lists a counter that has risen in the last minute.
    lately(id, counters, name, text) {
        const increases = counters.increases(name);
        const spell = counters.lasts(i => increases[i] > 0);
        if (spell) {
            const n = increases.slice(-RECENT).reduce((a, b) => a + b, 0);
            const ms = Math.min(spell.ms, RECENT_MS);
            this.add(id, perSecond(n * 1000 / Math.max(ms, 1000)) + " " + text
                + lasting(spell));
        }
    }

    // Lists a zone that rejects most requests.
    rejecting(id, counters) {
        const all = CHARTED.map(name => counters.increases(name));
        const rejected = counters.increases("rejected");
        const total = i => all.reduce((n, values) => n + (values[i] ?? 0), 0);
        const spell = counters.lasts(i => rejected[i] * 2 > total(i));
        const last = counters.timeline.periods - 2;
        if (spell && spell.ago <= counters.timeline.age_ms
            && rejected[last] >= 10 && rejected[last] * 2 > total(last))
        {
            this.add(id, percent(rejected[last] / total(last))
                + " of its requests rejected, "
                + perSecond(counters.rate("rejected")) + "/s"
                + lasting(spell));
        }
    }

    add(id, text, kind = "bad") {
        this.found.push({ id, text, kind });
    }

    // Shows the problems of cards: { id, name, zone or redis, counters }.
    set(cards, time) {
        this.found = [];
        this.time = time;
        const zones = cards.filter(({ zone }) => zone);
        const open = new Set();
        for (const { id, name, redis, counters } of cards) {
            if (redis) {
                this.ofRedis(id, counters, { ...redis, name }, zones);
                redis.breaker !== "closed" && open.add(name);
            }
        }
        for (const { id, zone, counters } of zones) {
            this.ofZone(id, counters, zone, open.has(zone.redis));
        }
        this.found.sort((a, b) => (a.kind === "info") - (b.kind === "info"));
        this.show();
    }

    show() {
        const { found, node } = this;
        const { href } = document.activeElement;
        node.classList.toggle("bad", this.count);
        const lines = found.slice(0, LINES).map(({ id, text, kind }) => {
            const link = element("a", "", bdi(id));
            link.href = "#" + encodeURIComponent(id);
            link.onclick = () => openCard(id);
            return element("li", kind, link, " ", text);
        });
        if (found.length > LINES) {
            lines.push(element("li", "", `and ${found.length - LINES} more`));
        }
        node.replaceChildren(lines.length ? element("ul", "", ...lines)
            : "No problems");
        [...node.querySelectorAll("a")].find(link => link.href === href)
            ?.focus({ preventScroll: true });
    }

    get count() {
        return this.found.filter(({ kind }) => kind === "bad").length;
    }
}

// Returns the requests per second that were decided without Redis.
function fallback(counters) {
    return counters.rate("fallback") ?? 0;
}

// Says for how long a problem has lasted, or how long ago it ended.
function lasting({ ms, ago, whole }) {
    return ago > 15000 ? ", until " + about(ago) + " ago"
        : whole ? ", for 10 min or longer" : ", for " + about(ms);
}
