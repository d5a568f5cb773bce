#!/usr/bin/env bash
# What Python files cost: one call beyond the function itself, a hundred calls at once, and a cold start.
# usage: bench/python.sh [LLM_DO] [PYTHON]
set -euo pipefail
llm_do=$(realpath "${1:-target/release/llm-do}")
python=$(command -v "${2:-python3}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" HOME="$work"
cat > kit.py <<'PY'
import asyncio, time
from llm_do.runtime import CallContext, EntrySpec
from llm_do.toolsets.approval import set_toolset_approval_config as configure

async def nothing(n: int) -> int:
    return n

async def wait(n: int) -> int:
    await asyncio.sleep(0.1)
    return n

for tool in (nothing, wait):
    configure(tool, {tool.__name__: {"pre_approved": True}})
TOOLS = [nothing, wait]

async def main(args, ctx: CallContext):
    count = 2000
    for n in range(100):
        await ctx.call("nothing", {"n": n})
    started = time.perf_counter()
    for n in range(count):
        await nothing(n)
    alone = time.perf_counter() - started
    started = time.perf_counter()
    for n in range(count):
        await ctx.call("nothing", {"n": n})
    called = time.perf_counter() - started
    started = time.perf_counter()
    await asyncio.gather(*(ctx.call("wait", {"n": n}) for n in range(100)))
    together = time.perf_counter() - started
    return {
        "function_us": round(alone / count * 1e6, 2),
        # From code to llm-do and back to code: two exchanges, where a model's call has one.
        "call_from_code_us": round((called - alone) / count * 1e6, 1),
        "exchange_us": round((called - alone) / count / 2 * 1e6, 1),
        "hundred_calls_of_100_ms_took_ms": round(together * 1e3, 1),
    }

entry = EntrySpec(name="bench", main=main)
PY
cat > plain.py <<'PY'
def tool(text: str) -> int:
    return len(text)
TOOLS = [tool]
PY
printf -- '---\nname: main\nentry: true\ntools: [tool]\n---\nHi.\n' > main.worker
printf -- '- say: hi\n' > script.yaml
mkdir -p cold calls
echo '{"version":1,"entry":{},"worker_files":[],"python_files":["kit.py"]}' > calls/project.json; cp kit.py calls/
echo '{"version":1,"entry":{},"worker_files":["main.worker"],"python_files":["plain.py"]}' > cold/project.json
cp plain.py main.worker cold/
echo "one call, and a hundred:"
"$llm_do" run calls go --python "$python" -q
best() { # milliseconds of the fastest of 15, and of the processor's time: that one a busy machine changes less
  "$python" - "$@" <<'PY'
import os, subprocess, sys, time
times, worked = [], []
for _ in range(15):
    started, before = time.perf_counter(), os.times()
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    times.append(time.perf_counter() - started)
    worked.append(after.children_user + after.children_system - before.children_user - before.children_system)
print(f"{min(times) * 1000:.1f} ms ({min(worked) * 1000:.0f} ms of processor)")
PY
}
bare=$(best "$python" -X utf8 -c "import sys; sys.path.insert(0, 'cold'); import plain")
cold=$(best "$llm_do" run cold go --python "$python" -q -m scripted:script.yaml)
echo "cold start: bare interpreter $bare, llm-do with the same file $cold"
