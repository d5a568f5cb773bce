#!/usr/bin/env bash
# What a tool loop costs, and a thousand of them at once: the program and the library's runtime against the bare HTTP
# client below them. One command, nothing to set up: `bench/loop.sh`. See bench/README.md for what the figures mean.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

TURNS=(50 200 400)
RUNS=${RUNS:-1000}
RUN_CALLS=(0 3)
CPU_ROUNDS=${CPU_ROUNDS:-10}
PIECE="and so the story goes further " # as in bench/src/lib.rs, which checks what came
PIECES=20
LINE="a line of notes as people take them"
LINES=16

source bench/provider.sh
source bench/measure.sh

build -p llm-do-cli -p fake-llm -p bench
saved=${RESULTS:-bench/results/loop.json}
# Each run has a connection of its own.
ulimit -n "$(ulimit -Hn)"

loop=(--text "$PIECE" --deltas "$PIECES" --tool read_file --arguments '{"path":"notes.txt"}')
for turns in "${TURNS[@]}"; do start_provider "loop_$turns" "${loop[@]}" --tool-loop "$turns"; done
for calls in "${RUN_CALLS[@]}"; do
    start_provider "one_$calls" "${loop[@]}" --tool-loop "$calls"
    start_provider "many_$calls" "${loop[@]}" --tool-loop "$calls" --together "$RUNS"
done

write_project "$work/project" anthropic:claude-haiku-4-5 "toolsets: [filesystem_project_ro]" "limits: {max_requests: 1000}"
for ((line = 0; line < LINES; line++)); do printf '%s\n' "$LINE"; done >"$work/project/notes.txt"

# ---- what is measured ---------------------------------------------------------------------------------------------

# command_of NAME: the command line of a measurement, in the array `command`; `counter` goes before the program.
command_of() {
    local environment who=${1%%_*}
    other() { command=(env -i "PATH=$PATH" "${counter[@]}" "$release/$who" anthropic "$@"); }
    case $1 in
        program_file_*)
            program_environment "loop_${1##*_}"
            # The bare client and the library keep nothing; what keeping costs is measured by bench/kept.sh.
            command=("${environment[@]}" "${counter[@]}" "$program" run "$work/project" Hello --ephemeral)
            ;;
        *_file_*) other "${address[loop_${1##*_}]}" loop 1 "${1##*_}" "$work/project" ;;
        *_memory_*) other "${address[loop_${1##*_}]}" loop 1 "${1##*_}" ;;
        *_one_*) other "${address[one_${1##*_}]}" loop 1 "${1##*_}" ;;
        *_many_*) other "${address[many_${1##*_}]}" loop "$RUNS" "${1##*_}" ;;
        *) echo "no measurement $1" >&2; exit 1 ;;
    esac
}

loops=()
for turns in "${TURNS[@]}"; do
    loops+=("bare_memory_$turns" "driver_memory_$turns" "bare_file_$turns" "driver_file_$turns" "program_file_$turns")
done
runs=()
for calls in "${RUN_CALLS[@]}"; do
    runs+=("bare_one_$calls" "driver_one_$calls" "bare_many_$calls" "driver_many_$calls")
done

echo "measuring ..." >&2
if [[ $instructions_counted = yes ]]; then
    for name in "${loops[@]}" "${runs[@]}"; do count_instructions "$name"; done
    for name in "${runs[@]}"; do measure_heap "$name"; done
fi
# Interleaved, so that whatever else the machine does falls on all of them.
for ((round = 0; round < CPU_ROUNDS; round++)); do
    for name in "${loops[@]}" "${runs[@]}"; do add_cpu_time "$name" 1; done
done
for name in "${runs[@]}"; do measure_memory "$name"; done

# ---- what follows from it -----------------------------------------------------------------------------------------

for unit in instructions cpu_us; do
    for turns in "${TURNS[@]}"; do
        for who in bare driver program; do
            for tool in memory file; do
                derive "${who}_${tool}_turn_$turns.$unit" "{${who}_${tool}_$turns.$unit} / $turns"
                derive "${who}_${tool}_turn_$turns.$unit.ratio" "{${who}_${tool}_$turns.$unit} / {bare_${tool}_$turns.$unit}"
            done
        done
    done
    for calls in "${RUN_CALLS[@]}"; do
        for who in bare driver; do
            derive "${who}_run_$calls.$unit" "{${who}_many_$calls.$unit} / $RUNS"
            derive "${who}_run_$calls.$unit.ratio" "{${who}_many_$calls.$unit} / {bare_many_$calls.$unit}"
        done
    done
done
for calls in "${RUN_CALLS[@]}"; do
    for who in bare driver; do
        many=${who}_many_$calls one=${who}_one_$calls
        derive "${who}_run_$calls.heap_bytes" "({$many.heap_bytes} - {$one.heap_bytes}) / ($RUNS - 1)"
        derive "${who}_run_$calls.rss_bytes" "({$many.peak_rss_kb} - {$one.peak_rss_kb}) * 1024 / ($RUNS - 1)"
    done
done

# ---- tell it ------------------------------------------------------------------------------------------------------

table() {
    heading
    local turns
    for turns in "${TURNS[@]}"; do
        row "per turn of $turns, bare client, tool in memory" "bare_memory_turn_$turns"
        row "per turn of $turns, library, tool in Rust" "driver_memory_turn_$turns"
        row "per turn of $turns, bare client, tool reads a file" "bare_file_turn_$turns"
        row "per turn of $turns, library, read_file" "driver_file_turn_$turns"
        row "per turn of $turns, llm-do run --ephemeral, read_file" "program_file_turn_$turns"
    done
    local calls who
    for calls in "${RUN_CALLS[@]}"; do
        row "one of $RUNS runs at once, $calls calls, bare client" "bare_run_$calls"
        row "one of $RUNS runs at once, $calls calls, library" "driver_run_$calls"
    done
    printf '\nmemory of one of %s runs in bytes\n' "$RUNS"
    for calls in "${RUN_CALLS[@]}"; do
        for who in bare driver; do
            printf '%s, %s calls: %.0f resident, %.0f on the heap\n' "$who" "$calls" \
                "${figure[${who}_run_$calls.rss_bytes]}" "${figure[${who}_run_$calls.heap_bytes]:-nan}"
        done
    done
}

table
save "$saved"
