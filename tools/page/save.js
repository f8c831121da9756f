// save.js - figures as files: a picture with title and legend, and a table with every number behind it.

// A number, or text, as a field of CSV; numbers have the digits that give them back.
function field(value) {
    if (value == null || Number.isNaN(value)) return "";
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
const csvText = rows => rows.map(row => row.map(field).join(",") + "\n").join("");

const fileName = (...parts) => [document.querySelector("h1").textContent, ...parts].join(" ").replace(/[^A-Za-z0-9.+]+/g, "-").replace(/^[-.]+|[-.]+$/g, "");

function download(name, content) {
    const link = element("a", {href: URL.createObjectURL(content), download: name});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 20000);
}

// Pixels of a picture for one of the page: enough for paper and slides whatever the screen has.
const density = () => Math.max(2, devicePixelRatio);

// The figure that `paint` draws, so wide and tall, below its title and above its legend of {look, name}; `across`: what its axis is.
function composed({title, across = "steps from left to right", width, height, paint, legend}) {
    const unit = density(), margin = 14, font = "12px system-ui,sans-serif", canvas = document.createElement("canvas"), ctx = canvas.getContext("2d");
    ctx.font = font;
    let x = 0, line = 0;
    const places = legend.map(({look, name}) => {
        const wide = (look ? 34 : 0) + ctx.measureText(name).width + 18;
        if (x && x + wide > width) [x, line] = [0, line + 1];
        const at = {look, name, x: margin + x, line};
        x += wide;
        return at;
    });
    const head = 44, foot = legend.length ? 18 * (line + 1) + 6 : 0;
    canvas.width = Math.round(unit * (width + 2 * margin));
    canvas.height = Math.round(unit * (head + height + foot + margin));
    ctx.scale(unit, unit);
    ctx.fillStyle = token("card");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = token("ink");
    ctx.font = "600 14px system-ui,sans-serif";
    ctx.fillText(title, margin, 20, width);
    ctx.fillStyle = token("soft");
    ctx.font = font;
    ctx.fillText([document.querySelector("h1").textContent, across].filter(Boolean).join(", "), margin, 37, width);
    ctx.save();
    ctx.translate(margin, head);
    paint(ctx, unit);
    ctx.restore();
    for (const {look, name, x, line} of places) {
        const y = head + height + 16 + 18 * line;
        if (look) {
            ctx.strokeStyle = look.colour;
            ctx.lineWidth = look.width;
            ctx.setLineDash(look.dash);
            ctx.beginPath();
            ctx.moveTo(x, y - 4);
            ctx.lineTo(x + 28, y - 4);
            ctx.stroke();
        }
        ctx.setLineDash([]);
        ctx.fillStyle = token("ink");
        ctx.font = font;
        ctx.fillText(name, x + (look ? 34 : 0), y);
    }
    return canvas;
}

// Two buttons; what() gives {name: parts of the file's name, rows: the table with its heading, picture: what composed() takes, or a promise of it},
// or nothing where there is nothing to save.
function saveButtons(what) {
    const button = (text, title, act) => element("button", {type: "button", class: "tool save", title, "aria-label": title, onclick: async () => { const found = await what(); if (found) act(found); }}, text);
    return [button("PNG", "Save as a picture", async ({name, picture}) => composed(await picture()).toBlob(blob => download(`${fileName(...name)}.png`, blob), "image/png")),
            button("CSV", "Save the numbers as a table", ({name, rows}) => download(`${fileName(...name)}.csv`, new Blob([csvText(rows())], {type: "text/csv"})))];
}

// The lines, circles, paths, squares and texts of a small SVG, on a canvas: the page's policy lets no SVG be drawn as an image.
function paintSvg(ctx, svg) {
    for (const shape of svg.children) {
        const get = name => +shape.getAttribute(name), style = getComputedStyle(shape), path = new Path2D();
        ctx.save();
        ctx.fillStyle = style.fill;
        ctx.strokeStyle = style.stroke;
        ctx.lineWidth = parseFloat(style.strokeWidth) || 1;
        if (shape.tagName === "text") {
            ctx.font = `${style.fontSize} system-ui,sans-serif`;
            ctx.textAlign = {middle: "center", end: "right"}[style.textAnchor] || "left";
            ctx.fillText(shape.textContent, get("x"), get("y"));
        } else if (shape.tagName === "rect") {
            const [, angle, x, y] = shape.getAttribute("transform").match(/rotate\(([^ ]+) ([^ ]+) ([^ ]+)\)/).map(Number);
            ctx.translate(x, y);
            ctx.rotate(angle * Math.PI / 180);
            ctx.fillRect(get("x") - x, get("y") - y, get("width"), get("height"));
        } else {
            if (shape.tagName === "path") path.addPath(new Path2D(shape.getAttribute("d")));
            else if (shape.tagName === "circle") path.arc(get("cx"), get("cy"), get("r"), 0, 2 * Math.PI);
            else { path.moveTo(get("x1"), get("y1")); path.lineTo(get("x2"), get("y2")); }
            if (style.stroke !== "none") ctx.stroke(path);
        }
        ctx.restore();
    }
}
