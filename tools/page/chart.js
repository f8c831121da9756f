// chart.js - a uPlot with our looks: zoom by dragging, buttons, two fingers and keys; values of the pointer's place.

const sync = key => ({key, setSeries: false});

function axisLook(more) {
    return {stroke: token("soft"), font: "12px system-ui,sans-serif", grid: {stroke: token("grid"), width: 1},
            ticks: {stroke: token("grid"), width: 1, size: 5}, ...more};
}

const stepAxis = () => axisLook({size: 34, incrs: [1, 2, 5].flatMap(d => [...Array(10).keys()].map(p => d * 10 ** p)).sort((a, b) => a - b),
                                 values: (_, ticks) => ticks.map(count)});

// Two fingers zoom and move along x; one finger moves the cursor, up and down scrolls the page.
function touches(u, limits) {
    const over = u.over, fingers = new Map();
    let start = null;
    const left = event => event.clientX - over.getBoundingClientRect().left;
    over.style.touchAction = "pan-y";
    over.addEventListener("pointerdown", event => {
        if (event.pointerType !== "touch") return;
        fingers.set(event.pointerId, left(event));
        start = null;
    });
    over.addEventListener("pointermove", event => {
        if (!fingers.has(event.pointerId)) return;
        fingers.set(event.pointerId, left(event));
        const at = [...fingers.values()];
        if (at.length === 1) {
            u.setCursor({left: at[0], top: over.clientHeight / 2});
        } else {
            const [a, b] = [Math.min(...at), Math.max(...at)];
            if (!start) start = {a: u.posToVal(a, "x"), b: u.posToVal(b, "x")};
            const scale = (start.b - start.a) / Math.max(8, b - a), low = start.a - a * scale;
            u.setScale("x", {min: Math.max(limits()[0], low), max: Math.min(limits()[1], low + over.clientWidth * scale)});
        }
    });
    const lifted = event => { fingers.delete(event.pointerId); start = null; };
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) over.addEventListener(end, lifted);
}

// Device pixels of a length of 1 in hooks of a chart, which may be the enlarged one of a picture.
const unitOf = u => devicePixelRatio * (u.enlarged || 1);

// The same options with every length `by` times as long: a picture has more pixels than a screen may have.
function enlarged(made, by) {
    const times = v => typeof v === "number" ? v * by : v;
    return {
        ...made,
        series: made.series.map(s => ({...s, width: times(s.width), dash: s.dash?.map(times), ...(s.points ? {points: {...s.points, size: times(s.points.size)}} : {})})),
        axes: made.axes.map(a => ({...a, size: times(a.size), gap: 5 * by, space: (a.scale === "y" ? 30 : 50) * by, font: a.font.replace("12", 12 * by),
                                   grid: {...a.grid, width: by}, ticks: {...a.ticks, width: by, size: 5 * by}})),
        hooks: {...made.hooks, init: [u => { u.enlarged = by; }]},
    };
}

// A chart in `host`. make() gives {series, data, axes, scales, bands, hooks, limits: [x, x], label}, anew after every change;
// values(u, index) is told where the pointer is, null where it is nowhere;
// save() gives {name, title, rows, legend}, of which and the plot saveButtons() makes files.
function chart(host, {make, values, height, group, save}) {
    let u = null, zoomed = null;
    const frame = element("div", {class: "chart", tabindex: "0", role: "img"});
    const size = () => ({width: Math.max(200, frame.clientWidth), height: height()});
    const limits = () => made.limits;
    let made = null;
    const padding = [10, 14, 0, 0], scales = () => ({...made.scales, x: {time: false, range: (_, min, max) => min === max ? [min - 1, max + 1] : [min, max]}});
    // The plot as it is zoomed, with the pixels of a picture.
    const picture = async () => {
        const {width, height} = u, by = density() / devicePixelRatio, host = element("div", {class: "aside"});
        document.body.append(host);
        const larger = new uPlot({...enlarged(made, by), width: width * by, height: height * by, padding: padding.map(v => v * by), legend: {show: false}, scales: scales()}, made.data, host);
        for (const axis of ["x", "y"]) larger.setScale(axis, {min: u.scales[axis].min, max: u.scales[axis].max});
        await new Promise(done => setTimeout(done)); // it is drawn after what runs now
        host.remove();
        return {...save(), width, height, paint: ctx => { ctx.drawImage(larger.ctx.canvas, 0, 0, width, height); larger.destroy(); }};
    };
    const zoom = factor => {
        const {min, max} = u.scales.x, middle = u.cursor.idx != null ? u.data[0][u.cursor.idx] : (min + max) / 2;
        u.setScale("x", {min: Math.max(limits()[0], middle - (middle - min) * factor), max: Math.min(limits()[1], middle + (max - middle) * factor)});
    };
    const reset = () => { zoomed = null; draw(); };
    const step = by => {
        const now = u.cursor.idx == null ? (by > 0 ? -1 : u.data[0].length) : u.cursor.idx;
        const next = Math.min(u.data[0].length - 1, Math.max(0, now + by));
        u.setCursor({left: u.valToPos(u.data[0][next], "x"), top: u.over.clientHeight / 2});
    };
    frame.addEventListener("keydown", event => {
        const act = {ArrowLeft: () => step(-1), ArrowRight: () => step(1), "+": () => zoom(0.5), "-": () => zoom(2), 0: reset, Escape: reset}[event.key];
        if (act && u) { act(); event.preventDefault(); }
    });
    function draw() {
        made = make();
        frame.setAttribute("aria-label", made.label);
        if (u) u.destroy();
        u = null;
        frame.replaceChildren();
        if (!made.data[0].length) {
            frame.append(element("p", {class: "empty"}, made.empty || "Nothing to draw."));
            values(null, null);
            return;
        }
        u = new uPlot({
            ...size(), padding, legend: {show: false}, focus: {alpha: 0.35},
            cursor: {drag: {x: true, y: true, uni: 24, setScale: true}, points: {size: 6}, focus: {prox: 24}, ...(group ? {sync: sync(group), focus: {prox: -1}} : {})},
            ...made,
            scales: scales(),
            hooks: {
                ...made.hooks,
                setCursor: [v => values(v, v.cursor.idx == null ? null : v.cursor.idx)],
                setScale: [(v, key) => { if (key === "x") zoomed = [v.scales.x.min, v.scales.x.max]; }],
            },
        }, made.data, frame);
        if (zoomed) u.setScale("x", {min: zoomed[0], max: zoomed[1]});
        else u.setScale("x", {min: limits()[0], max: limits()[1]});
        touches(u, limits);
        u.over.addEventListener("dblclick", reset);
        values(u, null);
    }
    resized(frame, () => { if (u && u.width !== size().width) u.setSize(size()); });
    const button = (text, name, act) => element("button", {type: "button", class: "tool", title: name, "aria-label": name, onclick: () => u && act()}, text);
    const tools = element("span", {class: "tools"}, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
                          button("⟲", "Whole range", reset), ...saveButtons(() => u && {...save(), picture}));
    host.append(frame);
    draw();
    return {draw, tools, plot: () => u};
}
