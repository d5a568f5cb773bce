"""Runs the same work through everybody, in turn and repeatedly, and tells the medians. Started by `bench/peers.sh`.

Only the standard library is used, so that it runs wherever Python does.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

import report

HERE = pathlib.Path(__file__).resolve().parent
PIECE = "and so the story goes further "
CALL = ["--tool", "read_file", "--arguments", '{"path":"notes.txt"}']
REPLY = ["--text", PIECE, "--deltas", "20"]
NOTES = "a line of notes as people take them\n" * 16
RUNS = 1000
TIME = "/usr/bin/time" if os.path.exists("/usr/bin/time") else None

#: Every work: what its provider is told, and how the runners' command lines name it. The bare client and the library
#: have their own words, and run as many conversations as they are told to.
WORKS = {
    "one": (["--text", PIECE], ["one"], ["one"]),
    "loop_50": ([*REPLY, *CALL, "--tool-loop", "50"], ["loop", "50"], ["loop", "1", "50"]),
    "loop_200": ([*REPLY, *CALL, "--tool-loop", "200"], ["loop", "200"], ["loop", "1", "200"]),
    "loop_400": ([*REPLY, *CALL, "--tool-loop", "400"], ["loop", "400"], ["loop", "1", "400"]),
    "parallel_64": (
        [*REPLY, *CALL, "--tool-loop", "1", "--calls", "64"],
        ["parallel", "64"],
        ["loop", "1", "1", "slow"],
    ),
    "runs_100": (REPLY, ["runs", "100"], ["loop", "100", "0"]),
    "runs_1000": (REPLY, ["runs", str(RUNS)], ["loop", str(RUNS), "0"]),
    "memory": ([*REPLY, "--together", str(RUNS)], ["runs", str(RUNS)], ["loop", str(RUNS), "0"]),
    "stream_20000": (["--text", PIECE, "--deltas", "20000"], ["stream", "20000"], ["stream", "20000"]),
    "nested": ([*REPLY, "--tool", "middle", "--arguments", '{"input":"Hello"}', "--tool-loop", "1"], ["nested"], ["nested"]),
}
#: The models of the inner agents of `nested`.
INNER = {
    "nested_second": [*REPLY, "--tool", "leaf", "--arguments", '{"input":"Hello"}', "--tool-loop", "1"],
    "nested_third": REPLY,
}


class Providers:
    """One provider on loopback for each work; each serves until its standard input closes."""

    def __init__(self, program):
        self.children, self.addresses = [], {}
        told = {name: provider for name, (provider, _, _) in WORKS.items()} | INNER
        for name, arguments in told.items():
            child = subprocess.Popen(
                [program, "--constant", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.children.append(child)
            self.addresses[name] = child.stdout.readline().removeprefix("listening on ").strip()

    def close(self):
        for child in self.children:
            child.stdin.close()
            child.wait()


class Everybody:
    """Command lines, by who and work. Who is not there, or cannot do a work, has none."""

    def __init__(self, target, addresses, place):
        self.addresses, self.place = addresses, place
        release = target / "release"
        self.ours = {"bare client": release / "bare", "llm-do, library": release / "driver"}
        self.program = release / "llm-do"
        rust, python = target / "peers/rust/release", target / "peers/python/bin"
        runners = {
            "rig-core": [rust / "with_rig"],
            "genai": [rust / "with_genai"],
            "pydantic-ai": [python / "python", HERE / "python/with_pydantic_ai.py"],
            "openai-agents": [python / "python", HERE / "python/with_openai_agents.py"],
        }
        self.runners = {who: command for who, command in runners.items() if command[0].exists()}
        self.llm = python / "llm"
        self.absent = [who for who in runners if who not in self.runners] + ([] if self.llm.exists() else ["llm"])
        self.write_project()

    def names(self):
        names = [*self.ours, "llm-do run", *self.runners]
        return [*names, "llm"] if self.llm.exists() else names

    def write_project(self):
        project = self.place / "project"
        project.mkdir()
        (project / "notes.txt").write_text(NOTES)
        (project / "project.json").write_text('{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"]}')
        keys = "model: anthropic:claude-haiku-4-5\ntoolsets: [filesystem_project_ro]\nlimits: {max_requests: 1000}"
        text = "You are a friendly assistant. Answer briefly."
        (project / "main.worker").write_text(f"---\nname: main\n{keys}\n---\n{text}\n")
        (self.place / "home").mkdir()
        (self.place / "functions.py").write_text(
            f'def read_file(path: str) -> str:\n    "Reads a text file"\n    return {NOTES!r}\n'
        )

    def command(self, who, work):
        """The command line and what its environment has besides PATH and HOME."""
        url = self.addresses[work]
        _, words, own_words = WORKS[work]
        inner = [self.addresses["nested_second"], self.addresses["nested_third"]] if work == "nested" else []
        if who in self.ours:
            return [self.ours[who], "anthropic", url, *own_words, *inner], {}
        if who in self.runners:
            return [*self.runners[who], url, *words, *inner], {}
        if who == "llm-do run" and work in ("one", "loop_50", "loop_200", "loop_400", "stream_20000"):
            environment = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url}
            return [self.program, "run", self.place / "project", "Hello"], environment
        # Longer loops take it minutes: what a turn costs grows with the turns before it.
        if who == "llm" and work in ("one", "loop_50", "stream_20000"):
            return self.llm_command(work, url)
        return None

    def llm_command(self, work, url):
        home = self.place / f"llm_{work}"
        home.mkdir(exist_ok=True)
        model = {"model_id": "fake", "model_name": "fake", "api_base": f"{url}/v1", "api_key_name": "openai"}
        entry = "\n".join(f"  {key}: {value}" for key, value in model.items())
        (home / "extra-openai-models.yaml").write_text(f"-\n{entry}\n  supports_tools: true\n")
        tools = ["--functions", self.place / "functions.py", "--chain-limit", "0"] if work.startswith("loop") else []
        return [self.llm, "-m", "fake", "-n", *tools, "Hello"], {"LLM_USER_PATH": home, "OPENAI_API_KEY": "key"}


class Figures:
    """What was measured, by who and work."""

    def __init__(self, everybody):
        self.everybody, self.samples, self.instructions, self.memory, self.failed = everybody, {}, {}, {}, {}

    def run(self, who, work, counter=()):
        command, extra = self.everybody.command(who, work)
        environment = {"PATH": os.environ["PATH"], "HOME": self.everybody.place / "home", **extra}
        environment = {name: str(value) for name, value in environment.items()}
        with tempfile.TemporaryFile("w+") as output:
            started = datetime.datetime.now()
            child = subprocess.Popen(
                [*map(str, counter), *map(str, command)], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            _, status, used = os.wait4(child.pid, 0)
            wall = (datetime.datetime.now() - started).total_seconds()
            child.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            said = output.read()
        if child.returncode != 0:
            raise RuntimeError(f"{who} failed at {work}: {said[-2000:]}")
        slow = [int(line.split()[1]) for line in said.splitlines() if line.startswith("p99 ")]
        cpu = used.ru_utime + used.ru_stime
        return {"cpu": cpu, "wall": wall, "p99_us": slow[0] if slow else None}

    def measure_memory(self, who, work):
        """The peak of two runs. GNU time starts them: a child of this process would begin with the size of this one."""
        if (who, work) in self.failed or self.everybody.command(who, work) is None:
            return
        told = self.everybody.place / "memory"
        for _ in range(2):
            self.run(who, work, [TIME, "-f", "%M", "-o", told])
            peak = int(told.read_text().split()[-1])
            self.memory[who, work] = max(peak, self.memory.get((who, work), 0))

    def measure(self, who, work):
        if (who, work) in self.failed or self.everybody.command(who, work) is None:
            return
        try:
            self.samples.setdefault((who, work), []).append(self.run(who, work))
        except RuntimeError as error:
            self.failed[who, work] = str(error)
            print(error, file=sys.stderr)

    def count(self, who, work):
        """Instructions, where callgrind does not take forever."""
        interpreted = who in ("pydantic-ai", "openai-agents", "llm")
        long = who in ("rig-core", "genai") and work in ("loop_200", "loop_400")
        if interpreted or long or (who, work) in self.failed or self.everybody.command(who, work) is None:
            return
        counted = self.everybody.place / "callgrind"
        self.run(who, work, ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={counted}"])
        for line in counted.read_text().splitlines():
            if line.startswith(("summary: ", "totals: ")):
                self.instructions[who, work] = int(line.split()[1])

    def of(self, who, work):
        samples = self.samples.get((who, work))
        if not samples:
            return None
        cpus = [sample["cpu"] for sample in samples]
        slow = [sample["p99_us"] for sample in samples if sample["p99_us"] is not None]
        return {
            "cpu_seconds": statistics.median(cpus),
            "cpu_least": min(cpus),
            "cpu_most": max(cpus),
            "wall_seconds": statistics.median(sample["wall"] for sample in samples),
            "peak_rss_kb": self.memory.get((who, work)),
            "p99_us": statistics.median(slow) if slow else None,
            "instructions": self.instructions.get((who, work)),
        }


def install_sizes(target):
    """Bytes on disk of what one installs."""
    sizes = {"llm-do": (target / "release/llm-do").stat().st_size}
    site = next(iter((target / "peers/python").glob("lib/python*/site-packages")), None)
    if site:
        everything = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        sizes["pydantic-ai, openai-agents and llm together"] = everything
    return sizes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=WORKS, help="these works only; nothing is saved")
    options = parser.parse_args()
    works = options.only or list(WORKS)
    with tempfile.TemporaryDirectory() as place, contextlib.closing(
        Providers(options.target / "release/fake-llm")
    ) as providers:
        everybody = Everybody(options.target, providers.addresses, pathlib.Path(place))
        for who in everybody.absent:
            print(f"{who} could not be installed: it is left out", file=sys.stderr)
        figures = Figures(everybody)
        # Interleaved, so that whatever else the machine does falls on all of them.
        for round_number in range(options.rounds):
            print(f"round {round_number + 1} of {options.rounds} ...", file=sys.stderr)
            for work in works:
                for who in everybody.names():
                    figures.measure(who, work)
        if TIME:
            for work in (work for work in works if work in ("one", "stream_20000", "memory")):
                for who in everybody.names():
                    figures.measure_memory(who, work)
        else:
            print("GNU time is not installed: memory is not measured", file=sys.stderr)
        if shutil.which("valgrind"):
            for work in works:
                print(f"counting instructions: {work} ...", file=sys.stderr)
                for who in everybody.names():
                    if work not in ("memory", "runs_100"):
                        figures.count(who, work)
        else:
            print("valgrind is not installed: no instructions are counted", file=sys.stderr)
        result = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": report.machine(),
            "python": platform.python_version(),
            "rustc": subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip(),
            "rounds": options.rounds,
            "absent": everybody.absent,
            "failed": {f"{who} at {work}": error for (who, work), error in figures.failed.items()},
            "install_bytes": install_sizes(options.target),
            "figures": {
                work: {who: figure for who in everybody.names() if (figure := figures.of(who, work))} for work in works
            },
        }
    print(report.tables(result))
    if not options.only:
        report.save(result)


if __name__ == "__main__":
    main()
