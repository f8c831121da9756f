"""Tables of results: during the run, at the end, and for storing with the description of the machine."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess

HEADING = (
    f"{'work':<52} {'format':<9} {'thr':>3} {'ours':>10} {'theirs':>10} {'unit':<5} {'ratio':>6} {'peak':>5}  "
    f"{'bar':<21} rival"
)


def number(value):
    if value is None:
        return "-"
    digits = 4 if abs(value) < 0.1 else 2 if abs(value) < 1000 else 0
    return f"{value:.{digits}f}"


def verdict(row):
    if row["bar"] is None:
        return ""
    sign = "<=" if row.get("at_most") else ">="
    state = "met" if row["met"] else "not measured" if row["met"] is None else "NOT MET"
    which = f" ({row['bar_for']})" if row["bar_for"] else ""  # bars that depend on the processor say on what
    return f"{sign} {row['bar']:.2f}{which} {state}"


def named(row):
    """The rival, of several the best one, and our kernels if the work's name does not determine them."""
    best = f" ({row['best']})" if row["best"] else ""
    return row["rival"] + best + (f"; ours: {row['kernels']}" if row["kernels"] else "")


def line(row):
    text = (
        f"{row['work']:<52} {row['format']:<9} {row['threads']:>3} {number(row['ours']):>10} "
        f"{number(row['theirs']):>10} {row['unit']:<5} {number(row['ratio']):>6} {number(row['of_peak']):>5}  "
        f"{verdict(row):<21} {named(row)}"
    )
    return text + (f"\n    skip: {row['skip']}" if row["skip"] else "")


def print_rows(rows, first):
    if first:
        print(f"\n== {rows[0]['section']}\n{HEADING}")
    for row in rows:
        print(line(row), flush=True)


def sizes(rows):
    """Lines of matmul time against size: one for each format and number of threads."""
    table = {}
    for row in rows:
        found = re.match(r"matmul (\d+)x(\d+)x(\d+)(, Gaussian mantissas)?$", row["work"])
        if found and found[1] == found[2] == found[3] and row["rival"] == "best sgemm" and row["ours"]:
            table.setdefault((row["format"], row["threads"]), {})[int(found[1])] = row
    text = []
    for (format, threads), of_size in sorted(table.items()):
        if len(of_size) < 2:
            continue
        cells = [
            f"{size}: {r['ours']:.3g} ms {2e-6 * size**3 / r['ours']:.0f} G/s ({number(r['ratio'])}x)"
            for size, r in sorted(of_size.items())
        ]
        text.append(f"{format}, {threads} thread{'s' * (threads > 1)}: " + ", ".join(cells))
    return text


def print_summary(rows, seconds):
    table = sizes(rows)
    if table:
        print("\n== time against size (side: time, operations a second, ratio to the best sgemm)")
        print("\n".join(table))
    judged = [r for r in rows if r["bar"] is not None]
    met = [r for r in judged if r["met"]]
    missed = [r for r in judged if r["met"] is False]
    print(
        f"\n{len(rows)} rows in {seconds:.0f} s; bars: {len(met)} met, {len(missed)} not met, "
        f"{len(judged) - len(met) - len(missed)} not measured"
    )
    for row in missed:
        print(
            f"NOT MET: {row['work']}, {row['format']}, {row['threads']} threads, {row['rival']}: "
            f"{number(row['ratio'])}, wanted {row['bar']:.2f}"
        )


BUSY = os.getloadavg()[0]  # processors in use during the minute before this run


# --- keeping ------------------------------------------------------------------------------------------------
def _first_line(*command):
    if not shutil.which(command[0]):
        return ""
    lines = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()
    return lines[0] if lines else ""


def machine(root, rivals):
    cpu = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""

    def field(name):
        found = re.search(rf"^{name}\s*:\s*(.*)$", cpu, re.M)
        return found[1] if found else ""

    wanted = {
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx_vnni",
        "amx_bf16",
        "amx_int8",
        "amx_tile",
    }
    release = platform.freedesktop_os_release() if hasattr(platform, "freedesktop_os_release") else {}
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text()) if cpu else None
    programs = [
        rivals.openblas("SKYLAKEX"),
        rivals.mkl(),
        *rivals.onednn(),
        rivals.python("torch", "torch_step.py", "torch"),
        rivals.python("qtorch", "qtorch_step.py", "qtorch"),
        rivals.python("onnxruntime", "onnxruntime_evaluate.py", "onnxruntime"),
    ]
    return {
        "processor": field("model name") or platform.processor(),
        "family and model": f"{field('cpu family')}/{field('model')}",
        "cores": os.cpu_count(),
        "instruction sets": " ".join(sorted(wanted & set(field("flags").split()))),
        "memory GiB": round(int(memory[1]) / 2**20) if memory else None,
        "system": f"{release.get('PRETTY_NAME', platform.system())}, kernel {platform.release().split('-')[0]}",
        "compiler": _first_line("cc", "--version"),
        "load before": f"{BUSY:.1f}",
        "revision": _first_line("git", "-C", str(root), "describe", "--always", "--dirty"),
        "rivals": {p.name.removesuffix(" skylakex"): p.version for p in programs if not p.skip},
    }


def save(folder, rows, root, rivals):
    about = machine(root, rivals)
    slug = re.sub(r"[^a-z0-9]+", "-", f"{about['processor']} {about['family and model']}".lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{slug}.json").write_text(json.dumps({"machine": about, "rows": rows}, indent=1) + "\n")
    text = [f"# {about['processor']}", ""]
    text += [
        f"- {key}: " + (", ".join(f"{n} {v}" for n, v in value.items()) if isinstance(value, dict) else str(value))
        for key, value in about.items()
    ]
    for section in dict.fromkeys(r["section"] for r in rows):
        text += [
            "",
            f"## {section}",
            "| work | format | threads | ours | theirs | unit | ratio | of peak | bar | rival |",
            "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | --- | --- |",
        ]
        for r in (r for r in rows if r["section"] == section):
            text.append(
                f"| {r['work']} | {r['format']} | {r['threads']} | {number(r['ours'])} | {number(r['theirs'])} | "
                f"{r['unit']} | {number(r['ratio'])} | {number(r['of_peak'])} | {verdict(r)} | "
                f"{named(r)}{'; skip: ' + r['skip'] if r['skip'] else ''} |"
            )
    if sizes(rows):
        text += ["", "## Time against size", *(f"- {item}" for item in sizes(rows))]
    (folder / f"{slug}.md").write_text("\n".join(text) + "\n")
    print(f"wrote {folder / slug}.json and .md")
