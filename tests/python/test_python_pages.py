#!/usr/bin/env python3
"""The examples of the documents run as they stand: the ```python blocks of a page one after the other, in a folder of their
own, and what a block prints is the ```text block behind it. A comment before a block may say what it needs that may be
missing: <!-- needs: torch -->; in the first lines of a page it holds for all of the page.
usage: test_python_pages.py SOURCE ..."""
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import sys
import tempfile
import traceback

from checks import check, run, skip

source = pathlib.Path(sys.argv[1]).resolve()
BLOCK = re.compile(r"(?:<!-- needs: (?P<needs>[\w, ]+) -->\n)?^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<output>.*?)^```\n)?", re.M | re.S)


def missing(needs):
    return [name for name in re.findall(r"\w+", needs or "") if importlib.util.find_spec(name) is None]


def page(path):
    text = path.read_text()
    name = path.relative_to(source)
    whole = re.match(r"(?:.*\n){0,3}?<!-- page needs: ([\w, ]+) -->", text)
    if whole and missing(whole[1]):
        return skip(f"{name}, which needs {', '.join(missing(whole[1]))}")
    blocks = list(BLOCK.finditer(text))
    check(blocks, f"{name} has no example")
    world = {"__name__": "__main__"}
    for block in blocks:
        line = text.count("\n", 0, block.start("code")) + 1
        if missing(block["needs"]):
            skip(f"{name}, line {line}, which needs {', '.join(missing(block['needs']))}")
            continue
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(compile("\n" * (line - 1) + block["code"], str(name), "exec"), world)
        except Exception:
            check(False, f"{name}, line {line}:", traceback.format_exc())
            break
        if block["output"] is not None:
            check(said.getvalue() == block["output"], f"{name}, line {line} prints:\n{said.getvalue()}expected:\n{block['output']}")
    check(len(blocks) == len(re.findall(r"^```python$", text, re.M)), f"{name}: not every example was found")


def pages():
    for path in sorted(source.glob("docs/python*.md")) + [source / "README.md", source / "python/README.md"]:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            try:
                page(path)
            finally:
                os.chdir(here)


run(pages)
