#!/usr/bin/env python3
"""Runs the notebooks of this folder, which are pages with the output of each cell below it.

usage: execute.py PAGE.md [--write | --ipynb FILE]
Without an option: runs the cells in order and compares what they print with the page; `...` in it stands for anything.
--write: puts the present outputs there. --ipynb: writes the page as a notebook of Jupyter. Exit status 77: the page needs
something that is missing here (a line `<!-- needs: NAME -->`: a module, or an environment variable in capitals)."""
import ast
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import sys
import traceback

CELL = re.compile(r"```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.S)


def run(code, names, page):
    """What a cell prints, and the value of its last expression."""
    tree, printed = ast.parse(code, page), io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(tree, page, "exec"), names)
            value = eval(compile(ast.Expression(last.value), page, "eval"), names) if last else None
            if value is not None:
                print(repr(value))
        except Exception as error:
            if "raises" not in code:
                traceback.print_exc(file=printed)
                print(printed.getvalue(), file=sys.stderr)
            print(f"{type(error).__name__}: {error}")
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip().split("\n")) + "\n" if printed.getvalue().strip() else ""


def agrees(expected, got):
    pattern = "".join(".*?" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", expected or ""))
    return re.fullmatch(pattern, got, re.S) is not None


def missing(text):
    for name in re.findall(r"<!-- needs: (\S+) -->", text):
        if name not in os.environ if name.isupper() else importlib.util.find_spec(name) is None:
            yield name


def notebook(text):
    cells, end = [], 0
    for cell in CELL.finditer(text):
        if text[end:cell.start()].strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text[end:cell.start()].strip()})
        outputs = [{"output_type": "stream", "name": "stdout", "text": cell["output"]}] if cell["output"] else []
        cells.append({"cell_type": "code", "metadata": {}, "execution_count": None, "source": cell["code"].rstrip(), "outputs": outputs})
        end = cell.end()
    if text[end:].strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text[end:].strip()})
    return {"cells": cells, "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "nbformat": 4, "nbformat_minor": 4}


def main():
    page, *option = sys.argv[1:]
    text = pathlib.Path(page).read_text()
    if option[:1] == ["--ipynb"]:
        pathlib.Path(option[1]).write_text(json.dumps(notebook(text), indent=1))
        return 0
    lacking = list(missing(text))
    if lacking:
        print(f"skipped: {page} needs {', '.join(lacking)}")
        return 77
    names, result, end, differ, count = {"__name__": "__main__"}, "", 0, 0, 0
    for cell in CELL.finditer(text):
        got = run(cell["code"], names, page)
        count += 1
        if not agrees(cell["output"] or "", got) and option != ["--write"]:
            differ += 1
            print(f"{page}, cell {count}:\n{cell['code']}expected\n{cell['output'] or 'no output'}\ngot\n{got}")
        kept = cell["output"] if cell["output"] and agrees(cell["output"], got) else got
        result += text[end:cell.start()] + f"```python\n{cell['code']}```\n" + (f"\n```text\n{kept}```\n" if kept else "")
        end = cell.end()
    if option == ["--write"]:
        pathlib.Path(page).write_text(result + text[end:])
    print(f"{page}: {count} cells, {differ} with other outputs")
    return bool(differ)


sys.exit(main())
