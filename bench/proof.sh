#!/usr/bin/env bash
# What an item of `map` costs beside the bare client's request, what ten thousand of them take of memory, and what 500 replayed
# cases of `test` cost beside the same work as scripted runs. One command: `bench/proof.sh`. See bench/README.md.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

PIECE="and so the story goes further " # as in bench/src/lib.rs, which checks what came
PIECES=20
FEW=100
MANY=1100
MOST=10000
TRACED_FEW=20 # where each instruction is a line of a trace
TRACED_MANY=60
CASES=500

source bench/provider.sh
source bench/measure.sh

[[ -n ${PROGRAM:-} ]] || build -p llm-do-cli -p fake-llm -p bench
program=$(realpath "$program")
saved=${RESULTS:-bench/results/proof.json}
[[ $instructions_counted = yes ]] || exit 1

start_provider items --text "$PIECE" --deltas "$PIECES"
write_project "$work/sorter" anthropic:claude-haiku-4-5
for count in $FEW $MANY $MOST $TRACED_FEW $TRACED_MANY; do seq -f "item %06.0f" "$count" >"$work/$count.txt"; done

# A project whose agent reads a file and writes one, with so many cases.
mkdir -p "$work/notes/changes"
printf -- '---\nname: notes\ntoolsets: [filesystem_project]\n---\nWrite release notes from the files in `changes`.\n' >"$work/notes/notes.worker"
printf 'Index over ingredients\n' >"$work/notes/changes/101.md"
cat >"$work/notes/script.yaml" <<'END'
- { round: 1, call: { read_file: { path: changes/101.md } } }
- { round: 2, call: { write_file: { path: drafts/notes.md, content: "Search finds ingredients.\n" } } }
- say: "Written: search finds ingredients."
END
{
    printf 'approve: [write_file]\ncases:\n'
    for ((number = 1; number <= CASES; number++)); do
        printf '  - { name: case %d, input: Notes for %d, expect: { output: { contains: search }, calls: [read_file, write_file], asks: [write_file] } }\n' \
            "$number" "$number"
    done
} >"$work/notes/notes.test.yaml"
program_environment items
run "${environment[@]}" "$program" test "$work/notes/notes.worker" --record -m "scripted:$work/notes/script.yaml"

# command_of NAME: the command line of a measurement, in the array `command`; `counter` goes before the program.
command_of() {
    local environment
    program_environment items
    case $1 in
        map_*) command=("${environment[@]}" "${counter[@]}" "$program" map main "$work/sorter" --over "$work/${1##*_}.txt" -o "$work/out.jsonl") ;;
        unkept_*)
            command=("${environment[@]}" "${counter[@]}" "$program" map main "$work/sorter" --over "$work/${1##*_}.txt" -o "$work/out.jsonl" --ephemeral)
            ;;
        bare_*) command=(env -i "PATH=$PATH" "${counter[@]}" "$release/bare" anthropic "${address[items]}" items "${1##*_}") ;;
        cases) command=("${environment[@]}" "${counter[@]}" "$program" test "$work/notes/notes.worker") ;;
        scripted)
            command=("${environment[@]}" "${counter[@]}" "$program" run "$work/notes/notes.worker" "Notes for 2.0" --approve-all
                --ephemeral -m "scripted:$work/notes/script.yaml")
            ;;
    esac
}

echo "measuring ..." >&2
for name in "bare_$FEW" "bare_$MANY" "map_$FEW" "map_$MANY" "unkept_$FEW" "unkept_$MANY" cases scripted; do
    count_instructions "$name"
done
for name in bare map unkept; do
    derive "$name.item.instructions" "({${name}_$MANY.instructions} - {${name}_$FEW.instructions}) / ($MANY - $FEW)"
done
derive map.ratio "{map.item.instructions} / {bare.item.instructions}"
derive unkept.ratio "{unkept.item.instructions} / {bare.item.instructions}"
# Where the signatures of what is kept count: see measure.sh.
for name in bare map unkept; do
    for count in $TRACED_FEW $TRACED_MANY; do count_executed "${name}_$count"; done
    derive "$name.item.executed" "({${name}_$TRACED_MANY.executed} - {${name}_$TRACED_FEW.executed}) / ($TRACED_MANY - $TRACED_FEW)"
done
derive map.executed.ratio "{map.item.executed} / {bare.item.executed}"
derive unkept.executed.ratio "{unkept.item.executed} / {bare.item.executed}"
for name in "map_$FEW" "map_$MOST"; do measure_memory "$name"; done
derive map.growth_kb "{map_$MOST.peak_rss_kb} - {map_$FEW.peak_rss_kb}"
add_cpu_time cases 3
add_cpu_time scripted 100
derive cases.ratio "{cases.instructions} / ($CASES * {scripted.instructions})"
derive cases.cpu_ratio "{cases.cpu_us} / ($CASES * {scripted.cpu_us})"

line() { printf '%-66s %12s %s\n' "$1" "${figure[$2]}" "${3:+${figure[$3]} x}"; }
line "an item, bare client, instructions" bare.item.instructions
line "an item of map, kept (against the bare client)" map.item.instructions map.ratio
line "an item of map, --ephemeral (against the bare client)" unkept.item.instructions unkept.ratio
if [[ $executed_counted = yes ]]; then
    line "an item, bare client, executed with instructions for SHA-256" bare.item.executed
    line "an item of map, kept" map.item.executed map.executed.ratio
    line "an item of map, --ephemeral" unkept.item.executed unkept.executed.ratio
fi
line "peak memory of $FEW items, kB" "map_$FEW.peak_rss_kb"
line "peak memory of $MOST items, kB" "map_$MOST.peak_rss_kb"
line "$CASES replayed cases, instructions (against $CASES scripted runs)" cases.instructions cases.ratio
line "$CASES replayed cases, CPU in us (against $CASES scripted runs)" cases.cpu_us cases.cpu_ratio
save "$saved"
