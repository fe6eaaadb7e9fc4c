#!/usr/bin/env python3
"""Runs the commands that the documentation shows, so that no example goes stale.

A block fenced as ```sh check is run with the build's xpipe on the path, in one scratch folder a page
that has the tree's examples/ and docs/, so that a later block finds the files of an earlier one.
Each block must succeed. A block fenced as ```text check right after it is the output it must print;
a line of three dots there stands for any number of lines.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(sh|text) check\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    """Every page git knows of, now or with the next commit."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard",
               "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return [root / name for name in names if name and (root / name).exists()]


def matches(expected: str, printed: str) -> bool:
    """Whether the output is what the page shows, lines of three dots matching anything."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n"
                      for line in expected.rstrip("\n").split("\n"))
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def check_page(page: pathlib.Path, root: pathlib.Path,
               environment: dict[str, str]) -> tuple[int, int]:
    """Returns how many blocks of the page ran and how many of them failed."""
    ran = failed = 0
    printed = ""
    with tempfile.TemporaryDirectory() as scratch:
        for link in ("examples", "docs"):
            (pathlib.Path(scratch) / link).symlink_to(root / link)
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            place = f"{page.relative_to(root)}:{text.count(chr(10), 0, block.start()) + 1}"
            kind, body = block.groups()
            if kind == "text":
                if not matches(body, printed):
                    failed += 1
                    print(f"{place}: printed something else:\n{printed}", file=sys.stderr)
                continue
            ran += 1
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", body], cwd=scratch,
                                  env=environment, capture_output=True, text=True, timeout=300)
            printed = done.stdout
            if done.returncode != 0:
                failed += 1
                print(f"{place}: exit status {done.returncode}\n{body}{done.stdout}{done.stderr}",
                      file=sys.stderr)
    return ran, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the xpipe to run, e.g. build/bin/xpipe")
    binary = pathlib.Path(parser.parse_args().binary).resolve()
    if not binary.exists():
        parser.error(f"{binary} does not exist: ./dev build")

    root = pathlib.Path(__file__).resolve().parent.parent
    environment = dict(os.environ)
    environment["PATH"] = f"{binary.parent}{os.pathsep}{environment['PATH']}"
    results = [check_page(page, root, environment) for page in pages(root)]
    ran, failed = (sum(column) for column in zip(*results))
    print(f"docs: {ran} examples run, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
