"""Contenders as groups of processes that answer commands with lines of JSON."""
import contextlib
import json
import os
import pathlib
import select
import socket
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TIME_OUT_S = 300


class Failed(Exception):
    """A contender's process ended or did not answer."""


class Worker:
    """One process; its stderr is kept for the message of a failure."""

    def __init__(self, command, threads, variables=()):
        self.errors = tempfile.TemporaryFile(mode="w+")
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONDONTWRITEBYTECODE="1",
                           **dict(variables))
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, env=environment)
        self.rest = b""

    @property
    def pid(self):
        return self.process.pid

    def say(self, command):
        try:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self.last_words()) from None

    def answer(self):
        out = self.process.stdout
        while b"\n" not in self.rest:
            if not select.select([out], [], [], TIME_OUT_S)[0]:
                raise Failed(f"no answer within {TIME_OUT_S} s")
            piece = os.read(out.fileno(), 1 << 16)
            if not piece:
                raise Failed(self.last_words())
            self.rest += piece
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        self.process.wait()
        self.errors.seek(0)
        return f"ended with status {self.process.returncode}:\n{self.errors.read()[-2000:]}"

    def end(self):
        """Peak memory in MiB; nothing when the process is gone already."""
        peak = None
        try:
            self.say("stop")
            peak = self.answer().get("peak_rss_mib")
        except Failed:
            pass
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return peak


class Group:
    """The processes of one contender, which work at the same time."""

    def __init__(self, workers):
        self.workers = workers

    def ask(self, command):
        for worker in self.workers:
            worker.say(command)
        return [worker.answer() for worker in self.workers]


def python_group(python, name, setting, ranks, threads, folder):
    """Processes of bench/peers/contender.py."""
    command = [python, HERE / "contender.py", name, "--work", setting.work,
               "--micro-batches", setting.micro_batches, "--cut", setting.cut, "--threads", threads,
               "--store", pathlib.Path(folder) / f"{name}-store"]
    return Group([Worker([*command, "--rank", rank], threads) for rank in range(ranks)])


def program_group(program, setting, handover, contenders):
    """bench_xpipe_contender as one process."""
    return Group([Worker([program, *sizes(setting), handover, *contenders], 1)])


def two_ranks(program, setting, handover, contender):
    """bench_xpipe_contender as two processes, a stage each, that meet over Gloo as under a launcher."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [program, *sizes(setting), handover, contender]
    return Group([Worker(command, 1, {"RANK": str(rank), "WORLD_SIZE": "2",
                                      "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                  for rank in range(2)])


def sizes(setting):
    return setting.work, setting.micro_batches, setting.cut
