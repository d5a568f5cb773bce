#!/usr/bin/env bash
# Runs, chats and scopes of `serve` that are killed again and again, and answers that race: the tests of every day, in their long
# form. Prints how many deaths were survived; whatever is lost, doubled or listed wrongly fails. See bench/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

KILLS=${KILLS:-200} # of runs, of chats and of scopes each
RACES=${RACES:-5}   # times a hundred questions
export LLM_DO_KILLS=$KILLS LLM_DO_SCOPE_KILLS=$KILLS

tests() { cargo test --quiet -p llm-do-cli --test "$1" -- --nocapture --test-threads=1 "${@:2}"; }
counts() { grep -E "turns:|kills|killed|deaths|SEED|answers|panicked|test result" || true; }
begun=$SECONDS
part() { # NAME COMMAND...
    local name=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        echo "$name: failed" >&2
        exit 1
    fi
    echo "$name ($((SECONDS - begun)) s since the beginning)"
    counts <"$log"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

part "$KILLS kills each of runs and chats" tests kept_kills
part "$KILLS kills of scopes" tests serve kill
for ((race = 1; race <= RACES; race++)); do
    part "race $race of $RACES: a hundred questions, answered by three at once" tests inbox race
done
part "400 turns through a window of 8192 tokens" env LLM_DO_ENDURANCE_TURNS="${TURNS:-400}" \
    cargo test --quiet -p llm-do --test runtime -- --nocapture context::sixty_turns
echo "all of it: nothing lost, nothing doubled, one answer each"
