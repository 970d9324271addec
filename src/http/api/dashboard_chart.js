// The dashboard's script, second part: charts of the last minutes.

const WIDTH = 180, HEIGHT = 60;            // units of the drawing

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

class Chart {
    constructor(counters) {
        this.counters = counters;
        this.paths = counters.map(({ name }) => draw("path", { "class":
            name.split("_")[0] + (name.endsWith("_dry_run") ? " dry" : "") }));
        this.ticks = [element("span"), element("span"), element("span")];
        this.picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
            preserveAspectRatio: "none", role: "img" },
        draw("path", { "class": "grid",
            d: "M0 0H180M0 30H180M0 60H180M0 0V60M60 0V60M120 0V60M180 0V60" }),
        ...this.paths);
        this.node = element("figure", "",
            element("div", "y", ...this.ticks), this.picture,
            element("div", "x", element("span", "", "3 min ago"),
                element("span", "", "2"), element("span", "", "1"),
                element("span", "", "now")));

        // the row of a counter is the legend of its line
        counters.forEach(({ head }, i) =>
            head.classList.add(...this.paths[i].classList, "series"));
    }

    get most() {
        return Math.max(0, ...this.counters.map(({ most }) => most));
    }

    // Draws the chart so that the rate `most` fits.
    show(now, most) {
        const top = ceiling(most);
        [top, top / 2, 0].forEach((n, i) => put(this.ticks[i], tick(n)));
        this.picture.ariaLabel = "per second, of the last 3 minutes: "
            + this.counters.filter(({ most }) => most > 0)
                .map(({ name, most }) => name.replaceAll("_", " ")
                    + " peak " + perSecond(most)).join(", ");
        this.counters.forEach(({ points, row }, i) => this.paths[i]
            .setAttribute("d", row.hidden ? "" : line(points, now, top)));
    }
}

// Returns the path of points in a chart with the rate `top` at its top.
function line(points, now, top) {
    let d = "", pen = "M";
    for (const [time, rate] of points) {
        if (rate === null) {
            pen = "M";
            continue;
        }
        const x = WIDTH - (now - time) * WIDTH / SPAN_MS;
        const y = HEIGHT - HEIGHT * rate / top;
        d += pen + x.toFixed(1) + " " + y.toFixed(1);
        pen = "L";
    }
    return d;
}
