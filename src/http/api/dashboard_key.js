// The dashboard's script, fourth part: one key, and changes of it.

const KEY_TIMEOUT_MS = 10000;

function field(name, hint) {
    const input = element("input");
    input.autocomplete = "off";
    input.spellcheck = false;
    input.placeholder = hint;
    return { input, node: element("label", "", name + " ", input) };
}

// Returns a form of fields and a button, which Enter presses as well.
function form(text, action, ...fields) {
    const node = element("form", "", ...fields.map(({ node }) => node),
        element("button", "", text));
    node.onsubmit = event => {
        event.preventDefault();
        action();
    };
    return node;
}

class KeyDialog {
    write = false;                         // whether the API allows changes

    constructor() {
        this.title = element("h2");
        this.key = field("Key", "as in the zone, such as an address");
        this.rate = field("Limit", "100r/m, 1000/1h, 0, off");
        this.ttl = field("for", "10m, 1d; empty: no end");
        this.facts = element("div");
        this.said = element("p");
        this.said.role = "status";
        this.lift = button("Lift the ban",
            () => this.ask("DELETE", "&what=ban", "The ban is lifted."));
        this.remove = button("Remove its limit",
            () => this.ask("PUT", "&" + this.limit + "=default",
                "The limit is removed."));
        this.forget = button("Forget what it used",
            () => this.ask("DELETE", "", "It is forgotten."));
        this.changes = element("div", "changes",
            this.forget, this.lift, this.remove,
            form("Set limit", () => this.setLimit(), this.rate, this.ttl));
        this.fixed = element("p", "",
            "Changes need \"limit_sliding_api write=on\".");
        this.node = element("dialog", "", this.title,
            form("Look up", () => this.lookUp(), this.key), this.facts,
            this.changes, this.fixed, this.said,
            button("Close", () => this.node.close()));
        document.body.append(this.node);
    }

    // Shows a key.  `uri` is percent-encoded; null: the user enters a key.
    open(zone, configured, uri = null) {
        Object.assign(this, { zone, configured, uri, asked: null });
        for (const { input } of [this.key, this.rate, this.ttl]) {
            input.value = "";
        }
        this.show(null);
        this.say("");
        this.node.showModal();
        if (uri !== null) {
            this.ask("GET", "", "");
        }
    }

    lookUp() {
        this.uri = encodeURIComponent(this.key.input.value);
        this.show(null);
        this.ask("GET", "", "");
    }

    setLimit() {
        const rate = encodeURIComponent(this.rate.input.value);
        const ttl = encodeURIComponent(this.ttl.input.value);
        this.ask("PUT", "&" + this.limit + "=" + rate + (ttl && "&ttl=" + ttl),
            "The limit is set.");
    }

    // Sends a request for the key to the API, and shows the answer and `done`.
    // Ignores an answer that arrives after a later request.
    async ask(method, what, done) {
        const asked = this.asked = {};
        const path = "zones/" + encodeURIComponent(this.zone) + "/key?key="
            + this.uri + what;
        let key = null, problem = "";
        try {
            const response = await fetch(api + path, { method,
                cache: "no-store", signal: AbortSignal.timeout(KEY_TIMEOUT_MS)
            });
            const answer = await response.json().catch(() => ({}));
            if (response.ok) {
                key = answer;
            } else {
                problem = answer.error ?? "HTTP status " + response.status;
            }
        } catch (error) {
            problem = error.message;
        }
        if (asked !== this.asked) {
            return;
        }
        if (key || method === "GET") {
            this.show(key);
        }
        this.say(problem || done, problem);
    }

    // Shows an answer of the API; null: there is none.
    show(answer) {
        const zone = ["Zone ", bdi(this.zone)];
        this.title.replaceChildren(...zone, ...answer
            ? [", key ", bdi(masked(answer.key, this.configured))] : []);
        this.changes.hidden = !answer || !this.write;
        this.fixed.hidden = !answer || this.write;
        const facts = new Facts();
        if (answer) {
            // what requests in flight hold is not forgotten
            this.forget.hidden = "held" in answer;
            this.limit = "held" in answer ? "inflight" : "rate";
            this.lift.disabled = !answer.ban;
            this.remove.disabled = !answer.own_limit;
            facts.set(keyFacts(answer));
        }
        this.facts.replaceChildren(facts.node);
    }

    say(text, bad) {
        this.said.classList.toggle("bad", bad);
        put(this.said, text);
    }
}

function keyFacts({ used, limit, remaining, reset_ms, window, own_limit, ttl,
    ban, source, in_flight, longest }) {
    const known = (value, text) => value === null ? NONE : text(value);
    const seconds = value => about(value * 1000);
    return {
        "used": known(used, count),
        "limit": known(limit, count),
        "remaining": known(remaining, count),
        ...in_flight !== undefined && {
            "in flight here": count(in_flight),
            "oldest of these": in_flight ? seconds(longest) : NONE
        },
        "more in": known(reset_ms, about),
        "window": typeof window === "number" ? duration(
            Math.round(window * 1000)) : window,
        "own limit": !own_limit ? "no" : own_limit === "off" ? "off"
            : ttl === null ? "yes, without end" : "yes, for " + seconds(ttl),
        "banned": ban ? "for " + seconds(ban.left) : "no",
        ...source && { source }
    };
}
