#!/usr/bin/env python3
"""Compiler and simulator beside PyTorch's dry run and a SimPy model, in turns, on the same schedules.

Every round runs each contender once at each size (stages x micro-batches of 1F1B), one after the
other, each in a process of its own. The peers' code is ../shared/bench's, called there; it is neither
copied nor changed. A Python environment with PyTorch and SimPy (bench/peers/requirements.txt, 3.6 GB)
is made in $XPIPE_CACHE at the first run.

An action is a forward, a backward, a send or a receive, whoever counts: the rates of all contenders
are for the same number of actions, so that ratios are ratios of times. Times are CPU times of one core,
which other load disturbs least:
  pytorch      make the lists, lower them with sends and receives, dry run (no durations)
  simpy        build and run the model (compute and links, no validation)
  end to end   ours: policy, passes, validation, preparation, replay
  replay       ours: of the prepared schedule, one more number of a sweep
ASTRA-sim's C++ is not run here: its figure is quoted from ../shared/bench/README.md.

  ./dev bench simulator_peers --rounds 3 --sizes 8x64,16x256,32x1024,64x4096
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

import environment  # noqa: E402

PEERS = {"pytorch": "torch", "simpy": "simpy"}
# ../shared/bench/README.md, section 3, sends and receives counted, 64 x 4096, its better run.
ASTRA_SIM_ACTIONS_PER_S = 204e3
AIMS = {("end to end", "pytorch"): 50, ("end to end", "simpy"): 50,
        ("end to end", "astra-sim"): 25, ("replay", "pytorch"): 200, ("replay", "simpy"): 200}


def shared_bench():
    shared = pathlib.Path(os.environ.get("XPIPE_SHARED") or HERE.parent.parent / "shared")
    if not (shared / "bench/sim_peers.py").exists():
        sys.exit(f"simulator_peers: no {shared}/bench/sim_peers.py: set XPIPE_SHARED to the folder "
                 "that holds bench/")
    return shared / "bench"


def run(command, what):
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False,
                          env=env)
    if done.returncode != 0:
        sys.exit(f"simulator_peers: {what} failed with status {done.returncode}:\n{done.stderr}")
    return done.stdout


# Runs one tool of sim_peers.py (argv: its folder, tool, stages, micro-batches) on the CPU clock.
RUNNER = """
import contextlib, json, os, sys, time
time.perf_counter = time.process_time
sys.path.insert(0, sys.argv[1])
import sim_peers
tool, stages, micro_batches = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if tool == "torch":
    sim_peers.torch_setup()
with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
    r = (sim_peers.run_torch(stages, micro_batches, 1) if tool == "torch"
         else sim_peers.run_simpy(stages, micro_batches))
print(json.dumps(r))
"""


def time_peer(python, scripts, tool, size):
    result = json.loads(run([python, "-c", RUNNER, scripts, tool, *size.split("x")], tool))
    return result["build_s"] + result["sim_s"]


def time_ours(program, size):
    """Seconds by contender, and the number of actions."""
    out = run([program, f"--benchmark_filter=^(end_to_end|replay)/{size}$",
               "--benchmark_format=json", "--benchmark_min_time=0.5"], "bench_simulator_speed")
    found = {b["name"].split("/")[0]: b for b in json.loads(out)["benchmarks"]}
    milliseconds = {name: found[name]["cpu_time"] for name in ("end_to_end", "replay")}
    stages = int(size.split("x")[0])
    steps = stages  # The peers' lists have none: one optimizer step a stage.
    return ({"end to end": milliseconds["end_to_end"] / 1e3, "replay": milliseconds["replay"] / 1e3},
            int(found["replay"]["tasks"]) - steps)


def expected_actions(size):
    stages, micro_batches = (int(n) for n in size.split("x"))
    return 2 * stages * micro_batches + 4 * (stages - 1) * micro_batches


def report(size, seconds, last):
    actions = expected_actions(size)
    print(f"\n{size}: {actions} actions (forwards, backwards, sends, receives)")
    print(f"{'contender':12}{'seconds':>12}{'actions/s':>14}   least to most")
    for name, times in seconds.items():
        middle = statistics.median(times)
        print(f"{name:12}{middle:12.6f}{actions / middle:14,.0f}   {min(times):.6f} to {max(times):.6f}")
    for ours in ("end to end", "replay"):
        for peer in PEERS:
            ratios = [p / o for p, o in zip(seconds[peer], seconds[ours])]
            verdict(ours, peer, statistics.median(ratios), last)
    rate = actions / statistics.median(seconds["end to end"])
    verdict("end to end", "astra-sim", rate / ASTRA_SIM_ACTIONS_PER_S, last)


def verdict(ours, peer, ratio, with_aim):
    aim = AIMS.get((ours, peer)) if with_aim else None
    told = "" if aim is None else f"   aim {aim}: {'reached' if ratio >= aim else 'missed'}"
    quoted = " (quoted)" if peer == "astra-sim" else ""
    print(f"  {ours} over {peer}{quoted}: {ratio:,.0f}x{told}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xpipe", type=pathlib.Path, help="given by ./dev bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="8x64,16x256,32x1024,64x4096",
                        help="stages x micro-batches; the aims are for the last")
    arguments = parser.parse_args()
    program = arguments.xpipe.resolve().parent / "bench_simulator_speed"
    scripts = shared_bench()
    python = environment.python_with_peers()
    sizes = arguments.sizes.split(",")
    seconds = {size: {name: [] for name in [*PEERS, "end to end", "replay"]} for size in sizes}
    for turn in range(arguments.rounds):
        for size in sizes:
            for name, tool in PEERS.items():
                seconds[size][name].append(time_peer(python, scripts, tool, size))
            ours, actions = time_ours(program, size)
            if actions != expected_actions(size):
                sys.exit(f"simulator_peers: {size} has {actions} actions, expected "
                         f"{expected_actions(size)}: the contenders do not run the same work")
            for name, time in ours.items():
                seconds[size][name].append(time)
            print(f"round {turn + 1} of {arguments.rounds}, {size}: "
                  + ", ".join(f"{name} {times[-1]:.6f} s" for name, times in seconds[size].items()),
                  file=sys.stderr)
    print(f"medians of {arguments.rounds} rounds")
    for size in sizes:
        report(size, seconds[size], size == sizes[-1])


if __name__ == "__main__":
    main()
