// paired.js - differences to fp32 seed by seed, a row of dots for each format, with mean and interval from the table's test.

const results = {last_loss: ["last loss", 5, "nats"], last_test_loss: ["test loss", 5, "nats"], last_accuracy: ["test accuracy, points", 3, "points"]};

// Of all finished pairs; lost: how many have a result that is not finite, where a mean of the others would hide it.
function pairs(series, name) {
    const all = runsOf(series).filter(run => run.finished).map(run => [run, data.runs.find(r => r.series === data.baseline && r.seed === run.seed && r.finished)])
        .filter(([, base]) => base).map(([run, base]) => ({seed: run.seed, v: base[name] != null && run[name] != null ? run[name] - base[name] : null}));
    return {all, values: all.map(p => p.v).filter(v => v != null), lost: all.filter(p => p.v == null).length};
}

function pairedFigure(host) {
    const space = "http://www.w3.org/2000/svg";
    let name = "last_loss";
    const figure = element("div", {class: "forest"});
    const draw = () => {
        const rows = drawn().filter(i => i !== data.baseline).map(i => ({i, ...pairs(i, name)}));
        const seen = rows.filter(r => r.values.length), without = rows.filter(r => !r.values.length), broken = seen.filter(r => r.lost);
        const width = Math.max(280, figure.clientWidth || 600), narrow = width < 520, label = narrow ? 14 : 210, line = narrow ? 40 : 26, height = line * seen.length + 34;
        const marks = seen.map(({values, lost}) => {
            if (lost) return {mean: null, half: 0};
            const mean = values.reduce((a, b) => a + b, 0) / values.length;
            const sd = values.length > 1 ? Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1)) : 0;
            const half = values.length > 1 ? data.critical[values.length - 2] * sd / Math.sqrt(values.length) : 0;
            return {mean, half};
        });
        // The dots decide the range: with two or three seeds intervals are many times as wide, and end in arrows.
        const most = Math.max(...seen.flatMap(r => r.values.map(Math.abs)), 1e-9), reach = Math.min(2.5 * most, Math.max(most, ...marks.map(m => m.mean == null ? 0 : Math.abs(m.mean) + m.half))) * 1.08;
        const x = v => label + (width - label - 14) * (Math.max(-reach, Math.min(reach, v)) / reach + 1) / 2;
        const svg = document.createElementNS(space, "svg");
        const put = (tag, attributes, text) => {
            const made = document.createElementNS(space, tag);
            for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
            if (text != null) made.textContent = text;
            svg.append(made);
            return made;
        };
        svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${results[name][0]} minus that of fp32, seed by seed; the figures are in the table`);
        for (const v of [-reach / 1.08, 0, reach / 1.08]) {
            put("line", {x1: x(v), x2: x(v), y1: 4, y2: height - 28, class: v ? "grid" : "zero"});
            put("text", {x: x(v), y: height - 10, "text-anchor": v > 0 ? "end" : v < 0 ? "start" : "middle", class: "tick"}, v ? signed(v, results[name][1] - 1) : "0");
        }
        seen.forEach(({i, values}, row) => {
            const y = 4 + line * (row + (narrow ? 0.7 : 0.5)), {mean, half} = marks[row], colour = seriesColour(i);
            const full = data.series[i].name;
            put("text", narrow ? {x: 0, y: y - 11, class: "name"} : {x: label - 12, y: y + 4, "text-anchor": "end", class: "name"}, full);
            if (half) {
                put("line", {x1: x(mean - half), x2: x(mean + half), y1: y, y2: y, stroke: colour, "stroke-width": 2});
                for (const side of [-1, 1]) {
                    const end = x(mean + side * half), beyond = Math.abs(mean + side * half) > reach;
                    put("path", {d: beyond ? `M${end - side * 6},${y - 4}L${end},${y}L${end - side * 6},${y + 4}` : `M${end},${y - 4}V${y + 4}`, stroke: colour, "stroke-width": 2, fill: "none"});
                }
            }
            for (const v of values) put("circle", {cx: x(v), cy: y, r: 4, fill: "none", stroke: colour, "stroke-width": 1.5});
            if (mean != null) put("rect", {x: x(mean) - 4, y: y - 4, width: 8, height: 8, transform: `rotate(45 ${x(mean)} ${y})`, fill: colour}).append(
                Object.assign(document.createElementNS(space, "title"), {textContent: `${full}: ${signed(mean, results[name][1])}`}));
        });
        figure.replaceChildren(...(seen.length ? [svg] : []), ...(without.length ? [element("p", {class: "soft"}, `Left out, without a finished pair of finite results: ${without.map(r => data.series[r.i].name).join(", ")}.`)] : []),
            ...(broken.length ? [element("p", {class: "soft"}, `No mean and interval where a result is not finite: ${broken.map(r => `${data.series[r.i].name} (${r.lost} of ${r.lost + r.values.length} pairs)`).join(", ")}.`)] : []));
    };
    // Marks, then what they are: a picture has them on the page in a sentence.
    const saving = () => {
        const svg = figure.querySelector("svg"), rows = drawn().filter(i => i !== data.baseline), [text, , unit] = results[name];
        return svg && {name: [text, "minus fp32"], rows: () => [["format", "seed", `${text.split(",")[0]} minus fp32 [${unit}]`], ...rows.flatMap(i => pairs(i, name).all.map(({seed, v}) => [data.series[i].name, data.seeds[seed], v]))],
                       picture: () => ({title: `${text[0].toUpperCase()}${text.slice(1)} minus fp32, seed by seed`, across: "", width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height, paint: ctx => paintSvg(ctx, svg),
                                        legend: [{name: "rings: seeds; diamond: their mean; bar: its 95 % interval"}]})};
    };
    const tested = data.runs.some(run => run.last_test_loss != null);
    host.append(element("div", {class: "controls"}, choice("Measure of the pairs", Object.entries(results).filter(([key]) => tested || key === "last_loss").map(([key, [text]]) => [key, text]), name,
        value => { name = value; draw(); }), element("span", {class: "tools"}, ...saveButtons(saving))), figure,
        element("p", {class: "soft"}, "Rings: seeds; diamond: their mean; bar: its 95 % interval, with an arrow where it goes on."));
    redraws.push(draw);
    resized(host, draw);
}
