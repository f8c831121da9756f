#!/usr/bin/env python3
"""report.html in a headless Chromium, as a reader uses it: it fetches nothing and reports no error; series are
switched, a tensor is chosen, figures are zoomed and read, by pointer and by keys, and saved as pictures and tables;
tables fit, and the list leads to sections; at the widths of a desktop and a phone, light and dark.

    test_cli_report_browser.py PATH-OF-FLEXLAB SOURCE [FOLDER-FOR-PICTURES]"""
import csv
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time

from browser import Browser, find
from cli_harness import TINY, check, read_csv, read_lines, succeed, summary
from test_cli_report_page import EVIL, edit_config, telemetry_lines, write_telemetry

MANY = ("fp32,fp16,bf16,flex16+5,flex16+5:ngraph,flex16+5:current,flex16+5:nomaster,flex16+5:nomaster:ngraph,flex16+5-sr,flex16+5-sr:ngraph,flex16+5-paper,"
        "dfp16,dfp16:paper,dfp16:ngraph,dfp16:nomaster,fp16:nomaster,bf16:nomaster,flex16+5:nomaster:current,flex16+5-paper:ngraph,dfp16:nomaster:paper")
FORMATS = "fp32,bf16,flex16+5,flex16+5:ngraph,dfp16"
PLAIN = {"PATH": "/nonexistent"}  # no gnuplot: its figures are not tested here

# The number of pixels of a canvas in the colour of a series, give or take rounding.
PIXELS = """(function (where, name) {
    const canvas = document.querySelector(where), ctx = canvas.getContext("2d"), probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = seriesColour(data.series.findIndex(s => s.name === name));
    probe.fillRect(0, 0, 1, 1);
    const want = probe.getImageData(0, 0, 1, 1).data, have = ctx.getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let i = 0; i < have.length; i += 4)
        found += have[i + 3] > 250 && [0, 1, 2].every(c => Math.abs(have[i + c] - want[c]) < 3);
    return found;
})(%s, %s)"""
CURVE, TEST = "#figures .panels .panel:nth-child(1)", "#figures .panels .panel:nth-child(2)"


def pixels(browser, where, name):
    return browser.value(PIXELS % (json.dumps(where + " canvas"), json.dumps(name)))


def text(browser, where):
    return browser.value(f"document.querySelector({json.dumps(where)}).innerText").replace("\u00a0", " ")


def click(browser, where):
    browser.value(f"document.querySelector({json.dumps(where)}).click()")
    browser.settle()


def box(browser, where):
    """Scrolls the element into view and returns its place in the window."""
    found = browser.value(f"(function () {{ const e = document.querySelector({json.dumps(where)}); e.scrollIntoView({{block: 'center'}});"
                          "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
    browser.settle()
    return found


def silent(browser, path, *what):
    check(browser.errors == [], *what, "complaints:", browser.errors[:3])
    check(browser.requests == ["file://" + path], *what, "asks for", browser.requests[:3])
    browser.errors.clear()


def number(shown):
    return float(shown.replace("−", "-").replace(",", ""))


def test_looks(browser, folder, pictures, widths=((1280, False), (390, True))):
    path = os.path.join(folder, "report.html")
    for width, phone in widths:
        for dark in (False, True):
            browser.window(width, 900, dark, phone)
            browser.open(path)
            what = os.path.basename(folder), width, "dark" if dark else "light"
            silent(browser, path, *what)
            check(browser.value("document.documentElement.scrollWidth") <= width, *what, "is wider than the window")
            check(browser.value("[...document.querySelectorAll('#figures canvas')].every(c => c.width > 0 && c.height > 0)"), *what, "an empty canvas")
            strokes = browser.value("data.series.map((s, i) => seriesColour(i))")
            check(len(set(strokes)) == len(strokes) > 1, *what, "a colour is shared:", strokes)
            names = browser.value("[...document.querySelectorAll('.bar .chip')].map(c => c.dataset.series)")
            check(sorted(names) == sorted(browser.value("data.series.map(s => s.name)")), *what, "switches", names)
            picture = os.path.join(pictures, "-".join(map(str, what)) + ".png")
            browser.picture(picture)
            check(os.path.getsize(picture) > 50_000, *what, "an empty picture of", os.path.getsize(picture), "bytes")


def test_scheme(browser, folder):
    """When light turns to dark, or back, every figure is redrawn, even if colours were requested before the page was
    notified."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    colours = "data.series.map((_, i) => seriesColour(i))"
    for _ in range(5):
        for dark in (True, False):
            before = browser.value(colours)
            browser.window(1280, 900, dark, settle=False)
            browser.value(colours)
            browser.settle()
            check(browser.value(colours) != before, "the colours stay when it turns", "dark" if dark else "light")
            drawn = {name: pixels(browser, CURVE, name) for name in FORMATS.split(",")}
            check(all(n > 20 for n in drawn.values()), "turned", "dark" if dark else "light", "and drawn in", drawn)


# Every table of the page: whether it is wider than its box or the window, and which of its columns are visible.
TABLES = """[...document.querySelectorAll('.wide')].map(box => {
    const table = box.querySelector("table"), seen = cell => { const b = cell.getBoundingClientRect(); return b.width > 0 && b.height > 0 && b.left >= 0 && b.right <= innerWidth; };
    const heads = [...table.tHead.rows[0].cells].map(c => c.textContent), rows = [...table.tBodies[0].rows];
    return {id: box.closest(".card").previousElementSibling.id, scrolls: box.scrollWidth > box.clientWidth || table.offsetWidth > box.clientWidth + 1, cards: table.classList.contains("cards"), heads,
            seen: heads.filter((_, i) => rows.every(row => seen(row.cells[i]))), rows: rows.map(row => [...row.cells].map(cell => cell.textContent)),
            note: box.nextElementSibling.innerText};
})"""


def test_tables(browser, folders):
    """Saturated, flushed and skipped are in the window at every width, without a scrollbar of page or table; what is left out is named, and there on demand."""
    wanted = {"results": {"format", "last loss", "loss − fp32", "test acc. %", "saturated", "flushed", "skipped"}, "differences": {"format", "minus fp32", "mean", "p"},
              "arithmetic": {"format", "saturated", "flushed to zero", "NaN or Inf"}, "runs": {"format", "seed", "last loss", "test acc. %", "divergence"}}
    for folder, widths in folders.items():
        files = {row["format"]: row for row in read_csv(folder, "summary.csv")}
        for width in widths:
            browser.window(width, 900, phone=width < 600)
            browser.open(os.path.join(folder, "report.html"))
            what = os.path.basename(folder), width
            check(browser.value("document.documentElement.scrollWidth") <= width, *what, "the page is wider than the window")
            tables = browser.value(TABLES)
            check([t["id"] for t in tables] == list(wanted), *what, [t["id"] for t in tables])
            for table in tables:
                check(not table["scrolls"] and set(table["seen"]) >= wanted[table["id"]], *what, table["id"], "seen without scrolling:", table["seen"])
                left = [head for head in table["heads"] if head not in table["seen"]]
                check(table["note"].startswith(f"Not shown at this width: {', '.join(left)}." if left else ""), *what, table["id"], left, "note:", table["note"])
            for row in tables[0]["rows"]:
                name = row[0].replace(" DIVERGED", "")
                shown = dict(zip(tables[0]["heads"], row))
                check(all(shown[k] == f"{int(files[name][k]):,}" for k in ("saturated", "flushed")), *what, name, shown)
            if width == 1600:  # times and sizes are the only columns that are left out if the window is large enough
                check({h for t in tables for h in t["heads"] if h not in t["seen"]} <= {"img/s", "wall s", "activations", "weights"}, *what, [t["note"] for t in tables])
                continue
            check(tables[0]["cards"] or width > 320, *what, "no cards where rows do not fit")
            click(browser, "#summary .fit button")
            table = browser.value(TABLES)[0]
            check(set(table["seen"]) == set(table["heads"]) or width > 600, *what, "all columns:", table["seen"])
            check(browser.value("[...document.querySelectorAll('#summary td')].every(c => c.getBoundingClientRect().width > 0)"), *what, "a column stays hidden")
            check(browser.value("document.documentElement.scrollWidth") <= width, *what, "all columns widen the page")
            click(browser, "#summary .fit button")
            check(browser.value(TABLES)[0]["seen"] == tables[0]["seen"], *what, "the columns that fit do not come back")
    # a window that becomes narrower chooses its columns again
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    before = len(browser.value(TABLES)[0]["seen"])
    browser.window(768, 900)
    after = browser.value(TABLES)[0]
    check(len(after["seen"]) < before and not after["scrolls"], "a narrower window", before, after["seen"])


def test_sections(browser, folder, other):
    """The list of sections leads to each of them, stays in sight, marks the reader's position, and leads back."""
    path = os.path.join(folder, "report.html")
    for width in (1280, 390):
        browser.window(width, 900, phone=width < 600)
        browser.open(path)
        links = browser.value("[...document.querySelectorAll('nav ul a')].map(a => [a.textContent, a.getAttribute('href')])")
        heads = browser.value("[...document.querySelectorAll('h2')].map(h => '#' + h.id)")
        check([href for _, href in links] == heads and len(heads) == 12 and len(set(heads)) == 12, width, links, heads)
        for text_of, href in links:
            if width == 390:
                click(browser, "nav .where")
                check(browser.value("getComputedStyle(document.querySelector('nav ul')).display") == "flex", "the list does not open")
            click(browser, f'nav ul a[href="{href}"]')
            browser.settle()
            at = browser.value("(function () { const n = document.querySelector('nav').getBoundingClientRect(), h = document.querySelector(location.hash).getBoundingClientRect(), b = document.querySelector('.bar').getBoundingClientRect();"
                               "return {nav: n.top, foot: Math.max(n.bottom, b.top < 200 && b.bottom > 0 ? b.bottom : 0), head: h.top, end: scrollY + innerHeight >= document.documentElement.scrollHeight - 2, height: innerHeight}; })()")
            check(abs(at["nav"]) < 1 or href == heads[0], width, href, "the list is not at hand:", at)
            check(at["foot"] - 1 <= at["head"] <= (at["height"] if at["end"] else at["foot"] + 60), width, href, "leads to", at)
            current = browser.value("[...document.querySelectorAll('nav [aria-current]')].map(a => a.textContent)")
            check(current == [text_of] or at["end"], width, href, "marked:", current)
            if width == 390:
                check(browser.value("getComputedStyle(document.querySelector('nav ul')).display") == "none", "the list stays open")
                check(text(browser, "nav .where") == "☰ " + current[0], text(browser, "nav .where"), current)
        click(browser, "nav .top")
        browser.settle()
        check(browser.value("scrollY") == 0, width, "not back at the top")
        silent(browser, path, "sections", width)
    browser.window(1280, 900)
    browser.open(os.path.join(other, "report.html"))  # otherwise it would be the same page
    browser.open(path + "#arithmetic")
    check(browser.value("document.getElementById('arithmetic').getBoundingClientRect().top") < 900, "an address with a section does not lead there")


def saved(browser, place, button):
    """The file that a button saves; it is removed."""
    click(browser, button)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        names = [n for n in os.listdir(place) if not n.startswith(".") and not n.endswith(".crdownload")]  # only complete files
        if names:
            with open(os.path.join(place, names[0]), "rb") as file:
                content = file.read()
            os.remove(os.path.join(place, names[0]))
            return names[0], content
        time.sleep(0.02)
    check(False, button, "saves nothing")
    return "", b""


def table_of(content):
    rows = list(csv.reader(content.decode().splitlines()))
    return rows[0], rows[1:]


SAVE_PNG, SAVE_CSV = '[aria-label="Save as a picture"]', '[aria-label="Save the numbers as a table"]'

# A picture from the page, intercepted before it is saved: its size, that of the figure on the page, and its pixels in
# the colours of the series.
PICTURE = """new Promise((done, fail) => {
    const plain = window.download;
    window.download = async (name, blob) => {
        window.download = plain;
        const image = await createImageBitmap(blob), canvas = document.createElement("canvas"), ctx = canvas.getContext("2d");
        [canvas.width, canvas.height] = [image.width, image.height];
        ctx.drawImage(image, 0, 0);
        const pixels = ctx.getImageData(0, 0, image.width, image.height).data, probe = document.createElement("canvas").getContext("2d");
        const counts = data.series.map((_, s) => {
            probe.fillStyle = seriesColour(s);
            probe.fillRect(0, 0, 1, 1);
            const want = probe.getImageData(0, 0, 1, 1).data;
            let found = 0;
            for (let i = 0; i < pixels.length; i += 4) found += [0, 1, 2].every(c => Math.abs(pixels[i + c] - want[c]) < 3);
            return found;
        });
        done({name, type: blob.type, width: image.width, height: image.height, counts, clear: pixels.filter((v, i) => (i & 3) === 3 && v < 255).length});
    };
    document.querySelector(%s).click();
    setTimeout(() => fail("no picture"), 15000);
})"""


def test_saved(browser, folder, place):
    """Tables that figures save hold what the files hold, to the last digit where the page has it; pictures are sharp, whole and in the colours of the series."""
    files = os.path.join(place, "saved")
    os.mkdir(files)
    browser.downloads(files)
    browser.window(1280, 900)
    path = os.path.join(folder, "report.html")
    browser.open(path)
    lines = read_lines(folder)
    formats = [f["name"] for f in lines[0]["formats"]]
    losses = {(line["step"], line["format"], line["seed"]): line["loss"] for line in lines if line["type"] == "steps"}
    epochs = {(line["step"], line["format"], line["seed"]): line for line in lines if line["type"] == "epoch"}
    keyed = lambda rows: {(int(r[0]), r[1], int(r[2])): float(r[3]) for r in rows}

    name, content = saved(browser, files, f"{CURVE} {SAVE_CSV}")
    head, rows = table_of(content)
    check(name == "mlp2-on-synthetic-Training-loss.csv" and head == ["step", "format", "seed", "Training loss [nats]"], name, head)
    check(keyed(rows) == losses and len(rows) == len(losses), "losses", keyed(rows).items() ^ losses.items())
    click(browser, CURVE + ' [data-value="difference"]')
    head, rows = table_of(saved(browser, files, f"{CURVE} {SAVE_CSV}")[1])
    check(head[3] == "Training loss minus fp32 [nats]" and keyed(rows) == {k: v - losses[k[0], "fp32", k[2]] for k, v in losses.items() if k[1] != "fp32"}, head, rows[:2])
    for button, column_name, value in (("accuracy", "Test accuracy [%]", lambda e: 100 * e["test_accuracy"]), ("test", "Test loss [nats]", lambda e: e["test_loss"])):
        click(browser, f'{TEST} [data-value="{button}"]')
        head, rows = table_of(saved(browser, files, f"{TEST} {SAVE_CSV}")[1])
        check(head[3] == column_name and keyed(rows) == {k: value(e) for k, e in epochs.items()}, button, head, rows[:2])
    click(browser, '.chip[data-series="bf16"]')
    head, rows = table_of(saved(browser, files, f"{CURVE} {SAVE_CSV}")[1])
    check({r[1] for r in rows} == set(formats) - {"fp32", "bf16"}, "a format that is switched off is saved", {r[1] for r in rows})
    click(browser, '.chip[data-series="bf16"]')

    browser.value("choose(data.tensors.findIndex(t => t[0] === 'fc1.weight.grad'))")
    browser.settle()
    lane = '.lanes:not(#histograms) [data-series="flex16+5"]'
    name, content = saved(browser, files, f"{lane} {SAVE_CSV}")
    head, rows = table_of(content)
    want = [[r["step"], r["tensor"], r["role"], "flex16+5", "1", float(r["maximum_e"]), float(r["gamma"]), float(r["maximum"]), float(r["predicted_maximum"]), float(r["saturated"]), float(r["flushed"])]
            for r in read_csv(folder, "trace-flex16+5-seed1.csv") if r["tensor"] == "fc1.weight.grad"]
    check(name == "mlp2-on-synthetic-exponent-fc1.weight.grad-flex16+5.csv" and all("[" in column for column in head[5:]), name, head)
    check([r[:5] + [float(v) for v in r[5:]] for r in rows] == want, "exponents", rows[:2], want[:2])

    head, rows = table_of(saved(browser, files, f"#layers + .card {SAVE_CSV}")[1])
    series = browser.value("document.querySelector('#layers + .card .picker select').selectedOptions[0].text")
    flushed = {(r["tensor"], r["role"], r["step"]): int(r["flushed"]) for r in read_csv(folder, f"trace-{series.replace(':', '_')}-seed1.csv")}
    check(head[-1] == "flushed to zero [elements]" and {(r[0], r[1], r[5]): int(r[6]) for r in rows} == {k: v for k, v in flushed.items() if sum(n for (t, _, _), n in flushed.items() if t == k[0])}, head, rows[:2])

    head, rows = table_of(saved(browser, files, f"#differences + .card {SAVE_CSV}")[1])
    results = {(line["format"], line["seed"]): line["last_loss"] for line in lines if line["type"] == "run"}
    check(head == ["format", "seed", "last loss minus fp32 [nats]"] and {(r[0], int(r[1])): float(r[2]) for r in rows} == {k: v - results["fp32", k[1]] for k, v in results.items() if k[0] != "fp32"}, head, rows)

    name, content = saved(browser, files, f"{CURVE} {SAVE_PNG}")
    check(name.endswith(".png") and content[:8] == b"\x89PNG\r\n\x1a\n", name, content[:8])
    click(browser, CURVE + ' [data-value="loss"]')
    browser.settle()
    for dark in (False, True):
        browser.window(1280, 900, dark)
        for where, coloured in ((CURVE, formats), (lane, ["flex16+5"]), ("#differences + .card", formats[1:])):
            picture = browser.value(PICTURE % json.dumps(f"{where} {SAVE_PNG}"))
            wide = browser.value(f"document.querySelector({json.dumps(where)}).clientWidth")
            counts = dict(zip(formats, picture["counts"]))
            check(picture["type"] == "image/png" and picture["width"] > 1.8 * wide * 0.9 and picture["clear"] == 0, where, picture)
            check(all(counts[f] > 20 for f in coloured), where, "dark" if dark else "light", counts)
    browser.window(1280, 900)
    # the picture has the state of the chart: zoomed, it differs
    whole = browser.value(PICTURE % json.dumps(f"{CURVE} {SAVE_PNG}"))["counts"]
    check(all(n > 20 for n in whole), "light again, and drawn in", whole)
    click(browser, CURVE + ' [aria-label="Zoom in"]')
    check(browser.value(PICTURE % json.dumps(f"{CURVE} {SAVE_PNG}"))["counts"] != whole, "the picture is not zoomed as the chart is")
    silent(browser, path, "saving")
    every = browser.value("""(async () => {
        const plain = window.download, sizes = {};
        window.download = (name, blob) => { sizes[name] = blob.size; };
        for (const button of document.querySelectorAll(".save")) button.click();
        for (let i = 0; i < 200 && Object.keys(sizes).length < document.querySelectorAll(".save").length; i++) await new Promise(done => setTimeout(done, 100));
        window.download = plain;
        return sizes;
    })()""")
    check(len(every) == 14 and all(size > 100 for size in every.values()), every)  # of 2 curves, 3 formats with a shared exponent, map and pairs


def test_saved_telemetry(browser, place, folder):
    """Tables and pictures of histograms, shadow formats and updates, from records of telemetry."""
    path, files = os.path.join(folder, "report.html"), os.path.join(place, "saved")
    browser.window(1280, 900)
    browser.open(path)
    browser.value("choose(data.tensors.findIndex(t => t[0] === 'fc2.weight'))")
    browser.settle()
    rows_of = {(line["tensor"], line["step"]): line for line in read_lines(folder, "telemetry-flex16+5-seed1.jsonl") if line["type"] == "tensor"}
    mine = {step: line for (tensor, step), line in rows_of.items() if tensor == "fc2.weight"}
    head, rows = table_of(saved(browser, files, f'#histograms [data-series="flex16+5"] {SAVE_CSV}')[1])
    check(head[5] == "zeros [part of the elements]" and len(rows) == len(mine), head[:6], len(rows))
    for row in rows:
        line = mine[int(row[0])]
        check(abs(float(row[5]) - line["zeros"] / line["elements"]) < 1e-8 and [int(v) for v in row[6:9]] == [line["nonfinite"], line["saturated"], line["flushed"]], row[:9])
        for k, share in enumerate(map(float, row[9:])):
            low = int(head[9 + k].split("^")[1].split(" ")[0]) - line["first_bin"]
            count = line["bins"][low] if 0 <= low < len(line["bins"]) else 0
            check((share == 0) == (count == 0) and (not count or abs(math.log2(share * line["elements"] / count)) <= 0.2501 or count / line["elements"] < 2 ** -17), head[9 + k], share, count)
    head, rows = table_of(saved(browser, files, f'#shadows [data-series="flex16+5"] {SAVE_CSV}')[1])
    got = {(int(r[0]), r[5]): float(r[6]) for r in rows}
    want = {(step, "as " + s["name"]): s["error"] for step, line in mine.items() for s in line["shadows"] if s["error"] is not None}
    want |= {(step, "flex16+5"): line["rounding"] * math.sqrt(line["elements"]) / line["l2"] for step, line in mine.items()}
    check(got.keys() == want.keys() and all(abs(got[k] - v) <= 1e-8 * v for k, v in want.items()), got, want)
    head, rows = table_of(saved(browser, files, f'#updates [data-panel="flex16+5"] {SAVE_CSV}')[1])
    want = {(str(step), tensor): line["update_ratio"] for (tensor, step), line in rows_of.items() if line["update_ratio"] is not None and tensor.endswith("weight")}
    got = {(r[0], r[3]): float(r[4]) for r in rows}
    check(head == ["step", "format", "seed", "parameter", "update-to-weight ratio [part of the norm of the weights]"] and got.keys() == want.keys() and all(abs(got[k] - v) <= 1e-8 * v for k, v in want.items()), head, got, want)


# Pixels of a histogram's line of the largest value, which is drawn in ink over the cells.
INK = """(function (where) {
    const canvas = document.querySelector(where), ctx = canvas.getContext("2d"), probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = token("ink");
    probe.fillRect(0, 0, 1, 1);
    const want = probe.getImageData(0, 0, 1, 1).data, left = 48 * devicePixelRatio, have = ctx.getImageData(left, 0, canvas.width - left - 12 * devicePixelRatio, canvas.height - 36 * devicePixelRatio).data;
    let found = 0;
    for (let i = 0; i < have.length; i += 4) found += have[i + 3] > 100 && [0, 1, 2].every(c => Math.abs(have[i + c] - want[c]) < 40);
    return found;
})(%s)"""


def test_float_tensors(browser, place):
    """Under a policy, a tensor has the lines of a shared exponent if and only if it has one, whatever variant its
    network begins from."""
    rules = {"shared": "variant flex16+5\nfc1* format=fp16\n", "float": "variant bf16\nfc1* format=flex16+5\n"}
    for kind, lines in rules.items():
        policy, out = os.path.join(place, f"{kind}.policy"), os.path.join(place, f"policy-{kind}")
        with open(policy, "w") as file:
            file.write(lines)
        succeed("train", *TINY, "--policy", policy, "--telemetry", "1", "--out", out, "--quiet", env=PLAIN)
        name = f"policy:{kind}.policy"
        formats = {line["tensor"]: line["format"] for line in read_lines(out, f"telemetry-policy_{kind}.policy-seed1.jsonl") if line["type"] == "tensor"}
        browser.window(1280, 900)
        browser.open(os.path.join(out, "report.html"))
        silent(browser, os.path.join(out, "report.html"), kind)
        seen = set()
        for tensor in ("fc1.weight", "fc2.weight", "fc1.weight.grad", "fc2.weight.grad"):
            browser.value(f"choose(data.tensors.findIndex(t => t[0] === {json.dumps(tensor)}))")
            browser.settle()
            panel = f'#histograms [data-series="{name}"]'
            ink, shared = browser.value(INK % json.dumps(panel + " canvas")), formats[tensor].startswith("flex")
            check(ink > 100 if shared else ink == 0, kind, tensor, formats[tensor], "pixels of lines of an exponent:", ink)
            check(formats[tensor] in text(browser, panel + " h3"), text(browser, panel + " h3"))
            seen.add(shared)
        check(seen == {True, False}, formats)


def test_empty(browser, place, folder):
    """An empty section says why it is empty, and which option fills it."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    hollow = lambda: {h: browser.value(f"document.querySelector('#{h} + .card .hollow')?.innerText") for h in ("exponents", "magnitudes", "shadow-formats", "update-ratios", "layers")}
    said = hollow()
    check(said["exponents"] is None and said["layers"] is None, said)
    check(all(said[h].startswith("Empty: these runs were trained without --telemetry. Train with --telemetry 10") for h in ("magnitudes", "shadow-formats", "update-ratios")), said)
    check("--shadow fp16,dfp16" in said["shadow-formats"], said)
    out = os.path.join(place, "hollow")
    succeed("train", *TINY, "--format", "flex16+5", "--no-trace", "--max-steps", "2", "--out", out, "--quiet", env=PLAIN)
    browser.open(os.path.join(out, "report.html"))
    said = hollow()
    check("--no-trace" in said["exponents"] and "--telemetry 10" in said["layers"], said)
    out = os.path.join(place, "weightless")
    succeed("train", *TINY, "--format", "flex16+5", "--telemetry", "4:fc1", "--out", out, "--quiet", env=PLAIN)
    browser.open(os.path.join(out, "report.html"))
    check("looked at no weight" in hollow()["update-ratios"], hollow())
    check("Empty: the telemetry of this format holds no such tensor" in text(browser, "#histograms"), text(browser, "#histograms"))
    silent(browser, os.path.join(out, "report.html"), "hollow")


def test_switches(browser, folder):
    """A series that is switched off disappears from every figure; one that is shown alone is the only one."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    names = FORMATS.split(",")
    lanes = lambda: browser.value("[...document.querySelectorAll('.lanes:not(#histograms) .lane')].map(l => l.dataset.series)")
    check(lanes() == ["flex16+5", "flex16+5:ngraph", "dfp16"], lanes())
    for alone in names:  # where curves cross, one may cover the colour of another
        for name in names:
            if (browser.value(f"on[{names.index(name)}]")) != (name == alone):
                click(browser, f'.chip[data-series="{name}"]')
        counts = {name: pixels(browser, CURVE, name) for name in names}
        check(counts[alone] > 50 and all(counts[n] < 5 for n in names if n != alone), alone, "alone:", counts)
        check(pixels(browser, TEST, alone) > 10, alone, "has no accuracy")
        shown = text(browser, CURVE + " .values")
        check(alone in shown and not any(n in shown.split() for n in names if n != alone), alone, "values:", shown)
        check(lanes() == ([alone] if alone[0] in "d" or "flex" in alone else []), alone, "lanes", lanes())
    click(browser, ".bar .plain")
    check(browser.value("on.every(Boolean)"), "'all' shows not all")
    browser.value("document.querySelector('.chip').focus()")
    browser.key(" ")
    browser.value("document.activeElement.click()")
    browser.settle()
    check(browser.value("document.activeElement.classList.contains('chip')"), "the focus is lost at a switch")


def test_values(browser, folder):
    """The mean and deviation under the pointer are those of the files; zoom goes in and back; axes and bands change."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    losses = {}
    for line in read_lines(folder):
        if line["type"] == "steps":
            losses.setdefault((line["format"], line["step"]), []).append(line["loss"])
    over = CURVE + " .u-over"

    def at(share):
        x, y, width, height = box(browser, over)
        browser.mouse("mouseMoved", x + share * width, y + height / 2)
        browser.settle()
        return text(browser, CURVE + " .values")
    for share, step in ((0.5, 6), (0.25, 3), (1, 12)):
        shown = at(share - 0.001)
        check(shown.startswith(f"step {step}\n"), share, shown)
        for name in FORMATS.split(","):
            mean, deviation = (number(w) for w in shown.split(f"\n{name} ")[1].split("\n")[0].split(" ± "))
            want = losses[name, step]
            check(abs(mean - statistics.fmean(want)) < 1e-4 and abs(deviation - statistics.stdev(want)) < 1e-4, name, step, mean, deviation, want)
    x, y, width, height = box(browser, over)
    browser.drag(x + 0.02 * width, y + 0.1 * height, x + 0.5 * width, y + 0.15 * height)
    check(at(0.5).startswith("step 3\n"), "zoomed: the middle is", at(0.5)[:9])
    click(browser, CURVE + ' [aria-label="Whole range"]')
    check(at(0.5).startswith("step 6\n"), "not back:", at(0.5)[:9])
    click(browser, CURVE + ' [aria-label="Zoom in"]')
    check(not at(0.9).startswith("step 11\n"), "the button does not zoom")
    browser.value(f"document.querySelector({json.dumps(CURVE + ' .chart')}).focus()")
    browser.key("Escape")
    browser.settle()
    check(at(0.5).startswith("step 6\n"), "Escape:", at(0.5)[:9])
    browser.key("ArrowRight")
    browser.settle()
    check(text(browser, CURVE + " .values").startswith("step 7\n"), "an arrow key:", text(browser, CURVE + " .values")[:9])
    looks = set()
    snapshot = lambda: browser.value(f"document.querySelector({json.dumps(CURVE + ' canvas')}).toDataURL()")
    for button in ('[data-value="sd"]', '[data-value="range"]', '[data-value="seeds"]', '[data-value="log"]', CURVE + ' [data-value="difference"]'):
        click(browser, button)
        looks.add(snapshot())
    check(len(looks) == 5, "of 5 settings of the curves there are", len(looks), "pictures")
    shown = text(browser, CURVE + " .values")
    check("fp32" not in shown and "+" in shown + "−", "differences:", shown)


def test_fingers(browser, folder):
    """One finger reads values, two fingers zoom."""
    browser.window(390, 844, phone=True)
    browser.open(os.path.join(folder, "report.html"))
    x, y, width, height = box(browser, CURVE + " .u-over")
    shown = lambda: text(browser, CURVE + " .values").split("\n")[0]
    browser.touch([(x + 0.2 * width, y + 50)], [(x + 0.24 * width, y + 50)], [(x + 0.25 * width, y + 50)])
    check(shown() == "step 3", "one finger at a quarter:", shown())
    browser.touch([(x + 0.45 * width, y + 50), (x + 0.55 * width, y + 50)], [(x + 0.3 * width, y + 50), (x + 0.7 * width, y + 50)],
                  [(x, y + 50), (x + width - 1, y + 50)])
    browser.touch([(x + 0.2 * width, y + 50)], [(x + 0.08 * width, y + 50)], [(x + 0.02 * width, y + 50)])
    check(shown() in ("step 5", "step 6"), "after two fingers the left edge is", shown())
    browser.window(1280, 900)


def test_tensors(browser, folder):
    """Any tensor of the traces can be chosen; its numbers are those of the file; the map of layers has the counts and
    chooses, too."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    rows = read_csv(folder, "trace-flex16+5-seed2.csv")
    browser.value("(function () { const s = [...document.querySelectorAll('.picker select')].find(s => s.parentNode.innerText.startsWith('seed')); s.value = '1';"
                  "s.dispatchEvent(new Event('change')); })()")
    for tensor in dict.fromkeys(r["tensor"] for r in rows):
        last = [r for r in rows if r["tensor"] == tensor][-1]
        browser.value(f"(function () {{ const s = document.getElementById('tensor'); s.value = [...s.options].find(o => o.text === {json.dumps(tensor)}).value;"
                      "s.dispatchEvent(new Event('change')); })()")
        browser.settle()
        lane = '.lanes:not(#histograms) [data-series="flex16+5"]'
        shown = text(browser, lane)
        if float(last["maximum"]) == 0:
            continue
        want = f"e {last['maximum_e']}, ", f"(γ {int(last['gamma']):,})", f"saturated {int(last['saturated']):,}, flushed {int(last['flushed']):,}"
        check("step 12: " in shown and all(w in shown for w in want), tensor, shown, want)
        check(pixels(browser, lane, "flex16+5") > 50, tensor, "draws no exponent")
    browser.value("(function () { const s = document.querySelector('input[type=search]'); s.value = 'FC2 momentum bias'; s.dispatchEvent(new Event('input')); })()")
    browser.settle()
    check(browser.value("data.tensors[chosen.tensor][0]") == "fc2.bias.momentum", "found", browser.value("data.tensors[chosen.tensor][0]"))
    # the map: the pointer on each cell of a row
    flushed = {}
    for r in rows:
        flushed.setdefault(r["tensor"], {})[int(r["step"])] = int(r["flushed"])
    names = browser.value("[...document.querySelectorAll('.names button')].map(b => b.title)")
    want = [name for name, steps in flushed.items() if sum(steps.values())]
    check([n.split(" (")[0] for n in names] == want, "rows of the map", names, want)
    left_out = browser.value("document.querySelector('details').textContent")
    check(all(name in left_out for name in flushed if name not in want), "not named as left out:", left_out)
    x, y, width, height = box(browser, ".map canvas")
    top, visible = browser.value("(function () { const m = document.querySelector('.map').getBoundingClientRect(); return [m.top, m.height]; })()")
    for row, name in enumerate(want):
        if not top < y + 15 * row + 7 < top + visible:
            continue
        for step in (1, 7, 12):
            browser.mouse("mouseMoved", x + (step - 0.5) / 12 * width, y + 15 * row + 7)
            shown = browser.value("document.querySelector('.legend + .readout').textContent")
            check(shown.startswith(name + " (") and f": {flushed[name][step]:,} flushed in step {step}," in shown, name, step, shown)
    click(browser, ".names button:nth-child(2)")
    check(browser.value("data.tensors[chosen.tensor][0]") == want[1] and text(browser, "#tensor") != "", "a name of the map chooses", browser.value("chosen.tensor"))
    click(browser, '[data-value="saturated"]')
    check(browser.value("[...document.querySelectorAll('.names button')].length") == len({r["tensor"] for r in rows if int(r["saturated"])}), "rows of saturated")


def test_histograms(browser, folder):
    """Histograms appear if there is telemetry; a format without it is named."""
    browser.window(1280, 900)
    browser.open(os.path.join(folder, "report.html"))
    check("without --telemetry" in text(browser, "#figures"), "no word of telemetry that is not there")
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "telemetry")
        shutil.copytree(folder, out)
        tensors = [("fc1.weight", "weight"), (EVIL, "activation"), ("zero", "gradient")]
        for name in ("fp32", "flex16+5:ngraph"):
            write_telemetry(out, name, telemetry_lines(12, tensors, name))
        edit_config(out, model="mlp2")
        succeed("report", out, "--out", os.path.join(place, "page"), "--quiet", env=PLAIN)
        path = os.path.join(place, "page", "report.html")
        browser.open(path)
        silent(browser, path, "telemetry")
        for number_of, (name, _) in enumerate(tensors):
            told = name.replace("\u2028", "\\u2028")  # an invisible character that ends a line is shown by its code
            browser.value(f"choose(data.tensors.findIndex(t => t[0] === {json.dumps(told)}))")
            browser.settle()
            shown = text(browser, '#histograms [data-series="fp32"]')
            last = [line for line in telemetry_lines(12, tensors, "fp32") if line["type"] == "tensor" and line["tensor"] == name][-1]
            check("step 12: " in shown and f"NaN or Inf {last['nonfinite']}, saturated {last['saturated']}, flushed {last['flushed']}" in shown, name, shown)
            check(("no magnitude above zero" in shown) == (number_of == 2), name, shown)
            check(browser.value("document.querySelector('#same select').selectedOptions[0].text") == told, "another tensor is named")
        left = text(browser, "#figures")
        check("Left out, without telemetry: bf16, flex16+5, dfp16." in left, "formats without telemetry are not named")
        click(browser, '.chip[data-series="fp32"]')
        check(browser.value("document.querySelectorAll('#histograms .lane').length") == 1, "a format switched off keeps its histogram")


def shown_line(browser, panel, name):
    """The text under the pointer for a line of a panel; None if there is no such line."""
    return browser.value(f"(function () {{ const p = document.querySelector({json.dumps(panel)}), s = p && [...p.querySelectorAll('.values [data-line]')].find(s => s.dataset.line === {json.dumps(name)});"
                         "return s ? s.querySelector('b').textContent : null; })()")


def close(shown, want):
    """Whether a shown number agrees: two decimals of a power of ten, or 0, or a share in percent."""
    if want is None:
        return shown == "–"
    value = number(shown.replace(" %", "")) / (100 if "%" in shown else 1) if shown else math.nan
    return abs(value - want) <= 6e-3 * abs(want)


def line_pixels(browser, panel, colour):
    """The number of pixels of a panel in a colour, given as an expression."""
    return browser.value(PIXELS.replace("seriesColour(data.series.findIndex(s => s.name === name))", colour) % (json.dumps(panel + " canvas"), '""'))


def test_shadows(browser, folder, place, pictures):
    """What other formats would have done and how far weights move: the figures of the files under the pointer, every line in a colour of its own and switched by
    itself; formats and shadows that have none are named. Of two folders in one report, each with shadows of its own."""
    one, two = (os.path.join(place, name) for name in ("shadowed", "other seed"))
    succeed("compare", *TINY, "--formats", "fp32,bf16,flex16+5", "--seeds", "2", "--telemetry", "3", "--shadow", "fp16,flex16+5:ngraph,dfp16", "--out", one, "--quiet", env=PLAIN)
    succeed("compare", *TINY, "--formats", "fp32,flex16+5", "--seed-base", "7", "--telemetry", "3", "--shadow", "dfp16,bf16", "--out", two, "--quiet", env=PLAIN)
    merged = os.path.join(place, "merged")
    succeed("report", one, two, "--out", merged, "--quiet", env=PLAIN)
    path = os.path.join(merged, "report.html")
    for width, phone in ((1280, False), (390, True)):
        browser.window(width, 900, phone=phone)
        browser.open(path)
        silent(browser, path, "shadows", width)
        check(browser.value("document.documentElement.scrollWidth") <= width, "shadows are wider than", width)
        browser.picture(os.path.join(pictures, f"shadows-{width}.png"))
    browser.window(1280, 900)
    browser.open(path)
    for darkness in (False, True):
        browser.window(1280, 900, darkness)
        colours = browser.value("[...data.series.map((_, i) => seriesColour(i)), ...data.telemetry.shadows.map((_, i) => shadowColour(i)), ...[...Array(200).keys()].map(parameterColour)]")
        check(len(set(colours)) == len(colours), "a colour is shared", len(colours), len(set(colours)))
    browser.window(1280, 900)
    seeds = browser.value("data.seeds")
    check(seeds == ["1", "2", "7"], "seeds", seeds)
    shadow_names = browser.value("data.telemetry.shadows.map(s => s.name)")
    check(sorted(shadow_names) == ["bf16", "dfp16", "flex16+5:ngraph", "fp16"], shadow_names)
    for source, seed in ((one, "2"), (two, "7")):
        browser.value("(function () { const s = [...document.querySelectorAll('.picker select')].find(s => s.parentNode.innerText.startsWith('seed'));"
                      f"s.value = String(data.seeds.indexOf('{seed}')); s.dispatchEvent(new Event('change')); }})()")
        for name in ("fp32", "flex16+5"):
            rows = [line for line in read_lines(source, f"telemetry-{name}-seed{seed}.jsonl") if line["type"] == "tensor"]
            for tensor in ("fc1.weight", "fc2.weight.grad"):
                browser.value(f"choose(data.tensors.findIndex(t => t[0] === {json.dumps(tensor)}))")
                last = [line for line in rows if line["tensor"] == tensor][-1]
                panel = f'#shadows [data-series="{name}"]'
                for key, measure in enumerate(("error", "saturated", "flushed")):
                    click(browser, f'[aria-label="What of the shadow formats"] button:nth-child({key + 1})')
                    shares = measure != "error"
                    own = last[measure] / (last["writes"] * last["elements"]) if shares else last["rounding"] * math.sqrt(last["elements"]) / last["l2"]
                    shown = shown_line(browser, panel, name)
                    check(close(shown, own), name, seed, tensor, measure, shown, own)
                    for shadow in last["shadows"]:
                        shown, want = shown_line(browser, panel, "as " + shadow["name"]), shadow[measure] / last["elements"] if shares else shadow[measure]
                        check(close(shown, want), name, seed, tensor, measure, shadow["name"], shown, want)
                    check(text(browser, panel + " .values").startswith("step 12\n"), text(browser, panel + " .values"))
                    absent = set(shadow_names) - {shadow["name"] for shadow in last["shadows"]}
                    note = text(browser, "#shadows + p")
                    check(f"Not measured in {name}: " in note and all(a in note.split(f"Not measured in {name}: ")[1].split(".")[0] for a in absent), "left out", absent, note)
            for weight in [line for line in rows if line["step"] == 12 and line["role"] == "weight"]:
                shown = shown_line(browser, f'#updates [data-panel="{name}"]', weight["tensor"])
                check(shown is None if not weight["tensor"].endswith("weight") else close(shown, weight["update_ratio"]), name, seed, weight["tensor"], shown, weight["update_ratio"])
    # the losses that writes had, in a record that measured them, beside the expected error; under another measure, and
    # of weights, there is none
    measured = [line for line in read_lines(two, "telemetry-flex16+5-seed7.jsonl") if line["type"] == "tensor" and line["sampled_error"]]
    check(measured, "no row has a measured error")
    panel, name = '#shadows [data-series="flex16+5"]', "flex16+5 measured"
    click(browser, '[aria-label="What of the shadow formats"] button:nth-child(1)')
    for line in measured:
        browser.value(f"choose(data.tensors.findIndex(t => t[0] === {json.dumps(line['tensor'])}))")
        browser.settle()
        x, y, width, height = box(browser, panel + " .u-over")
        browser.mouse("mouseMoved", x + (line["step"] - 0.01) / 12 * width, y + height / 2)
        browser.settle()
        want = line["sampled_error"] * math.sqrt(line["elements"]) / line["l2"]
        check(close(shown_line(browser, panel, name), want), line["tensor"], line["step"], shown_line(browser, panel, name), want)
    click(browser, '[aria-label="What of the shadow formats"] button:nth-child(2)')
    check(shown_line(browser, panel, name) is None and shown_line(browser, panel, "flex16+5") is not None, "a measured share of saturated elements")
    click(browser, '[aria-label="What of the shadow formats"] button:nth-child(1)')
    check(shown_line(browser, panel, name) is not None, "the measured error is gone")
    browser.value("choose(data.tensors.findIndex(t => t[0] === 'fc1.weight'))")
    check(shown_line(browser, panel, name) is None and name not in text(browser, panel), "a measured error of a weight", text(browser, panel))
    # bf16 has no seed 7: it is shown with another one, which the page says
    check("Not of the chosen seed: bf16 with seed 1." in text(browser, "#shadows + p") and "bf16 with seed 1." in text(browser, "#updates + p"), text(browser, "#shadows + p"))
    # a line that is shown alone is the only one; switched off, it is named
    click(browser, '[aria-label="What of the shadow formats"] button:nth-child(1)')
    browser.value("choose(data.tensors.findIndex(t => t[0] === 'fc1.weight'))")
    panel, chip = '#shadows [data-series="fp32"]', lambda name: f'[aria-label="Shadow formats shown"] [data-line="{name}"]'
    index = shadow_names.index("dfp16")
    for name in ["the format itself", "measured", *shadow_names]:
        if name != "dfp16":
            click(browser, chip(name))
    check(line_pixels(browser, panel, f"shadowColour({index})") > 50 and line_pixels(browser, panel, "seriesColour(0)") < 5, "dfp16 alone")
    check("Switched off: the format itself, measured, " in text(browser, "#shadows + p") and text(browser, panel + " .values").count("\n") <= 2, text(browser, "#shadows + p"))
    click(browser, '[aria-label="Shadow formats shown"] .plain')
    check(line_pixels(browser, panel, "seriesColour(0)") > 50, "'all' shows not all")
    # the pointer reads steps other than the last
    x, y, width, height = box(browser, panel + " .u-over")
    browser.mouse("mouseMoved", x + 4 / 12 * width, y + height / 2)
    browser.settle()
    check(text(browser, panel + " .values").startswith("step 4\n"), text(browser, panel + " .values")[:9])
    # parameters: those left out are named, and each can be switched; by parameter, the lines are formats
    out = browser.value("document.querySelector('#updates ~ .soft details').textContent")
    check("Left out: 2 parameters switched off" in out and "fc1.bias" in out and "fc2.bias" in out, out)
    click(browser, '[aria-label="Parameters shown"] [data-line="fc2.bias"]')
    last = [line for line in read_lines(two, "telemetry-fp32-seed7.jsonl") if line.get("tensor") == "fc2.bias" and line["type"] == "tensor"][-1]
    check(close(shown_line(browser, '#updates [data-panel="fp32"]', "fc2.bias"), last["update_ratio"]), "fc2.bias switched on")
    click(browser, '[aria-label="A panel for each"] [data-value="parameter"]')
    check(browser.value("[...document.querySelectorAll('#updates [data-panel]')].map(p => p.dataset.panel)") == ["fc1.weight", "fc2.weight", "fc2.bias"], "panels of parameters")
    check(close(shown_line(browser, '#updates [data-panel="fc2.bias"]', "fp32"), last["update_ratio"]), "fp32 in the panel of fc2.bias")
    check(pixels(browser, '#updates [data-panel="fc1.weight"]', "bf16") > 20, "bf16 draws no update")
    click(browser, '.chip[data-series="bf16"]')
    check(pixels(browser, '#updates [data-panel="fc1.weight"]', "bf16") < 5 and browser.value("document.querySelector('#shadows [data-series=bf16]')") is None, "bf16 switched off stays")
    # in made-up records, zeros lie at the foot of the axis, gaps remain gaps, and a line without any value is named
    out = os.path.join(place, "made up")
    shutil.copytree(folder, out)
    tensors = [("fc1.weight", "weight"), ("a", "activation"), ("zero", "gradient")]
    write_telemetry(out, "fp32", telemetry_lines(12, tensors, "fp32"))
    edit_config(out, model="mlp2")
    succeed("report", out, "--out", os.path.join(place, "made-up-page"), "--quiet", env=PLAIN)
    browser.open(os.path.join(place, "made-up-page", "report.html"))
    silent(browser, os.path.join(place, "made-up-page", "report.html"), "made up")
    axis = browser.value("(function () { const a = logAxis([[null, 0, 1e-3, 5e-3, 'inf', Infinity]]); return [a.place(0), a.place(1e-3), a.place(null), a.ticks(null, [a.place(0), 1e-3])]; })()")
    check(0 < axis[0] <= 1e-4 and axis[1:] == [1e-3, None, ["0", "10⁻³"]], "zero on a logarithmic axis", axis)
    x, y, width, height = box(browser, '#updates [data-panel="fp32"] .u-over')
    for step, want in ((1, None), (5, 5e-3), (6, 0), (7, None), (12, 0)):
        browser.mouse("mouseMoved", x + (step - 0.01) / 12 * width, y + 5)
        browser.settle()
        shown = shown_line(browser, '#updates [data-panel="fp32"]', "fc1.weight")
        check(close(shown, want), "update of step", step, shown, want)
    browser.value("choose(data.tensors.findIndex(t => t[0] === 'a'))")
    browser.settle()
    rows = {line["step"]: line for line in telemetry_lines(12, tensors, "fp32") if line["type"] == "tensor" and line["tensor"] == "a"}
    x, y, width, height = box(browser, '#shadows [data-series="fp32"] .u-over')
    for step in (1, 5, 8, 9):
        browser.mouse("mouseMoved", x + (step - 0.01) / 12 * width, y + height / 2)
        browser.settle()
        line, shown = rows[step], shown_line(browser, '#shadows [data-series="fp32"]', "fp32 measured")
        check(close(shown, line["sampled_error"] and line["sampled_error"] * math.sqrt(line["elements"]) / line["l2"]), "measured at step", step, shown)
    click(browser, '[aria-label="Shadow formats shown"] [data-line="measured"]')
    check(shown_line(browser, '#shadows [data-series="fp32"]', "fp32 measured") is None, "measured, switched off, stays")
    click(browser, '[aria-label="Shadow formats shown"] [data-line="measured"]')
    browser.value("choose(data.tensors.findIndex(t => t[0] === 'zero'))")
    browser.settle()
    check("Without a value: fp32, as fp16, as dfp16." in text(browser, '#shadows [data-series="fp32"]'), text(browser, '#shadows [data-series="fp32"]'))
    check("Left out, without telemetry: bf16, flex16+5, flex16+5:ngraph, dfp16." in text(browser, "#shadows + p"), text(browser, "#shadows + p"))


def test_one_format(browser, place):
    """A training without a shared exponent, and so without traces: its telemetry has tensors to choose."""
    out = os.path.join(place, "one")
    succeed("train", *TINY, "--format", "bf16", "--telemetry", "1", "--out", out, "--quiet", env=PLAIN)
    browser.window(1280, 900)
    browser.open(os.path.join(out, "report.html"))
    silent(browser, os.path.join(out, "report.html"), "one format")
    check("Empty: no format of this comparison has a shared exponent." in text(browser, "#figures"), "no word of exponents that are not there")
    for tensor in ("fc1.weight", "fc2.weight.grad"):
        browser.value(f"(function () {{ const s = document.getElementById('tensor'); s.value = [...s.options].find(o => o.text === {json.dumps(tensor)}).value;"
                      "s.dispatchEvent(new Event('change')); })()")
        browser.settle()
        last = [line for line in read_lines(out, "telemetry-bf16-seed1.jsonl") if line.get("tensor") == tensor and line["type"] == "tensor"][-1]
        shown = text(browser, "#histograms")
        want = f"zeros {100 * last['zeros'] / last['elements']:.3f} %", f"flushed {last['flushed']:,}"
        check("step 12: " in shown and all(w in shown for w in want), tensor, shown, want)


def test_lost_pairs(browser, place, folder):
    """A format has no mean if a seed has no finite result, and the figure says so; losses of 0 on a logarithmic axis
    are named, too."""
    out = os.path.join(place, "lost")
    shutil.copytree(folder, out)
    path = os.path.join(out, "metrics.jsonl")
    lost = {"last_loss": None, "last_loss_state": "nan", "diverged": True, "nonfinite_step": 2, "nonfinite_loss_state": "nan"}
    lines = read_lines(out)
    with open(path, "w") as file:
        for line in lines:
            if line["type"] == "run" and line["format"] == "dfp16" and line["seed"] == 2:
                line |= lost
            if line["type"] == "steps" and line["format"] == "bf16" and line["seed"] == 1 and line["step"] == 5:
                line["loss"] = 0
            file.write(json.dumps(line) + "\n")
    succeed("report", out, "--out", out + "-anew", "--quiet", env=PLAIN)
    page = os.path.join(out + "-anew", "report.html")
    browser.window(1280, 900)
    browser.open(page)
    silent(browser, page, "lost pairs")
    marks = browser.value("[...document.querySelectorAll('.forest circle')].length"), browser.value("[...document.querySelectorAll('.forest rect title')].map(t => t.textContent)")
    check(marks[0] == 7 and len(marks[1]) == 3 and not any("dfp16" in m for m in marks[1]), marks)
    said = text(browser, ".forest")
    check("No mean and interval where a result is not finite: dfp16 (1 of 2 pairs)." in said, said)
    check("no place" not in text(browser, CURVE), text(browser, CURVE))
    browser.value("curve.log = true; redraws.forEach(draw => draw())")
    browser.settle()
    check("1 value of 0 has no place on a logarithmic axis." in text(browser, CURVE), text(browser, CURVE))


def test_mixed_map(browser, place):
    """Counts of tensors without a trace are in the map if telemetry has all tensors; otherwise they are named with
    their sum."""
    rules = os.path.join(place, "mixed.policy")
    with open(rules, "w") as file:
        file.write("variant flex16+5\nfc1* format=fp16\n")
    for name, patterns, inside in (("all", "1", True), ("some", "1:fc1*", False)):
        out = os.path.join(place, "mixed-" + name)
        succeed("train", *TINY, "--policy", rules, "--telemetry", patterns, "--out", out, "--quiet", env=PLAIN)
        sums = {}
        for line in read_lines(out, "telemetry-policy_mixed.policy-seed1.jsonl"):
            if line["type"] == "tensor":
                sums[line["tensor"]] = sums.get(line["tensor"], 0) + line["flushed"]
        check(sums["fc1.weight.grad"] > 0, sums)
        browser.open(os.path.join(out, "report.html"))
        silent(browser, os.path.join(out, "report.html"), "mixed", name)
        names = browser.value("[...document.querySelectorAll('.names button')].map(b => b.title)")
        shown = browser.value("document.querySelector('.map').parentElement.innerText").replace("\u00a0", " ")
        check(any(n.startswith("fc1.weight.grad") for n in names) == inside, name, names)
        check(("by telemetry" in shown) != inside, name, shown)
        if not inside:
            told = browser.value("[...document.querySelectorAll('.map ~ .soft details')].map(d => d.textContent).join(' ')")
            check(f"fc1.weight.grad: {sums['fc1.weight.grad']:,}" in told, name, told)


def test_policy(browser, folder):
    """The page is not allowed to fetch anything; without scripts a sentence replaces the figures."""
    path = os.path.join(folder, "report.html")
    browser.open(path)
    refused = browser.value("""new Promise(done => {
        document.addEventListener("securitypolicyviolation", e => done(e.effectiveDirective));
        const image = new Image();
        image.src = "http://127.0.0.1:9/x.png";
        setTimeout(() => done("nothing"), 2000);
    })""")
    check(refused == "img-src", "an image from elsewhere:", refused)
    check(browser.value("fetch('http://127.0.0.1:9/').then(() => 'fetched', e => e.name)") == "TypeError", "fetch is not refused")
    browser.errors.clear()
    with open(path, encoding="utf-8") as file:
        page = file.read()
    check("<noscript>" in page and page.count("<table>") >= 3 and page.index("<table>") < page.index("<noscript>"), "without scripts there is no table")


def main():
    program = find()
    if not program:
        print("skipped: no browser here (Debian: apt-get install chromium; FLEXLAB_BROWSER names another)")
        return 77
    with tempfile.TemporaryDirectory() as place:
        pictures = sys.argv[3] if len(sys.argv) > 3 else place
        plain, many, wild = (os.path.join(place, name) for name in ("plain", "many", "wild"))
        succeed("compare", *TINY, "--formats", FORMATS, "--seeds", "2", "--out", plain, "--quiet", env=PLAIN)
        succeed("compare", *TINY, "--formats", MANY, "--out", many, "--quiet", env=PLAIN)
        succeed("compare", *TINY, "--formats", FORMATS, "--lr", "1000", "--allow-divergence", "--no-trace", "--out", wild, "--quiet", env=PLAIN)
        browser = Browser(program)
        try:
            test_looks(browser, plain, pictures)
            test_looks(browser, many, pictures, ((390, True),))
            test_looks(browser, wild, pictures, ((1280, False),))
            test_scheme(browser, plain)
            test_tables(browser, {plain: (320, 390, 768, 1280, 1600), many: (390, 1280), wild: (390, 768)})
            test_sections(browser, plain, wild)
            test_saved(browser, plain, place)
            test_empty(browser, place, plain)
            test_float_tensors(browser, place)
            test_switches(browser, plain)
            test_values(browser, plain)
            test_fingers(browser, plain)
            test_tensors(browser, plain)
            test_histograms(browser, plain)
            test_shadows(browser, plain, place, pictures)
            test_saved_telemetry(browser, place, os.path.join(place, "shadowed"))
            test_one_format(browser, place)
            test_lost_pairs(browser, place, plain)
            test_mixed_map(browser, place)
            check(browser.errors == [], "complaints:", browser.errors[:3])
            test_policy(browser, plain)
        finally:
            browser.close()
    return summary()


if __name__ == "__main__":
    sys.exit(main())
