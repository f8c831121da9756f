// lines.js - panels of lines over the steps that have a common axis, on a logarithmic one with a place for zero, and switches of lines.

const power = t => Number.isInteger(+Math.log10(t).toFixed(9)) ? `10${superscript(Math.round(Math.log10(t)))}` : ticksText(t);

// Powers of ten from `bottom` to `top`, so few that their texts do not touch; of less than two decades 2 and 5 times them as well.
function logSplits(bottom, top) {
    const low = Math.ceil(Math.log10(bottom) - 1e-9), high = Math.floor(Math.log10(top) + 1e-9), every = Math.ceil((high - low + 1) / 7);
    const digits = Math.log10(top / bottom) < 2 ? [1, 2, 5] : [1], splits = [];
    for (let p = low - 1; p <= high; p++)
        for (const d of digits)
            if ((p - high) % every === 0 && d * 10 ** p >= bottom && d * 10 ** p <= top) splits.push(+`${d}e${p}`);
    return splits;
}

// The axis of all `lists` of values: from the least to the largest above zero, and below them a place for zero where one is.
function logAxis(lists) {
    let low = Infinity, high = 0, zeros = false;
    for (const values of lists)
        for (const v of values)
            if (v > 0 && v < Infinity) {
                low = Math.min(low, v);
                high = Math.max(high, v);
            } else {
                zeros ||= v === 0;
            }
    if (!high) [low, high] = [0.1, 1];
    if (high / low < 10) [low, high] = [low / 3.2, high * 3.2];
    const floor = zeros ? 10 ** (Math.floor(Math.log10(low)) - 1) : null, bottom = (floor ?? low) / 1.15, top = high * 1.15;
    return {
        place: v => v == null || !(v >= 0 && v < Infinity) ? null : v === 0 ? floor : v,
        range: () => [bottom, top],
        splits: u => { // zoomed, what there is to see
            const {min, max} = u.scales.y, above = logSplits(Math.max(min, floor ? 2 * floor : 0), max);
            return floor && min <= floor ? [floor, ...above.filter(t => t > 4 * floor)] : above;
        },
        ticks: (_, ticks) => ticks.map(t => t === floor ? "0" : power(t)),
    };
}

// A value of such an axis under the pointer.
const sayRatio = v => v == null ? "–" : v === 0 ? "0" : v.toExponential(2).replace("-", "−");

// lines: {name, colour, dash, width, steps, values, text, points}; text(value) is what stands under the pointer; points: marks each value. The first line lies below the others.
// Lines without any value are named; saved: what the files are called, what a value is, and what holds for all lines; the seed may be that of a line.
function linesPanel({title, label, lines, axis, group, saved}) {
    const panel = element("div", {class: "panel lines"}), readout = element("div", {class: "values", "aria-live": "off"}), note = element("p", {class: "soft"});
    const seen = lines.filter(line => line.values.some(v => axis.place(v) != null)), silent = lines.filter(line => !seen.includes(line));
    const steps = [...new Set(seen.flatMap(line => line.steps))].sort((a, b) => a - b), at = seen.map(line => new Map(line.steps.map((step, i) => [step, line.values[i]])));
    panel.append(element("h3", {}, ...title));
    const made = chart(panel, {
        group, height: () => innerWidth < 600 ? 190 : 230,
        save: () => ({name: saved.name, title: saved.title, legend: seen.map(line => ({look: line, name: line.name})),
                      rows: () => [["step", ...Object.keys(saved.about), "seed", saved.line, saved.value], ...seen.flatMap(line => line.steps.map((step, i) => [step, ...Object.values(saved.about), line.seed ?? saved.seed, line.name, line.values[i]])
                          .filter(row => row[row.length - 1] != null))]}),
        make: () => ({
            // A step that a line has no row of is undefined, and the line goes on; a row without a value is null, and it ends.
            data: [steps, ...at.map(values => steps.map(step => values.has(step) ? axis.place(values.get(step)) : undefined))],
            limits: [Math.min(0, steps[0] - 1), Math.max(data.total_steps, steps[steps.length - 1])], label: `${label}; arrow keys read values`, empty: lines.length ? "None of these lines has a value." : "No line is switched on.",
            series: [{}, ...seen.map(line => ({scale: "y", stroke: line.colour, width: line.width, dash: line.dash, label: line.name, ...(line.points ? {points: {show: true, size: 9, fill: line.colour}} : steps.length <= 30 ? {points: {show: true, size: 5}} : {})}))],
            scales: {y: {range: axis.range, distr: 3, log: 10}},
            axes: [stepAxis(), axisLook({scale: "y", size: 54, splits: axis.splits, filter: (_, ticks) => ticks, values: axis.ticks})],
        }),
        values(u, index) {
            if (!u) { readout.replaceChildren(); return; }
            const i = index == null ? steps.length - 1 : index;
            readout.replaceChildren(element("b", {}, `step ${count(steps[i])}`), ...seen.map((line, k) =>
                element("span", {"data-line": line.name}, lineSample(line), line.name + " ", element("b", {}, line.text(at[k].get(steps[i]))))));
        },
    });
    panel.firstChild.append(made.tools);
    if (silent.length) note.textContent = `Without a value: ${silent.map(line => line.name).join(", ")}.`;
    panel.append(readout, note);
    return panel;
}

// Buttons that each switch one line; items: {key, name, look}, `shown` a Set of keys.
function lineSwitches(label, items, shown, changed) {
    const group = element("div", {class: "switches", role: "group", "aria-label": label});
    const draw = () => {
        const focused = group.contains(document.activeElement) && [...group.children].indexOf(document.activeElement);
        const set = keys => { shown.clear(); keys.forEach(key => shown.add(key)); draw(); changed(); };
        group.replaceChildren(...items.map(({key, name, look}) => element("button", {
            type: "button", class: "chip", "data-line": name, "aria-pressed": String(shown.has(key)), title: "Show or hide; double click shows this one alone",
            onclick: () => set(items.map(i => i.key).filter(k => (k === key) !== shown.has(k))), ondblclick: () => set([key]),
        }, lineSample(look()), name)), element("button", {type: "button", class: "plain", onclick: () => set(shown.size === items.length ? [] : items.map(i => i.key))}, "all / none"));
        if (focused !== false && group.children[focused]) group.children[focused].focus();
    };
    redraws.push(draw);
    draw();
    return group;
}
