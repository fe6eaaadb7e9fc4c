#!/usr/bin/env python3
"""Holds that notebooks are stored as written and not as run: no outputs, no execution counts, nothing
in the metadata that the next person's editor would change back.

A stored output goes stale in silence and makes every change of a notebook unreadable; what a notebook
shows is rendered into docs/ instead. With --fix the files are cleaned.
"""

import argparse
import json
import pathlib
import sys

METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}


def faults_of(notebook: dict) -> list[str]:
    """What is stored too much, and takes it out."""
    faults = []
    if notebook["metadata"] != METADATA:
        faults.append("metadata other than the kernel's name")
        notebook["metadata"] = METADATA
    for number, cell in enumerate(notebook["cells"]):
        if cell["metadata"]:
            faults.append(f"cell {number}: metadata")
            cell["metadata"] = {}
        if cell["cell_type"] != "code":
            continue
        if cell["outputs"]:
            faults.append(f"cell {number}: outputs")
            cell["outputs"] = []
        if cell["execution_count"] is not None:
            faults.append(f"cell {number}: an execution count")
            cell["execution_count"] = None
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="take out what is too much")
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path)
    options = parser.parse_args()

    status = 0
    for path in options.notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        faults = faults_of(notebook)
        if faults and options.fix:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n",
                            encoding="utf-8")
        elif faults:
            status = 1
            for fault in faults:
                print(f"{path}: {fault} (./dev lint --fix takes it out)", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
