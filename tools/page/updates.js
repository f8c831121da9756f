// updates.js - how far each step moves each parameter, as part of its size: by format or by parameter, on a logarithmic axis.

// The n-th parameter: hues by the golden section, and three levels of lightness.
const parameterColour = n => `hsl(${(360 * (n * 0.6180339887 % 1)).toFixed(1)},${62 + n % 2 * 18}%,${(dark ? 52 : 28) + n % 3 * 11}%)`;
const parameterLook = n => ({colour: parameterColour(n), dash: lineDash(n % 6), width: 1.6});

function updates() {
    const name = "Update-to-weight ratio", has = v => Array.isArray(v) ? v.some(x => x != null) : v != null;
    const parameters = [...data.tensors.keys()].filter(i => data.telemetry.runs.some(run => run.lanes[i] && has(run.lanes[i].update)));
    const anchor = ["update-ratios", "Updates", name];
    if (!parameters.length)
        return data.telemetry.runs.length ? emptySection(...anchor, "the telemetry of these runs looked at no weight. ", "Train with --telemetry 10, without patterns or with '*.weight' among them, to fill it.")
                                          : emptySection(...anchor, "these runs were trained without --telemetry. ", "Train with --telemetry 10 to fill it.");
    const title = i => data.tensors[i][0], weights = parameters.filter(i => /weight$/.test(title(i))), first = weights.length ? weights : parameters, most = Math.min(8, first.length);
    // As many as can be told apart, from the first layer to the last.
    const shown = new Set([...Array(most).keys()].map(k => first[most > 1 ? Math.round(k * (first.length - 1) / (most - 1)) : 0]));
    const rank = [...shown, ...parameters.filter(i => !shown.has(i))], look = p => parameterLook(rank.indexOf(p)); // the first have the hues that are farthest apart
    let by = "format";
    const grid = element("div", {class: "panels lanes", id: "updates"}), note = element("p", {class: "soft"}), left = element("div", {class: "soft"});
    const valuesOf = (run, tensor) => run.lanes[tensor] && column(run.lanes[tensor].update, run.steps.length);
    const draw = () => {
        const seen = drawn().filter(i => runFor("telemetry", i)), chosenOnes = parameters.filter(i => shown.has(i));
        const lineOf = (series, tensor, looks, text) => {
            const run = runFor("telemetry", series), values = valuesOf(run, tensor) || [];
            return {name: text, seed: data.seeds[run.seed], ...looks, steps: values.length ? run.steps : [], values, text: sayRatio};
        };
        const groups = by === "format"
            ? seen.map(i => [data.series[i].name, [sample(i), data.series[i].name], chosenOnes.map(p => lineOf(i, p, look(p), title(p)))])
            : chosenOnes.map(p => [title(p), [title(p)], seen.map(i => lineOf(i, p, seriesLook(i), data.series[i].name))]);
        const axis = logAxis(groups.flatMap(([, , lines]) => lines.map(line => line.values)));
        grid.replaceChildren(...groups.map(([key, heading, lines]) => {
            const panel = linesPanel({title: heading, label: `Update-to-weight ratio, ${key}`, lines, axis, group: "updates", saved: {name: ["update-to-weight ratio", key], title: `${name}, ${key}`,
                                      about: {[by]: key}, line: by === "format" ? "parameter" : "format", value: "update-to-weight ratio [part of the norm of the weights]"}});
            panel.dataset.panel = key;
            return panel;
        }));
        const out = parameters.filter(i => !shown.has(i)).map(title), without = drawn().filter(i => !seen.includes(i)).map(i => data.series[i].name);
        const other = seen.filter(i => runFor("telemetry", i).seed !== chosen.seed).map(i => `${data.series[i].name} with seed ${data.seeds[runFor("telemetry", i).seed]}`);
        left.replaceChildren(...(out.length ? [element("details", {}, element("summary", {}, `Left out: ${out.length} parameter${out.length > 1 ? "s" : ""} switched off`), out.join(", "))] : []));
        note.textContent = [without.length ? `Left out, without telemetry: ${without.join(", ")}.` : "", other.length ? `Not of the chosen seed: ${other.join(", ")}.` : ""].filter(Boolean).join(" ");
    };
    choosers.push(draw); // of the seed
    redraws.push(draw);
    const rows = Math.max(...data.telemetry.runs.map(run => run.rows));
    const controls = [element("div", {class: "controls"}, "A panel for each ", choice("A panel for each", [["format", "format"], ["parameter", "parameter"]], by, value => { by = value; draw(); })),
                      lineSwitches("Parameters shown", parameters.map(p => ({key: p, name: title(p), look: () => look(p)})), shown, draw)];
    draw();
    return section(...anchor, ...controls, grid, note, left, element("p", {class: "soft"},
        "‖w − w before‖ / ‖w before‖ of the update at each row of telemetry, of weights with their wide copies. At the foot of the axis: 0, an update that moved nothing. " +
        (rows > 1 ? `Up to ${rows} rows are one point, their mean. ` : "")));
}
