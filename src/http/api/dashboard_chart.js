// The dashboard's script, second part: charts of the last ten minutes.

const WIDTH = 600, HEIGHT = 60;            // units of the drawing

// Rounds n up to 1, 2 or 5 times a power of 10; 0 to 1.
function ceiling(n) {
    const power = 10 ** Math.floor(Math.log10(n || 1));
    return power * [1, 2, 5, 10].find(step => step * power >= n);
}

function tick(n) {
    return n < 10 ? String(Number(n.toPrecision(2))) : count(n, 1e5);
}

function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
        node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
}

// The class of a counter's line.
function lineClass(name) {
    return name.split("_")[0] + (name.endsWith("_dry_run") ? " dry" : "");
}

// A drawing of rates over time, without a scale.
class Lines {
    constructor(names, ...ground) {
        this.names = names;
        this.paths = names.map(name => draw("path",
            { "class": lineClass(name) }));
        this.node = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
            preserveAspectRatio: "none" }, ...ground, ...this.paths);
    }

    // Draws the counters so that the rate `top` is at the top, but for those
    // that would lie on the ground.
    show(counters, top) {
        this.names.forEach((name, i) => {
            const points = counters.peak(name) > top / 50
                ? counters.points(name) : [];
            const d = points.map(([ago, rate]) =>
                (WIDTH - ago * WIDTH / SPAN_MS).toFixed(1) + " "
                + (HEIGHT - 1 - (HEIGHT - 2) * rate / top).toFixed(1));
            this.paths[i].setAttribute("d", d.length ? "M" + d.join("L") : "");
        });
    }
}

class Chart {
    constructor(names) {
        this.lines = new Lines(names, draw("path", { "class": "grid",
            d: "M0 1H600M0 30H600M0 59H600" }));
        this.lines.node.setAttribute("role", "img");
        this.ticks = [element("span"), element("span"), element("span")];
        this.node = element("figure", "",
            element("div", "y", ...this.ticks), this.lines.node,
            element("div", "x", element("span", "", "10 min ago"),
                element("span", "", "5 min"), element("span", "", "now")));
    }

    show(counters) {
        const { names, node } = this.lines;
        const top = ceiling(Math.max(...names.map(name =>
            counters.peak(name) ?? 0)));
        [top, top / 2, 0].forEach((n, i) => put(this.ticks[i], tick(n)));
        this.lines.show(counters, top);
        node.ariaLabel = "per second, of the last 10 minutes: "
            + names.filter(name => counters.peak(name) > 0)
                .map(name => name.replaceAll("_", " ") + " peak "
                    + perSecond(counters.peak(name))).join(", ");
    }
}
