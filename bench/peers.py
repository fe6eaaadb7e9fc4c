#!/usr/bin/env python3
"""Training on two stages beside PyTorch's pipelines, torchgpipe and plain threads, in turns.

All contenders train the same work (bench/peers/works.py: W1, a VGG-16; W2, a GPT) from the same
weights on the same data, stay alive, and take turns: a burst each a round, beginning with another one
every time, and a burst of the limit between any two. A burst counts as a share of the limits at its
sides, as the speed of a shared machine drifts; ratios are of these shares, medians over rounds. The
first losses are compared.

  sequential            one process, one thread, T micro-batches accumulated
  two threads           the same with two intra-op threads
  PyTorch ScheduleGPipe, Schedule1F1B   torch.distributed.pipelining, two processes, Gloo
  torchgpipe            two partitions in one process
  XPipe: POLICY         two stages, a thread each; in steady state, between the ends of the first
                        and of the last but one mini-batch of a burst
  XPipe: POLICY, two processes   the same as two processes, a stage each, over Gloo (POLICY-gloo)
  limit                 both stages at once, in XPipe's executor, none waiting for the other: the
                        slower one's samples a second. limit-1f1b: the first stage keeps two
                        micro-batches, as 1F1B does
  limit, in PyTorch     the same in two processes of PyTorch

The peers run in a Python environment made in $XPIPE_CACHE at the first run (3.6 GB).

  ./dev bench peers --rounds 3                        W1 and W2 with T = 4 and 8
  ./dev bench peers --work W1 --micro-batches 4 --peers none --ours xpipe,gpipe,limit
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

import environment  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402

CUTS = {"W1": 10, "W2": 5}  # units of the first stage: the halves are about equal


def words(text):
    return [] if text in ("", "none") else text.split(",")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xpipe", type=pathlib.Path, help="given by ./dev bench")
    parser.add_argument("--work", type=words, default=["W1", "W2"], help="W1, W2 or both")
    parser.add_argument("--micro-batches", default="4,8", help="list of T")
    parser.add_argument("--cut", type=int, help="units of the first stage (W1: 10, W2: 5)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="mini-batches of a peer's burst")
    parser.add_argument("--mini-batches", type=int, default=6, help="of a burst of ours")
    parser.add_argument("--peers", type=words, default=[name for name, *_ in rounds.PEERS],
                        help="names as above, or 'none'")
    parser.add_argument("--ours", type=words, default=["xpipe", "gpipe", "1f1b", "xpipe-gloo",
                                                        "gpipe-gloo", "1f1b-gloo", "limit"],
                        help="policies (1f1b: with a flush), with -gloo in two processes; and limit")
    parser.add_argument("--json", type=pathlib.Path, help="write every round here")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.peers if name not in dict((p[0], p) for p in rounds.PEERS)]
    if unknown or "limit" not in arguments.ours:
        parser.error(f"no peer {unknown[0]!r}" if unknown else "--ours needs limit: shares are of it")
    return arguments


def main():
    arguments = parse()
    begin = time.monotonic()
    python = environment.python_with_peers()
    program = arguments.xpipe.resolve().parent / "bench_xpipe_contender"
    if not program.exists():
        sys.exit(f"peers: {program.name} is not built: that takes LibTorch and Gloo's headers "
                 "(./dev setup installs both)")
    results = []
    with tempfile.TemporaryDirectory(prefix="xpipe-peers-") as folder:
        for work in arguments.work:
            handover = pathlib.Path(folder) / f"{work}.handover"
            subprocess.run([python, HERE / "peers/contender.py", "write-handover", "--work", work,
                            "--handover", handover], check=True)
            for micro_batches in map(int, arguments.micro_batches.split(",")):
                setting = rounds.Setting(work, micro_batches, arguments.cut or CUTS[work])
                place = pathlib.Path(folder) / f"{work}-{micro_batches}"
                result = rounds.run_setting(setting, python, program, handover, place, arguments)
                results.append(report.summarize(result))
                report.print_tables(result)
                sys.stdout.flush()
                if arguments.json:  # as far as it goes: a later failure takes nothing away
                    arguments.json.write_text(json.dumps(
                        {"format": "xpipe.bench-peers", "version": 1, "results": results}, indent=1))
    if len(results) > 1:
        report.print_all_settings(results)
    print(f"\n{time.monotonic() - begin:.0f} s in all", file=sys.stderr)
    return 1 if any(result["losses_differ"] or result["failed"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
