#!/usr/bin/env bash
# What looking at a project's contents costs before it is trusted: `check` of a project with 2000 Python modules, against the
# same project without Python files, and against reading the same files. Nothing of the project is started. Whole
# processes, files in the page cache; the best of many. One command, nothing to set up: `bench/trust.sh`.
set -euo pipefail
cd "$(dirname "$0")/.."

MODULES=${MODULES:-1999}
BYTES=${BYTES:-4096}
ROUNDS=${ROUNDS:-20}

if [[ -z ${PROGRAM:-} ]]; then
    echo "building ..." >&2
    cargo build --quiet --release -p llm-do-cli
fi
program=$(realpath "${PROGRAM:-${CARGO_TARGET_DIR:-target}/release/llm-do}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 - "$program" "$work" "$MODULES" "$BYTES" "$ROUNDS" <<'PYTHON'
import json, os, pathlib, subprocess, sys, time

program, work, modules, size, rounds = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:])
environment = {"HOME": str(work), "PATH": "/usr/bin:/bin"}

def project(name, **keys):
    root = work / name
    (root / "lib").mkdir(parents=True)
    (root / "main.worker").write_text("---\nname: main\n---\nx\n")
    manifest = {"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], **keys}
    (root / "project.json").write_text(json.dumps(manifest))
    (root / "tools.py").write_text("x = 1\n")
    for module in range(modules):
        (root / "lib" / f"m{module}.py").write_text(f"# {module}\n".ljust(size, "x"))
    return root

def best(command):
    def once():
        begun = time.perf_counter()
        ended = subprocess.run(command, env=environment, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert ended.returncode == 0, command
        return time.perf_counter() - begun
    return min(once() for _ in range(rounds))

with_code, without = project("with", python_files=["tools.py"]), project("without")
check = lambda root: best([program, "check", str(root), "-m", "ollama:q", "--json"])
covered, plain = check(with_code), check(without)
files = sorted(str(path) for path in with_code.rglob("*.py"))
reading, nothing = best(["cat", *files]), best(["cat", files[0]])
cost, read = covered - plain, reading - nothing
print(json.dumps({
    "files": len(files), "bytes": sum(os.path.getsize(file) for file in files),
    "check_ms": round(covered * 1e3, 2), "check_without_code_ms": round(plain * 1e3, 2),
    "contents_ms": round(cost * 1e3, 2), "reading_ms": round(read * 1e3, 2), "times_reading": round(cost / read, 2),
}, indent=2))
PYTHON
