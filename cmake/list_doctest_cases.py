#!/usr/bin/env python3
"""Writes the ctest entries of a doctest executable: one add_test() a test case.

Called by xpipe_add_test() (cmake/XPipeTests.cmake) after each link. doctest ships CMake code for
this too, but a case whose name holds a bracket or a semicolon, as task texts do ("1F5[s1:v2+1]"),
falls apart in CMake's lists.
"""

import argparse
import collections
import pathlib
import subprocess
import sys


def cases(executable: str, *filters: str) -> list[str]:
    """The names that the executable lists, in its order."""
    command = [executable, "--list-test-cases", "--no-skip", "--no-colors", *filters]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in output.splitlines() if line and not line.startswith("[doctest]")
            and set(line) != {"="}]


def as_filter(name: str) -> str:
    """A doctest filter that matches this name: commas separate filters unless escaped."""
    return name.replace("\\", "\\\\").replace(",", "\\,")


def bracket(text: str) -> str:
    """A CMake bracket argument: nothing inside is special."""
    return f"[==[{text}]==]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("executable", "prefix", "label", "timeout", "environment", "output"):
        parser.add_argument(f"--{option}", required=True)
    options = parser.parse_args()

    names = cases(options.executable)
    suites = {suite: set(cases(options.executable, f"--test-suite={suite}"))
              for suite in ("slow", "gpu", "nccl")}
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        print(f"test cases of one name cannot be run apart: {twice}", file=sys.stderr)
        return 1

    lines = []
    for name in names:
        test = bracket(f"{options.prefix}: {name}")
        label = next((suite for suite, own in suites.items() if name in own), options.label)
        lines.append(f"add_test({test} {bracket(options.executable)} "
                     f"{bracket('--test-case=' + as_filter(name))} --no-skip)")
        # A filter that matches nothing exits with 0: that is a fault of ours, not a pass.
        lines.append(f"set_tests_properties({test} PROPERTIES LABELS {label} "
                     f"TIMEOUT {options.timeout} ENVIRONMENT {bracket(options.environment)} "
                     r'SKIP_REGULAR_EXPRESSION "\\[SKIPPED\\]" '
                     'FAIL_REGULAR_EXPRESSION "test cases: +0 ")')
    pathlib.Path(options.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
