#!/usr/bin/env bash
# What `llm-do check` costs, as ratios: 10 000 agents against 1 000 (10 is linear), against only reading and parsing the
# same files, and a start of the program against /bin/true. Instructions are exact (callgrind); times are the best of five.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet -p llm-do-cli
cargo build --release --quiet -p llm-do --example parse_only
program=target/release/llm-do
parse_only=target/release/examples/parse_only

projects=$(mktemp -d)
trap 'rm -rf "$projects"' EXIT
for count in 1000 10000; do
    python3 bench/generate.py "$projects/$count" "$count"
done

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

microseconds() {
    local best=999999999 start end
    for _ in 1 2 3 4 5; do
        start=$(date +%s%N)
        "$@" >/dev/null 2>&1
        end=$(date +%s%N)
        best=$(((end - start) / 1000 < best ? (end - start) / 1000 : best))
    done
    echo "$best"
}

ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'
}

# compare LABEL UNIT FIRST SECOND: both figures and how many times the second the first is.
compare() {
    printf '%-44s %14s %14s %10s  (%s)\n' "$1" "$3" "$4" "$(ratio "$3" "$4")" "$2"
}

for measure in instructions microseconds; do
    check_1000=$($measure "$program" check "$projects/1000")
    check_10000=$($measure "$program" check "$projects/10000")
    parse_1000=$($measure "$parse_only" "$projects/1000")
    parse_10000=$($measure "$parse_only" "$projects/10000")
    version=$($measure "$program" --version)
    nothing=$($measure /bin/true)
    compare "check 10 000 / check 1 000" "$measure" "$check_10000" "$check_1000"
    compare "parse 10 000 / parse 1 000" "$measure" "$parse_10000" "$parse_1000"
    compare "check 1 000 / parse 1 000" "$measure" "$check_1000" "$parse_1000"
    compare "check 10 000 / parse 10 000" "$measure" "$check_10000" "$parse_10000"
    compare "llm-do --version / true" "$measure" "$version" "$nothing"
done
