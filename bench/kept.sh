#!/usr/bin/env bash
# What keeping a run costs: one reply and a loop of 50 turns, kept and with `--ephemeral`, and showing a run of a thousand steps
# against parsing its lines. Instructions of whole processes, counted by callgrind. One command: `bench/kept.sh`. See bench/README.md.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

PIECE="and so the story goes further " # as in bench/src/lib.rs, which checks what came
PIECES=20
LINE="a line of notes as people take them"
LINES=16

source bench/provider.sh
source bench/measure.sh

[[ -n ${PROGRAM:-} ]] || build -p llm-do-cli -p fake-llm -p bench
saved=${RESULTS:-bench/results/kept.json}
[[ $instructions_counted = yes ]] || exit 1

loop=(--text "$PIECE" --deltas "$PIECES" --tool read_file --arguments '{"path":"notes.txt"}')
start_provider one --text "Hello."
start_provider loop_50 "${loop[@]}" --tool-loop 50
start_provider loop_500 "${loop[@]}" --tool-loop 500
write_project "$work/one" anthropic:claude-haiku-4-5
write_project "$work/loop" anthropic:claude-haiku-4-5 "toolsets: [filesystem_project_ro]" "limits: {max_requests: 1000}"
for ((line = 0; line < LINES; line++)); do printf '%s\n' "$LINE"; done >"$work/loop/notes.txt"

# A run of a thousand steps: 500 requests, 500 calls. It is the only one that is there yet.
program_environment loop_500
run "${environment[@]}" "$program" run "$work/loop" Hello
runs=$work/home/.local/state/llm-do/runs
shown=$(find "$runs" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | head -1)
journal=$runs/$shown/journal
figure[journal.lines]=$(wc -l <"$journal")
figure[journal.bytes]=$(wc -c <"$journal")

# command_of NAME: the command line of a measurement, in the array `command`; `counter` goes before the program.
command_of() {
    local environment
    program_environment "$([[ $1 = one_* ]] && echo one || echo loop_50)"
    case $1 in
        one_kept | loop_kept) command=("${environment[@]}" "${counter[@]}" "$program" run "$work/${1%_*}" Hello) ;;
        one_ephemeral | loop_ephemeral)
            command=("${environment[@]}" "${counter[@]}" "$program" run "$work/${1%_*}" Hello --ephemeral)
            ;;
        loop_bare) command=(env -i "PATH=$PATH" "${counter[@]}" "$release/bare" anthropic "${address[loop_50]}" loop 1 50 "$work/loop") ;;
        show) command=("${environment[@]}" "${counter[@]}" "$program" runs show "$shown") ;;
        list) command=("${environment[@]}" "${counter[@]}" "$program" runs -n 1) ;;
        read_*) command=("${counter[@]}" "$release/reading" "${1#read_}" "$journal") ;;
    esac
}

echo "measuring ..." >&2
for name in show list read_bytes read_values one_kept one_ephemeral loop_kept loop_ephemeral loop_bare; do
    count_instructions "$name"
done
# Where the digests of what is kept count: see measure.sh.
for name in one_kept one_ephemeral loop_kept loop_ephemeral show read_values; do count_executed "$name"; done
derive loop_kept.executed.ratio "{loop_kept.executed} / {loop_ephemeral.executed}"
derive show.executed.ratio "{show.executed} / {read_values.executed}"
derive loop_kept.ratio "{loop_kept.instructions} / {loop_ephemeral.instructions}"
derive loop_ephemeral.ratio "{loop_ephemeral.instructions} / {loop_bare.instructions}"
derive show.ratio "{show.instructions} / {read_values.instructions}"
figure[program.bytes]=$(stat -c %s "$program")

line() { printf '%-66s %12s %s\n' "$1" "${figure[$2.instructions]}" "${3:+${figure[$3]} x}"; }
line "one reply, kept" one_kept
line "one reply, --ephemeral" one_ephemeral
line "a loop of 50 turns, kept (against --ephemeral)" loop_kept loop_kept.ratio
line "a loop of 50 turns, --ephemeral (against the bare client)" loop_ephemeral loop_ephemeral.ratio
line "a loop of 50 turns, bare client" loop_bare
line "llm-do runs show, ${figure[journal.lines]} lines (against parsing them)" show show.ratio
line "  the lines parsed as JSON" read_values
if [[ $executed_counted = yes ]]; then
    echo "with the processor's instructions for SHA-256:"
    for name in one_kept one_ephemeral loop_kept loop_ephemeral; do printf '  %-64s %12s\n' "$name" "${figure[$name.executed]}"; done
    echo "  a loop, kept against --ephemeral: ${figure[loop_kept.executed.ratio]} x; runs show: ${figure[show.executed.ratio]} x"
fi
echo "llm-do: ${figure[program.bytes]} bytes"
save "$saved"
