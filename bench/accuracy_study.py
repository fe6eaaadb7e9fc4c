#!/usr/bin/env python3
"""Accuracy of XPipe, GPipe, PipeDream and SpecTrain on real digits, beside sequential training.

Trains every combination of policy, stages, learning rate and seed with `xpipe train`, and prints a
Markdown table of the mean final test accuracy with its 95 % interval (Student's t over the seeds).
Sequential training is `--policy gpipe --stages 1`: accumulation over the same micro-batches, no
pipeline. The results are deterministic: the same command gives the same table on any machine with
the same LibTorch kernels, whatever its load.

  ./dev bench accuracy_study --out build/accuracy.json
"""
import argparse
import concurrent.futures as futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Two-sided 97.5 % points of Student's t by degrees of freedom.
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def train(xpipe, run, metrics):
    """The final test accuracy of one run, or None when its loss became NaN."""
    command = [xpipe, "train", "--policy", run["policy"], "--model", run["model"],
               "--data", str(ROOT / "examples/data/digits"), "--stages", str(run["stages"]),
               "--micro-batches", str(run["micro_batches"]),
               "--batch-size", str(run["batch_size"]), "--epochs", str(run["epochs"]),
               "--optimizer", run["optimizer"], "--lr", str(run["lr"]), "--seed", str(run["seed"]),
               "--metrics", str(metrics)]
    for key, value in run["settings"].items():
        command += ["--set", f"{key}={value}"]
    if run.get("momentum"):
        command += ["--momentum", str(run["momentum"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 5 and "loss" in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [r for r in records if r["kind"] == "epoch"][-1]["accuracy"]


def interval(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, T975[len(values) - 1] * math.sqrt(variance / len(values))


def plan_runs(args):
    runs = []
    for lr in args.lr:
        for seed in args.seeds:
            common = {"model": args.model, "micro_batches": args.micro_batches,
                      "batch_size": args.batch_size, "epochs": args.epochs,
                      "optimizer": args.optimizer, "lr": lr, "seed": seed, "settings": {},
                      "momentum": args.momentum}
            runs.append({**common, "row": "sequential", "policy": "gpipe", "stages": 1})
            for stages in args.stages:
                for row in args.rows:
                    policy, *settings = row.split(":")
                    runs.append({**common, "row": row, "policy": policy, "stages": stages,
                                 "settings": dict(s.split("=") for s in settings)})
    return runs


def table(runs, args):
    lines = []
    for lr in args.lr:
        lines.append(f"\nlearning rate {lr}\n")
        lines.append("| policy | " + " | ".join(f"{d} stages" for d in args.stages) + " |")
        lines.append("|---" * (len(args.stages) + 1) + "|")
        for row in ["sequential"] + args.rows:
            cells = []
            for stages in args.stages:
                wanted = 1 if row == "sequential" else stages
                found = [r["accuracy"] for r in runs
                         if r["row"] == row and r["stages"] == wanted and r["lr"] == lr]
                good = [100 * a for a in found if a is not None]
                if len(good) < len(found):
                    cells.append(f"NaN in {len(found) - len(good)} of {len(found)}")
                else:
                    mean, half = interval(good)
                    cells.append(f"{mean:.2f} ± {half:.2f}")
            lines.append(f"| {row.replace(':', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xpipe", help="the binary; ./dev bench gives it")
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rows", nargs="+", metavar="POLICY[:OPTION=VALUE]",
                        default=["xpipe", "gpipe", "pipedream", "spectrain", "xpipe:predict=none"])
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--momentum", type=float)
    parser.add_argument("--lr", nargs="+", default=["0.001", "0.006"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", help="write every run here, as JSON")
    args = parser.parse_args()
    runs = plan_runs(args)
    with tempfile.TemporaryDirectory() as folder, \
            futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = {pool.submit(train, args.xpipe, run, pathlib.Path(folder) / f"{i}.jsonl"): run
                for i, run in enumerate(runs)}
        for count, job in enumerate(futures.as_completed(jobs), 1):
            jobs[job]["accuracy"] = job.result()
            print(f"\r{count}/{len(runs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs, args))


if __name__ == "__main__":
    main()
