#!/usr/bin/env bash
# What the gate and the fence add to a command, as time ratios to starting the same command bare: the same program, the
# same arguments, its output read. Each figure is the best of five series; callgrind knows nothing of the fence.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet -p llm-do --example commands
commands=$PWD/target/release/examples/commands
count=${1:-300}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
seq 1000 >numbers
git init --quiet
git add numbers
git -c user.name=a -c user.email=a@b commit --quiet -m first

best() {
    local best=999999999 now
    for _ in 1 2 3 4 5; do
        now=$("$commands" "$@")
        best=$((now < best ? now : best))
    done
    echo "$best"
}

printf '%-22s %10s %10s %10s %12s %10s\n' command bare unfenced fenced unfenced/bare fenced/bare
for command in "cat numbers" "grep -c 1 numbers" "git status"; do
    read -ra words <<<"$command"
    bare=$(best bare "$count" "${words[@]}")
    unfenced=$(best unfenced "$count" "${words[@]}")
    fenced=$(best fenced "$count" "${words[@]}")
    awk -v c="$command" -v b="$bare" -v u="$unfenced" -v f="$fenced" \
        'BEGIN { printf "%-22s %8d µs %8d µs %8d µs %12.2f %10.2f\n", c, b, u, f, u / b, f / b }'
done
