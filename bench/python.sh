#!/usr/bin/env bash
# What Python files cost: one call beyond the function itself, a hundred calls at once, and a cold start. See
# bench/README.md.
# usage: bench/python.sh [LLM_DO] [PYTHON]; RESULTS is where the figures go, ROUNDS how often a cold start is measured.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
here=$(realpath "$(dirname "$0")")
llm_do=$(realpath "${1:-target/release/llm-do}")
# The interpreter itself: a shim that looks for one takes longer than all that is measured here.
python=$("${2:-python3}" -c 'import sys; print(sys.executable)')
saved=$(realpath "${RESULTS:-$here/results/python.json}")
rounds=${ROUNDS:-21}
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
        "call_us": round((called - alone) / count / 2 * 1e6, 1),
        "hundred_calls_of_100_ms_ms": round(together * 1e3, 1),
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
"$python" - "$llm_do" "$python" "$saved" "$rounds" <<'PY'
import ctypes, datetime, json, os, platform, resource, statistics, subprocess, sys, time

llm_do, python, saved, rounds = sys.argv[1:4] + [int(sys.argv[4])]
# What a process leaves behind becomes ours, so that its processor time is counted as well.
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processor():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def took(command):
    """Milliseconds from start to end, and of processor time."""
    before, started = processor(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    elapsed = time.perf_counter() - started
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    return elapsed * 1000, (processor() - before) * 1000


def calls():
    answer = subprocess.run([llm_do, "run", "calls", "go", "--python", python, "-q"], check=True, stdout=subprocess.PIPE)
    return json.loads(answer.stdout)


bare = [python, "-X", "utf8", "-c", "import sys; sys.path.insert(0, 'cold'); import plain"]
cold = [llm_do, "run", "cold", "go", "--python", python, "-q", "-m", "scripted:script.yaml"]
# The first start of each writes what later ones find.
took(bare), took(cold)
# In turn, so that whatever else the machine does falls on both.
pairs = [(took(bare), took(cold)) for _ in range(rounds)]
(bare_wall, bare_cpu), (cold_wall, cold_cpu) = (zip(*one) for one in zip(*pairs))
answers = [calls() for _ in range(5)]
of_calls = {key: statistics.median(answer[key] for answer in answers) for key in answers[0]}
figures = {
    "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
    "python": platform.python_version(),
    "rounds": rounds,
    **of_calls,
    "cold_ms": statistics.median(cold_wall),
    "cold_least_ms": min(cold_wall),
    "cold_bare_ms": statistics.median(bare_wall),
    "cold_bare_least_ms": min(bare_wall),
    "cold_cpu_ms": statistics.median(cold_cpu),
    "cold_bare_cpu_ms": statistics.median(bare_cpu),
}
figures = {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}
with open(saved, "w") as file:
    file.write(json.dumps(figures, indent=2) + "\n")
said = "{call_us} µs a call, {call_from_code_us} µs from code; a hundred calls of 100 ms: {hundred_calls_of_100_ms_ms} ms"
print(said.format(**figures))
for who, key in (("bare interpreter", "cold_bare"), ("llm-do with the same file", "cold")):
    wall, least, worked = (figures[f"{key}_{one}"] for one in ("ms", "least_ms", "cpu_ms"))
    print(f"cold start, {who}: {wall:.1f} ms (least {least:.1f}; {worked:.1f} ms of processor)")
PY
echo "saved in $saved" >&2
