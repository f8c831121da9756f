#!/usr/bin/env python3
"""The notebooks of docs/notebooks give the outputs that they show; each is a notebook of Jupyter too. `long`: those that
train on CIFAR-10.
usage: test_notebooks.py SOURCE [long]"""
import json
import pathlib
import subprocess
import sys
import tempfile

from checks import LONG, check, run, skip

folder = pathlib.Path(sys.argv[1]).resolve() / "docs/notebooks"


def pages():
    found = sorted(folder.glob("*.md"))
    check(len(found) >= 3, found)
    for page in found:
        if ("FLEXLAB_DATA" in page.read_text()) != LONG:
            continue
        done = subprocess.run([sys.executable, folder / "execute.py", page], capture_output=True, text=True)
        if done.returncode == 77:
            skip(done.stdout.strip())
        else:
            check(done.returncode == 0, done.stdout, done.stderr)


def notebooks():
    with tempfile.TemporaryDirectory() as out:
        for page in folder.glob("*.md"):
            subprocess.run([sys.executable, folder / "execute.py", page, "--ipynb", f"{out}/n.ipynb"], check=True)
            cells = json.load(open(f"{out}/n.ipynb"))["cells"]
            code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
            check(len(code) == page.read_text().count("```python\n") > 2 and cells[0]["cell_type"] == "markdown", page.name)


run(pages, notebooks)
