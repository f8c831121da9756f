// lanes.js - the exponents of one tensor, a panel for each format, and the choice of the tensor for all that shows one.

const chosen = {tensor: (data.traces.chosen || [])[0] ?? Math.max(0, data.tensors.findIndex(([, role]) => role === "weight")), seed: 0};
const choosers = [];
function choose(tensor) {
    chosen.tensor = +tensor;
    choosers.forEach(draw => draw());
}
const tensorText = i => data.tensors[i] ? `${data.tensors[i][0]} (${data.tensors[i][1]})` : "no tensor";
const sourceSeeds = () => [...new Set([...data.traces.runs, ...data.telemetry.runs].map(run => run.seed))].sort((a, b) => a - b);

// A run of the seed, else the first that the format has: folders may hold different seeds.
function runFor(source, series) {
    const all = data[source].runs.filter(run => run.series === series);
    return all.find(run => run.seed === chosen.seed) || all[0];
}

// The list of the tensors that `words()` leaves, with buttons for those before and behind.
function tensorList(id, words) {
    const list = element("select", {id, class: "tensor", "aria-label": "Tensor", onchange: () => choose(list.value)});
    const fill = () => {
        const wanted = words(), roles = new Map();
        data.tensors.forEach(([name, role], i) => {
            if (i !== chosen.tensor && !wanted.every(word => `${name} ${role}`.toLowerCase().includes(word))) return;
            if (!roles.has(role)) roles.set(role, element("optgroup", {label: role}));
            roles.get(role).append(element("option", {value: i, selected: i === chosen.tensor}, name));
        });
        list.replaceChildren(...roles.values());
    };
    const move = by => {
        const at = [...list.options].findIndex(o => o.selected), next = list.options[at + by];
        if (next) choose(next.value);
    };
    choosers.push(fill);
    fill();
    return {list, fill, buttons: [element("button", {type: "button", class: "tool", "aria-label": "Tensor before", onclick: () => move(-1)}, "‹"),
                                  element("button", {type: "button", class: "tool", "aria-label": "Next tensor", onclick: () => move(1)}, "›")]};
}

// The same choice in a section further down.
function tensorAgain() {
    const {list, buttons} = tensorList(null, () => []);
    return [list, ...buttons];
}

function tensorPicker() {
    const search = element("input", {type: "search", placeholder: "find a tensor", "aria-label": "Find a tensor", autocomplete: "off"});
    const {list, fill, buttons} = tensorList("tensor", () => search.value.toLowerCase().split(/\s+/).filter(Boolean));
    search.addEventListener("input", () => {
        fill();
        const found = [...list.options].filter(o => +o.value !== chosen.tensor);
        if (found.length === 1) choose(found[0].value);
    });
    const seeds = sourceSeeds();
    if (!seeds.includes(chosen.seed) && seeds.length) chosen.seed = seeds[0];
    return element("div", {class: "controls sticky"}, search, list, ...buttons, ...(seeds.length > 1 ? [picker("seed", seeds.map(s => [s, data.seeds[s]]), chosen.seed, value => { chosen.seed = +value; choosers.forEach(draw => draw()); })] : []));
}

// Octaves: the largest value that the exponent can hold, largest element, room that the predictor made.
function laneColumns(run) {
    const lane = run && run.lanes[chosen.tensor];
    if (!lane) return null;
    const n = run.steps.length, get = name => column(lane[name], n);
    const e = get("e"), max = get("max"), finite = v => v > 0 ? Math.log2(v) : null;
    return {
        steps: run.steps, e, max, gamma: get("gamma"), saturated: get("saturated"), flushed: get("flushed"), predicted: get("room"), room: get("room").map(finite),
        ceiling: e.map(v => v == null ? null : 15 - v), element: max.map(finite), least: lane.max_least === undefined ? null : get("max_least").map(finite),
        high: lane.e_least === undefined ? null : get("e_least").map(v => 15 - v), low: lane.e_largest === undefined ? null : get("e_largest").map(v => 15 - v),
    };
}

// Where rows were put together: of the largest element, and the range of the others.
function laneRows(run, series) {
    const lane = run.lanes[chosen.tensor], n = run.steps.length, get = (name, otherwise) => column(lane[name in lane ? name : otherwise], n);
    const columns = [["e [binary places]", get("e")], ["gamma [mantissa]", get("gamma")], ["largest element [value]", get("max")], ["predicted largest [value]", get("room")], ["saturated [elements]", get("saturated")],
                     ["flushed to zero [elements]", get("flushed")], ...(run.rows > 1 ? [["least e [binary places]", get("e_least", "e")], ["largest e [binary places]", get("e_largest", "e")], ["least of the largest elements [value]", get("max_least", "max")]] : [])];
    return [["step", "tensor", "role", "format", "seed", ...columns.map(([name]) => name)],
            ...run.steps.map((step, i) => [step, ...data.tensors[chosen.tensor], data.series[series].name, data.seeds[run.seed], ...columns.map(([, values]) => values[i])])];
}

const octave = v => `2${superscript(Math.round(v))}`;

function lanePanel(series, bounds) {
    const run = runFor("traces", series), lane = laneColumns(run), panel = element("div", {class: "panel lane", "data-series": data.series[series].name});
    const readout = element("p", {class: "soft readout"});
    panel.append(element("h3", {}, sample(series), data.series[series].name));
    if (!lane) {
        panel.append(element("p", {class: "empty"}, "Its trace has no such tensor."));
        return {panel};
    }
    if (lane.element.every(v => v == null)) {
        panel.append(element("p", {class: "empty"}, "All zero, or nothing finite."));
        return {panel};
    }
    const colour = seriesColour(series), stepped = uPlot.paths.stepped({align: -1});
    const marks = u => {
        const {ctx, bbox} = u, unit = unitOf(u), most = Math.max(1, ...lane.flushed);
        ctx.save();
        lane.steps.forEach((step, i) => {
            const x = u.valToPos(step, "x", true);
            if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
            if (lane.saturated[i]) {
                ctx.fillStyle = token("bad");
                const y = Math.max(bbox.top, u.valToPos(lane.ceiling[i], "y", true) - 3 * unit);
                ctx.beginPath();
                ctx.moveTo(x - 4 * unit, y - 8 * unit);
                ctx.lineTo(x + 4 * unit, y - 8 * unit);
                ctx.lineTo(x, y);
                ctx.fill();
            }
            if (lane.flushed[i]) {
                ctx.fillStyle = token("flush");
                const tall = unit * (2 + 10 * Math.log1p(lane.flushed[i]) / Math.log1p(most));
                ctx.fillRect(x - unit, bbox.top + bbox.height - tall, 2 * unit, tall);
            }
        });
        ctx.restore();
    };
    const rows = [lane.steps, lane.ceiling, lane.element, lane.room, ...(lane.least ? [lane.least] : []), ...(lane.high || lane.low ? [lane.high || lane.ceiling, lane.low || lane.ceiling] : [])];
    const hidden = {stroke: "transparent", width: 0, points: {show: false}, scale: "y", paths: stepped};
    const tools = chart(panel, {
        group: "lanes", height: () => 200,
        save: () => ({name: ["exponent", data.tensors[chosen.tensor][0], data.series[series].name], title: `Exponent of ${tensorText(chosen.tensor)} in ${data.series[series].name}, seed ${data.seeds[run.seed]}`,
                      rows: () => laneRows(run, series),
                      legend: [{look: {colour, dash: [], width: 2}, name: "largest value that the exponent can hold"}, {look: {colour: token("ink"), dash: [], width: 1.2}, name: "largest element"},
                               {look: {colour: token("soft"), dash: [3, 3], width: 1}, name: "room that the predictor made"}]}),
        make: () => ({
            data: rows, limits: [Math.min(0, lane.steps[0] - 1), Math.max(data.total_steps, lane.steps[lane.steps.length - 1])],
            label: `Exponent of ${tensorText(chosen.tensor)} in ${data.series[series].name}`,
            series: [{}, {scale: "y", stroke: colour, width: 2, paths: stepped, points: {show: false}},
                     {scale: "y", stroke: token("ink"), width: 1.2, paths: stepped, points: {show: false}},
                     {scale: "y", stroke: token("soft"), width: 1, dash: [3, 3], paths: stepped, points: {show: false}},
                     ...(lane.least ? [{...hidden}] : []), ...(lane.high || lane.low ? [{...hidden}, {...hidden}] : [])],
            bands: [{series: [1, 2], fill: seriesColour(series, 0.13)}, ...(lane.least ? [{series: [2, 4], fill: token("between")}] : []),
                    ...(lane.high || lane.low ? [{series: [rows.length - 2, rows.length - 1], fill: seriesColour(series, 0.35)}] : [])],
            scales: {y: {range: () => bounds}},
            axes: [stepAxis(), axisLook({scale: "y", size: 46, incrs: [1, 2, 4, 8, 16, 32, 64], values: (_, ticks) => ticks.map(octave)})],
            hooks: {draw: [marks]},
        }),
        values(u, index) {
            const i = index == null ? lane.steps.length - 1 : index, from = run.rows > 1 ? "up to step" : "step";
            const value = v => v === 0 ? "0" : short(v, 4);
            readout.replaceChildren(`${from} ${count(lane.steps[i])}: e ${lane.e[i]}, largest ${value(lane.max[i])} (γ ${count(lane.gamma[i])}), room for ${value(lane.predicted[i])}, saturated `,
                element("b", {class: lane.saturated[i] ? "bad" : ""}, count(lane.saturated[i])), `, flushed ${count(lane.flushed[i])}`);
        },
    });
    panel.firstChild.append(tools.tools);
    panel.append(readout);
    return {panel};
}

function lanes() {
    const shared = data.series.some(s => s.shared), grid = element("div", {class: "panels lanes"}), note = element("p", {class: "soft"});
    if (!data.traces.runs.length)
        return shared ? emptySection("exponents", "Exponents", "Shared exponents of a tensor", "there are no traces of the exponents. They were switched off by --no-trace, or this report leaves them out; a training writes them unless told not to.")
                      : emptySection("exponents", "Exponents", "Shared exponents of a tensor", "no format of this comparison has a shared exponent. ", "Formats such as flex16+5 and dfp16 have one.");
    const draw = () => {
        const shown = drawn().filter(i => data.series[i].shared), seen = shown.filter(i => runFor("traces", i));
        const all = seen.map(i => laneColumns(runFor("traces", i))).filter(Boolean);
        const heights = all.flatMap(l => [...l.ceiling, ...l.element, ...(l.high || []), ...(l.least || [])]).filter(v => v != null);
        const bounds = heights.length ? [Math.floor(Math.min(...heights)) - 1, Math.ceil(Math.max(...heights)) + 1] : [-1, 1];
        grid.replaceChildren(...seen.map(i => lanePanel(i, bounds).panel));
        const without = shown.filter(i => !seen.includes(i)).map(i => data.series[i].name), plain = drawn().filter(i => !data.series[i].shared).map(i => data.series[i].name);
        const other = seen.filter(i => runFor("traces", i).seed !== chosen.seed).map(i => `${data.series[i].name} with seed ${data.seeds[runFor("traces", i).seed]}`);
        note.textContent = [without.length ? `Left out, no run with a trace: ${without.join(", ")}.` : "", plain.length ? `Without a shared exponent: ${plain.join(", ")}.` : "",
                            other.length ? `Not of the chosen seed: ${other.join(", ")}.` : "",
                            data.traces.first_seed_alone ? "The page holds the first traced seed of each format; the files trace-*.csv hold all." : ""].filter(Boolean).join(" ");
    };
    choosers.push(draw);
    redraws.push(draw);
    draw();
    const rows = Math.max(...data.traces.runs.map(run => run.rows));
    return section("exponents", "Exponents", "Shared exponents of a tensor", tensorPicker(), grid, note, element("p", {class: "soft"},
        "After Köster et al. 2017, Fig. 3: the exponent is chosen before the result exists. Coloured steps: the largest value that it can hold; dark steps: the largest element that came; the tint between is headroom, " +
        "an octave of which is a bit of precision not used; dashes: what the predictor made room for. Red triangles: elements saturated; bars at the foot: elements flushed to zero, taller for more. " +
        (rows > 1 ? `Up to ${rows} rows of a trace are one point here: its largest element with that one's exponent, the tinted range of the others, and the sums of saturated and flushed elements, so that none is missing. ` : "") +
        "Where the trace has a row only every few steps, a point stands for all steps since the point before."));
}
