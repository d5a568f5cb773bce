#!/usr/bin/env bash
# Builds the program as it is handed out: `target/dist/llm-do`. `cargo build --release` gives the same program, laid out
# otherwise:
#
# - Functions that a run needs lie next to each other. The kernel maps a file in blocks of 64 kB around each page that is
#   touched; a run touches 1.6 MB of code, and while they are scattered most of the binary counts as resident. The order
#   is that of traced runs; names in it that no longer exist are ignored by the linker. Needs valgrind.
# - Relative relocations are packed, which takes half a megabyte off the file. The C library reads them from glibc 2.36 on;
#   if the one here is older they stay as they are.
#
# LLD must be the linker, which it is by default where rustc brings it along (x86-64 Linux).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is needed to trace a run" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/dist"
target=$(cd "$target" && pwd)
export CARGO_TARGET_DIR=$target
source bench/provider.sh
order=$target/dist/functions.txt

echo "building ..." >&2
cargo build --quiet --release --locked -p fake-llm
cargo rustc --quiet --release --locked -p llm-do-cli --bin llm-do -- -C strip=none

echo "tracing runs ..." >&2
start_provider reply --text "Hello."
start_provider loop --text "I look." --tool-loop 3 --tool read_file --arguments '{"path": "project.json"}'
trace() { # NAME PROVIDER MODEL
    write_project "$work/$1" "$3" "toolsets: [filesystem_project_ro]"
    program_environment "$2"
    "${environment[@]}" valgrind --tool=callgrind --demangle=no "--callgrind-out-file=$work/$1.trace" \
        "$target/release/llm-do" run "$work/$1" Hello </dev/null >/dev/null 2>"$work/stderr" ||
        { cat "$work/stderr" >&2; exit 1; }
}
trace 1_anthropic reply anthropic:claude-haiku-4-5
trace 2_chat reply openai-chat:gpt-4.1-mini
trace 3_loop loop anthropic:claude-haiku-4-5
kill "${provider_ids[@]}"
provider_ids=()
# In the order of their first call; a number behind a name tells levels of recursion apart.
cat "$work"/*.trace | sed -nE "s/^c?fn=\([0-9]+\) ([^ ']+).*/\1/p" | awk '!seen[$0]++' >"$order"

echo "linking in order ..." >&2
layout=(-C "link-arg=-Wl,--symbol-ordering-file=$order" -C link-arg=-Wl,--no-warn-symbol-ordering)
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //') || true
if [[ -n $glibc && $(printf '%s\n' 2.36 "$glibc" | sort -V | head -1) == 2.36 ]]; then
    layout+=(-C link-arg=-Wl,-z,pack-relative-relocs)
fi
cargo rustc --quiet --release --locked -p llm-do-cli --bin llm-do -- "${layout[@]}"
cp "$target/release/llm-do" "$target/dist/llm-do"
echo "$target/dist/llm-do"
