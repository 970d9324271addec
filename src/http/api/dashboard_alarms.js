// The dashboard's script, third part: what is wrong now, on top of the page.

const RECENT_MS = 90000;                   // for so long a problem is told
const PLACES = 8;                          // named of each kind of problem
const FULL = 0.9;                          // of the slots

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

    // Tells whether a counter has risen lately.  One that has gone back, or was
    // not seen for long, begins anew.
    rises(name, value, time) {
        const past = this.past.get(name);
        const anew = !past || value < past.value || time < past.time
            || time - past.time > RECENT_MS;
        const last = anew ? -Infinity : value > past.value ? time : past.last;
        this.past.set(name, { value, time, last });
        return time - last < RECENT_MS;
    }

    // Notes what is wrong with a card.  The counters of the other kinds rise
    // while something is.
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

    // Shows what is wrong.  It writes only what has changed: screen readers
    // read all that is new.
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

    // How much is wrong.
    get count() {
        return this.found.flat().length;
    }

    // How bad a card's worst problem is; the less the worse.
    rank(id) {
        const rank = this.found.findIndex(ids => ids.includes(id));
        return rank < 0 ? Infinity : rank;
    }
}
