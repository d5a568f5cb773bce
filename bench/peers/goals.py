"""What llm-do sets itself, and where it stands: computed from the figures. Only the reasons are written by hand."""

import dataclasses

from works import BARE, CHECK, DOCUMENTS, INTERPRETER, LIBRARY, PARSED, PEERS, RUN, RUNS, WORKS

MET, MISSED, UNKNOWN = "met", "**missed**", "not measured"

#: Why a goal is missed, by its name; told only while it is.
REASONS = {
    "resident": "less than 1 MB is its own; the rest are pages of the binary that the kernel maps around those a run needs, "
    "most of them for nothing unless `packaging/build.sh` has laid it out",
    "turn_50": "with all checks of `read_file` on a real file, where the bare client repeats a text",
    "turn_400": "with all checks of `read_file` on a real file, where the bare client repeats a text",
    "runs_memory": "a connection of hyper alone takes 25 kB",
    "runs_p99": "the runs start together on one thread, so the last waits for the work of all: it follows their CPU time",
    "delta_cpu": "the program has the whole answer in its messages, its trace, an event and what it prints, before it prints it: "
    "it touches 780 pages more than the library",
    "python_cold": "before it says what the file offers, the interpreter imports what the host needs: `json`, `typing`, `threading`",
    "check_time": "linked agents are kept, about 7 kB each, where the parser alone forgets each file: their pages are touched for "
    "the first time",
    "binary": "about a sixth is the validator of JSON Schemas with its engines of patterns; an eighth are tables for unwinding, "
    "which let a tool that panics be a tool error",
    "peers": "genai keeps no account of what it did; in how long the last of many runs takes the two are even",
}


@dataclasses.dataclass(frozen=True)
class Standing:
    """What one of ours comes to, against the most it may."""

    who: str
    figure: float
    most: float
    unit: str

    def __str__(self):
        digits = 1 if self.figure >= 10 else 2
        text = f"{self.who} {self.figure:.{digits}f}{self.unit}"
        return text if self.met() else f"**{text}**"

    def met(self):
        return self.figure <= self.most


@dataclasses.dataclass(frozen=True)
class Goal:
    name: str
    work: str
    words: str
    standings: list

    def known(self):
        return [standing for standing in self.standings if standing is not None]

    def missed(self):
        return any(not standing.met() for standing in self.known())


def of(result):
    """All goals. A figure that was not measured has no standing."""
    figures = result["figures"]

    def get(work, who, key):
        return (figures.get(work, {}).get(who) or {}).get(key)

    def times(who, most, key, work, base=BARE, words=""):
        return standing(f"{who}{words}", over(get(work, who, key), get(work, base, key)), most, " ×")

    def delta(who, most, key):
        ours, bare = (minus(get("stream_20000", name, key), get("one", name, key)) for name in (who, BARE))
        return standing(who, over(ours, bare), most, " ×")

    def late_turn(who):
        early, late = over(get("loop_50", who, "instructions"), 50), over(get("loop_400", who, "instructions"), 400)
        return standing(who, over(late, early), 2.1, " ×")

    linear = "instructions" if get("check_1000", CHECK, "instructions") else "cpu_seconds"
    cold = minus(get("python_cold", RUN, "wall_least"), get("python_cold", INTERPRETER, "wall_least"))
    both = (LIBRARY, RUN)
    behind, compared = behind_peers(figures)
    return [
        Goal(
            "cold",
            "cold start",
            "at most 2 million instructions",
            [standing(RUN, over(get("one", RUN, "instructions"), 1e6), 2, " million")],
        ),
        Goal("resident", "", "at most 6 MB resident", [standing(RUN, over(get("one", RUN, "peak_rss_kb"), 1024), 6, " MB")]),
        Goal(
            "turn_50",
            "tool loop, per turn",
            "at most 2 × bare in instructions at 50 turns",
            [times(who, 2, "instructions", "loop_50") for who in both],
        ),
        Goal(
            "turn_400",
            "",
            "at most 1.5 × bare in instructions at 400 turns",
            [times(who, 1.5, "instructions", "loop_400") for who in both],
        ),
        Goal("turn_late", "", "a turn of 400 at most 2.1 × one of 50", [late_turn(who) for who in both]),
        Goal(
            "runs_cpu", "1 000 runs at once", "at most 1.5 × bare in CPU", [times(LIBRARY, 1.5, "cpu_seconds", "runs_1000")]
        ),
        Goal(
            "runs_memory",
            "",
            "at most 32 kB a run",
            [standing(LIBRARY, kb_a_run(figures.get("memory", {}).get(LIBRARY)), 32, " kB")],
        ),
        Goal(
            "runs_p99",
            "",
            "p99 at most 1.3 × bare",
            [
                times(LIBRARY, 1.3, "p99_us", "runs_1000"),
                times(LIBRARY, 1.3, "p99_us", "memory", words=", none answered before all have asked,"),
            ],
        ),
        Goal(
            "parallel",
            "64 parallel tool calls",
            "at most 2 × bare in CPU",
            [times(LIBRARY, 2, "cpu_seconds", "parallel_64")],
        ),
        Goal(
            "delta",
            "streaming, per delta",
            "at most 1.5 × bare in instructions",
            [delta(who, 1.5, "instructions") for who in both],
        ),
        Goal("delta_cpu", "", "at most 2 × bare in CPU", [delta(who, 2, "cpu_seconds") for who in both]),
        Goal(
            "python_cold",
            "a Python tool file, cold",
            "at most a bare interpreter with the same file + 30 ms",
            [standing(RUN, over(cold, 0.001), 30, " ms more")],
        ),
        Goal(
            "check_time",
            "loading 1 000 agents",
            "at most 2 × the time of reading and parsing alone",
            [
                times(CHECK, 2, "wall_least", "check_1000", PARSED),
                times(CHECK, 2, "instructions", "check_1000", PARSED, words=", by instructions,"),
            ],
        ),
        Goal(
            "check_linear",
            "",
            "linear to 10 000: at most 10.5 × as much for 10 × as many",
            [standing(CHECK, over(get("check_10000", CHECK, linear), get("check_1000", CHECK, linear)), 10.5, " ×")],
        ),
        Goal(
            "binary",
            "binary",
            "at most 8 MB",
            [standing("llm-do", over(result["install_bytes"].get("llm-do"), 1e6), 8, " MB")],
        ),
        Goal(
            "peers",
            "every row",
            "ahead of every peer in CPU, instructions, memory and p99",
            [Behind(behind, compared)] if compared else [],
        ),
    ]


@dataclasses.dataclass(frozen=True)
class Behind:
    """Where a peer is ahead, by who, peer and work, of so many comparisons."""

    rows: dict
    compared: int

    def __str__(self):
        behind = sum(map(len, self.rows.values()))
        rows = (
            f"; {who} behind {peer} at {WORKS[work].words} ({', '.join(by)})" for (who, peer, work), by in self.rows.items()
        )
        return f"{self.compared - behind} of {self.compared}" + "".join(rows)

    def met(self):
        return not self.rows


def behind_peers(figures):
    """Every figure of the library and of the program against the best of the peers'. Where the library asks for documents,
    as they do, that is compared."""
    behind, compared = {}, 0
    for work, everybody in figures.items():
        for key, words in (
            ("cpu_seconds", "CPU"),
            ("instructions", "instructions"),
            ("peak_rss_kb", "memory"),
            ("p99_us", "p99"),
        ):
            if key == "p99_us" and not WORKS[work].together():
                continue
            theirs = {peer: everybody[peer][key] for peer in PEERS if peer in everybody and everybody[peer].get(key)}
            best = min(theirs, key=theirs.get, default=None)
            for who in (DOCUMENTS if DOCUMENTS in everybody else LIBRARY, RUN):
                ours = everybody.get(who, {}).get(key)
                if best and ours:
                    compared += 1
                    if ours > theirs[best]:
                        behind.setdefault((who, best, work), []).append(f"{words} {ours / theirs[best]:.2f} ×")
    return behind, compared


def kb_a_run(figure):
    """How much more a thousand runs take than one, divided."""
    if not figure or not figure.get("peak_rss_kb") or not figure.get("alone_rss_kb"):
        return None
    return (figure["peak_rss_kb"] - figure["alone_rss_kb"]) / (RUNS - 1)


def standing(who, figure, most, unit):
    return None if figure is None else Standing(who, figure, most, unit)


def over(figure, base):
    return figure / base if figure is not None and base else None


def minus(figure, base):
    return figure - base if figure is not None and base is not None else None


def table(result):
    rows = ["|  | Goal | Stands at |  |", "| --- | --- | --- | --- |"]
    for goal in of(result):
        standings = goal.known()
        verdict = (MISSED if goal.missed() else MET) if standings else UNKNOWN
        reason = f": {REASONS[goal.name]}" if goal.missed() and goal.name in REASONS else ""
        stands = "; ".join(map(str, standings)) or "–"
        rows.append(f"| {goal.work} | {goal.words} | {stands} | {verdict}{reason} |")
    return "\n".join([*rows, ""])


def without_reason(result):
    """Goals that are missed, and nobody says why."""
    return [goal.name for goal in of(result) if goal.missed() and goal.name not in REASONS]
