"""Runs command lines and keeps what they took."""

import contextlib
import ctypes
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from works import INTERPRETED, WORKS

TIME = "/usr/bin/time"
#: Seconds after which a run, or the counting of its instructions, is given up.
PATIENCE = 300
#: A short run is repeated within its round for this many seconds, but not more often than this.
REPEATED_FOR, REPEATED_AT_MOST = 1.0, 10
#: A run that takes this many seconds is done in this many rounds only.
LONG, ROUNDS_OF_LONG = 15, 3
#: Figures that a program tells itself, one to a line.
TOLD = {"p99": "p99_us", "call_us": "call_us", "wall_us": "wall_us", "cpu_us": "cpu_us", "syncs": "syncs"}


class Failed(Exception):
    """A run that did not come to what it should."""


def tells_memory():
    """Whether GNU time is there: others have the name, too."""
    try:
        told_by_time = subprocess.run([TIME, "--version"], check=False, capture_output=True, text=True)
    except OSError:
        return False
    return "GNU" in told_by_time.stdout + told_by_time.stderr


def prepare_process():
    """A thousand connections need as many files; and what a program leaves behind comes to us, so that the interpreter
    which llm-do started is waited for and counted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    set_child_subreaper = 36
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def children():
    """Of this process; none where the kernel does not say."""
    with contextlib.suppress(OSError):
        return {int(pid) for pid in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def cpu_of_orphan(pid):
    """What a process took whose parent is gone. It should end by itself and is ended when it does not."""
    for _ in range(500):
        ended, _, used = os.wait4(pid, os.WNOHANG)
        if ended:
            return cpu_of(used)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return cpu_of(os.wait4(pid, 0)[2])


def told(output):
    """The figures in an output, by the names they have here."""
    found = re.findall(rf"^({'|'.join(TOLD)}) (\d+(?:\.\d+)?)$", output, re.MULTILINE)
    return {TOLD[name]: float(value) for name, value in found}


class Figures:
    """What was measured, by who and work."""

    def __init__(self, everybody):
        self.everybody, self.samples, self.instructions, self.memory = everybody, {}, {}, {}
        self.failed, self.incomplete = {}, {}

    def can(self, who, work):
        return (who, work) not in self.failed and self.everybody.command(who, work) is not None

    def run(self, who, work, counter=()):
        command = self.everybody.command(who, work)
        # A shell's own variables change what programs do: these are all they get.
        environment = {"PATH": os.environ["PATH"], "HOME": self.everybody.place / "home", **command.environment}
        words = [str(word) for word in (*counter, *command.words)]
        before = children()
        with tempfile.TemporaryFile("w+", errors="replace", dir=self.everybody.place) as output:
            started = time.perf_counter()
            child = subprocess.Popen(
                words,
                env={name: str(value) for name, value in environment.items()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            cpu, in_time = self.wait(child)
            wall = time.perf_counter() - started
            cpu += sum(cpu_of_orphan(orphan) for orphan in children() - before)
            output.seek(0)
            said = output.read()
        if not in_time:
            raise Failed(f"it took more than {PATIENCE} seconds")
        if child.returncode != 0 or command.expected not in said:
            came_to = f"exit code {child.returncode}" if child.returncode else "another result than it should"
            raise Failed(f"{came_to}: {said[-2000:].strip()}")
        sample = told(said)
        sample["cpu"] = sample.pop("cpu_us", cpu * 1e6) / 1e6
        sample["wall"] = sample.pop("wall_us", wall * 1e6) / 1e6
        return sample

    @staticmethod
    def wait(child):
        """The CPU time of a child, and whether it ended by itself. It is not left behind, whatever happens."""
        end = threading.Timer(PATIENCE, child.kill)
        end.start()
        try:
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            in_time = end.is_alive()
            end.cancel()
            if child.returncode is None:
                child.kill()
                child.wait()
        return cpu_of(used), in_time

    def attempt(self, who, work, counter=()):
        """A sample, or none when it failed: that is said once and remembered."""
        try:
            return self.run(who, work, counter)
        except (Failed, OSError) as error:
            self.failed[who, work] = str(error)
            return None

    def measure(self, who, work, round_number):
        """The runs of one round."""
        samples = self.samples.setdefault((who, work), [])
        if samples and samples[0]["wall"] >= LONG and round_number >= ROUNDS_OF_LONG:
            return
        began = time.perf_counter()
        for _ in range(REPEATED_AT_MOST):
            sample = self.attempt(who, work)
            if not sample:
                return
            samples.append(sample)
            if time.perf_counter() - began > REPEATED_FOR:
                return

    def measure_memory(self, who, work):
        """The peak of three runs, of one that takes long. GNU time starts them: a child of this process would begin with
        the size of this one."""
        peak_told = self.everybody.place / "memory"
        for _ in range(3):
            try:
                sample = self.run(who, work, [TIME, "-f", "%M", "-o", peak_told])
            except (Failed, OSError) as error:
                self.incomplete[who, work] = f"memory: {error}"
                return
            peak = int(peak_told.read_text().split()[-1])
            self.memory[who, work] = max(peak, self.memory.get((who, work), 0))
            if sample["wall"] > LONG / 2:
                return

    def is_counted(self, who, work):
        """Instructions are those of one process; where Python works as well they would tell half of it."""
        return WORKS[work].counted and who not in INTERPRETED and not work.startswith("python_") and self.can(who, work)

    def count(self, who, work):
        counted = self.everybody.place / "callgrind"
        try:
            self.run(who, work, ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={counted}"])
            self.instructions[who, work] = instructions(counted.read_text())
        except (Failed, OSError) as error:
            self.incomplete[who, work] = f"instructions: {error}"

    def of(self, who, work):
        samples = [sample for sample in self.samples.get((who, work), []) if sample]
        if not samples or (who, work) in self.failed:
            return None
        figure = {"runs": len(samples)}
        for key in ("cpu", "wall"):
            values = [sample[key] for sample in samples]
            figure |= {f"{key}_seconds": statistics.median(values), f"{key}_least": min(values), f"{key}_most": max(values)}
        figure |= {"peak_rss_kb": self.memory.get((who, work)), "instructions": self.instructions.get((who, work))}
        if work == "memory":
            figure["alone_rss_kb"] = self.memory.get((who, "alone"))
        for key in ("p99_us", "call_us", "syncs"):
            values = [sample[key] for sample in samples if key in sample]
            figure |= {key: min(values)} if values else {}
        return figure


def cpu_of(used):
    return used.ru_utime + used.ru_stime


def instructions(callgrind):
    return next(int(line.split()[1]) for line in callgrind.splitlines() if line.startswith(("summary: ", "totals: ")))
