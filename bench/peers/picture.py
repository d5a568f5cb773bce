"""The picture: the CPU time of everybody as a multiple of the bare client's. SVG, readable on a light and on a dark page."""

import html
import math

from works import BARE, LIBRARY, PEERS, RUN, WORKS

#: What is drawn, where the bare client is the limit; works that differ only in their length are drawn once.
DRAWN = ("one", "loop_50", "loop_400", "parallel_64", "runs_1000", "stream_20000", "nested")
#: Classes of bars: what people choose between.
KINDS = {
    "ours": ("llm-do", (LIBRARY, RUN)),
    "rust": ("Rust libraries", ("rig-core", "genai")),
    "python": ("Python", ("pydantic-ai", "openai-agents", "llm")),
}
WIDTH, LEFT, RIGHT = 900, 250, 170
BAR, GAP, TOP, BOTTOM = 15, 16, 92, 30
STYLE = """
  .page { fill: #ffffff; } text { fill: #1f2328; stroke: #ffffff; } .quiet { fill: #59636e; } .grid { stroke: #d1d9e0; }
  .ours { fill: #e8590c; } .rust { fill: #3b82c4; } .python { fill: #9a8fc0; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } text { fill: #e6edf3; stroke: #0d1117; } .quiet { fill: #9198a1; } .grid { stroke: #3d444d; }
    .ours { fill: #fb8500; } .rust { fill: #58a6ff; } .python { fill: #8a7fb5; }
  }"""


def drawn(figures):
    groups = [(work, multiples(figures[work])) for work in DRAWN if work in figures]
    groups = [(work, bars) for work, bars in groups if bars]
    decades = decades_of([times for _, bars in groups for _, _, times in bars])
    parts, top = [], TOP
    for work, bars in groups:
        parts.append(text(LEFT - 12, top + BAR - 4, WORKS[work].words, "end", "name"))
        for who, kind, times in bars:
            parts += bar(top, who, kind, times, decades)
            top += BAR
        top += GAP
    height = top - GAP + BOTTOM
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" role="img">'
    title = "CPU time, as a multiple of the bare HTTP client's"
    return "\n".join(
        [
            frame,
            f"<title>{title}</title>",
            f"<style>{STYLE}\n  .name, .title {{ font-weight: 600; }} .title {{ font-size: 15px; }}\n  text {{ paint-order: stroke; stroke-width: 3px; }}\n</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            text(16, 26, title, "start", "title"),
            text(
                16,
                46,
                "shorter is better; logarithmic scale: each line is ten times the one before; 1 × is the limit",
                "start",
                "quiet",
            ),
            *legend(),
            *grid(height, decades),
            *parts,
            "</svg>",
            "",
        ]
    )


def multiples(figures):
    """Who takes how many times what the bare client takes: ours first, then the peers, the best first."""
    bare = figures.get(BARE)
    if not bare:
        return []
    times = {who: figure["cpu_seconds"] / bare["cpu_seconds"] for who, figure in figures.items()}
    kinds = {who: kind for kind, (_, whose) in KINDS.items() for who in whose}
    order = [who for who in (LIBRARY, RUN) if who in times] + sorted((who for who in PEERS if who in times), key=times.get)
    return [(who, kinds[who], times[who]) for who in order]


def decades_of(multiples):
    """How many powers of ten hold them all: the last one as far as it is needed."""
    return math.log10(max([10.0, *multiples]))


def position(times, decades):
    """Faster than the bare client is not drawn to the left of it."""
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(max(times, 1.0)) / decades


def bar(top, who, kind, times, decades):
    end = max(position(times, decades), LEFT + 2)
    label = f"{who}  {times:.1f} ×" if times < 100 else f"{who}  {times:,.0f} ×".replace(",", " ")
    return [
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{end - LEFT:.1f}" height="{BAR - 3}"/>',
        text(end + 6, top + BAR - 5, label, "start", "name" if kind == "ours" else "value"),
    ]


def legend():
    parts, left = [], LEFT
    for kind, (words, _) in KINDS.items():
        parts.append(f'<rect class="{kind}" x="{left}" y="57" width="11" height="11"/>')
        parts.append(text(left + 17, 67, words, "start", "value"))
        left += 120
    return parts


def grid(height, decades):
    parts = []
    for decade in range(int(decades) + 1):
        x = position(10.0**decade, decades)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - BOTTOM + 4}"/>')
        words = f"{10**decade:,} ×".replace(",", " ")
        parts += [text(x, y, words, "middle", "quiet") for y in (TOP - 10, height - BOTTOM + 18)]
    return parts


def text(x, y, words, anchor, kind):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" xml:space="preserve">{html.escape(words)}</text>'
