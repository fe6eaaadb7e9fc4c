#!/usr/bin/env python3
"""Start-up: from the command to the end of the first step of `xpipe train`, on small models.

The trace of a run has its moment 0 on the machine's clock, so the first STEP's end is known in the same
time as the command's start. Beside it, in turns: what the program needs to start at all (`xpipe train
--help`, which loads LibTorch), and, where ./dev bench peers has made the peers' environment, `import
torch` in Python.

  ./dev bench start_up --rounds 7
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))

import environment  # noqa: E402

DIGITS = ROOT / "examples/data/digits"
TEXT = ROOT / "README.md"  # copied to a .txt
AIM_S = 2.0
RUNS = {
    "mlp, 1 stage": ["--model", "mlp", "--data", DIGITS, "--stages", "1"],
    "lenet5, 2 stages": ["--model", "lenet5", "--data", DIGITS, "--stages", "2"],
    "gpt on a text, 2 stages": ["--model", "gpt", "--data", "text.txt", "--stages", "2"],
}


def first_step_s(xpipe, options, folder):
    """Seconds from the command to the end of the first step of the last stage to make it."""
    trace = folder / "trace.json"
    begin_ns = time.time_ns()
    subprocess.run([xpipe, "train", "--policy", "xpipe", "--micro-batches", "2", "--batch-size", "16",
                    "--last-batch", "drop", "--trace", trace, *options], check=True,
                   stdout=subprocess.DEVNULL, cwd=folder)
    with open(trace, encoding="utf-8") as file:
        document = json.load(file)
    ends_us = [event["ts"] + event["dur"] for event in document["traceEvents"]
               if event.get("ph") == "X" and "STEP0[" in event["name"]]
    return (document["baseTimeNanoseconds"] - begin_ns) / 1e9 + max(ends_us) / 1e6


def seconds_of(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def contenders(xpipe, folder):
    jobs = {name: lambda o=options: first_step_s(xpipe, o, folder) for name, options in RUNS.items()}
    jobs["xpipe train --help"] = lambda: seconds_of([xpipe, "train", "--help"])
    python = environment.folder() / "bin/python"
    if (environment.folder() / "complete").exists():
        jobs["python: import torch"] = lambda: seconds_of([python, "-c", "import torch"])
    return jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xpipe", type=pathlib.Path, help="given by ./dev bench")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="xpipe-start-up-") as folder:
        shutil.copy(TEXT, pathlib.Path(folder) / "text.txt")
        jobs = contenders(arguments.xpipe.resolve(), pathlib.Path(folder))
        for _ in range(arguments.rounds):
            for name, job in jobs.items():
                found.setdefault(name, []).append(job())
    print(f"| command | seconds, median of {arguments.rounds} | least to most | aim |\n|---|---|---|---|")
    for name, times in found.items():
        median = statistics.median(times)
        aim = ("" if name not in RUNS
               else f"at most {AIM_S:.0f}: " + ("reached" if median <= AIM_S else "missed"))
        print(f"| {name} | {median:.2f} | {min(times):.2f} to {max(times):.2f} | {aim} |")


if __name__ == "__main__":
    main()
