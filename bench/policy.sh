#!/usr/bin/env bash
# What lasting rules cost: `llm-do policy replay` of ten thousand recorded calls against parsing their lines, and a run of fifty calls
# under a thousand rules against the same run under none. Instructions of whole processes, counted by callgrind. One command:
# `bench/policy.sh`. See bench/README.md.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C

CALLS=${CALLS:-10000} # in replies of a hundred
RULES=${RULES:-1000}

source bench/provider.sh
source bench/measure.sh

[[ -n ${PROGRAM:-} ]] || build -p llm-do-cli -p bench
saved=${RESULTS:-bench/results/policy.json}
[[ $instructions_counted = yes ]] || exit 1

# Two homes: one with the calls and no rules, one with the rules and no calls.
many=$work/many few=$work/few
replies=$((CALLS / 100))
script() { # script CALLS_OF_A_REPLY REPLIES
    local calls
    calls=$(for ((call = 0; call < $1; call++)); do printf '{ read_file: { path: "notes.txt" } }, '; done)
    printf -- '- { round: %d, say: done }\n- { call: [%s] }\n' "$(($2 + 1))" "${calls%, }"
}
write_project "$many" scripted:script.yaml "toolsets: [filesystem_project_ro]" "limits: {max_requests: 100000}"
script 100 "$replies" >"$many/script.yaml"
write_project "$few" scripted:script.yaml "toolsets: [filesystem_project_ro]"
# One script for both: the agent calls fifty times, or once if it is told so.
{ printf -- '- { heard: once, round: 1, call: { read_file: { path: "notes.txt" } } }\n'; script 50 1; } >"$few/script.yaml"
echo "notes" | tee "$many/notes.txt" >"$few/notes.txt"

home_of() { mkdir -p "$work/$1" && echo "$work/$1"; }
environment_of() { environment=(env -i "PATH=$PATH" LLM_DO_TRUST=1 "HOME=$(home_of "$1")"); }

environment_of home_many
run "${environment[@]}" "$program" run "$many" Hello
runs=$work/home_many/.local/state/llm-do/runs
journal=$runs/$(find "$runs" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | head -1)/journal
figure[journal.lines]=$(wc -l <"$journal")
[[ $(grep -c '"kind":"tool"' "$journal") -ge $CALLS ]] || { echo "not all calls were recorded" >&2; exit 1; }

# Rules that are about other tools, other agents and other files, as a long list of them is.
rules=$(home_of home_ruled)/.local/state/llm-do/rules.toml
mkdir -p "$(dirname "$rules")"
for ((rule = 0; rule < RULES; rule++)); do
    printf '[[rule]]\nallow = "write_file_%d"\nagent = "editor"\npath = "drafts/%d/*.md"\n\n' "$rule" "$rule"
done >"$rules"
chmod 600 "$rules"
chmod 700 "$(dirname "$rules")"

# command_of NAME: the command line of a measurement, in the array `command`; `counter` goes before the program.
command_of() {
    local environment
    case $1 in
        replay) environment_of home_many && command=("${environment[@]}" "${counter[@]}" "$program" policy replay --json) ;;
        read_values) command=("${counter[@]}" "$release/reading" values "$journal") ;;
        under_*) environment_of "home_${1#under_}" && command=("${environment[@]}" "${counter[@]}" "$program" run "$few" Hello --ephemeral) ;;
        once_*) environment_of "home_${1#once_}" && command=("${environment[@]}" "${counter[@]}" "$program" run "$few" once --ephemeral) ;;
        start_*) environment_of "home_${1#start_}" && command=("${environment[@]}" "${counter[@]}" "$program" policy test) ;;
    esac
}

echo "measuring ..." >&2
for name in replay read_values under_none under_ruled once_none once_ruled start_ruled; do
    count_instructions "$name"
done
# Reading the rules is paid once a run, and is told apart from judging: fifty calls less one.
derive replay.ratio "{replay.instructions} / {read_values.instructions}"
derive judged.ratio "({under_ruled.instructions} - {once_ruled.instructions}) / ({under_none.instructions} - {once_none.instructions})"
derive started.ratio "{once_ruled.instructions} / {once_none.instructions}"

line() { printf '%-72s %14s %s\n' "$1" "${figure[$2.instructions]}" "${3:+${figure[$3]} x}"; }
line "llm-do policy replay, $CALLS calls (against parsing their lines)" replay replay.ratio
line "  the ${figure[journal.lines]} lines parsed as JSON" read_values
line "fifty calls under $RULES rules (49 of them against none)" under_ruled judged.ratio
line "  under no rules" under_none
line "one call under $RULES rules (against none)" once_ruled started.ratio
line "  under no rules" once_none
line "reading $RULES rules: llm-do policy test" start_ruled
save "$saved"
