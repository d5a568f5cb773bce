"""Writes `docs/performance.md` and its picture from `bench/results/peers.json`: `page.py` once more, `page.py --check` says
whether it would change anything."""

import json
import pathlib
import re
import sys

import goals
import picture
import report

DOCUMENT = report.ROOT / "docs/performance.md"
PICTURE = report.ROOT / "docs/performance.svg"
#: The parts of the page that are made of figures, by the names in their markers.
PARTS = {
    "head": report.head,
    "glance": report.glance,
    "goals": goals.table,
    "details": report.details,
}


def filled(document, result):
    """The page with these figures. Words outside of the markers stay."""
    for name, part in PARTS.items():
        marked = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- /measured -->)", re.DOTALL)
        document, found = marked.subn(lambda match: f"{match[1]}\n{part(result).strip()}\n\n{match[2]}", document)
        if found != 1:
            raise ValueError(f"the page has {found} parts `{name}`")
    return document


def made(result):
    """What the files should have in them."""
    return {
        report.RESULTS: json.dumps(result, indent=2) + "\n",
        PICTURE: picture.drawn(result["figures"]),
        DOCUMENT: filled(DOCUMENT.read_text(), result),
    }


def save(result):
    for path, text in made(result).items():
        path.write_text(text)


def main():
    files = made(report.saved())
    if "--check" not in sys.argv[1:]:
        save(report.saved())
        return 0
    stale = [path for path, text in files.items() if path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(pathlib.Path(report.ROOT))} is not what page.py makes of the figures", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
