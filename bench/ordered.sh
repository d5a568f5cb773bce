#!/usr/bin/env bash
# Builds `target/ordered/llm-do`: the release binary with the functions that a run needs next to each other.
#
# The kernel maps a file in blocks of 64 kB around each page that is touched. A run touches 1.6 MB of code that lies
# scattered over all of it, so that most of the binary counts as resident; in order it is what is touched. Only the
# layout differs: names in the list that no longer exist are ignored by the linker. Needs valgrind, and LLD as the
# linker (which rustc brings along on x86-64 Linux).
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/provider.sh

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/ordered"
target=$(cd "$target" && pwd)
order=$target/ordered/functions.txt

cargo build --quiet --release -p fake-llm
cargo rustc --quiet --release -p llm-do-cli --bin llm-do -- -C strip=none

start_provider one --text "Hello."
trace() { # MODEL
    write_project "$work/$1" "$1"
    program_environment one
    "${environment[@]}" valgrind --tool=callgrind --demangle=no "--callgrind-out-file=$work/$1.trace" \
        "$target/release/llm-do" run "$work/$1" Hello </dev/null >/dev/null 2>"$work/stderr" ||
        { cat "$work/stderr" >&2; exit 1; }
}
trace anthropic:claude-haiku-4-5
trace openai-chat:gpt-4.1-mini
# In the order of their first call; a number behind a name tells levels of recursion apart.
cat "$work"/*.trace | sed -nE "s/^c?fn=\([0-9]+\) ([^ ']+).*/\1/p" | awk '!seen[$0]++' >"$order"

cargo rustc --quiet --release -p llm-do-cli --bin llm-do -- \
    -C "link-arg=-Wl,--symbol-ordering-file=$order" -C link-arg=-Wl,--no-warn-symbol-ordering
cp "$target/release/llm-do" "$target/ordered/llm-do"
echo "$target/ordered/llm-do"
