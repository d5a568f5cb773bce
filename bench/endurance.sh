#!/usr/bin/env bash
# Runs, chats and scopes of `serve` that are killed again and again, and answers that race: the tests of every day, in their long
# form; `map` and `machines` run only that part. Prints how many deaths were survived; whatever is lost, doubled or listed wrongly fails. See bench/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

KILLS=${KILLS:-200} # of runs, of chats and of scopes each
RACES=${RACES:-5}   # times a hundred questions
export LLM_DO_KILLS=$KILLS LLM_DO_SCOPE_KILLS=$KILLS

tests() { cargo test --quiet -p llm-do-cli --test "$1" -- --nocapture --test-threads=1 "${@:2}"; }
counts() { grep -E "turns:|recalled|moments,|stopped [0-9]|kills|flaky|killed|deaths|SEED|answers|panicked|test result" || true; }
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
map_kills() {
    part "${ITEMS:-10000} items of a map, ten kills" env LLM_DO_MAP_ITEMS="${ITEMS:-10000}" LLM_DO_MAP_KILLS=10 \
        cargo test --quiet -p llm-do-cli --test map -- --nocapture kills
}
machines() {
    part "${RUNS:-500} runs on an engine, ${ENGINE_KILLS:-500} kills of workers and of the server" \
        env LLM_DO_PARTS=engine LLM_DO_ENGINE_RUNS="${RUNS:-500}" LLM_DO_ENGINE_KILLS="${ENGINE_KILLS:-500}" \
        cargo test --quiet -p parts --test parts -- --nocapture engine::nothing_is_lost
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if [[ ${1:-} == map ]]; then
    map_kills
    exit
fi
if [[ ${1:-} == machines ]]; then
    machines
    exit
fi
part "$KILLS kills each of runs and chats" tests kept_kills
part "$KILLS kills of scopes" tests serve kill
for ((race = 1; race <= RACES; race++)); do
    part "race $race of $RACES: a hundred questions, answered by three at once" tests inbox race
done
map_kills
part "${REPEATS:-1000} repeats of a replayed case" env LLM_DO_TEST_REPEATS="${REPEATS:-1000}" \
    cargo test --quiet -p llm-do-cli --test testing -- --nocapture repeats
part "${MOMENTS:-1000} moments at which something is said to a turn and behind it" env LLM_DO_MOMENTS="${MOMENTS:-1000}" \
    cargo test --quiet -p llm-do-cli --test terminal -- --nocapture moments
if command -v tmux >/dev/null; then
    part "${STOPS:-50} stops at each of six places" env LLM_DO_PARTS=tmux LLM_DO_STOPS="${STOPS:-50}" \
        cargo test --quiet -p parts --test parts -- --nocapture --test-threads=1 again_and_again
fi
part "400 turns through a window of 8192 tokens" env LLM_DO_ENDURANCE_TURNS="${TURNS:-400}" \
    cargo test --quiet -p llm-do --test runtime -- --nocapture context::sixty_turns
echo "all of it: nothing lost, nothing doubled, one answer each"
