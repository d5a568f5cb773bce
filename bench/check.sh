#!/usr/bin/env bash
# What `llm-do check` costs, as ratios: against only reading and parsing the same files, 10 000 agents against 1 000 (10 is
# linear), and a start of the program against /bin/true. Instructions are exact (callgrind); times are the best of five.
# Saved in bench/results/check.json (RESULTS), ratios and growth of instructions.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
source bench/measure.sh

[[ -n ${PROGRAM:-} ]] || build -p llm-do-cli
[[ -n ${PARSE_ONLY:-} ]] || build -p llm-do --example parse_only
parse_only=${PARSE_ONLY:-$release/examples/parse_only}
saved=${RESULTS:-bench/results/check.json}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for count in 1000 10000; do
    python3 bench/generate.py "$work/$count" "$count"
done

command_of() { # NAME: sets the array `command`
    case $1 in
        check_*) command=("${counter[@]}" "$program" check "$work/${1#check_}") ;;
        parse_*) command=("${counter[@]}" "$parse_only" "$work/${1#parse_}") ;;
        version) command=("${counter[@]}" "$program" --version) ;;
        nothing) command=("${counter[@]}" /bin/true) ;;
    esac
}

measure_time() { # NAME: the best of five
    local counter=() best=999999999 start end
    command_of "$1"
    for _ in 1 2 3 4 5; do
        start=$(date +%s%N)
        run "${command[@]}"
        end=$(date +%s%N)
        best=$(((end - start) / 1000 < best ? (end - start) / 1000 : best))
    done
    figure[$1.microseconds]=$best
}

projects=(check_1000 check_10000 parse_1000 parse_10000)
for name in "${projects[@]}" version nothing; do
    [[ $instructions_counted = no ]] || count_instructions "$name"
    measure_time "$name"
done

# compare WORDS FIRST SECOND: both figures and how many times the second the first is, in each unit.
compare() {
    local unit
    for unit in instructions microseconds; do
        [[ -n ${figure[$2.$unit]:-} ]] || continue
        derive ratio "{$2.$unit} / {$3.$unit}"
        printf '%-30s %14s %14s %10s  (%s)\n' "$1" "${figure[$2.$unit]}" "${figure[$3.$unit]}" "$(ratio ratio)" "$unit"
    done
}
compare "check 1 000 / parse 1 000" check_1000 parse_1000
compare "check 10 000 / parse 10 000" check_10000 parse_10000
compare "check 10 000 / check 1 000" check_10000 check_1000
compare "parse 10 000 / parse 1 000" parse_10000 parse_1000
compare "llm-do --version / true" version nothing

derive ratio_1000 "{check_1000.instructions} / {parse_1000.instructions}"
derive ratio_10000 "{check_10000.instructions} / {parse_10000.instructions}"
derive growth "{check_10000.instructions} / {check_1000.instructions}"
mkdir -p "$(dirname "$saved")"
{
    printf '{\n  "date": "%s",\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '  "machine": { "system": "%s", "cpu": "%s", "cores": %s },\n' "$(uname -srm)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)"
    for name in "${projects[@]}"; do
        printf '  "%s": { "instructions": %s, "microseconds": %s },\n' "$name" \
            "${figure[$name.instructions]:-null}" "${figure[$name.microseconds]}"
    done
    printf '  "ratio_1000": %s,\n  "ratio_10000": %s,\n  "growth": %s\n}\n' \
        "${figure[ratio_1000]:-null}" "${figure[ratio_10000]:-null}" "${figure[growth]:-null}"
} >"$saved"
echo "saved in $saved" >&2
