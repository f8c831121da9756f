// shadows.js - what other formats would have done to the tensor chosen, beside what its own did: error, expected and measured, saturated, flushed, a panel for each format.

const shadowMeasures = {
    error: {text: "error", unit: "part of the root mean square of the values", own: lane => lane.rounding, shadow: s => s.error, say: sayRatio},
    saturated: {text: "saturated", unit: "part of the elements", own: lane => share(lane.saturated, lane.writes.map(w => w * lane.elements)), shadow: (s, lane) => share(s.saturated, lane.looked), say: percent},
    flushed: {text: "flushed to zero", unit: "part of the elements", own: lane => share(lane.flushed, lane.writes.map(w => w * lane.elements)), shadow: (s, lane) => share(s.flushed, lane.looked), say: percent},
};
function share(counts, of) { return counts.map((n, i) => of[i] > 0 ? n / of[i] : null); }
function percent(v) { return v == null ? "–" : v === 0 ? "0" : `${short(100 * v, 4)} %`; }

const shadowColour = i => shownColour(data.telemetry.shadows[i].colour);
const shadowLook = i => ({colour: shadowColour(i), dash: lineDash(i + 2), width: 2});
const ownName = "the format itself", measuredName = "measured", measuredLook = colour => ({colour, dash: [1, 4], width: 2, points: true});

function shadowColumns(run) {
    const lane = run && run.lanes[chosen.tensor];
    if (!lane) return null;
    const n = run.steps.length, get = (from, name) => column(from[name], n);
    return {steps: run.steps, elements: lane.elements, rounding: get(lane, "rounding"), sampled: get(lane, "sampled"), saturated: get(lane, "saturated"), flushed: get(lane, "flushed"), writes: get(lane, "writes"), looked: get(lane, "looked"),
            shadows: lane.shadows.map((s, k) => ({shadow: run.shadows[k], error: get(s, "error"), saturated: get(s, "saturated"), flushed: get(s, "flushed")}))};
}

// What writes did lose, at the rows that measured it; no line of a tensor that has none.
function measuredLines(series, lane) {
    const there = lane.sampled.map((v, i) => v == null ? -1 : i).filter(i => i >= 0);
    return there.length ? [{name: `${data.series[series].name} ${measuredName}`, ...measuredLook(seriesColour(series)), steps: there.map(i => lane.steps[i]), values: there.map(i => lane.sampled[i]), text: sayRatio}] : [];
}

function shadowLines(series, lane, measure, shown) {
    return [...(shown.has(-1) ? [{name: data.series[series].name, colour: seriesColour(series), dash: [], width: 3, steps: lane.steps, values: measure.own(lane), text: measure.say}] : []),
            ...(shown.has(-2) && measure === shadowMeasures.error ? measuredLines(series, lane) : []),
            ...lane.shadows.filter(s => shown.has(s.shadow)).map(s => ({name: `as ${data.telemetry.shadows[s.shadow].name}`, ...shadowLook(s.shadow), steps: lane.steps, values: measure.shadow(s, lane), text: measure.say}))];
}

function shadowFormats() {
    const name = "What other formats would have done", anchor = ["shadow-formats", "Other formats", name];
    if (!data.telemetry.runs.length)
        return emptySection(...anchor, "these runs were trained without --telemetry. ", "Train with --telemetry 10 --shadow fp16,dfp16, or other formats, to fill it.");
    let measure = shadowMeasures.error;
    const some = data.telemetry.shadows.length > 0, shown = new Set([-1, -2, ...data.telemetry.shadows.keys()]);
    const has = v => Array.isArray(v) ? v.some(x => x != null) : v != null, measured = data.telemetry.runs.some(run => Object.values(run.lanes).some(lane => has(lane.sampled)));
    const grid = element("div", {class: "panels lanes", id: "shadows"}), note = element("p", {class: "soft"});
    const savedAs = i => ({name: [measure.text, data.tensors[chosen.tensor][0], data.series[i].name], title: `${measure.text[0].toUpperCase()}${measure.text.slice(1)} of ${tensorText(chosen.tensor)} in ${data.series[i].name} and its shadow formats`,
                           about: {tensor: data.tensors[chosen.tensor][0], role: data.tensors[chosen.tensor][1], format: data.series[i].name}, seed: data.seeds[runFor("telemetry", i).seed],
                           line: "as", value: `${measure.text} [${measure.unit}]`});
    const draw = () => {
        const seen = drawn().filter(i => runFor("telemetry", i)), lanes = new Map(seen.map(i => [i, shadowColumns(runFor("telemetry", i))]));
        const lines = new Map(seen.filter(i => lanes.get(i)).map(i => [i, shadowLines(i, lanes.get(i), measure, shown)]));
        const axis = logAxis([...lines.values()].flat().map(line => line.values));
        grid.replaceChildren(...seen.map(i => {
            const title = [sample(i), data.series[i].name], label = `${measure.text} of ${tensorText(chosen.tensor)} in ${data.series[i].name} and its shadow formats`;
            const panel = lines.has(i) ? linesPanel({title, label, lines: lines.get(i), axis, group: "shadows", saved: savedAs(i)})
                                       : element("div", {class: "panel"}, element("h3", {}, ...title), element("p", {class: "empty"}, noSuchTensor));
            panel.dataset.series = data.series[i].name;
            return panel;
        }));
        const names = list => list.map(i => data.series[i].name).join(", "), without = drawn().filter(i => !seen.includes(i)), bare = seen.filter(i => !runFor("telemetry", i).shadows.length);
        const other = seen.filter(i => runFor("telemetry", i).seed !== chosen.seed).map(i => `${data.series[i].name} with seed ${data.seeds[runFor("telemetry", i).seed]}`);
        const fewer = seen.filter(i => !bare.includes(i)).map(i => [i, [...data.telemetry.shadows.keys()].filter(k => !runFor("telemetry", i).shadows.includes(k))]).filter(([, list]) => list.length);
        const off = [...(shown.has(-1) ? [] : [ownName]), ...(shown.has(-2) || !measured ? [] : [measuredName]), ...data.telemetry.shadows.filter((_, k) => !shown.has(k)).map(s => s.name)];
        note.textContent = [without.length ? `Left out, without telemetry: ${names(without)}.` : "", bare.length ? `Without shadow formats, for it was trained without --shadow: ${names(bare)}.` : "",
                            ...fewer.map(([i, list]) => `Not measured in ${data.series[i].name}: ${list.map(k => data.telemetry.shadows[k].name).join(", ")}.`),
                            other.length ? `Not of the chosen seed: ${other.join(", ")}.` : "", off.length ? `Switched off: ${off.join(", ")}.` : ""].filter(Boolean).join(" ");
    };
    choosers.push(draw);
    redraws.push(draw);
    const rows = Math.max(...data.telemetry.runs.map(run => run.rows));
    const controls = [element("div", {class: "controls"}, choice("What of the shadow formats", Object.entries(shadowMeasures).map(([key, m]) => [key, m.text]), "error", key => { measure = shadowMeasures[key]; draw(); }), "of", ...tensorAgain()),
                      ...(some ? [lineSwitches("Shadow formats shown", [{key: -1, name: ownName, look: () => ({colour: token("ink"), dash: [], width: 3})}, ...(measured ? [{key: -2, name: measuredName, look: () => measuredLook(token("ink"))}] : []), ...data.telemetry.shadows.map((s, i) => ({key: i, name: s.name, look: () => shadowLook(i)}))], shown, draw)] : [])];
    draw();
    return section(...anchor, ...controls, grid, note, element("p", {class: "soft"},
        "A shadow is a format with an exponent of its own that the same values are converted to; it does not feed back into the training. Error: root mean square of what is lost, as part of the values' own; of the format itself " +
        "that which rounding to nearest costs at the least. " + (measured ? "Measured: what writes of matmuls and convolutions did lose, of some elements computed again without rounding, at every sixteenth row. " : "") + "Saturated, flushed: share of the elements; of the format itself over all its writes since the row before, of a shadow at the step of the row. " +
        (rows > 1 ? `Up to ${rows} rows of telemetry are one point: the largest error, the measured one of all its elements together, and the sums of saturated and flushed.` : "")));
}
