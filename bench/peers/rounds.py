"""Rounds in which all contenders take turns, and what is made of them."""
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

from workers import Failed, python_group, program_group, two_ranks

# Name, which of contender.py, processes, intra-op threads of each.
PEERS = (
    ("sequential", "sequential", 1, 1),
    ("two threads", "sequential", 1, 2),
    ("PyTorch ScheduleGPipe", "pytorch-gpipe", 2, 1),
    ("PyTorch Schedule1F1B", "pytorch-1f1b", 2, 1),
    ("torchgpipe", "torchgpipe", 1, 1),
    ("limit, in PyTorch", "stage-alone", 2, 1),
)
GLOO = "-gloo"  # of our contenders: as two processes
BATCH = {"W1": 64, "W2": 16}
LOSS_TOLERANCE = 1e-5
LIMIT_MINI_BATCHES = 2  # of a burst of the limit
PEERS_LIMIT_S = 2.0  # a burst of the stages by themselves


@dataclass
class Setting:
    work: str
    micro_batches: int
    cut: int

    @property
    def batch(self):
        return BATCH[self.work]

    def __str__(self):
        return f"{self.work}, T = {self.micro_batches}, cut after unit {self.cut}"


@dataclass
class Contenders:
    """All processes of one setting, alive from the first round to the last."""
    setting: Setting
    ours: list
    peers: dict = field(default_factory=dict)
    programs: dict = field(default_factory=dict)  # by contender of ours; most share one
    failed: dict = field(default_factory=dict)
    losses: dict = field(default_factory=dict)
    peak_rss_mib: dict = field(default_factory=dict)

    def start(self, python, program, handover, folder, peers):
        """One after the other: each warms up alone."""
        for name, kind, ranks, threads in PEERS:
            if name not in peers:
                continue
            place = os.path.join(folder, name.replace(" ", "-"))
            os.makedirs(place, exist_ok=True)
            group = python_group(python, kind, self.setting, ranks, threads, place)
            try:
                losses = [answer["losses"] for answer in (w.answer() for w in group.workers)]
                self.losses[name] = [] if kind == "stage-alone" else losses[-1]
                self.peers[name] = group
            except Failed as failure:
                self.failed[name] = str(failure)
                for worker in group.workers:
                    worker.process.kill()
        here = [name for name in self.ours if not name.endswith(GLOO)]
        one = program_group(program, self.setting, handover, here)
        self.programs = {name: one for name in here}
        for name in self.ours:
            if name.endswith(GLOO):
                self.programs[name] = two_ranks(program, self.setting, handover,
                                                name.removesuffix(GLOO))
        for group in set(self.programs.values()):
            for worker in group.workers:
                worker.answer()  # ready

    def groups(self):
        """Each once, with a name."""
        groups = {group: name for name, group in self.peers.items()}
        for name, group in self.programs.items():
            groups.setdefault(group, our_name(name) if name.endswith(GLOO) else "XPipe")
        return groups

    def pids(self):
        return [worker.pid for group in self.groups() for worker in group.workers]

    def end(self):
        for group, name in self.groups().items():
            self.peak_rss_mib[name] = [worker.end() for worker in group.workers]


def peer_burst(group, name, setting, steps):
    """Samples a second."""
    if name == "limit, in PyTorch":
        paces = [(a["end"] - a["begin"]) / a["steps"] for a in group.ask(f"seconds {PEERS_LIMIT_S}")]
        return {"samples_per_s": setting.batch / max(paces), "stages_s": paces}
    answers = group.ask(f"steps {steps}")
    time_s = max(a["end"] for a in answers) - min(a["begin"] for a in answers)
    return {"samples_per_s": setting.batch * steps / time_s}


def our_burst(program, name, setting, mini_batches):
    answer = program.ask(f"{name.removesuffix(GLOO)} {mini_batches}")[0]
    if "stages_s" in answer:
        return dict(answer, samples_per_s=setting.batch / max(answer["stages_s"]))
    return dict(answer, samples_per_s=setting.batch / answer["steady_s"],
                whole_samples_per_s=setting.batch / answer["whole_s"])


def our_name(contender):
    if contender.endswith(GLOO):
        return f"XPipe: {contender.removesuffix(GLOO)}, two processes"
    return "limit" if contender == "limit" else f"XPipe: {contender}"


def busy_ticks():
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return user + nice + system + irq + softirq + steal


def ticks_of(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total


def foreign_load(contenders, work):
    """What `work` returns, and how many cores other processes used meanwhile."""
    pids = [os.getpid(), *contenders.pids()]
    begin, busy, own = time.monotonic(), busy_ticks(), ticks_of(pids)
    result = work()
    ticks = (time.monotonic() - begin) * os.sysconf("SC_CLK_TCK")
    return result, ((busy_ticks() - busy) - (ticks_of(pids) - own)) / ticks


def one_round(contenders, turn, steps, mini_batches):
    """A burst of each, beginning with another one every time, and of the limit between any two: the
    machine's speed drifts within a round, so each burst is held against the limits at its sides."""
    setting = contenders.setting
    jobs = [(name, lambda g=group, n=name: peer_burst(g, n, setting, steps))
            for name, group in contenders.peers.items()]
    jobs += [(our_name(name),
              lambda n=name: our_burst(contenders.programs[n], n, setting,
                                       LIMIT_MINI_BATCHES if n.startswith("limit") else mini_batches))
             for name in contenders.ours if name != "limit"]

    def limit_burst():
        return our_burst(contenders.programs["limit"], "limit", setting, LIMIT_MINI_BATCHES)

    first = turn % len(jobs)
    limits, results = [limit_burst()], {}
    for name, job in jobs[first:] + jobs[:first]:
        result = job()
        limits.append(limit_burst())
        sides = [limit["samples_per_s"] for limit in limits[-2:]]
        results[name] = dict(result, limit_samples_per_s=statistics.harmonic_mean(sides))
    stages_s = [statistics.median(limit["stages_s"][k] for limit in limits) for k in (0, 1)]
    pace = statistics.median(limit["samples_per_s"] for limit in limits)
    results["limit"] = {"samples_per_s": pace, "limit_samples_per_s": pace, "stages_s": stages_s,
                        "bursts": limits}
    return results


def check_losses(contenders, warm_up):
    """The warm-up's losses beside those of the sequential training. An asynchronous policy trains on
    weights that are older from the second mini-batch on, so of it the first loss counts."""
    losses = dict(contenders.losses)
    for name, result in warm_up.items():
        if result.get("losses"):
            losses[name] = result["losses"][:3]
    reference = losses.get("sequential") or losses.get("XPipe: gpipe")
    wrong = {}
    for name, found in losses.items():
        count = 1 if name.startswith("XPipe: xpipe") else 3
        if found and any(abs(a - b) > LOSS_TOLERANCE
                         for a, b in zip(found[:count], reference[:count])):
            wrong[name] = found
    return losses, wrong


def run_setting(setting, python, program, handover, folder, arguments):
    """The raw rounds of one setting, as plain data."""
    contenders = Contenders(setting, arguments.ours)
    try:
        contenders.start(python, program, handover, folder, arguments.peers)
        warm_up = one_round(contenders, 0, arguments.steps, arguments.mini_batches)
        losses, wrong = check_losses(contenders, warm_up)
        rounds, loads = [], []
        for turn in range(arguments.rounds):
            result, load = foreign_load(contenders, lambda t=turn: one_round(
                contenders, t + 1, arguments.steps, arguments.mini_batches))
            rounds.append(result)
            loads.append(load)
            told = ", ".join(f"{name} {r['samples_per_s']:.1f}" for name, r in result.items())
            print(f"{setting}, round {turn + 1} of {arguments.rounds}: {told}; others used "
                  f"{load:.2f} cores", file=sys.stderr)
    finally:
        contenders.end()
    return {"work": setting.work, "micro_batches": setting.micro_batches, "cut": setting.cut,
            "batch": setting.batch, "losses": losses, "losses_differ": wrong,
            "failed": contenders.failed, "peak_rss_mib": contenders.peak_rss_mib,
            "foreign_load_cores": loads, "rounds": rounds}


def of_limit(result, key="samples_per_s"):
    return result[key] / result["limit_samples_per_s"]


def paired(rounds, name, over, key="samples_per_s"):
    """The median over rounds of the ratio of two shares of the limit, its least and its most."""
    ratios = [of_limit(r[name], key) / of_limit(r[over]) for r in rounds if name in r and over in r]
    if not ratios:
        return None
    return statistics.median(ratios), min(ratios), max(ratios)
