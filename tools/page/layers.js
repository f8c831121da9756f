// layers.js - every tensor at once: a map of where and when elements saturate and are flushed.

// Of traces, which hold tensors with a shared exponent alone; of telemetry where it has all of theirs and more. missing: telemetry of tensors that the trace lacks.
function countsOf(series) {
    const trace = runFor("traces", series), telemetry = runFor("telemetry", series);
    if (!trace || !telemetry || trace.seed !== telemetry.seed) return trace || telemetry ? {run: trace || telemetry} : null;
    const more = Object.keys(telemetry.lanes).filter(tensor => !(tensor in trace.lanes));
    if (more.length && Object.keys(trace.lanes).every(tensor => tensor in telemetry.lanes)) return {run: telemetry};
    return {run: trace, missing: more.length ? {run: telemetry, tensors: more} : null};
}

const shortName = (name, room) => name.length <= room ? name : name.slice(0, Math.ceil(room / 2) - 1) + "…" + name.slice(name.length - Math.floor(room / 2));

function layers() {
    const able = data.order.filter(i => countsOf(i));
    if (!able.length)
        return emptySection("layers", "Layers", "Saturated and flushed, layer by layer", "there are no counts of single tensors. ", "Formats with a shared exponent have them in their traces, which --no-trace switches off; train with --telemetry 10 to have them of every format.");
    let what = "flushed", series = able.find(i => data.series[i].shared) ?? able[0], role = "", at = null;
    const line = 15, canvas = element("canvas", {class: "heat"}), names = element("div", {class: "names", role: "group", "aria-label": "Tensors"});
    const readout = element("p", {class: "readout"}), note = element("div", {class: "soft"}), scale = element("canvas", {class: "scale", role: "img"});
    let rows = [], silent = [], steps = [], most = 1;
    const collect = () => {
        const {run} = countsOf(series);
        steps = run.steps;
        rows = [];
        silent = [];
        for (const [tensor, lane] of Object.entries(run.lanes)) {
            if (role && data.tensors[tensor][1] !== role) continue;
            const values = column(lane[what], steps.length), sum = values.reduce((a, b) => a + (b || 0), 0);
            (sum ? rows : silent).push({tensor: +tensor, values, sum});
        }
        most = rows.reduce((high, r) => r.values.reduce((a, v) => Math.max(a, v || 0), high), 1);
    };
    const tint = share => { // single hue, from the ground up: read without telling colours apart
        const [hue, saturation] = what === "saturated" ? [8, 78] : [212, 70], light = dark ? 24 + 56 * share : 90 - 62 * share;
        return `hsl(${hue},${saturation}%,${light}%)`;
    };
    const level = v => Math.log1p(v) / Math.log1p(most);
    const paint = (ctx, wide) => {
        const x = i => wide * i / steps.length;
        rows.forEach((row, r) => row.values.forEach((v, i) => {
            ctx.fillStyle = v ? tint(level(v)) : token("cell");
            ctx.fillRect(x(i), r * line, Math.max(0.5, x(i + 1) - x(i) - (steps.length < wide / 6 ? 1 : 0)), line - 1);
        }));
    };
    const draw = () => {
        const wide = canvas.clientWidth, tall = Math.max(1, rows.length * line), unit = devicePixelRatio, ctx = canvas.getContext("2d");
        canvas.width = wide * unit;
        canvas.height = tall * unit;
        canvas.style.height = `${tall}px`;
        ctx.scale(unit, unit);
        paint(ctx, wide);
        const x = i => wide * i / steps.length;
        if (at) {
            ctx.strokeStyle = token("ink");
            ctx.lineWidth = 1.5;
            ctx.strokeRect(x(at.i), at.r * line - 0.5, x(at.i + 1) - x(at.i), line);
        }
    };
    const drawScale = () => {
        const ctx = scale.getContext("2d"), unit = devicePixelRatio, wide = Math.max(1, scale.clientWidth);
        scale.width = wide * unit;
        scale.height = 30 * unit;
        ctx.scale(unit, unit);
        scale.setAttribute("aria-label", `Tint from 0 to ${count(most)} elements, logarithmic`);
        paintScale(ctx, wide);
    };
    const paintScale = (ctx, wide) => {
        for (let i = 0; i < wide; i++) { ctx.fillStyle = tint(i / wide); ctx.fillRect(i, 0, 1, 10); }
        ctx.fillStyle = token("soft");
        ctx.font = "12px system-ui,sans-serif";
        const marks = [...new Set([1, ...[2, 4, 6, 8, 10].map(p => 10 ** p).filter(v => v < most / 20), most])];
        marks.forEach((v, k) => {
            ctx.textAlign = k === marks.length - 1 ? "right" : level(v) * wide < 12 ? "left" : "center";
            ctx.fillText(v >= 1e4 && v !== most ? `10${superscript(Math.log10(v))}` : count(v), Math.min(wide, level(v) * wide), 25);
        });
    };
    const tell = () => {
        if (!at || !rows[at.r]) {
            readout.textContent = rows.length ? "Point at a cell for its count; choose a name to see that tensor above." : "";
            return;
        }
        const {run} = countsOf(series), from = at.i ? steps[at.i - 1] + 1 : 1, to = steps[at.i];
        readout.replaceChildren(element("b", {}, tensorText(rows[at.r].tensor)), `: ${count(rows[at.r].values[at.i] || 0)} ${what} ${from < to ? `in steps ${count(from)} to ${count(to)}` : `in step ${count(to)}`}, ${count(rows[at.r].sum)} in all`,
            run.seed === chosen.seed ? "" : ` (seed ${data.seeds[run.seed]})`);
    };
    const again = () => {
        collect();
        at = null;
        names.replaceChildren(...rows.map(row => element("button", {type: "button", title: tensorText(row.tensor), "aria-pressed": String(row.tensor === chosen.tensor),
            onclick: () => choose(row.tensor)}, shortName(data.tensors[row.tensor][0], innerWidth < 600 ? 17 : 34))));
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `Map of ${what} elements in ${data.series[series].name}: ${rows.length} tensors with any`);
        const list = silent.map(r => data.tensors[r.tensor][0]), {missing} = countsOf(series);
        const apart = missing ? missing.tensors.filter(tensor => !role || data.tensors[tensor][1] === role).map(tensor => [data.tensors[tensor][0],
            column(missing.run.lanes[tensor][what], missing.run.steps.length).reduce((a, b) => a + (b || 0), 0)]) : [];
        note.replaceChildren(...(rows.length ? [] : [element("p", {}, `No element was ${what} in any of these tensors.`)]),
            ...(list.length ? [element("details", {}, element("summary", {}, `Left out: ${list.length} tensor${list.length > 1 ? "s" : ""} with none ${what}`), list.join(", "))] : []),
            ...(apart.length ? [element("details", {}, element("summary", {}, `Without a trace: ${apart.length} tensor${apart.length > 1 ? "s" : ""}, ${count(apart.reduce((a, [, sum]) => a + sum, 0))} ${what} by telemetry`),
                apart.map(([tensor, sum]) => `${tensor}: ${count(sum)}`).join(", "))] : []));
        draw();
        drawScale();
        tell();
    };
    const point = event => {
        const box = canvas.getBoundingClientRect();
        const r = Math.floor((event.clientY - box.top) / line), i = Math.floor((event.clientX - box.left) / box.width * steps.length);
        at = rows[r] && i >= 0 && i < steps.length ? {r, i} : null;
        draw();
        tell();
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("click", event => { point(event); if (at) choose(rows[at.r].tensor); });
    // The map with its names beside it, the steps and the scale of its tints below.
    const map = (ctx, wide) => {
        const label = 230, width = wide - label;
        ctx.font = "11.5px system-ui,sans-serif";
        ctx.textAlign = "right";
        ctx.fillStyle = token("soft");
        rows.forEach((row, r) => ctx.fillText(shortName(data.tensors[row.tensor][0], 34), label - 8, line * r + 11));
        ctx.fillText(count(steps[steps.length - 1]), wide, rows.length * line + 14);
        ctx.textAlign = "left";
        ctx.fillText("step 1", label, rows.length * line + 14);
        ctx.translate(label, 0);
        paint(ctx, width);
        ctx.translate(0, rows.length * line + 28);
        paintScale(ctx, Math.min(400, width));
    };
    const title = () => `${what === "flushed" ? "Flushed to zero" : "Saturated"} in ${data.series[series].name}, elements, seed ${data.seeds[countsOf(series).run.seed]}`;
    const saving = () => rows.length && {name: [what, data.series[series].name], picture: () => ({title: title(), width: 230 + Math.max(400, canvas.clientWidth), height: rows.length * line + 60, legend: [],
        paint: ctx => map(ctx, 230 + Math.max(400, canvas.clientWidth))}),
        rows: () => [["tensor", "role", "format", "seed", "from step", "to step", `${what === "flushed" ? "flushed to zero" : "saturated"} [elements]`],
                     ...rows.flatMap(row => row.values.map((v, i) => [...data.tensors[row.tensor], data.series[series].name, data.seeds[countsOf(series).run.seed], i ? steps[i - 1] + 1 : 1, steps[i], v]))]};
    const roles = [...new Set(data.tensors.map(([, r]) => r))];
    const controls = element("div", {class: "controls"}, choice("What is counted", [["flushed", "flushed to zero"], ["saturated", "saturated"]], what, value => { what = value; again(); }),
        picker("format", able.map(i => [i, data.series[i].name]), series, value => { series = +value; again(); }),
        picker("tensors", [["", "all"], ...roles.map(r => [r, `${r}s`.replace(/ys$/, "ies")])], role, value => { role = value; again(); }),
        element("span", {class: "tools"}, ...saveButtons(saving)));
    choosers.push(again);
    redraws.push(again);
    const without = data.order.filter(i => !able.includes(i)).map(i => data.series[i].name);
    again();
    resized(canvas, () => { draw(); drawScale(); });
    return section("layers", "Layers", "Saturated and flushed, layer by layer", controls, element("div", {class: "map"}, names, canvas), element("div", {class: "legend"}, element("span", {}, "elements"), scale), readout, note,
        element("p", {class: "soft"}, `Tensors in the order of the step, steps from left to right; every count of the trace, or of telemetry where that holds more tensors, is in some cell. ` +
            (without.length ? `Without such counts: ${without.join(", ")} (train with --telemetry to have them).` : "")));
}
