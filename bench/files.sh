#!/usr/bin/env bash
# What the file tools cost, against programs that do nothing else: a part of a file of 1 GB against `cat` and `wc -m` of all
# of it, and a list of 100 000 files against `find` and against `find | sort`. Whole processes, files in the page cache;
# the best of five. And what one call of `list_files` with a pattern costs in a small directory, in instructions (valgrind):
# many calls of one reply less one of them, where both scripts are equally long; and how much more that is than a call of the
# same tool for everything in an empty directory. One command, nothing to set up: `bench/files.sh`.
set -euo pipefail
export LLM_DO_TRUST=1 # The projects here are our own.
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

LINES_OF_FILE=${LINES_OF_FILE:-10000000} # of 100 bytes
DIRECTORIES=${DIRECTORIES:-1000}         # with 100 files each
ROUNDS=${ROUNDS:-5}
CALLS=${CALLS:-65} # of one reply, where calls are counted

if [[ -z ${PROGRAM:-} ]]; then
    echo "building ..." >&2
    cargo build --quiet --release -p llm-do-cli
fi
program=$(realpath "${PROGRAM:-${CARGO_TARGET_DIR:-target}/release/llm-do}")
saved=$(realpath -m "${RESULTS:-bench/results/files.json}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home" "$work/empty"
cd "$work"

echo "writing files ..." >&2
mkdir large tree
# 97 characters in 99 bytes, and the end of the line.
{ yes "ünï$(printf 'x%.0s' {1..94})" || true; } | head -n "$LINES_OF_FILE" >large/file.txt
for ((index = 0; index < DIRECTORIES; index++)); do printf 'tree/d%04d\n' "$index"; done | xargs mkdir -p
for directory in tree/*; do (cd "$directory" && touch f{00..99}.txt); done

agent() { # DIRECTORY CALL [UNUSED]: a project whose agent makes one call; calls of a rule that never applies
    printf -- '---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [filesystem_cwd_ro]\n---\nx\n' >"$1.worker"
    printf -- '- { round: 1, call: %s }\n%s- say: "{{ result }}"\n' "$2" "${3:+- { round: 9, call: $3 \}$'\n'}" >"script.yaml"
    mkdir -p "projects/$1"
    mv "$1.worker" "projects/$1/main.worker"
    mv script.yaml "projects/$1/script.yaml"
}
agent nothing '{ list_files: { path: empty } }'
agent read "{ read_file: { path: large/file.txt, offset: $((LINES_OF_FILE * 49)), max_chars: 2000 } }"
agent list '{ list_files: { path: tree } }'
mkdir small small/src
touch small/{Cargo.toml,README.md,src/{lib,main,glob,names}.rs}
small='{ list_files: { path: small, pattern: "**/*.rs" } }'
nothing='{ list_files: { path: empty, pattern: "**/*"    } }'
repeated() { # CALL: a list of so many
    printf '[%s' "$1"
    for ((index = 1; index < CALLS; index++)); do printf ', %s' "$1"; done
    printf ']'
}
# A script is read, checked and hashed before the run, and costs more than what it calls: all of these are as long.
agent one "[$small]" "$(repeated "$small")"
agent many "$(repeated "$small")" "[$small]"
agent emptiest "$(repeated "$nothing")" "[$nothing]"
agent narrow '{ list_files: { path: tree, pattern: "d0001/*.txt" } }'

command_of() { # NAME: sets the array `command`
    case $1 in
        cat) command=(cat large/file.txt) ;;
        wc) command=(wc -m large/file.txt) ;;
        find) command=(find tree -type f) ;;
        find_sorted) command=(bash -c 'find tree -type f | LC_ALL=C sort') ;;
        *) command=(env -i LLM_DO_TRUST=1 "HOME=$work/home" "$program" run "projects/$1" go --headless) ;;
    esac
}

declare -A figure
measure() { # NAME: the best time in microseconds, the largest peak in kB
    local best=999999999 peak=0 start end now
    command_of "$1"
    for ((round = 0; round < ROUNDS; round++)); do
        start=$(date +%s%N)
        /usr/bin/time -f %M -o memory "${command[@]}" >output 2>errors </dev/null || { cat errors >&2; exit 1; }
        end=$(date +%s%N)
        now=$(((end - start) / 1000))
        best=$((now < best ? now : best))
        now=$(tail -1 memory)
        peak=$((now > peak ? now : peak))
    done
    figure[$1.us]=$best
    figure[$1.peak_rss_kb]=$peak
}

names=(cat wc read find find_sorted list narrow nothing)
for name in "${names[@]}"; do measure "$name"; done

count() { # NAME: instructions of the whole process
    command_of "$1"
    local environment=("${command[@]:0:4}") program=("${command[@]:4}")
    "${environment[@]}" valgrind --tool=callgrind --callgrind-out-file=callgrind "${program[@]}" >output 2>errors </dev/null ||
        { cat errors >&2; exit 1; }
    figure[$1.instructions]=$(sed -n 's/^summary: //p; s/^totals: //p' callgrind | head -1)
}
if command -v valgrind >/dev/null; then
    for name in one many emptiest; do count "$name"; done
    figure[call.instructions]=$(((${figure[many.instructions]} - ${figure[one.instructions]}) / (CALLS - 1)))
    figure[list.instructions]=$(((${figure[many.instructions]} - ${figure[emptiest.instructions]}) / CALLS))
else
    echo "without valgrind no instructions are counted" >&2
fi

ratio() { awk -v a="${figure[$1.us]}" -v b="${figure[$2.us]}" 'BEGIN { printf "%.2f", a / b }'; }
row() { # WORDS NAME [COMPARED...]
    local words=$1 name=$2 other
    shift 2
    printf '%-52s %10s us %8s kB' "$words" "${figure[$name.us]}" "${figure[$name.peak_rss_kb]}"
    for other in "$@"; do printf '   %s x %s' "$(ratio "$name" "$other")" "$other"; done
    printf '\n'
}
row "cat of $((LINES_OF_FILE / 10000)) MB" cat
row "wc -m of the same" wc
row "read_file, 2000 characters from its middle" read cat wc
row "find of $((DIRECTORIES * 100)) files" find
row "find | sort of the same" find_sorted
row "list_files of the same" list find find_sorted
row "list_files of one directory by its pattern" narrow
row "a run that lists an empty directory" nothing
printf '%-52s %10s instructions\n' "one call of list_files with a pattern, 6 files" "${figure[call.instructions]:-?}"
printf '%-52s %10s instructions\n' "more than a list of an empty directory" "${figure[list.instructions]:-?}"

mkdir -p "$(dirname "$saved")"
{
    printf '{\n  "date": "%s",\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '  "machine": { "system": "%s", "cpu": "%s", "cores": %s },\n' "$(uname -srm)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)"
    printf '  "figures": {'
    separator=""
    for name in "${names[@]}"; do
        for unit in us peak_rss_kb; do
            printf '%s\n    "%s.%s": %s' "$separator" "$name" "$unit" "${figure[$name.$unit]}"
            separator=,
        done
    done
    if [[ -n ${figure[call.instructions]:-} ]]; then
        printf ',\n    "call.instructions": %s,\n    "list.instructions": %s' "${figure[call.instructions]}" \
            "${figure[list.instructions]}"
    fi
    printf '\n  }\n}\n'
} >"$saved"
echo "saved in $saved" >&2
