// The dashboard's script, third part: present problems, on top of the page.

const RECENT_MS = 90000;                   // how long a problem is shown
const PLACES = 8;                          // cards named for each kind
const FULL = 0.9;                          // share of slots in use

// Kinds of problems, the worst first.
const ALARMS = {
    breaker: "The breaker is open, Redis is not asked",
    refused: "Full, new keys are turned away",
    fallback: "Decided by on_error, without Redis",
    evicted: "Full, keys are forgotten",
    failed_calls: "Calls have no answer, or an error",
    unsettled: "Units that Redis was not told of",
    unlimited: "No request is limited, keys or rates are empty",
    errors: "Keys, rates or costs that cannot be used",
    full: "More than 90% full",
    bans: "Keys are banned"
};

class Alarms {
    node = byId("alarms");
    past = new Map();

    // Returns true if a counter has risen lately.  A counter that has fallen,
    // or was not seen for long, starts anew.
    rises(name, value, time) {
        const past = this.past.get(name);
        const anew = !past || value < past.value || time < past.time
            || time - past.time > RECENT_MS;
        const last = anew ? -Infinity : value > past.value ? time : past.last;
        this.past.set(name, { value, time, last });
        return time - last < RECENT_MS;
    }

    // Records the problems of a card: states in `wrong`, or counters that rise.
    watch(id, values, time) {
        const wrong = {
            breaker: values.breaker && values.breaker !== "closed",
            unlimited: values.unlimited && !CHARTED.some(name => values[name]),
            full: values.keys > FULL * values.slots,
            bans: values.banned > 0 || undefined
        };
        Object.keys(ALARMS).forEach((name, rank) => {
            const value = values[name];
            const rises = value >= 0
                && this.rises(id + " " + name, value, time);
            if (wrong[name] ?? rises) {
                this.found[rank].push(id);
            }
        });
    }

    // Shows the problems.
    set({ time_ms, zones, redis }) {
        this.found = Object.keys(ALARMS).map(() => []);
        for (const [name, values] of Object.entries(redis)) {
            this.watch("Redis " + name,
                { ...values, evicted: values.memory?.evicted }, time_ms);
        }
        for (const [name, zone] of Object.entries(zones)) {
            this.watch("Zone " + name,
                { ...zone, fallback: zone.sources?.fallback }, time_ms);
        }
        const text = JSON.stringify(this.found);
        if (text !== this.text) {
            this.text = text;
            this.show();
        }
    }

    show() {
        const lines = this.found.map((ids, rank) => [ids, rank])
            .filter(([ids]) => ids.length)
            .map(([ids, rank]) => this.line(Object.values(ALARMS)[rank], ids));
        this.node.classList.toggle("bad", lines.length);
        const { href } = document.activeElement;
        this.node.replaceChildren(lines.length ? element("ul", "", ...lines)
            : "Nothing is wrong.");
        [...this.node.querySelectorAll("a")].find(link => link.href === href)
            ?.focus();
    }

    line(text, ids) {
        const line = element("li", "", element("strong", "", text + ":"));
        for (const id of ids.slice(0, PLACES)) {
            const link = element("a", "", bdi(id));
            link.href = "#" + encodeURIComponent(id);
            link.onclick = showAll;
            line.append(" ", link);
        }
        if (ids.length > PLACES) {
            line.append(" and " + (ids.length - PLACES) + " more");
        }
        return line;
    }

    get count() {
        return this.found.flat().length;
    }

    // The rank of a card's worst problem, from 0 for the worst kind.
    rank(id) {
        const rank = this.found.findIndex(ids => ids.includes(id));
        return rank < 0 ? this.found.length : rank;
    }
}
