"""Writes what a program is made of, as CycloneDX: every crate that is linked into `llm-do` on a target, from `cargo metadata`.

    bill.py TARGET > FILE          --licences lists them by licence instead, for people"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def linked(target: str) -> list[dict[str, Any]]:
    """What is reached from the program with its features, without what is only used to build or to test; macros run in the
    compiler. `cargo metadata` alone would count the features that tests want."""
    tree = ["cargo", "tree", "--locked", "--package", "llm-do-cli", "--edges", "normal,no-proc-macro", "--prefix", "none"]
    reached = {tuple(line.split()[:2]) for line in said([*tree, "--format", "{p}", "--target", target]).splitlines()}
    known = json.loads(said(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]))
    found = [package for package in known["packages"] if (package["name"], f"v{package['version']}") in reached]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def component(package: dict[str, Any]) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    said = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
    if package["license"]:
        said["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return said


def main(target: str, for_people: bool) -> None:
    packages = linked(target)
    if for_people:
        by_licence: dict[str, list[str]] = {}
        for package in packages:
            by_licence.setdefault(package["license"] or "see the crate", []).append(f"{package['name']}@{package['version']}")
        for licence, names in sorted(by_licence.items()):
            print(f"{licence} ({len(names)}): {', '.join(names)}")
        return
    program = next(package for package in packages if package["name"] == "llm-do-cli")
    about = {"component": {**component(program), "type": "application", "name": "llm-do"}}
    parts = [component(package) for package in packages if package is not program]
    print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": about, "components": parts}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], "--licences" in sys.argv)
