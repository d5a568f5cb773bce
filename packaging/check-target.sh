#!/usr/bin/env bash
# Checks that everything that is shipped compiles for another target, without an error and without a warning.
# `.ci/install` gets what it takes.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:?which Rust target, such as aarch64-apple-darwin}
source packaging/cross.sh

missing=$(can_build_for "$target") || { echo "$target cannot be checked here: it needs $missing" >&2; exit 1; }
build_for "$target"
said=$(cargo check --locked --target "$target" -p llm-do -p llm-do-launch -p llm-do-cli 2>&1) || { printf '%s\n' "$said" >&2; exit 1; }
if grep -q '^warning' <<<"$said"; then
    printf '%s\n' "$said" >&2
    exit 1
fi
