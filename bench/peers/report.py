"""Tables from what was measured. Pure: the same figures give the same text."""

import json
import os
import pathlib
import platform

import goals
from works import BARE, CHECK, JOURNALED, LIBRARY, OURS, PEERS, RUN, WORKS

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results/peers.json"
NOTHING = "–"
#: A space at which no line is broken.
TIED = "\u00a0"


def saved():
    """The result of the last complete run."""
    try:
        return json.loads(RESULTS.read_text())
    except (OSError, ValueError):
        return {}


def machine():
    model = next(
        (line.split(":", 1)[1].strip() for line in lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory = next((int(line.split()[1]) for line in lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_kb": memory,
    }


def lines(path):
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def everything(result):
    """For a terminal: without the goals of works that were not asked for."""
    stands = [line for line in goals.table(result).splitlines() if not line.endswith(f"| {goals.UNKNOWN} |")]
    return "\n".join([head(result), glance(result), *stands, "", details(result)])


def head(result):
    """When, where and with whom; and who is missing."""
    shape = result["machine"]
    versions = "".join(f", {who} {version}" for who, version in result["versions"].items())
    rounds = f"{result['rounds']} round{'s' if result['rounds'] != 1 else ''}"
    text = [
        f"Measured on {result['date'][:10]} in {rounds}: {shape['system']}, {shape['cpu']}, {shape['cores']} cores, "
        f"{shape['memory_kb'] // 1024 // 1024} GB, {shape['file_system']}; {result['rustc']}, Python {result['python']}{versions}."
    ]
    text += [f"**{who}** could not be installed and is left out: {one_line(why)}." for who, why in result["absent"].items()]
    text += [f"**{name}** failed and is left out: {one_line(why)}." for name, why in result["failed"].items()]
    text += [f"**{name}** lacks figures of {one_line(why)}." for name, why in result["incomplete"].items()]
    return "\n\n".join([*text, ""])


def one_line(words):
    return " ".join(words.split())[:200].rstrip(".").replace("|", "\\|").replace("<", "&lt;")


def glance(result):
    """One line for each work."""
    beside = [glance_beside(work, figures) for work, figures in result["figures"].items() if WORKS[work].floor == BARE]
    above = [glance_above(work, figures) for work, figures in result["figures"].items() if WORKS[work].floor != BARE]
    text = []
    if any(beside):
        columns = [
            "bare client",
            "**llm-do**, library",
            "**llm-do run**",
            "best peer",
            "llm-do ÷ bare",
            "llm-do ÷ best peer",
        ]
        text += [
            headline(result["figures"]),
            "",
            "CPU time in milliseconds:",
            "",
            *heading(*columns),
            *filter(None, beside),
            "",
        ]
    if any(above):
        columns = ["limit", "**llm-do**", "llm-do ÷ limit", "best peer"]
        text += [
            "Time in milliseconds, the fastest run, where the limit is another:",
            "",
            *heading(*columns),
            *filter(None, above),
            "",
        ]
    return "\n".join(text)


def headline(figures):
    """The table in one sentence."""
    works = [everybody for work, everybody in figures.items() if WORKS[work].floor == BARE and LIBRARY in everybody]
    above = [everybody[LIBRARY]["cpu_seconds"] / everybody[BARE]["cpu_seconds"] for everybody in works if BARE in everybody]
    peers = {
        who: [everybody[who]["cpu_seconds"] / everybody[LIBRARY]["cpu_seconds"] for everybody in works if who in everybody]
        for who in PEERS
    }
    first, *others = [(who, between(ratios)) for who, ratios in peers.items() if ratios] or [None]
    text = f"For the same work the library takes {between(above)} times the CPU of the bare client" if above else ""
    text += f"; {first[0]} takes {first[1]} times that of the library" if first else ""
    text += "".join(f", {who} {ratios}" for who, ratios in others)
    return f"{text}." if above else ""


def between(ratios):
    digits = [f"{times:.1f}" if times < 100 else f"{times:.0f}" for times in (min(ratios), max(ratios))]
    return " to ".join(dict.fromkeys(digits))


def glance_beside(work, figures):
    bare, library, run, peer = (figures.get(who) for who in (BARE, LIBRARY, RUN, best_peer(work, figures)))
    ours = library or run
    if not ours:
        return None
    key = WORKS[work].key()
    return row(
        WORKS[work].words,
        *(milliseconds(figure, key) for figure in (bare, library, run)),
        f"{milliseconds(peer, key)}{TIED}({best_peer(work, figures)})" if peer else NOTHING,
        f"**{ratio(ours[key], bare and bare[key])}**",
        f"**{ratio(ours[key], peer and peer[key])}**",
    )


def glance_above(work, figures):
    peer = figures.get(best_peer(work, figures))
    ours = next((figures[who] for who in (CHECK, JOURNALED, RUN) if who in figures), None)
    if not ours:
        return None
    key = WORKS[work].key()
    limits = {who: figures.get(who) for who in (WORKS[work].floor, WORKS[work].besides) if who}
    known = all(limits.values())
    return row(
        WORKS[work].words,
        " + ".join(f"{milliseconds(figure, key)} ({who})" for who, figure in limits.items()) if known else NOTHING,
        milliseconds(ours, key),
        f"**{ratio(ours[key], sum(figure[key] for figure in limits.values()) if known else None)}**",
        f"{milliseconds(peer, key)}{TIED}({best_peer(work, figures)})" if peer else NOTHING,
    )


def best_peer(work, figures):
    peers = [who for who in PEERS if who in figures]
    return min(peers, key=lambda who: figures[who][WORKS[work].key()], default=None)


def details(result):
    return "\n".join([*(detail(work, figures) for work, figures in result["figures"].items()), installs(result)])


def detail(work, figures):
    """Everybody at one work, best first, with the columns that somebody has a figure in."""
    told = WORKS[work]
    everybody = sorted(figures.items(), key=lambda item: item[1][told.key()])
    names = columns(told, figures.get(told.floor, {}), figures.get(best_peer(work, figures), {}))
    table = [[cell(figure) for _, cell in names] for _, figure in everybody]
    kept = [index for index in range(len(names)) if any(cells[index] != NOTHING for cells in table)]
    text = [f"### {told.words[0].upper()}{told.words[1:]}", "", *([told.note, ""] if told.note else [])]
    text += heading(*(names[index][0] for index in kept))
    text += [row(name_of(who), *(cells[index] for index in kept)) for (who, _), cells in zip(everybody, table)]
    return "\n".join([*text, ""])


def columns(told, floor, peer):
    """The names of columns, and what gives their cells for a figure."""
    limit = "bare" if told.floor == BARE else "limit"
    cpu = ("CPU in ms", lambda figure: milliseconds(figure, "cpu_seconds"))
    cpu_spread = ("least – most", lambda figure: f"{milliseconds(figure, 'cpu_least')} – {milliseconds(figure, 'cpu_most')}")
    wall = ("time in ms", lambda figure: milliseconds(figure, "wall_seconds"))
    fastest = ("fastest in ms", lambda figure: milliseconds(figure, "wall_least"))
    wall_spread = (
        "median, slowest",
        lambda figure: f"{milliseconds(figure, 'wall_seconds')}, {milliseconds(figure, 'wall_most')}",
    )
    by_cpu = told.compared == "cpu"

    def against(base, key):
        return lambda figure: ratio(figure.get(key), base.get(key))

    return [
        *((cpu, cpu_spread) if by_cpu else (fastest, wall_spread)),
        (f"× {limit}", against(floor, told.key())),
        ("× best peer", against(peer, told.key())),
        wall if by_cpu else cpu,
        ("million instructions", lambda figure: scaled(figure.get("instructions"), 1e6, 2)),
        (f"× {limit}", against(floor, "instructions")),
        ("peak RSS in MB", lambda figure: scaled(figure.get("peak_rss_kb"), 1024, 1)),
        ("kB a run", lambda figure: scaled(goals.kb_a_run(figure), 1, 1)),
        ("runs a second", lambda figure: scaled(told.together() and told.together() / figure["wall_seconds"], 1, 0)),
        ("p99 in ms", lambda figure: scaled(figure.get("p99_us") if told.together() else None, 1000, 1)),
        ("a call in µs", lambda figure: scaled(figure.get("call_us"), 1, 1)),
        ("samples", lambda figure: str(figure["runs"])),
    ]


def name_of(who):
    return f"**{who}**" if who in OURS else who


def installs(result):
    sizes = result["install_bytes"]
    table = [
        row("**llm-do**" if who == "llm-do" else who, scaled(size, 1e6, 1), ratio(size, sizes["llm-do"]))
        for who, size in sizes.items()
    ]
    return "\n".join(["### What one installs", "", *heading("MB", "× llm-do"), *table, ""])


def heading(*names):
    return [row("", *names), row("---", *["---:"] * len(names))]


def row(*cells):
    return f"| {' | '.join(cells)} |"


def milliseconds(figure, key):
    return scaled(figure and figure[key], 0.001, 1)


def scaled(number, unit, digits):
    """With a space between thousands at which no line is broken."""
    if number is None:
        return NOTHING
    return f"{number / unit:,.{0 if number / unit >= 1000 else digits}f}".replace(",", "\u202f")


def ratio(figure, base):
    return scaled(figure / base, 1, 2 if figure / base < 100 else 0) if figure and base else NOTHING
