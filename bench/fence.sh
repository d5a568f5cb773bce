#!/usr/bin/env bash
# What the full fence costs: the first command, which also starts the keeper, against `unshare -Urmpf --mount-proc true`, which
# makes the same kind of namespaces; and each further command against the same one behind the thin fence and behind none. Times
# from start to end of whole processes, the best of many. Nothing to set up: `bench/fence.sh`. `COMMANDS` and `KEEPER` name
# programs that are built already.
set -euo pipefail
cd "$(dirname "$0")/.."

ROUNDS=${ROUNDS:-30}
COUNT=${COUNT:-200}
target=${CARGO_TARGET_DIR:-target}/release
if [[ -z ${COMMANDS:-} || -z ${KEEPER:-} ]]; then
    echo "building ..." >&2
    cargo build --quiet --release -p llm-do-cli
    cargo build --quiet --release -p llm-do --example commands
fi
commands=$(realpath "${COMMANDS:-$target/examples/commands}")
keeper=$(realpath "${KEEPER:-$target/llm-do}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1000 >"$work/numbers"

python3 - "$commands" "$keeper" "$work" "$ROUNDS" "$COUNT" <<'PYTHON'
import json, os, subprocess, sys, time

commands, keeper, work, rounds, count = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5]
thin = {"PATH": "/usr/bin:/bin", "HOME": work}
full = {**thin, "KEEPER": keeper}

def best(command, environment, rounds=rounds):
    def once():
        begun = time.perf_counter()
        subprocess.run(command, env=environment, cwd=work, check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - begun) * 1e3
    return min(once() for _ in range(rounds))

def each(mode, environment):
    """Milliseconds for each of many commands, without what the process itself takes."""
    command = [commands, mode, count, "cat", "numbers"]
    return min(int(subprocess.run(command, env=environment, cwd=work, check=True, capture_output=True).stdout) / 1e3
               for _ in range(5))

one = ["1", "cat", "numbers"]
unshare = best(["unshare", "-Urmpf", "--mount-proc", "true"], thin)
first = best([commands, "fenced", *one], full) - best([commands, "unfenced", *one], thin)
further, thin_each, unfenced = each("fenced", full), each("fenced", thin), each("unfenced", thin)
print(json.dumps({
    "unshare_ms": round(unshare, 2), "first_more_ms": round(first, 2), "first_by_unshare": round(first / unshare, 2),
    "full_ms": round(further, 3), "thin_ms": round(thin_each, 3), "unfenced_ms": round(unfenced, 3),
    "full_by_thin": round(further / thin_each, 2), "full_by_unfenced": round(further / unfenced, 2),
}, indent=2))
PYTHON
