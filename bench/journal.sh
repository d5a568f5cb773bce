#!/usr/bin/env bash
# What a journal costs: a journaled run against the same run without, and a step against the bare `fdatasync` that it
# cannot avoid. One command: `bench/journal.sh`. See bench/README.md.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

CALLS=${CALLS:-40}
RUNS=${RUNS:-21}

source bench/provider.sh

echo "building ..." >&2
cargo build --quiet --release -p llm-do-cli -p fake-llm -p bench --bin llm-do --bin fake-llm --bin steps
release=${CARGO_TARGET_DIR:-target}/release
program=${PROGRAM:-$release/llm-do}
saved=${RESULTS:-bench/results/journal.json}

# A model that calls a tool which may be repeated, $CALLS times, then answers.
start_provider loop --text "I look." --tool-loop "$CALLS" --tool read_file --arguments '{"path": "notes.txt"}'
mkdir "$work/project"
printf -- '---\nname: main\nmodel: anthropic:claude-haiku-4-5\ntoolsets: [filesystem_project_ro]\n---\nYou read.\n' >"$work/project/main.worker"
printf 'a line of notes as people take them\n%.0s' {1..16} >"$work/project/notes.txt"
program_environment loop

# microseconds FLAGS...: one run, from its start to its end.
microseconds() {
    local begun ended
    begun=$(date +%s%N)
    "${environment[@]}" "$program" run "$work/project" Hello --max-requests $((CALLS + 5)) "$@" </dev/null >/dev/null 2>"$work/stderr" ||
        { cat "$work/stderr" >&2; exit 1; }
    ended=$(date +%s%N)
    echo $(((ended - begun) / 1000))
}
middle() { sort -n | sed -n "$(((RUNS + 1) / 2))p"; }

echo "measuring ..." >&2
for ((round = 0; round < RUNS; round++)); do
    microseconds >>"$work/plain"
    microseconds --journal "$work/journal.$round" >>"$work/journaled"
done
plain=$(middle <"$work/plain")
journaled=$(middle <"$work/journaled")
lines=$(wc -l <"$work/journal.0")
bytes=$(wc -c <"$work/journal.0")
waits=$(grep -cE '"kind":"(model|tool|call)","state":"done"' "$work/journal.0")
steps=$("$release/steps" "$work")

figure() { grep -oE "\"$1\":[0-9]+" <<<"$steps" | cut -d: -f2; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
thousandth() { awk -v a="$1" 'BEGIN { printf "%.1f", a / 1000 }'; }
per_wait=$(((journaled - plain) / waits))

printf '%-58s %12s\n' \
    "a run of $CALLS calls, no journal" "$plain µs" \
    "the same with a journal" "$journaled µs" \
    "  ratio" "$(ratio "$journaled" "$plain")" \
    "  more, per durable step ($waits of $lines lines, $bytes bytes)" "$per_wait µs" \
    "fdatasync of one line" "$(($(figure fdatasync_ns) / 1000)) µs" \
    "a step with a journal" "$(($(figure step_ns) / 1000)) µs" \
    "  ratio" "$(ratio "$(figure step_ns)" "$(figure fdatasync_ns)")" \
    "a step among eight at the same time" "$(($(figure parallel_step_ns) / 1000)) µs" \
    "  ratio" "$(ratio "$(figure parallel_step_ns)" "$(figure fdatasync_ns)")" \
    "an effect by itself" "$(thousandth "$(figure effect_ns_thousandth)") ns" \
    "a step without a journal" "$(thousandth "$(figure unrecorded_step_ns_thousandth)") ns"

cat >"$saved" <<JSON
{
  "date": "$(date -u +%Y-%m-%d)",
  "machine": "$(nproc) cores, $(uname -sm), $(df --output=fstype "$work" | tail -1)",
  "run": { "calls": $CALLS, "runs": $RUNS, "plain_us": $plain, "journaled_us": $journaled, "durable_steps": $waits, "lines": $lines, "bytes": $bytes },
  "steps": $steps
}
JSON
echo "saved in $saved" >&2
