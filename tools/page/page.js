// page.js - what all figures share: the data, elements, texts of numbers, colours, and which series are switched on.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {}))
        if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
        else if (value === true) made.setAttribute(name, "");
        else if (value !== false && value != null) made.setAttribute(name, value);
    made.append(...children);
    return made;
}

// What draws on a new width must not do so while widths are being settled.
function resized(watched, act) {
    let last = 0;
    new ResizeObserver(() => requestAnimationFrame(() => {
        if (watched.isConnected && watched.clientWidth !== last) {
            last = watched.clientWidth;
            act();
        }
    })).observe(watched);
}

// --- numbers --------------------------------------------------------------------------------------------------------

const superscript = n => String(n).replace(/[-0-9]/g, c => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]);
const count = n => n === "inf" ? "Inf" : Math.round(n).toLocaleString("en-US");

function short(value, digits = 5) {
    if (value == null || Number.isNaN(value)) return "–";
    if (value === "inf" || Math.abs(value) === Infinity) return "Inf";
    const size = Math.abs(value);
    if (size && (size < 1e-4 || size >= 1e6)) return value.toExponential(2).replace("-", "−");
    const decimals = size >= 100 ? Math.max(0, digits - 3) : size >= 10 ? digits - 2 : digits - 1;
    return value.toFixed(size ? Math.max(decimals, 2 - Math.floor(Math.log10(size))) : decimals).replace("-", "−"); // three digits that count, at least
}

const signed = (value, digits) => (value >= 0 ? "+" : "") + short(value, digits);

// A column of the data: one number stands for all.
const column = (values, length) => Array.isArray(values) ? values : Array(length).fill(values === undefined ? null : values);

// --- colours --------------------------------------------------------------------------------------------------------

// Chromium sends no "change" to a page that has read `matches` between the change and its event: the figures would keep
// the colours that they were drawn in. So `matches` is read once here, and then only the event says what holds.
const scheme = matchMedia("(prefers-color-scheme: dark)");
let dark = scheme.matches;
function schemeChanged(act) {
    scheme.addEventListener("change", event => { dark = event.matches; act(); });
}
const token = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function toHsl(hex) {
    const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255);
    const most = Math.max(r, g, b), least = Math.min(r, g, b), range = most - least, light = (most + least) / 2;
    const hue = !range ? 0 : most === r ? ((g - b) / range + 6) % 6 : most === g ? (b - r) / range + 2 : (r - g) / range + 4;
    return [60 * hue, range ? 100 * range / (1 - Math.abs(2 * light - 1)) : 0, 100 * light];
}

// On dark ground every colour is lifted by the same growing map of lightness, so that two never become one.
function shownColour(hex, alpha = 1) {
    const [hue, saturation, light] = toHsl(hex);
    const shown = dark ? (saturation ? 42 + 0.5 * light : 92 - 0.3 * light) : light;
    return `hsla(${hue.toFixed(1)},${saturation.toFixed(1)}%,${shown.toFixed(1)}%,${alpha})`;
}
const seriesColour = (series, alpha = 1) => shownColour(data.series[series].colour, alpha);

// The n-th series drawn has wider gaps than the one below it: curves that coincide all stay visible.
const dashes = [[], [], [10, 6], [7, 7], [4, 7], [2, 6]];
const place = series => data.order.indexOf(series);
const lineDash = n => dashes[n < dashes.length ? n : 2 + n % (dashes.length - 2)];
const seriesDash = series => lineDash(place(series));
const seriesWidth = series => place(series) ? 2 : 3;

function lineSample({colour, dash, width}) {
    const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    const line = document.createElementNS(space, "line");
    svg.setAttribute("class", "sample");
    svg.setAttribute("viewBox", "0 0 28 10");
    svg.setAttribute("aria-hidden", "true");
    for (const [name, value] of Object.entries({x1: 1, y1: 5, x2: 27, y2: 5, "stroke-width": width + 0.5,
                                                "stroke-dasharray": dash.map(d => 0.7 * d).join(" "), stroke: colour}))
        line.setAttribute(name, value);
    svg.append(line);
    return svg;
}
const seriesLook = series => ({colour: seriesColour(series), dash: seriesDash(series), width: seriesWidth(series)});
const sample = series => lineSample(seriesLook(series));

// --- which series are seen ------------------------------------------------------------------------------------------

const on = data.series.map(s => s.finished > 0 || s.stopped > 0);
const drawn = () => data.order.filter(i => on[i]);
const redraws = [];
const redraw = () => redraws.forEach(draw => draw());

function chip(series) {
    const s = data.series[series], none = !s.finished && !s.stopped;
    const state = none ? "no finished run" : s.diverged ? `${s.diverged} diverged` : s.stopped ? `stopped at ${s.stopped}` : "";
    return element("button", {
        type: "button", class: "chip" + (s.diverged ? " bad" : ""), "data-series": s.name, disabled: none, "aria-pressed": String(on[series]),
        title: "Show or hide; double click shows this one alone",
        onclick: () => { on[series] = !on[series]; redraw(); },
        ondblclick: () => { on.forEach((_, i) => { on[i] = i === series; }); redraw(); },
    }, sample(series), s.name, ...(state ? [element("small", {}, state)] : []));
}

function seriesBar() {
    const bar = element("div", {class: "bar", role: "group", "aria-label": "Formats shown"});
    const draw = () => {
        const focused = bar.contains(document.activeElement) && [...bar.children].indexOf(document.activeElement);
        bar.replaceChildren(...data.order.map(chip),
            element("button", {type: "button", class: "plain", onclick: () => {
                const all = on.some((shown, i) => !shown && (data.series[i].finished || data.series[i].stopped));
                on.forEach((_, i) => { on[i] = all && (data.series[i].finished > 0 || data.series[i].stopped > 0); });
                redraw();
            }}, "all / none"));
        if (focused !== false && bar.children[focused]) bar.children[focused].focus();
    };
    redraws.push(draw);
    draw();
    return bar;
}

// --- controls -------------------------------------------------------------------------------------------------------

// Buttons of which one is pressed; `choices` are [value, text].
function choice(label, choices, chosen, changed) {
    const group = element("span", {class: "choice", role: "group", "aria-label": label});
    const draw = () => group.replaceChildren(...choices.map(([value, text]) => element("button", {
        type: "button", "aria-pressed": String(value === chosen), "data-value": value,
        onclick: () => { chosen = value; draw(); [...group.children].find(b => b.dataset.value === value).focus(); changed(value); },
    }, text)));
    draw();
    return group;
}

function picker(label, choices, chosen, changed) {
    return element("label", {class: "picker"}, label + " ", element("select", {
        onchange: event => changed(event.target.value),
    }, ...choices.map(([value, text]) => element("option", {value, selected: String(value) === String(chosen)}, text))));
}

// `id` is the anchor of a section, `brief` its name in the list of sections.
function section(id, brief, title, ...children) {
    return [element("h2", {id, "data-brief": brief}, title), element("section", {class: "card", "aria-label": title}, ...children)];
}

// A section without data: why, and the option that fills it.
const emptySection = (id, brief, title, why, ...fill) => section(id, brief, title, element("p", {class: "hollow"}, element("b", {}, "Empty: "), why, ...fill));
