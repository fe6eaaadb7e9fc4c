#!/usr/bin/env python3
"""Runs clang-tidy on the files named on standard input, a line each.

Most of its time goes into the headers that a file includes. Where the build compiles several files
as one (CMAKE_UNITY_BUILD), clang-tidy is given the same files as one, too, and the headers are read
once. Not by way of #include: what is included counts as a header, which the static analyzer passes
over. So their texts are written one after another, and the places in its messages are put back to
where the lines came from.

    tidy.py BUILD [CLANG-TIDY-OPTION...] < FILES          exit status 1 when there is a finding
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys

TIDY = "clang-tidy-19"
INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)


class Joined:
    """One file made of several, and where its lines come from."""

    def __init__(self, path, files):
        self.path = path
        self.files = files
        self.origin = []
        text = []
        for file in files:
            with open(file, encoding="utf-8") as source:
                lines = source.read().splitlines()
            self.origin += [(file, number) for number in range(1, len(lines) + 1)]
            text += lines
        with open(path, "w", encoding="utf-8") as joined:
            joined.write("\n".join(text) + "\n")

    def put_back(self, output):
        def place(match):
            file, line = self.origin[int(match.group(1)) - 1]
            return f"{file}:{line}:"

        return re.sub(re.escape(self.path) + r":(\d+):", place, output)


def join(build, wanted):
    """The units of the build that hold wanted files, and a compile database for them."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    folder = os.path.join(build, "tidy")
    os.makedirs(folder, exist_ok=True)
    units, entries = [], []
    for command in commands:
        unit = os.path.join(command["directory"], command["file"])
        if "/Unity/" not in unit:
            continue
        with open(unit, encoding="utf-8") as file:
            held = [name for name in INCLUDE.findall(file.read()) if name in wanted]
        if held:
            wanted -= set(held)
            joined = Joined(os.path.join(folder, f"unit_{len(units)}.cpp"), held)
            units.append(joined)
            entries.append(dict(command, file=joined.path,
                                command=command["command"].replace(unit, joined.path)))
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
    return folder, units


def tidy(database, options, path):
    run = subprocess.run([TIDY, "-p", database, "--quiet", *options, path], capture_output=True,
                         text=True, check=False)
    # Its count of warnings in others' headers is noise; what it says about ours is not.
    errors = [line for line in run.stderr.splitlines() if not re.search("warnings? generated", line)]
    return run.returncode, run.stdout + "".join(line + "\n" for line in errors)


def main():
    build = os.path.realpath(sys.argv[1])
    options = sys.argv[2:]
    wanted = {os.path.realpath(line.rstrip("\n")) for line in sys.stdin}
    folder, units = join(build, wanted)
    units.sort(key=lambda unit: len(unit.origin), reverse=True)  # long ones first, short ones last
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(tidy, folder, options, unit.path): unit for unit in units}
        runs |= {pool.submit(tidy, build, options, file): None for file in sorted(wanted)}
        for run in concurrent.futures.as_completed(runs):
            status, output = run.result()
            unit = runs[run]
            failed |= status != 0
            print(unit.put_back(output) if unit else output, end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
