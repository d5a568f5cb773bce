"""What is measured: the works, the providers behind them, and everybody's command line for each."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import install

HERE = pathlib.Path(__file__).resolve().parent
BARE, LIBRARY, RUN = "bare client", "llm-do, library", "llm-do run"
#: The library, asking for whole answers where the peers do and it is not ahead anyway.
DOCUMENTS = "llm-do, documents"
CHECK, JOURNALED = "llm-do check", "llm-do run --journal"
#: Who is llm-do, in one form or another.
OURS = (RUN, LIBRARY, DOCUMENTS, CHECK, JOURNALED)
#: What a work cannot be done without, where that is not the bare client.
PARSED, INTERPRETER, FUNCTION, SYNCS = (
    "reading and parsing alone",
    "bare interpreter",
    "the function itself",
    "its lines alone",
)
PEERS = ("rig-core", "genai", "pydantic-ai", "openai-agents", "llm")
#: Programs in Python, which are not put through callgrind.
INTERPRETED = ("pydantic-ai", "openai-agents", "llm", INTERPRETER, FUNCTION, SYNCS)

PIECE = "and so the story goes further "
CALL = ("--tool", "read_file", "--arguments", '{"path":"notes.txt"}')
REPLY = ("--text", PIECE, "--deltas", "20")
NOTES = "a line of notes as people take them\n" * 16
MODEL = "anthropic:claude-haiku-4-5"
RUNS = 1000
#: Calls of the Python tool that are timed, after some that are not.
PYTHON_CALLS = 2000


@dataclasses.dataclass(frozen=True)
class Work:
    """One kind of work: its name in tables, what its provider is told, and how command lines name it: those of the
    runners, and those of the bare client and the library, which hold as many conversations as they are told to."""

    words: str
    provider: tuple = ()
    runner: tuple = ()
    own: tuple = ()
    #: What takes least, and so is what the others are compared with.
    floor: str = BARE
    #: What it cannot do without besides.
    besides: str = ""
    #: How much of the processor it takes (`cpu`), or how long (`wall`), where that is what people wait for.
    compared: str = "cpu"
    counted: bool = True
    remembered: bool = False
    #: What has to be known to read its table.
    note: str = ""

    def together(self):
        """How many runs there are at the same time, in works that are about that."""
        return int(self.runner[1]) if self.runner[:1] == ("runs",) else None

    def key(self):
        """The figure that is compared: the median of CPU time; of other times the least, since waiting only adds."""
        return "cpu_seconds" if self.compared == "cpu" else "wall_least"


def loop(turns):
    return Work(
        f"a tool loop of {turns} turns",
        (*REPLY, *CALL, "--tool-loop", str(turns)),
        ("loop", str(turns)),
        ("loop", "1", str(turns)),
    )


def agents(count):
    return Work(
        f"loading {count:,} agents".replace(",", " "),
        floor=PARSED,
        compared="wall",
        note="`llm-do check` loads, links and lists the whole project. The limit reads the same files and parses their YAML and "
        "JSON with the same parser. No peer has projects of files.",
    )


WORKS = {
    "one": Work("cold start: one process, one reply", ("--text", PIECE), ("one",), ("one",), remembered=True),
    "loop_50": loop(50),
    "loop_200": loop(200),
    "loop_400": loop(400),
    "parallel_64": Work(
        "64 parallel tool calls of 20 ms",
        (*REPLY, *CALL, "--tool-loop", "1", "--calls", "64"),
        ("parallel", "64"),
        ("loop", "1", "1", "slow"),
    ),
    "runs_100": Work("100 runs at once in one process", REPLY, ("runs", "100"), ("loop", "100", "0"), counted=False),
    "runs_1000": Work("1 000 runs at once in one process", REPLY, ("runs", str(RUNS)), ("loop", str(RUNS), "0")),
    "memory": Work(
        "1 000 runs of which none ends before all have asked",
        (*REPLY, "--together", str(RUNS)),
        ("runs", str(RUNS)),
        ("loop", str(RUNS), "0"),
        counted=False,
        remembered=True,
    ),
    "stream_20000": Work(
        "a stream of 20 000 deltas",
        ("--text", PIECE, "--deltas", "20000"),
        ("stream", "20000"),
        ("stream", "20000"),
        remembered=True,
    ),
    "nested": Work(
        "three levels of nested agents",
        (*REPLY, "--tool", "middle", "--arguments", '{"input":"Hello"}', "--tool-loop", "1"),
        ("nested",),
        ("nested",),
    ),
    "check_1000": agents(1000),
    "check_10000": agents(10000),
    "python_cold": Work(
        "an agent with a Python tool, cold",
        REPLY,
        ("loop", "0"),
        floor=INTERPRETER,
        compared="wall",
        note="One process, one reply. The limit is an interpreter that imports the file with the tool, and does nothing else. CPU "
        "time has that of the interpreter in it.",
    ),
    "python_calls": Work(
        "2 100 calls of a Python tool",
        floor=FUNCTION,
        compared="wall",
        note=f"From start to end; *a call* is the mean of the last {PYTHON_CALLS:,}. ".replace(",", " ")
        + "An entry function in Python calls a tool in Python by its name, so a call goes to llm-do and its gate and from there back: "
        "two exchanges between processes. The limit awaits the function itself. The peers in Python call functions of their own "
        "process, which is part of their loops above and has no figure of its own.",
    ),
    "journal": Work(
        "a tool loop of 50 turns, with a journal",
        (*REPLY, *CALL, "--tool-loop", "50"),
        floor=RUN,
        besides=SYNCS,
        compared="wall",
        note=f"The limit is the same run without a journal. *{SYNCS[0].upper()}{SYNCS[1:]}*: the lines of that journal written once "
        "more, with an `fdatasync` wherever the run had to wait for one. A real model takes a second for each turn, this one "
        "half a millisecond: the ratio is the worst there can be.",
    ),
}
#: One run of the kind of which `memory` holds a thousand: only its memory is looked at.
ALONE = Work("one run alone", REPLY, ("runs", "1"), ("loop", "1", "0"))
#: Providers besides those of the works: the inner agents of `nested`, and of a run alone.
MORE_PROVIDERS = {
    "alone": ALONE.provider,
    "nested_second": (*REPLY, "--tool", "leaf", "--arguments", '{"input":"Hello"}', "--tool-loop", "1"),
    "nested_third": REPLY,
}


class Providers:
    """One provider on loopback for each work; each serves until its standard input closes."""

    def __init__(self, program):
        self.children, self.addresses = [], {}
        told = {name: work.provider for name, work in WORKS.items() if work.provider} | MORE_PROVIDERS
        for name, arguments in told.items():
            child = subprocess.Popen(
                [program, "--constant", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.children.append(child)
            line = child.stdout.readline()
            if not line.startswith("listening on "):
                self.close()
                raise RuntimeError(f"{program} does not serve")
            self.addresses[name] = line.removeprefix("listening on ").strip()

    def close(self):
        for child in self.children:
            child.stdin.close()
        for child in self.children:
            child.wait()


@dataclasses.dataclass
class Command:
    """A command line, what its environment has besides PATH and HOME, and what its output must contain."""

    words: list
    environment: dict = dataclasses.field(default_factory=dict)
    expected: str = ""


class Everybody:
    """Command lines, by who and work. Who is not there, or cannot do a work, has none."""

    def __init__(self, target, installed, python, addresses, place):
        self.addresses, self.place, self.python, self.llm = addresses, place, python, installed.get("llm")
        release = target / "release"
        self.ours = {BARE: release / "bare", LIBRARY: release / "driver"}
        self.program, self.parse_only = install.program(target), release / "examples/parse_only"
        self.runners = {who: command for who, command in installed.items() if who != "llm"}
        self.journals = 0
        self.write_projects()

    def names(self):
        peers = [who for who in PEERS if who in self.runners or (who == "llm" and self.llm)]
        return [BARE, LIBRARY, DOCUMENTS, PARSED, CHECK, INTERPRETER, FUNCTION, RUN, JOURNALED, SYNCS, *peers]

    def write_projects(self):
        tools = "toolsets: [filesystem_project_ro]\nlimits: {max_requests: 1000}"
        self.write("project/notes.txt", NOTES)
        self.write_project("project", [], tools)
        self.write("cold/plain.py", PLAIN)
        self.write_project("cold", ["plain.py"], "tools: [read_file]")
        self.write("calls/functions.py", FUNCTIONS)
        self.write("calls/entry.py", ENTRY)
        manifest = {"version": 1, "entry": {}, "worker_files": [], "python_files": ["entry.py"]}
        self.write("calls/project.json", json.dumps(manifest))
        self.write("functions.py", PLAIN)
        (self.place / "home").mkdir()

    def write_project(self, name, python_files, tools):
        manifest = {"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": python_files}
        self.write(f"{name}/project.json", json.dumps(manifest))
        text = "You are a friendly assistant. Answer briefly."
        self.write(f"{name}/main.worker", f"---\nname: main\nmodel: {MODEL}\n{tools}\n---\n{text}\n")

    def write(self, path, text):
        file = self.place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_agents(self, works):
        """Projects of many agents, for those who are asked to load them."""
        for work in works:
            project = self.place / work
            if work.startswith("check_") and not project.exists():
                count = work.removeprefix("check_")
                subprocess.run([sys.executable, HERE.parent / "generate.py", project, count], check=True)

    def command(self, who, work):
        if work.startswith("check_"):
            return self.check_command(who, work)
        if work == "python_calls":
            return self.calls_command(who)
        if work == "python_cold" and who == INTERPRETER:
            return self.interpreter("cold", "import plain; print(plain.TOOLS)", "read_file")
        if work == "journal":
            return self.journal_command(who)
        url, told = self.addresses[work], ALONE if work == "alone" else WORKS[work]
        inner = [self.addresses["nested_second"], self.addresses["nested_third"]] if work == "nested" else []
        if who in self.ours and told.own:
            return Command([self.ours[who], "anthropic", url, *told.own, *inner])
        if who == DOCUMENTS and told.together():
            return Command([self.ours[LIBRARY], "anthropic", url, "documents", told.runner[1]])
        if who in self.runners and told.runner and (who in INTERPRETED or work != "python_cold"):
            return Command([*self.runners[who], url, *told.runner, *inner])
        if who == RUN and work in ("one", "loop_50", "loop_200", "loop_400", "stream_20000"):
            return self.run_command(work, "project")
        if who == RUN and work == "python_cold":
            return self.run_command(work, "cold", "--python", self.python)
        # Longer loops take it minutes: what a turn costs grows with the turns before it.
        if who == "llm" and self.llm and work in ("one", "loop_50", "stream_20000", "python_cold"):
            return self.llm_command(work, url)
        return None

    def check_command(self, who, work):
        count = int(work.removeprefix("check_"))
        if who == PARSED:
            return Command([self.parse_only, self.place / work], {}, f"{count + 1} files parsed, mistakes: false")
        if who == CHECK:
            return Command([self.program, "check", self.place / work], {}, f"agent{count - 1:05}")
        return None

    def calls_command(self, who):
        if who == FUNCTION:
            return self.interpreter("calls", "import asyncio, functions; print(asyncio.run(functions.alone()))", "call_us ")
        if who == RUN:
            words = [self.program, "run", self.place / "calls", "go", "--python", self.python]
            return Command(words, {}, "call_us ")
        return None

    def journal_command(self, who):
        if who == RUN:
            return self.run_command("journal", "project")
        if who == JOURNALED:
            # Each run has one of its own: it would go on with one that is there.
            self.journals += self.journal().exists()
            return self.run_command("journal", "project", "--journal", self.journal())
        if who == SYNCS:
            return Command([self.python, HERE / "durable.py", self.journal(), self.place / "copy"], {}, "wall_us ")
        return None

    def journal(self):
        return self.place / f"{self.journals}.journal"

    def run_command(self, work, project, *more):
        environment = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": self.addresses[work]}
        # Nobody else keeps what they do; what keeping costs is measured by bench/kept.sh.
        more = more or ("--ephemeral",)
        return Command([self.program, "run", self.place / project, "Hello", *more], environment, self.last_words(work))

    def last_words(self, work):
        return PIECE.strip() if work == "one" else (PIECE * (20_000 if work == "stream_20000" else 20)).strip()

    def interpreter(self, project, program, expected):
        return Command([self.python, "-X", "utf8", "-c", program], {"PYTHONPATH": self.place / project}, expected)

    def llm_command(self, work, url):
        home = self.place / f"llm_{work}"
        home.mkdir(exist_ok=True)
        model = {"model_id": "fake", "model_name": "fake", "api_base": f"{url}/v1", "api_key_name": "openai"}
        entry = "\n".join(f"  {key}: {value}" for key, value in model.items())
        (home / "extra-openai-models.yaml").write_text(f"-\n{entry}\n  supports_tools: true\n")
        tools = ["--functions", self.place / "functions.py", "--chain-limit", "0"]
        tools = tools if work in ("loop_50", "python_cold") else []
        words = [*self.llm, "-m", "fake", "-n", *tools, "Hello"]
        return Command(words, {"LLM_USER_PATH": home, "OPENAI_API_KEY": "key"}, self.last_words(work))


#: A tool file as people write it. `llm` reads it as well.
PLAIN = f"""def read_file(path: str) -> str:
    "Reads a text file"
    return {NOTES!r}


TOOLS = [read_file]
"""
#: A tool that does nothing, and the same calls without anybody in between.
FUNCTIONS = f"""import time

WARM, CALLS = 100, {PYTHON_CALLS}


async def nothing(n: int) -> int:
    return n


async def timed(call):
    for n in range(WARM + CALLS):
        if n == WARM:
            started = time.perf_counter()
        if int(await call(n)) != n:
            raise ValueError(f"call {{n}} came to something else")
    return f"call_us {{(time.perf_counter() - started) / CALLS * 1e6:.3f}}"


async def alone():
    return await timed(nothing)
"""
#: The entry function calls the tool by its name: to llm-do, and from there back to Python.
ENTRY = """import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from functions import nothing, timed
from llm_do.runtime import CallContext, EntrySpec
from llm_do.toolsets.approval import set_toolset_approval_config

set_toolset_approval_config(nothing, {"nothing": {"pre_approved": True}})
TOOLS = [nothing]


async def main(args, ctx: CallContext):
    return await timed(lambda n: ctx.call("nothing", {"n": n}))


entry = EntrySpec(name="bench", main=main)
"""
