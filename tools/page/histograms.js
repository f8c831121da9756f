// histograms.js - how the magnitudes of one tensor move over training: steps across, powers of two upwards, shares as tint.

const noSuchTensor = "Empty: the telemetry of this format holds no such tensor, by its name or its patterns (--telemetry '10:PATTERN').";

const shareOf = digit => digit === "0" ? 0 : 2 ** ((parseInt(digit, 36) - 35) / 2);

function histogramColumns(run) {
    const lane = run && run.lanes[chosen.tensor];
    if (!lane) return null;
    const n = run.steps.length, get = name => column(lane[name], n);
    return {steps: run.steps, first: get("first"), bins: lane.bins, zeros: get("zeros"), nonfinite: get("nonfinite"), saturated: get("saturated"),
            flushed: get("flushed"), least: get("e_least"), largest: get("e_largest"), elements: lane.elements,
            shared: lane.shared ?? data.series[run.series].shared, format: lane.format};
}

function histogramPanel(series, low, high) {
    const run = runFor("telemetry", series), lane = histogramColumns(run), panel = element("div", {class: "panel lane", "data-series": data.series[series].name});
    const other = lane && lane.format && !data.series[series].name.startsWith(lane.format) ? [element("small", {}, lane.format)] : []; // a policy's, of this tensor
    panel.append(element("h3", {}, sample(series), data.series[series].name, ...other));
    if (!lane) {
        panel.append(element("p", {class: "empty"}, noSuchTensor));
        return panel;
    }
    const canvas = element("canvas", {class: "heat", tabindex: "0", role: "img", "aria-label": `Histogram of ${tensorText(chosen.tensor)} in ${data.series[series].name}; arrow keys read values`});
    const readout = element("p", {class: "soft readout"});
    panel.append(canvas, readout);
    const left = 46, foot = 22, head = 4, n = lane.steps.length;
    let at = n - 1, bin = null, pointed = false;
    const tall = 220, paint = (ctx, wide, unit) => {
        const whole = v => Math.round(v * unit) / unit; // of pixels: no seams between cells
        const x = i => whole(left + (wide - left - 10) * i / n), y = v => whole(head + (tall - head - foot - 14) * (high - v) / (high - low));
        lane.bins.forEach((text, i) => {
            for (let k = 0; k < text.length; k++) {
                const share = shareOf(text[k]);
                if (!share) continue;
                ctx.fillStyle = seriesColour(series, 0.06 + 0.94 * Math.max(0, 1 + Math.log2(share) / 17.5) ** 1.6);
                ctx.fillRect(x(i), y(lane.first[i] + k + 1), x(i + 1) - x(i), y(lane.first[i] + k) - y(lane.first[i] + k + 1));
            }
            if (lane.zeros[i]) { // a strip of its own below: zero has no power of two
                ctx.fillStyle = token("flush");
                ctx.globalAlpha = 0.15 + 0.85 * lane.zeros[i];
                ctx.fillRect(x(i), tall - foot - 10, x(i + 1) - x(i), 9);
                ctx.globalAlpha = 1;
            }
            if (lane.nonfinite[i]) {
                ctx.fillStyle = token("bad");
                ctx.fillRect(x(i), head, x(i + 1) - x(i), 5);
            }
        });
        if (lane.shared) // the largest and the smallest value that the exponents in use can hold
            for (const [top, e] of [[15, lane.least], [0, lane.largest]]) {
                ctx.strokeStyle = token("ink");
                ctx.setLineDash(top ? [] : [3, 3]);
                ctx.beginPath();
                for (let i = 0; i < n; i++) {
                    if (e[i] == null) continue; // no row
                    const v = Math.max(low, Math.min(high, top - e[i]));
                    ctx.lineTo(x(i), y(v));
                    ctx.lineTo(x(i + 1), y(v));
                }
                ctx.stroke();
            }
        ctx.setLineDash([]);
        ctx.fillStyle = token("soft");
        ctx.font = "12px system-ui,sans-serif";
        ctx.textAlign = "right";
        ctx.textBaseline = "middle";
        const every = [1, 2, 4, 8, 16, 32, 64].find(s => (high - low) / s <= 8) || 128;
        for (let v = Math.ceil(low / every) * every; v <= high; v += every)
            if (y(v) < tall - foot - 22) ctx.fillText(octave(v), left - 6, Math.max(8, y(v)));
        ctx.fillText("zero", left - 6, tall - foot - 5);
        ctx.textAlign = "left";
        ctx.fillText(`step ${count(lane.steps[0])}`, left, tall - 8);
        ctx.textAlign = "right";
        ctx.fillText(count(lane.steps[n - 1]), wide - 10, tall - 8);
    };
    const draw = () => {
        const wide = canvas.clientWidth, unit = devicePixelRatio, ctx = canvas.getContext("2d");
        canvas.width = wide * unit;
        canvas.height = tall * unit;
        canvas.style.height = `${tall}px`;
        ctx.scale(unit, unit);
        paint(ctx, wide, unit);
        const x = i => left + (wide - left - 10) * i / n;
        ctx.strokeStyle = token("ink");
        ctx.globalAlpha = 0.6;
        if (pointed) ctx.strokeRect(x(at), head, x(at + 1) - x(at), tall - head - foot);
        ctx.globalAlpha = 1;
        const text = lane.bins[at], share = bin == null ? null : shareOf(text[bin - lane.first[at]] || "0");
        const when = `step ${count(lane.steps[at])}${run.rows > 1 ? " and before" : ""}: `;
        if (lane.first[at] == null) return readout.replaceChildren(when, "no row of this tensor"); // a weight before its first update
        readout.replaceChildren(when,
            text ? `magnitudes from ${octave(lane.first[at])} to ${octave(lane.first[at] + text.length)}` : "no magnitude above zero",
            bin == null ? "" : `; about ${short(100 * share, 3)} % in ${octave(bin)} … ${octave(bin + 1)}`,
            `; zeros ${short(100 * lane.zeros[at], 4)} %, NaN or Inf `, element("b", {class: lane.nonfinite[at] ? "bad" : ""}, count(lane.nonfinite[at])),
            `, saturated ${count(lane.saturated[at])}, flushed ${count(lane.flushed[at])}`);
    };
    const point = event => {
        const box = canvas.getBoundingClientRect();
        at = Math.max(0, Math.min(n - 1, Math.floor((event.clientX - box.left - left) / (box.width - left - 10) * n)));
        bin = Math.floor(high - (event.clientY - box.top - head) / (220 - head - foot - 14) * (high - low));
        if (bin < low || bin >= high) bin = null;
        pointed = true;
        draw();
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("keydown", event => {
        const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!by) return;
        at = Math.max(0, Math.min(n - 1, at + by));
        bin = null;
        pointed = true;
        draw();
        event.preventDefault();
    });
    resized(canvas, draw);
    const title = `Magnitudes of ${tensorText(chosen.tensor)} in ${data.series[series].name}, seed ${data.seeds[run.seed]}`;
    panel.firstChild.append(element("span", {class: "tools"}, ...saveButtons(() => ({name: ["magnitudes", data.tensors[chosen.tensor][0], data.series[series].name], rows: () => histogramRows(run, series, lane, low, high),
        picture: () => ({title, width: canvas.clientWidth, height: tall, paint: (ctx, unit) => paint(ctx, canvas.clientWidth, unit),
                         legend: lane.shared ? [{look: {colour: token("ink"), dash: [], width: 1}, name: "largest value of the exponent"}, {look: {colour: token("ink"), dash: [3, 3], width: 1}, name: "smallest"}] : []})}))));
    return panel;
}

// A row for each step, a column for each power of two.
function histogramRows(run, series, lane, low, high) {
    const powers = [...Array(high - low).keys()].map(k => low + k);
    return [["step", "tensor", "role", "format", "seed", "zeros [part of the elements]", "NaN or Inf [elements]", "saturated [elements]", "flushed to zero [elements]",
             ...powers.map(p => `from 2^${p} to 2^${p + 1} [part of the elements to half an octave]`)],
            ...run.steps.map((step, i) => [step, ...data.tensors[chosen.tensor], data.series[series].name, data.seeds[run.seed], lane.zeros[i], lane.nonfinite[i], lane.saturated[i], lane.flushed[i],
                ...powers.map(p => lane.first[i] == null ? null : shareOf(lane.bins[i][p - lane.first[i]] || "0"))])];
}

function histograms() {
    if (!data.telemetry.runs.length)
        return emptySection("magnitudes", "Magnitudes", "Magnitudes over training", "these runs were trained without --telemetry. ", "Train with --telemetry 10, a row every ten steps, to fill it.");
    const grid = element("div", {class: "panels lanes", id: "histograms"}), note = element("p", {class: "soft"});
    const draw = () => {
        const seen = drawn().filter(i => runFor("telemetry", i)), all = seen.map(i => histogramColumns(runFor("telemetry", i))).filter(Boolean);
        let low = Infinity, high = -Infinity;
        for (const lane of all)
            lane.bins.forEach((text, i) => {
                if (!text) return;
                low = Math.min(low, lane.first[i]);
                high = Math.max(high, lane.first[i] + text.length);
            });
        if (low > high) [low, high] = [-1, 1];
        grid.replaceChildren(...seen.map(i => histogramPanel(i, low - 1, high + 1)));
        const without = drawn().filter(i => !seen.includes(i)).map(i => data.series[i].name);
        const other = seen.filter(i => runFor("telemetry", i).seed !== chosen.seed).map(i => `${data.series[i].name} with seed ${data.seeds[runFor("telemetry", i).seed]}`);
        note.textContent = (without.length ? `Left out, without telemetry: ${without.join(", ")}. ` : "") + (other.length ? `Not of the chosen seed: ${other.join(", ")}. ` : "") +
            (data.telemetry.first_seed_alone ? "The page holds the first seed of each format that has telemetry; the files telemetry-*.jsonl hold all." : "");
    };
    choosers.push(draw);
    redraws.push(draw);
    draw();
    const rows = Math.max(...data.telemetry.runs.map(run => run.rows));
    return section("magnitudes", "Magnitudes", "Magnitudes over training", data.traces.runs.length ? element("div", {class: "controls", id: "same"}, "The same tensor ", ...tensorAgain()) : tensorPicker(), grid, note, element("p", {class: "soft"},
        "Each cell is a power of two at a step, darker for a larger share of the elements, by half octaves of the share. Lines: the largest (full) and the smallest (dashes) value of a shared exponent. Red at the head: NaN or Inf. " +
        (rows > 1 ? `Up to ${rows} rows of telemetry are added up in a cell. ` : "")));
}
