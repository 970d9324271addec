// The dashboard's script, second part: what is wrong now, on top of the page.

const RECENT_MS = 60000;                   // for so long a problem is told

// Counters that rise while something is wrong, the worst first.
const ZONE_ALARMS = [
    ["refused", "is full and turns new keys away"],
    ["fallback", "is decided by on_error, without Redis"],
    ["evicted", "is full and forgets keys"],
    ["errors", "meets keys, rates or costs that it cannot use"],
    ["bans", "has banned keys"]
];
const REDIS_ALARMS = [
    ["failed_calls", "does not answer calls, or with errors"],
    ["unsettled", "was not told of all units"]
];

class Alarms {
    node = document.getElementById("alarms");
    past = new Map();

    // Tells whether a counter has risen lately.  One that has gone back was
    // started anew.
    rises(name, value, time) {
        const past = this.past.get(name);
        const anew = !past || value < past.value || time < past.time;
        const last = anew ? -Infinity : value > past.value ? time : past.last;
        this.past.set(name, { value, time, last });
        return time - last < RECENT_MS;
    }

    // Returns [card, what is wrong], the worst first.
    find({ time_ms, zones, redis }) {
        const found = [];
        const watch = (id, values, alarms) => {
            alarms.forEach(([name, text], i) => {
                if (this.rises(id + " " + name, values[name] ?? 0, time_ms)) {
                    found.push([i + 1, id, text]);
                }
            });
        };
        for (const [name, values] of Object.entries(redis)) {
            if (values.breaker !== "closed") {
                found.push([0, "Redis " + name, "is not asked: its breaker is "
                    + values.breaker]);
            }
            watch("Redis " + name, values, REDIS_ALARMS);
        }
        for (const [name, zone] of Object.entries(zones)) {
            watch("Zone " + name,
                { ...zone, fallback: zone.sources?.fallback }, ZONE_ALARMS);
        }
        return found.sort(([a], [b]) => a - b).map(([, ...alarm]) => alarm);
    }

    // Shows what is wrong; returns how much that is.  It writes only what has
    // changed: screen readers read all that is new.
    set(answer) {
        const found = this.find(answer);
        const text = JSON.stringify(found);
        if (text !== this.text) {
            this.text = text;
            this.node.hidden = !found.length;
            this.node.replaceChildren(...found.map(([id, what]) => {
                const link = element("a", "", element("bdi", "", id));
                link.href = "#" + encodeURIComponent(id);
                return element("li", "", link, " " + what);
            }));
        }
        return found.length;
    }
}
