#!/usr/bin/env bash
# What the gate and the fence add to a command, as ratios to starting the same command bare: the same program, the same
# arguments, its output read. Processor time (user and system, children included) is what is compared, since it hardly
# depends on what else the machine does; each figure is the best of five series. Callgrind knows nothing of the fence.
#
#     bench/shell.sh [COUNT [PROFILE]]       300 commands each, release
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."

count=${1:-300}
profile=${2:-release}
cargo build --profile "$profile" --quiet -p llm-do --example commands
commands=$(realpath -m "${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}/examples/commands")
[[ -x $commands ]] || { echo "there is no program $commands" >&2; exit 1; }

place=$(mktemp -d)
errors=$(mktemp)
trap 'rm -rf "$place" "$errors"' EXIT
cd "$place"
seq 1000 >numbers
git init --quiet
git add numbers
git -c user.name=a -c user.email=a@b commit --quiet -m first

# Microseconds of processor time for each command. Where the program fails there is no figure, and nothing goes on.
best() {
    local best=999999999 now
    local TIMEFORMAT='%3U %3S'
    for _ in 1 2 3 4 5; do
        now=$({ time "$commands" "$@" >/dev/null 2>"$errors"; } 2>&1) || { cat "$errors" >&2; return 1; }
        now=$(awk -v n="$count" '{ printf "%d", ($1 + $2) * 1e6 / n }' <<<"$now")
        best=$((now < best ? now : best))
    done
    echo "$best"
}

printf '%-20s %11s %11s %11s %14s %12s\n' "command (${profile})" bare unfenced fenced unfenced/bare fenced/bare
for command in "cat numbers" "grep -c 1 numbers" "git status"; do
    read -ra words <<<"$command"
    bare=$(best bare "$count" "${words[@]}")
    unfenced=$(best unfenced "$count" "${words[@]}")
    fenced=$(best fenced "$count" "${words[@]}")
    awk -v c="$command" -v b="$bare" -v u="$unfenced" -v f="$fenced" \
        'BEGIN { printf "%-20s %8d µs %8d µs %8d µs %14.2f %12.2f\n", c, b, u, f, u / b, f / b }'
done
