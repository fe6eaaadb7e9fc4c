#!/usr/bin/env python3
"""Executes a notebook and writes it as a Markdown page with its pictures beside it.

Called by `./dev notebook` with the Python of the notebooks' virtual environment. The page shows text,
pictures and printed tables; the code stays in the notebook. Pictures are reduced to 128 colours.
"""

import argparse
import io
import pathlib
import re
import sys

import nbconvert
import nbformat
from nbconvert.preprocessors import ExecutePreprocessor
from PIL import Image


def small(picture: bytes) -> bytes:
    """The same PNG with a palette: a third of the bytes, and no eye sees it on a chart."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, help="where the page goes")
    options = parser.parse_args()
    name = options.notebook.stem

    notebook = nbformat.read(options.notebook, as_version=4)
    resources = {"metadata": {"path": str(options.notebook.parent)}, "unique_key": name,
                 "output_files_dir": f"{name}_files"}
    ExecutePreprocessor(timeout=600).preprocess(notebook, resources)
    exporter = nbconvert.MarkdownExporter(exclude_input=True)
    page, resources = exporter.from_notebook_node(notebook, resources)

    # Alternative texts that say what is seen, no blanks at line ends, no runs of empty lines.
    heading = ""
    lines = []
    for line in page.split("\n"):
        line = line.rstrip()
        if line.startswith("## "):
            heading = re.sub(r"^[\d. ]+", "", line[3:])
        lines.append(line.replace("![png]", f"![{heading}]"))
    page = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
    title, _, rest = page.partition("\n")
    note = (f"Rendered from [notebooks/{name}.ipynb](../../notebooks/{name}.ipynb), where the code is, "
            "by `./dev notebook`.")

    (options.folder / f"{name}_files").mkdir(parents=True, exist_ok=True)
    for old in (options.folder / f"{name}_files").glob("*.png"):
        old.unlink()
    for file, content in resources["outputs"].items():
        (options.folder / file).write_bytes(small(content) if file.endswith(".png") else content)
    (options.folder / f"{name}.md").write_text(f"{title}\n\n{note}\n{rest}", encoding="utf-8")
    print(options.folder / f"{name}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
