# Sourced by the scripts here: what measurements have in common. Who sources it defines `command_of NAME`, which sets the
# array `command` to the command line of a measurement, with `counter` before the program.

build() { # ARGUMENTS OF CARGO...
    echo "building ..." >&2
    cargo build --quiet --release "$@"
}
release=${CARGO_TARGET_DIR:-target}/release
program=${PROGRAM:-$release/llm-do}

instructions_counted=yes
if ! command -v valgrind >/dev/null; then
    instructions_counted=no
    echo "valgrind is not installed: no instructions are counted, only CPU time is measured" >&2
fi

run() { # COMMAND...: what is measured must work
    "$@" </dev/null >"$work/stdout" 2>"$work/stderr" || { echo "failed: $*" >&2; cat "$work/stderr" >&2; exit 1; }
}

# Every figure of every measurement, by `NAME.UNIT`.
declare -A figure

count_instructions() { # NAME
    local counter=(valgrind --tool=callgrind "--callgrind-out-file=$work/callgrind")
    command_of "$1"
    run "${command[@]}"
    figure[$1.instructions]=$(sed -n 's/^summary: //p; s/^totals: //p' "$work/callgrind" | head -1)
}

# valgrind knows no instructions for SHA-256, so it counts the portable code, sixty instructions a byte. An emulator that knows
# them counts what a processor with them executes: QEMU=qemu-x86_64, from version 9 on.
executed_counted=no
if [[ -n ${QEMU:-} ]] && "$QEMU" -cpu help 2>/dev/null | grep -q sha-ni; then executed_counted=yes; fi

count_executed() { # NAME
    [[ $executed_counted = yes ]] || return 0
    local counter=("$QEMU" -cpu max -one-insn-per-tb -d "exec,nochain" -D "$work/executed") lines
    command_of "$1"
    mkfifo "$work/executed"
    grep -c '^Trace' <"$work/executed" >"$work/lines" &
    lines=$!
    run "${command[@]}"
    wait "$lines"
    rm "$work/executed"
    figure[$1.executed]=$(<"$work/lines")
}

add_cpu_time() { # NAME RUNS: user and system time of the children in microseconds, added up
    local counter=() spent index
    command_of "$1"
    TIMEFORMAT='%3U %3S'
    spent=$({ time for ((index = 0; index < $2; index++)); do run "${command[@]}"; done; } 2>&1)
    spent=$(awk -v old="${figure[$1.cpu_sum]:-0}" '{ print old + ($1 + $2) * 1000000 }' <<<"$spent")
    figure[$1.cpu_sum]=$spent
    figure[$1.cpu_runs]=$((${figure[$1.cpu_runs]:-0} + $2))
    figure[$1.cpu_us]=$(awk -v sum="$spent" -v runs="${figure[$1.cpu_runs]}" 'BEGIN { printf "%d", sum / runs }')
}

measure_memory() { # NAME: the peak of five runs
    local counter=(/usr/bin/time -f %M -o "$work/memory") peak=0 index now
    command_of "$1"
    for index in 1 2 3 4 5; do
        run "${command[@]}"
        now=$(tail -1 "$work/memory")
        ((now > peak)) && peak=$now
    done
    figure[$1.peak_rss_kb]=$peak
}

measure_heap() { # NAME: the most that was allocated at one time
    local counter=(valgrind --tool=dhat "--dhat-out-file=/dev/null")
    command_of "$1"
    run "${command[@]}"
    figure[$1.heap_bytes]=$(sed -n 's/.*At t-gmax: *\([0-9,]*\) bytes.*/\1/p' "$work/stderr" | tr -d ,)
}

derive() { # KEY EXPRESSION: figures by name in braces
    local expression=$2 key
    while [[ $expression =~ \{([a-z0-9_.]+)\} ]]; do
        key=${BASH_REMATCH[1]}
        [[ -n ${figure[$key]:-} ]] || return 0
        expression=${expression//"{$key}"/${figure[$key]}}
    done
    figure[$1]=$(awk "BEGIN { printf \"%.3f\", $expression }")
}

heading() {
    printf '| %-58s | %12s | %9s | %6s | %6s |\n' "" instructions "CPU in us" "x bare" "x CPU"
    printf '| %s | %s: | %s: | %s: | %s: |\n' "$(printf -- '-%.0s' {1..58})" "-----------" "--------" "-----" "-----"
}

row() { # WORDS KEY [RATIO KEY]
    local instructions=${figure[$2.instructions]:--} cpu=${figure[$2.cpu_us]:--}
    printf '| %-58s | %12.0f | %9.2f | %6s | %6s |\n' "$1" "${instructions/#-/nan}" "${cpu/#-/nan}" \
        "$(ratio "$2.instructions.ratio")" "$(ratio "$2.cpu_us.ratio")"
}
ratio() {
    local value=${figure[$1]:-}
    [[ -z $value ]] && return
    printf '%.2f' "$value"
}

results() {
    local key separator=""
    printf '{\n  "date": "%s",\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '  "machine": { "system": "%s", "cpu": "%s", "cores": %s, "memory_kb": %s },\n' "$(uname -srm)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)" \
        "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)"
    printf '  "rustc": "%s",\n' "$(rustc --version)"
    printf '  "counted_by": "%s",\n' "$([[ $instructions_counted = yes ]] && valgrind --version || echo none)"
    printf '  "figures": {'
    while read -r key; do
        [[ $key = *.cpu_sum || $key = *.cpu_runs ]] && continue
        printf '%s\n    "%s": %s' "$separator" "$key" "${figure[$key]}"
        separator=,
    done < <(printf '%s\n' "${!figure[@]}" | sort)
    printf '\n  }\n}\n'
}

save() { # FILE
    mkdir -p "$(dirname "$1")"
    results >"$1"
    echo "saved in $1" >&2
}
