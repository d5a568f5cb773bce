#!/usr/bin/env bash
# What a list of 10 000 runs costs against reading the list with `cat`:
# instructions of the whole process, counted by callgrind. One command: `bench/runs.sh`. See bench/README.md.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

RUNS=${RUNS:-10000}
release=${CARGO_TARGET_DIR:-target}/release
program=${PROGRAM:-$release/llm-do}
saved=${RESULTS:-bench/results/runs.json}
[[ -n ${PROGRAM:-} ]] || cargo build --quiet --release -p llm-do-cli

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LLM_DO_HOME=$work HOME=$work
index=$work/state/runs/index
mkdir -p "$work/state/runs" "$work/here"
head -c 32 /dev/urandom >"$work/state/key"
chmod 600 "$work/state/key"

# As the program writes it: a line for each run, all of them ended, of ten projects.
awk -v runs="$RUNS" 'BEGIN {
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    for (run = 0; run < runs; run++) {
        id = ""
        for (rest = run; length(id) < 6; rest = int(rest / 32)) id = substr(digits, rest % 32 + 1, 1) id
        printf "{\"id\":\"06gy3k%s7wqe\",\"at\":%d,\"kind\":\"run\",\"project\":\"/home/ann/work/project-%d\",\"entry\":\"support\",\"state\":\"%s\",\"cost\":0.%04d,\"requests\":%d,\"turns\":1}\n", \
            id, 1794000000000 + run * 1000, run % 10, run % 7 ? "done" : "stopped", run % 9973, run % 30
    }
}' >"$work/lines"
{ printf '{"index":1,"bytes":%d,"behind":false}\n' "$(wc -c <"$work/lines")"; cat "$work/lines"; } >"$index"
touch "$index"

# instructions COMMAND...: of one process.
instructions() {
    (cd "$work/here" && valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >"$work/out" </dev/null) |
        sed -n 's/.*Collected : //p'
}
program=$(realpath "$program")
# A program as large as this one costs much before it does anything: what the list itself costs is told apart.
LLM_DO_HOME=$work/nothing
mkdir -p "$LLM_DO_HOME/state/runs"
cp "$work/state/key" "$LLM_DO_HOME/state/key"
head -1 "$index" | sed 's/"bytes":[0-9]*/"bytes":0/' >"$LLM_DO_HOME/state/runs/index"
empty=$(instructions "$program" runs)
LLM_DO_HOME=$work
cat_count=$(instructions cat "$index")
list=$(instructions "$program" runs)
project=$(instructions "$program" runs --project project-3 --json)
all=$(instructions "$program" runs --all)
[[ $(wc -l <"$work/out") == $((RUNS + 1)) ]] || { echo "not all runs were listed" >&2; exit 1; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

printf '%-58s %14s %9s\n' "$RUNS runs, $(wc -c <"$index") bytes" instructions ratio
printf '%-58s %14s %9s\n' \
    "cat" "$cat_count" "1.00" \
    "llm-do runs (the newest 20)" "$list" "$(ratio "$list" "$cat_count")" \
    "  of an empty list" "$empty" "$(ratio "$empty" "$cat_count")" \
    "  what the list adds" "$((list - empty))" "$(ratio "$((list - empty))" "$cat_count")" \
    "llm-do runs --project NAME (20 of a tenth of them)" "$project" "$(ratio "$project" "$cat_count")" \
    "llm-do runs --all (every one is a row)" "$all" "$(ratio "$all" "$cat_count")"
cat >"$saved" <<JSON
{
  "date": "$(date -u +%Y-%m-%d)",
  "runs": $RUNS,
  "bytes": $(wc -c <"$index"),
  "instructions": { "cat": $cat_count, "empty": $empty, "newest": $list, "of_project": $project, "all": $all }
}
JSON
echo "saved in $saved" >&2
