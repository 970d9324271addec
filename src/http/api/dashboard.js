// The dashboard's script, last part: the page and its updates.

const PERIOD_MS = 2000, TIMEOUT_MS = 5000;

const main = document.querySelector("main");
const alarms = new Alarms();
const totals = new Facts();
let cards = new Map();
let time = 0;                              // of the last answer, in ms
let told;                                  // the last state shown

byId("totals").append(totals.node);


// ---- the page ----

// Shows an answer; returns the number of problems.
function show(answer) {
    const { version, nginx, zones, redis } = answer;
    const before = cards;
    cards = new Map();
    time = answer.time_ms;
    keyDialog.write = answer.write;
    put(byId("version"), version + ", NGINX " + nginx);

    for (const [Card, all] of [[Zone, zones], [Redis, redis]]) {
        for (const [name, values] of Object.entries(all)) {
            const id = Card.name + " " + name;
            const card = before.get(id) ?? new Card(name);
            card.node.id = id;
            cards.set(id, card);
            card.set(values, time);
        }
    }

    alarms.set(answer);
    arrange();
    sum(Object.values(zones));
    look();
    return alarms.count;
}

// Sorts the cards: the worst first, else as they are configured.
function arrange() {
    const nodes = [...cards.values()].map(card => card.node)
        .sort((a, b) => alarms.rank(a.id) - alarms.rank(b.id));
    if (nodes.length !== main.children.length
        || nodes.some((node, i) => node !== main.children[i]))
    {
        const focused = document.activeElement;
        main.replaceChildren(...nodes);
        if (main.contains(focused)) {
            focused.focus({ preventScroll: true });
        }
    }
}

function sum(zones) {
    const counters = [...cards.values()].filter(card => card instanceof Zone)
        .map(card => card.counters);
    const rate = name => {
        const rates = counters.map(counter => counter.rate(name))
            .filter(rate => rate !== null);
        return rates.length ? perSecond(rates.reduce((a, b) => a + b)) + "/s"
            : NONE;
    };
    const all = name => count(zones.reduce((n, zone) => n + zone[name], 0));
    totals.set({
        "zones": count(zones.length),
        "passed": rate("passed"),
        "delayed": rate("delayed"),
        "rejected": rate("rejected"),
        "keys held": all("keys"),
        "banned": all("banned")
    });
}

// Shows the cards that match the filter, with their charts and keys.
function look() {
    const filter = byId("filter").value.trim().toLowerCase();
    const all = [...cards.values()];
    const most = Math.max(...all.filter(card => card instanceof Zone)
        .map(card => card.chart.most));
    let matches = 0;

    for (const card of all) {
        const words = card.node.id + " " + card.facts.node.textContent;
        card.node.hidden = !words.toLowerCase().includes(filter);
        matches += !card.node.hidden;
        card.chart.show(time, byId("common").checked && card instanceof Zone
            ? most : card.chart.most);
        card.offenders?.show();
    }
    put(byId("matches"), filter ? matches + " of " + all.length : "");
}

byId("view").addEventListener("input", look);

// Clears the filter, so that the target of a link is shown.
function showAll() {
    byId("filter").value = "";
    look();
}


// ---- updates ----

// Shows the reason for a missing answer, or "", and the number of problems.
// Writes only changes, as screen readers read all new text.
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
    put(byId("state"), problem ? "stale since "
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

function next() {
    if (document.hidden) {
        document.addEventListener("visibilitychange", next, { once: true });
    } else {
        poll();
    }
}

next();
