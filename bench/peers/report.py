"""Tables, a picture and files from what `compare.py` measured."""

import html
import json
import math
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[2]
BARE = "bare client"
OURS = ("llm-do run", "llm-do, library")

WORDS = {
    "one": "cold start: one process, one reply",
    "loop_50": "a tool loop of 50 turns",
    "loop_200": "a tool loop of 200 turns",
    "loop_400": "a tool loop of 400 turns",
    "parallel_64": "64 parallel tool calls of 20 ms",
    "runs_100": "100 runs at once in one process",
    "runs_1000": "1 000 runs at once in one process",
    "memory": "1 000 runs of which none ends before all have asked",
    "stream_20000": "a stream of 20 000 deltas",
    "nested": "three levels of nested agents",
}


def machine():
    model = next(
        (line.split(":", 1)[1].strip() for line in lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory = next((int(line.split()[1]) for line in lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {"system": f"{platform.system()} {platform.machine()}", "cpu": model, "cores": os.cpu_count(), "memory_kb": memory}


def lines(path):
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def tables(result):
    return "\n".join([*(table(work, figures, result) for work, figures in result["figures"].items()), installs(result)])


def table(work, figures, result):
    peers = {who: figure for who, figure in figures.items() if who != BARE and who not in OURS}
    best = min((figure["cpu_seconds"] for figure in peers.values()), default=None)
    bare = figures.get(BARE)
    columns = ["CPU in ms", "least – most", "× bare", "× best peer", "million instructions", "× bare", "peak RSS in MB"]
    runs = work in ("runs_100", "runs_1000", "memory")
    columns += ["p99 in ms"] if runs else []
    columns += ["kB a run"] if work == "memory" else []
    rows = [f"### {WORDS[work].capitalize()}", "", row("", *columns), row("---", *["---:"] * len(columns))]
    for who, figure in sorted(figures.items(), key=lambda item: item[1]["cpu_seconds"]):
        cells = [
            f"{figure['cpu_seconds'] * 1000:.1f}",
            f"{figure['cpu_least'] * 1000:.1f} – {figure['cpu_most'] * 1000:.1f}",
            ratio(figure["cpu_seconds"], bare and bare["cpu_seconds"]),
            ratio(figure["cpu_seconds"], best),
            f"{figure['instructions'] / 1e6:.2f}" if figure["instructions"] else "–",
            ratio(figure["instructions"], bare and bare["instructions"]),
            f"{figure['peak_rss_kb'] / 1024:.1f}" if figure["peak_rss_kb"] else "–",
        ]
        if runs:
            cells.append(f"{figure['p99_us'] / 1000:.1f}" if figure["p99_us"] is not None else "–")
        if work == "memory":
            alone = result["figures"].get("one", {}).get(who)
            known = alone and alone["peak_rss_kb"] and figure["peak_rss_kb"]
            each = (figure["peak_rss_kb"] - alone["peak_rss_kb"]) / 1000 if known else None
            cells.append(f"{each:.1f}" if each is not None else "–")
        rows.append(row(f"**{who}**" if who in OURS else who, *cells))
    return "\n".join([*rows, ""])


def installs(result):
    sizes = [row(who, f"{size / 1e6:.1f}") for who, size in result["install_bytes"].items()]
    return "\n".join(["### What one installs", "", row("", "MB"), row("---", "---:"), *sizes, ""])


def row(*cells):
    return f"| {' | '.join(cells)} |"


def ratio(figure, base):
    return f"{figure / base:.2f}" if figure and base else "–"


def save(result):
    results = ROOT / "bench/results/peers.json"
    results.write_text(json.dumps(result, indent=2) + "\n")
    (ROOT / "docs/performance.svg").write_text(picture(result))
    document = ROOT / "docs/performance.md"
    before, rest = document.read_text().split("<!-- measured -->", 1)
    after = rest.split("<!-- /measured -->", 1)[1]
    shape = result["machine"]
    head = (
        f"Measured on {result['date'][:10]}: {shape['system']}, {shape['cpu']}, {shape['cores']} cores, "
        f"{shape['memory_kb'] // 1024 // 1024} GB; {result['rustc']}; Python {result['python']}; {result['rounds']} rounds."
    )
    absent = "".join(f"\n`{who}` could not be installed and is left out." for who in result["absent"])
    failed = "".join(f"\n{who_and_work} failed and is left out." for who_and_work in result["failed"])
    measured = f"<!-- measured -->\n\n{head}{absent}{failed}\n\n{tables(result)}\n<!-- /measured -->"
    document.write_text(f"{before}{measured}{after}")


def picture(result):
    """CPU time against the bare client's, on a logarithmic scale: one group for each work, one bar for each."""
    colours = ["#888888", "#c2410c", "#ea580c", "#0f766e", "#0e7490", "#1d4ed8", "#6d28d9", "#be185d"]
    everybody = [BARE, *OURS, "rig-core", "genai", "pydantic-ai", "openai-agents", "llm"]
    bar, gap, left, width = 12, 18, 330, 520
    most = math.log10(2000)
    parts, top = [], 40
    for work, figures in result["figures"].items():
        bare = figures.get(BARE)
        if not bare or work == "memory":
            continue
        parts.append(text(10, top + 11, WORDS[work], "bold"))
        for who, colour in zip(everybody, colours):
            figure = figures.get(who)
            if not figure or who == BARE:
                continue
            times = figure["cpu_seconds"] / bare["cpu_seconds"]
            length = max(2.0, width * min(1.0, math.log10(max(times, 1.0)) / most))
            parts.append(f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{bar - 2}" fill="{colour}"/>')
            parts.append(text(left + length + 6, top + 9, f"{who} {times:.1f} ×", "normal"))
            top += bar
        top += gap
    height = top + 10
    title = text(10, 20, "CPU time, as a multiple of the bare HTTP client's (logarithmic scale; shorter is better)", "bold")
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1060 {height}" font-family="sans-serif" font-size="11">'
    return "\n".join([frame, f'<rect width="1060" height="{height}" fill="white"/>', title, *parts, "</svg>", ""])


def text(x, y, words, weight):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}">{html.escape(words)}</text>'
