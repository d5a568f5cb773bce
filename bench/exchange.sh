#!/usr/bin/env bash
# What an exchange with a model costs: the program and the library against the bare HTTP client below them.
# One command, nothing to set up: `bench/exchange.sh`. See bench/README.md for what the figures mean.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

STREAM_DELTAS=20000
HISTORY_TURNS=(50 200 400)
CPU_ROUNDS=${CPU_ROUNDS:-10}
CPU_RUNS=${CPU_RUNS:-20}
PIECE="and so the story goes further " # as in bench/src/lib.rs, which checks what came
PIECES=20

source bench/provider.sh
source bench/measure.sh

build -p llm-do-cli -p fake-llm -p bench
saved=${RESULTS:-bench/results/exchange.json}

start_provider one --text "Hello."
start_provider stream --text "$PIECE" --deltas "$STREAM_DELTAS"
start_provider history --text "$PIECE" --deltas "$PIECES"

# ---- what is measured ---------------------------------------------------------------------------------------------

write_project "$work/anthropic" anthropic:claude-haiku-4-5
write_project "$work/chat" openai-chat:gpt-4.1-mini

# command_of NAME: the command line of a measurement, in the array `command`; `counter` goes before the program.
command_of() {
    local environment
    run_of() { # PROVIDER PROJECT
        program_environment "$1"
        command=("${environment[@]}" "${counter[@]}" "$program" run "$work/$2" Hello)
    }
    other() { command=(env -i "PATH=$PATH" "${counter[@]}" "$@"); }
    case $1 in
        true) other /bin/true ;;
        empty) other "$release/empty" ;;
        version) other "$program" --version ;;
        bare_one) other "$release/bare" anthropic "${address[one]}" one ;;
        bare_one_chat) other "$release/bare" chat "${address[one]}/v1" one ;;
        program_one) run_of one anthropic ;;
        program_one_ephemeral) run_of one anthropic; command+=(--ephemeral) ;;
        program_one_chat) run_of one chat ;;
        bare_stream) other "$release/bare" anthropic "${address[stream]}" stream "$STREAM_DELTAS" ;;
        bare_stream_chat) other "$release/bare" chat "${address[stream]}/v1" stream "$STREAM_DELTAS" ;;
        driver_one) other "$release/driver" anthropic "${address[one]}" one ;;
        driver_one_chat) other "$release/driver" chat "${address[one]}/v1" one ;;
        driver_stream) other "$release/driver" anthropic "${address[stream]}" stream "$STREAM_DELTAS" ;;
        driver_stream_chat) other "$release/driver" chat "${address[stream]}/v1" stream "$STREAM_DELTAS" ;;
        program_stream) run_of stream anthropic ;;
        program_stream_chat) run_of stream chat ;;
        program_stream_json) run_of stream anthropic; command+=(--json) ;;
        bare_history_*) other "$release/bare" anthropic "${address[history]}" history "${1##*_}" ;;
        driver_history_*) other "$release/driver" anthropic "${address[history]}" history "${1##*_}" ;;
        *) echo "no measurement $1" >&2; exit 1 ;;
    esac
}

short=(true empty version bare_one program_one program_one_ephemeral bare_one_chat program_one_chat)
long=(driver_one driver_one_chat bare_stream driver_stream program_stream program_stream_json
    bare_stream_chat driver_stream_chat program_stream_chat)
for turns in "${HISTORY_TURNS[@]}"; do long+=("bare_history_$turns" "driver_history_$turns"); done

echo "measuring ..." >&2
if [[ $instructions_counted = yes ]]; then
    for name in "${short[@]}" "${long[@]}"; do count_instructions "$name"; done
fi
# Interleaved, so that whatever else the machine does falls on all of them.
for ((round = 0; round < CPU_ROUNDS; round++)); do
    for name in "${short[@]}"; do add_cpu_time "$name" "$CPU_RUNS"; done
    for name in "${long[@]}"; do add_cpu_time "$name" 2; done
done
for name in empty bare_one program_one program_one_chat program_stream; do measure_memory "$name"; done
strip -o "$work/stripped" "$program"
figure[binary.bytes]=$(stat -c %s "$work/stripped")

# ---- what follows from it -----------------------------------------------------------------------------------------

for unit in instructions cpu_us; do
    for wire in "" _chat; do
        derive "program_one$wire.$unit.ratio" "{program_one$wire.$unit} / {bare_one$wire.$unit}"
        derive "program_one_ephemeral.$unit.ratio" "{program_one_ephemeral.$unit} / {bare_one.$unit}"
        for who in bare driver program; do
            derive "${who}_delta$wire.$unit" "({${who}_stream$wire.$unit} - {${who}_one$wire.$unit}) / $STREAM_DELTAS"
            derive "${who}_delta$wire.$unit.ratio" "{${who}_delta$wire.$unit} / {bare_delta$wire.$unit}"
        done
    done
    derive "program_delta_json.$unit" "({program_stream_json.$unit} - {program_one.$unit}) / $STREAM_DELTAS"
    derive "program_delta_json.$unit.ratio" "{program_delta_json.$unit} / {bare_delta.$unit}"
    before=
    for turns in "${HISTORY_TURNS[@]}"; do
        for who in bare driver; do
            # Of the turns since the last stop, so that the last figure is that of late turns and not of an average.
            if [[ -z $before ]]; then
                derive "${who}_turn_$turns.$unit" "({${who}_history_$turns.$unit} - {${who}_one.$unit}) / ($turns - 1)"
            else
                derive "${who}_turn_$turns.$unit" \
                    "({${who}_history_$turns.$unit} - {${who}_history_$before.$unit}) / ($turns - $before)"
            fi
        done
        derive "driver_turn_$turns.$unit.ratio" "{driver_turn_$turns.$unit} / {bare_turn_$turns.$unit}"
        before=$turns
    done
done

# ---- tell it ------------------------------------------------------------------------------------------------------

table() {
    heading
    row "/bin/true" true
    row "an empty Rust program" empty
    row "llm-do --version" version
    row "bare client, one reply (Anthropic)" bare_one
    row "llm-do run, one reply, kept (Anthropic)" program_one
    row "llm-do run --ephemeral, one reply (Anthropic)" program_one_ephemeral
    row "bare client, one reply (Chat Completions)" bare_one_chat
    row "llm-do run, one reply, kept (Chat Completions)" program_one_chat
    row "per delta of $STREAM_DELTAS, bare client (Anthropic)" bare_delta
    row "per delta of $STREAM_DELTAS, library (Anthropic)" driver_delta
    row "per delta of $STREAM_DELTAS, llm-do run (Anthropic)" program_delta
    row "per delta of $STREAM_DELTAS, llm-do run --json (Anthropic)" program_delta_json
    row "per delta of $STREAM_DELTAS, bare client (Chat Completions)" bare_delta_chat
    row "per delta of $STREAM_DELTAS, library (Chat Completions)" driver_delta_chat
    row "per delta of $STREAM_DELTAS, llm-do run (Chat Completions)" program_delta_chat
    local turns before=1
    for turns in "${HISTORY_TURNS[@]}"; do
        row "per turn, $before to $turns, bare client" "bare_turn_$turns"
        row "per turn, $before to $turns, library" "driver_turn_$turns"
        before=$turns
    done
    printf '\npeak RSS in kB: empty %s, bare client %s, llm-do run %s (Anthropic), %s (Chat Completions), %s (%s deltas)\n' \
        "${figure[empty.peak_rss_kb]}" "${figure[bare_one.peak_rss_kb]}" "${figure[program_one.peak_rss_kb]}" \
        "${figure[program_one_chat.peak_rss_kb]}" "${figure[program_stream.peak_rss_kb]}" "$STREAM_DELTAS"
    printf 'stripped llm-do: %s bytes\n' "${figure[binary.bytes]}"
}

table
save "$saved"
