#!/usr/bin/env python3
"""Planned against measured on the cpu device, two stages, the profile taken in the same run.

Each round takes a profile, then for each policy simulates the plan, trains with the same options,
and lays the two over each other with `xpipe compare`. Rounds take turns, so that a drift of the
machine meets all policies alike; medians are over rounds. Prints Markdown tables.

The profile is taken on both cores at once, each by a process of its own, and averaged: in a run the
stages compete for caches and memory just so; with as many samples as the policy's tasks have, as time
is not linear in them: a mini-batch for those that work on whole ones, else a micro-batch. `--alone` takes it with the other core idle. Optimizer
steps and predictions are priced by a memory bandwidth that is measured at the start.

  ./dev bench fidelity_cpu [--rounds 5] [--model vgg16] [--samples 256] ...

The machine must be quiet: with other load on its two cores the run is late and the plan is not. The
load average before each round is printed.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def memory_bandwidth():
    """Bytes read and written in a second by a copy that no cache holds; the best of five."""
    source = bytearray(256 << 20)
    target = bytearray(len(source))
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        target[:] = source
        best = max(best, 2 * len(source) / (time.perf_counter() - start))
    return best


def synthetic_cifar(folder, samples):
    """CIFAR-10's binary files with random images: what is computed does not change its time."""
    values = random.Random(1)
    folder.mkdir()
    for index, count in [(f"data_batch_{i}", samples // 5 + (i <= samples % 5))
                         for i in range(1, 6)] + [("test_batch", 10)]:
        images = b"".join(bytes([values.randrange(10)]) + values.randbytes(3072)
                          for _ in range(count))
        (folder / f"{index}.bin").write_bytes(images)


def samples_of_a_task(args, policy):
    runs = json.loads(call([args.xpipe, "simulate", "--policy", policy, "--stages", "2",
                            "--micro-batches", str(args.micro_batches), "--json"]))["runs"]
    return args.batch_size // runs[0]["micro_batches"]


def take_profile(args, folder, samples):
    """The path of a profile; with both cores busy the mean of the two that were taken at once."""
    files = [folder / f"profile-{samples}-{i}.json" for i in range(1 if args.alone else 2)]
    processes = [subprocess.Popen([args.xpipe, "profile", "--model", args.model, "--input",
                                   "3x32x32", "--batch-size",
                                   str(samples), "--optimizer", "sgd", "--repeats",
                                   str(args.repeats), "-o",
                                   str(file)], stdout=subprocess.DEVNULL)
                 for file in files]
    if any([process.wait() for process in processes]):
        sys.exit("xpipe profile failed")
    profiles = [json.loads(file.read_text()) for file in files]
    for layers in zip(*(profile["layers"] for profile in profiles)):
        for key in layers[0]:
            if key.endswith("_us"):
                layers[0][key] = round(statistics.mean(layer[key] for layer in layers), 3)
    files[0].write_text(json.dumps(profiles[0]))
    return files[0]


def compare_one(args, folder, policy, profile, cluster):
    plan, run = folder / "plan.json", folder / "run.json"
    sizes = ["--policy", policy, "--stages", "2", "--micro-batches", str(args.micro_batches),
             "--batch-size", str(args.batch_size), "--profile", str(profile), "--optimizer", "sgd",
             "--momentum", "0.9"]
    call([args.xpipe, "simulate", *sizes, "--mini-batches", str(args.samples // args.batch_size),
          "--cluster", str(cluster), "--trace", str(plan)])
    call([args.xpipe, "train", *sizes, "--model", args.model, "--data", str(folder / "data"),
          "--epochs", "2", "--lr", "0.001", "--trace-epoch", "1", "--trace", str(run)])
    return json.loads(call([args.xpipe, "compare", str(plan), str(run), "--json"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xpipe", help="the binary; ./dev bench gives it")
    parser.add_argument("--policies", nargs="+",
                        default=["gpipe", "xpipe", "pipedream", "spectrain"])
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--samples", type=int, default=512, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=9, help="of each profile")
    parser.add_argument("--alone", action="store_true",
                        help="take the profile with the other core idle")
    args = parser.parse_args()
    sizes = {policy: samples_of_a_task(args, policy) for policy in args.policies}
    errors = {policy: [] for policy in args.policies}
    tasks = {policy: [] for policy in args.policies}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        synthetic_cifar(folder / "data", args.samples)
        bandwidth = memory_bandwidth()
        cluster = folder / "cluster.json"
        cluster.write_text(json.dumps({
            "format": "xpipe.cluster", "version": 1, "name": "two cores",
            "devices": [{"name": f"core{i}", "memory_bandwidth_bytes_per_s": bandwidth}
                        for i in range(2)],
            "default_link": {"latency_us": 0}}))
        for count in range(args.rounds):
            print(f"round {count}: load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)
            profiles = {size: take_profile(args, folder, size) for size in set(sizes.values())}
            for policy in args.policies:
                compared = compare_one(args, folder, policy, profiles[sizes[policy]], cluster)
                errors[policy].append(100 * (compared["makespan_ratio"] - 1))
                tasks[policy].append(100 * compared["median_priced_error"])
                print(f"  {policy}: {errors[policy][-1]:+.2f} %", file=sys.stderr, flush=True)
    print(f"{args.model}, batch {args.batch_size}, T = {args.micro_batches}, 2 stages, "
          f"{args.samples // args.batch_size} mini-batches, {args.rounds} rounds; memory "
          f"{bandwidth / 1e9:.1f} GB/s; makespan, measured over planned less one, in %\n")
    print("| policy | median | least | most | median error of a task |\n|---|---|---|---|---|")
    for policy in args.policies:
        print(f"| {policy} | {statistics.median(errors[policy]):+.2f} | {min(errors[policy]):+.2f}"
              f" | {max(errors[policy]):+.2f} | {statistics.median(tasks[policy]):.2f} |")
    every = [abs(error) for all_of_one in errors.values() for error in all_of_one]
    print(f"\nAll runs: median of |error| {statistics.median(every):.2f} %, worst "
          f"{max(every):.2f} %.")


if __name__ == "__main__":
    main()
