// The dashboard's script, last part: the page and its updates.

const PERIOD_MS = 2000, TIMEOUT_MS = 5000;

const alarms = new Alarms(byId("alarms"));
const totals = new Facts();
let cards = new Map();
let time = 0;                              // of the last answer, in ms
let host = "limit_sliding";
let told;                                  // the last state shown

byId("totals").append(totals.node);
byId("tables").append(zoneTable.node, redisTable.node);


// ---- the page ----

// Shows an answer; returns the number of problems.
function show(answer) {
    const { version, nginx, zones, redis } = answer;
    const before = cards;
    cards = new Map();
    time = answer.time_ms;
    host = answer.host ?? host;
    keyDialog.write = answer.write;
    put(byId("host"), host);
    put(byId("version"), "limit_sliding " + version + ", NGINX " + nginx);

    for (const [Kind, all] of [[Zone, zones], [Redis, redis]]) {
        for (const [name, values] of Object.entries(all)) {
            const card = before.get(Kind.name + " " + name)
                ?? new Kind(name);
            cards.set(card.id, card);
            card.set(values, time);
        }
    }
    for (const [id, card] of before) {
        cards.has(id) || card.node?.remove();
    }

    const all = [...cards.values()];
    alarms.set(all, time);
    const bad = new Set(alarms.found.filter(({ kind }) => kind === "bad")
        .map(({ id }) => id));
    all.forEach(card => card.isBad = bad.has(card.id));
    sum(all.filter(({ zone }) => zone));
    look();
    return alarms.count;
}

// Shows the key figures of all zones.
function sum(zones) {
    const add = value => zones.map(value).filter(n => n !== null)
        .reduce((a, b) => a + b, 0);
    const known = zones.some(card => requests(card) !== null);
    const all = add(card => requests(card));
    const rejected = add(({ counters }) => counters.rate("rejected"));
    const measured = add(({ times }) => times.lately);
    totals.set({
        "requests/s": known ? perSecond(all) : NONE,
        "rejected": known ? percent(all ? rejected / all : 0) : NONE,
        "keys at limit": count(add(card => keysFrom(card, 100))),
        "per decision": measured ? latencies([add(({ times }) => times.spent)
            / measured])[0] : NONE
    });
}

// Shows the rows that match the filter, and the open cards.
function look() {
    const filter = byId("filter").value.trim().toLowerCase();
    const all = [...cards.values()];
    const matches = ({ id, zone }) => [id, zone?.key, zone?.algorithm,
        zone?.full, zone?.redis].join(" ").toLowerCase().includes(filter);

    zoneTable.set(all.filter(({ zone }) => zone));
    redisTable.set(all.filter(({ redis }) => redis));
    const shown = zoneTable.filter(matches) + redisTable.filter(matches);
    put(byId("matches"), filter ? shown + " of " + all.length : "");
    all.forEach(card => card.node && card.show());
}

byId("view").addEventListener("input", look);


// ---- open cards, in the order of the configuration ----

function openCard(id) {
    const card = cards.get(id);
    if (card && !card.node) {
        card.open();
        byId("cards").append(...[...cards.values()]
            .map(({ node }) => node).filter(node => node));
        look();
    }
}

function toggleCard(id) {
    const card = cards.get(id);
    if (card.node) {
        const row = (card.zone ? zoneTable : redisTable).rows.get(id);
        const within = card.node.contains(document.activeElement);
        card.close();
        look();
        within && row.querySelector("button").focus();
    } else {
        openCard(id);
        card.node.scrollIntoView({ block: "nearest" });
    }
}


// Opens the card that the address names after "#".
function openAddressed() {
    try {
        const id = decodeURIComponent(location.hash.slice(1));
        openCard(id);
        byId(id)?.scrollIntoView();
    } catch {
        // a percent sign of the address encodes nothing
    }
}


// ---- updates ----

// Shows the reason for a missing answer, or "", and the number of problems.
// Writes only changes, as screen readers read all new text.
function tell(problem, wrong = 0) {
    const now = problem || wrong;
    const state = wrong + (wrong === 1 ? " problem" : " problems");
    document.title = (problem ? "stale: " : wrong ? state + ": " : "") + host;
    if (now === told) {
        return;
    }
    told = now;
    document.body.classList.toggle("stale", problem);
    document.body.classList.toggle("wrong", wrong);
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
        const first = !time;
        tell("", show(await response.json()));
        if (first) {
            openAddressed();
        }
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
