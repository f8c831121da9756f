// curves.js - losses and accuracies over the steps, with bands over the seeds.

const measures = { // their titles are in the data, for the printed figures have the same (tools/figures/drawing.c)
    loss: {unit: "nats", x: "steps", y: "loss", digits: 5, positive: true, loss: true},
    difference: {unit: "nats", x: "steps", y: "loss", digits: 5, paired: true},
    test: {unit: "nats", x: "epoch_steps", y: "test_loss", digits: 5, positive: true, loss: true},
    accuracy: {unit: "%", x: "epoch_steps", y: "accuracy", digits: 4},
    testDifference: {unit: "nats", x: "epoch_steps", y: "test_loss", digits: 5, paired: true},
};
for (const [name, measure] of Object.entries(measures)) measure.text = data.measures[name];
const runsOf = series => data.runs.filter(run => run.series === series);
const curve = {band: "sd", log: false};

// {seed: Map(step -> value)} of one series; paired: minus fp32 of the same seed.
function pointsOf(series, measure) {
    const bySeed = new Map();
    for (const run of runsOf(series)) {
        const base = measure.paired ? data.runs.find(r => r.series === data.baseline && r.seed === run.seed) : null;
        if (measure.paired && !base) continue;
        const whole = (r, i) => measure.paired && measure.x === "steps" && r.partial.includes(i) ? null : r[measure.y][i]; // means of the same steps alone
        const zero = base && new Map(base[measure.x].map((step, i) => [step, whole(base, i)]));
        bySeed.set(run.seed, new Map(run[measure.x].map((step, i) => {
            const value = whole(run, i), from = zero ? zero.get(step) : 0;
            return [step, value == null || from == null ? null : value - from];
        })));
    }
    return bySeed;
}

// Mean and band at a step; nothing where a seed that is there has no finite value: a mean of the others would hide it.
function spread(bySeed, step) {
    const values = [...bySeed.values()].filter(points => points.has(step)).map(points => points.get(step));
    if (!values.length || values.includes(null)) return {mean: null, low: null, high: null};
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const sd = values.length > 1 ? Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1)) : 0;
    return {mean, sd, seeds: values.length,
            low: curve.band === "range" ? Math.min(...values) : mean - sd, high: curve.band === "range" ? Math.max(...values) : mean + sd};
}

function curvePlot(measure, log) {
    const shown = drawn().filter(i => !(measure.paired && i === data.baseline));
    const points = new Map(shown.map(i => [i, pointsOf(i, measure)]));
    const steps = [...new Set([...points.values()].flatMap(bySeed => [...bySeed.values()].flatMap(p => [...p.keys()])))].sort((a, b) => a - b);
    const rows = [steps], series = [{}], bands = [], spreads = new Map();
    const value = v => v == null || (log && v <= 0) ? null : v;
    const add = (values, look) => { rows.push(values); series.push({scale: "y", points: {show: steps.length <= 30, size: 6}, spanGaps: false, ...look}); };
    for (const i of shown) spreads.set(i, steps.map(step => spread(points.get(i), step)));
    if (curve.band === "seeds")
        for (const i of shown)
            for (const [, p] of points.get(i))
                add(steps.map(step => value(p.get(step))), {stroke: seriesColour(i, 0.8), width: 1.2, dash: seriesDash(i), label: data.series[i].name});
    else {
        for (const i of shown) {
            if (![...points.get(i)].length || spreads.get(i).every(s => !(s.seeds > 1))) continue;
            bands.push({series: [rows.length, rows.length + 1], fill: seriesColour(i, 0.1)});
            for (const side of ["high", "low"])
                add(spreads.get(i).map(s => value(s[side] == null ? null : log ? Math.max(s[side], s.mean * 1e-3) : s[side])),
                    {stroke: "transparent", width: 0, points: {show: false}});
        }
        for (const i of shown)
            add(spreads.get(i).map(s => value(s.mean)), {stroke: seriesColour(i), width: seriesWidth(i), dash: seriesDash(i), label: data.series[i].name});
    }
    const all = log ? shown.flatMap(i => [...points.get(i).values()].flatMap(p => [...p.values()])) : [];
    const clipped = log && curve.band !== "seeds" && shown.some(i => spreads.get(i).some(s => s.low != null && s.low <= 0 && s.mean > 0));
    return {steps, rows, series, bands, shown, spreads, points, below: all.filter(v => v != null && v <= 0).length, clipped};
}

// The first NaN or Inf of each run: a line across the panel, in the colour of its format, with a mark at its head.
const nonfiniteRuns = shown => shown.flatMap(i => runsOf(i).filter(run => run.nonfinite));
function drawNonfinite(u, shown) {
    const {ctx, bbox} = u, unit = unitOf(u);
    ctx.save();
    for (const run of nonfiniteRuns(shown)) {
        const x = u.valToPos(run.nonfinite.step, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.strokeStyle = ctx.fillStyle = seriesColour(run.series);
        ctx.lineWidth = unit;
        ctx.setLineDash([3 * unit, 3 * unit]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.setLineDash([]);
        ctx.beginPath();
        ctx.moveTo(x - 5 * unit, bbox.top);
        ctx.lineTo(x + 5 * unit, bbox.top);
        ctx.lineTo(x, bbox.top + 8 * unit);
        ctx.fill();
    }
    ctx.restore();
}
function nonfiniteText(shown) {
    const runs = nonfiniteRuns(shown), lost = runs.reduce((sum, run) => sum + run.lost, 0);
    if (!runs.length) return "";
    const named = runs.slice(0, 3).map(run => `${data.series[run.series].name} seed ${data.seeds[run.seed]}, step ${count(run.nonfinite.step)}, ${run.nonfinite.text}`);
    return `A dashed line with a wedge marks the first NaN or Inf of a run: ${named.join("; ")}${runs.length > 3 ? `; and ${runs.length - 3} more` : ""}. ` +
        (lost ? `Curves are of the steps whose loss is finite, with gaps where none is; the loss of ${count(lost)} step${lost > 1 ? "s" : ""} is not. ` : "");
}
// Every value of the formats shown, each seed by itself.
function curveRows(measure) {
    const name = measure.text.replace("−", "minus").replace(", %", ""), steps = measure.x === "steps" && data.steps_a_point > 1 ? ` (mean of ${data.steps_a_point} steps around)` : "";
    return [["step", "format", "seed", `${name}${steps} [${measure.unit}]`],
            ...drawn().filter(i => !(measure.paired && i === data.baseline)).flatMap(i => [...pointsOf(i, measure)].flatMap(([seed, points]) => [...points].map(([step, v]) => [step, data.series[i].name, data.seeds[seed], v])))];
}

// Where axes of losses end.
const cut = data.cut;

function curvePanel(choices, first) {
    let measure = measures[first], plotted = null, capped = false;
    const readout = element("div", {class: "values", "aria-live": "off"}), note = element("p", {class: "soft"});
    const panel = element("div", {class: "panel"});
    const range = (u, low, high) => {
        if (low == null) return [null, null];
        const log = curve.log && measure.positive, limits = measure.loss ? [log ? low : 0, cut] : measure.paired ? [-cut, cut] : [low, high];
        capped = low < limits[0] || high > limits[1];
        if (capped) [low, high] = low < limits[1] && high > limits[0] ? [Math.max(low, limits[0]), Math.min(high, limits[1])] : limits;
        if (log) return [low / 1.05, high * 1.05];
        const room = 0.05 * (high - low) || 0.5 * Math.abs(high) || 1;
        return [low - (capped && low === 0 ? 0 : room), high + room];
    };
    const crosses = u => {
        const {ctx} = u, unit = unitOf(u);
        ctx.save();
        if (measure.paired) {
            const y = u.valToPos(0, "y", true);
            if (y >= u.bbox.top && y <= u.bbox.top + u.bbox.height) {
                ctx.strokeStyle = token("ink");
                ctx.lineWidth = unit;
                ctx.beginPath();
                ctx.moveTo(u.bbox.left, y);
                ctx.lineTo(u.bbox.left + u.bbox.width, y);
                ctx.stroke();
            }
        }
        for (const i of plotted.shown)
            for (const run of runsOf(i).filter(r => r.diverged)) {
                const last = run[measure.y].reduce((at, v, k) => v == null ? at : k, -1);
                if (last < 0 || !measure.loss) continue;
                const x = u.valToPos(run[measure.x][last], "x", true), value = run[measure.y][last];
                const y = Math.max(u.bbox.top + 8 * unit, Math.min(u.bbox.top + u.bbox.height - 8 * unit, u.valToPos(value, "y", true)));
                ctx.strokeStyle = token("bad");
                ctx.lineWidth = 2.5 * unit;
                ctx.beginPath();
                for (const side of [-1, 1]) {
                    ctx.moveTo(x - 5 * unit, y - side * 5 * unit);
                    ctx.lineTo(x + 5 * unit, y + side * 5 * unit);
                }
                ctx.stroke();
            }
        ctx.restore();
        if (measure.loss) drawNonfinite(u, plotted.shown);
    };
    const plot = chart(panel, {
        height: () => innerWidth < 600 ? 260 : 330,
        save: () => ({name: [measure.text.replace("−", "minus")], title: measure.text, rows: () => curveRows(measure), legend: plotted.shown.map(i => ({look: seriesLook(i), name: data.series[i].name}))}),
        make() {
            const log = curve.log && measure.positive;
            plotted = curvePlot(measure, log);
            const {steps} = plotted, gap = steps.length > 1 ? 0 : 1;
            return {
                series: plotted.series, data: plotted.rows, bands: plotted.bands, label: `${measure.text} of ${plotted.shown.map(i => data.series[i].name).join(", ")}; arrow keys read values`,
                limits: [gap ? steps[0] - 1 : Math.min(0, steps[0]), gap ? steps[0] + 1 : Math.max(data.total_steps, steps[steps.length - 1])],
                empty: plotted.shown.length ? "No losses of these formats." : "No format is switched on.",
                scales: {y: {range, distr: log ? 3 : 1, log: 10}},
                axes: [stepAxis(),
                       axisLook({scale: "y", size: 62, values: (_, ticks) => ticks.map(t => t == null ? "" : ticksText(t))})],
                hooks: {draw: [crosses]},
            };
        },
        values(u, index) {
            if (!u || !plotted) { readout.replaceChildren(); note.textContent = ""; return; }
            const at = index == null ? plotted.steps.length - 1 : index;
            readout.replaceChildren(element("b", {}, `step ${count(plotted.steps[at])}`), ...plotted.shown.map(i => {
                const s = plotted.spreads.get(i)[at], text = measure.paired ? signed : short;
                const seeds = curve.band === "seeds" && [...plotted.points.get(i)].map(([, p]) => p.get(plotted.steps[at]));
                return element("span", {}, sample(i), data.series[i].name + " ", element("b", {}, seeds ? seeds.map(v => v == null ? "–" : text(v, measure.digits)).join(", ")
                    : s.mean == null ? "–" : text(s.mean, measure.digits) + (s.seeds > 1 && curve.band === "sd" ? `\u00a0±\u00a0${short(s.sd, measure.digits)}`
                    : s.seeds > 1 ? `\u00a0[${short(s.low, measure.digits)},\u00a0${short(s.high, measure.digits)}]` : "")));
            }));
            note.textContent = (capped ? `The axis ends at ${measure.paired ? "±" : ""}${short(cut, 3)}, five times the loss of guessing; there is more beyond. ` : "") +
                (plotted.below ? `${count(plotted.below)} value${plotted.below > 1 ? "s" : ""} of 0 ${plotted.below > 1 ? "have" : "has"} no place on a logarithmic axis. ` : "") +
                (plotted.clipped ? "Bands that reach to 0 or below end at a thousandth of their mean. " : "") +
                (measure.loss ? nonfiniteText(plotted.shown) : "") +
                (measure.loss && plotted.shown.some(i => data.series[i].diverged) ? "A cross marks the last finite loss of a run that diverged." : "");
        },
    });
    panel.prepend(element("div", {class: "head"}, choice("Measure", choices.map(name => [name, measures[name].text]), first,
        name => { measure = measures[name]; plot.draw(); }), plot.tools));
    panel.append(readout, note);
    redraws.push(plot.draw);
    return {panel, draw: plot.draw};
}

const ticksText = t => Math.abs(t) >= 1e5 || (t && Math.abs(t) < 1e-3) ? t.toExponential(0).replace("-", "−") : String(+t.toPrecision(6)).replace("-", "−");

function curves() {
    const several = data.seeds.length > 1, paired = data.baseline >= 0 && data.series.length > 1;
    const tested = data.runs.some(run => run.test_loss.some(v => v != null));
    const left = curvePanel(["loss", ...(paired ? ["difference"] : [])], "loss");
    const right = tested ? curvePanel(["accuracy", "test", ...(paired ? ["testDifference"] : [])], "accuracy") : null;
    const none = element("p", {class: "empty"}, "No test accuracy: no run came to the end of an epoch, after which the test set is looked at.");
    const again = () => { left.draw(); if (right) right.draw(); };
    const controls = element("div", {class: "controls"},
        ...(several ? ["Seeds", choice("Seeds", [["sd", "mean ± sd"], ["range", "mean, least to largest"], ["seeds", "each by itself"]], "sd",
                                       value => { curve.band = value; again(); })] : []),
        "Losses", choice("Axis of losses", [["linear", "linear"], ["log", "logarithmic"]], "linear", value => { curve.log = value === "log"; again(); }));
    const point = data.steps_a_point > 1 ? `Each point of a training loss is the mean of ${data.steps_a_point} steps. ` : "";
    return section("loss", "Loss", "Loss and accuracy", controls, element("div", {class: "panels"}, left.panel, right ? right.panel : none),
        element("p", {class: "soft"}, point + "Drag over a figure to zoom, on a touch screen with two fingers; a double click shows all again. Values are those under the pointer, or of the last point. ",
                several || data.series.length < 2 ? "" : "One seed: differences between formats include chance."));
}
